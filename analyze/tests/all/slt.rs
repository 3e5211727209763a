//! Runs every `queries/**/*.slt`. Each file runs against its own empty `events` table, into which it inserts
//! the rows that it needs.

use analyze::trace::Trace;
use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

use super::support::query_files;

struct Database(Trace);

fn cells(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    batches
        .iter()
        .flat_map(|batch| {
            let formatters: Vec<_> = batch
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column, &options).expect("formatter"))
                .collect();
            (0..batch.num_rows())
                .map(|row| formatters.iter().map(|column| column.value(row).to_string()).collect())
                .collect::<Vec<Vec<String>>>()
        })
        .collect()
}

#[async_trait::async_trait]
impl AsyncDB for Database {
    type Error = datafusion::error::DataFusionError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Self::Error> {
        let frame = self.0.context().sql(sql).await?;
        let columns = frame.schema().fields().len();
        let is_insert = sql.trim_start().to_uppercase().starts_with("INSERT");
        let rows = cells(&frame.collect().await?);
        Ok(if is_insert {
            DBOutput::StatementComplete(0)
        } else {
            DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows }
        })
    }

    async fn shutdown(&mut self) {}
}

#[tokio::test]
async fn queries_answer_as_their_tests_say() {
    let files = query_files("slt");
    assert!(files.len() >= 7, "{files:?}");
    for file in files {
        let mut runner = Runner::new(|| async { Ok(Database(Trace::literal().await.expect("trace"))) });
        let result = runner.run_file_async(&file).await;
        assert!(result.is_ok(), "{}: {}", file.display(), result.unwrap_err());
    }
}
