//! A session: DataFusion with our rules and functions, the table `events` of some runs, and the views of a library.
//!
//! `events` holds the rows of all runs, with the name of the run as first column. Nothing is computed before it is asked.

use std::{collections::HashMap, path::Path, sync::Arc};

use analyze_run::{error::AnalyzeError, panics, run_file::RunFile, stored_file::StoredFile};
use arrow::{
    array::RecordBatch,
    datatypes::{DataType, Field, Schema},
};
use datafusion::{
    datasource::MemTable,
    execution::{context::SQLOptions, runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder},
    prelude::{DataFrame, SessionConfig, SessionContext},
    scalar::ScalarValue,
};
use trace_schema::{Bytes, Nanos, arrow_schema};

use crate::{
    catalog::{Library, Query},
    derived_table, diagnostics,
    error::query_error,
    events::SessionEvents,
    functions,
    lazy_views::Views,
    planner,
    run_table::RunTable,
};

/// A session over the `events` of some runs.
pub struct Session {
    context: SessionContext,
    queries: Vec<Query>,
}

/// Returns a text as a string literal of SQL.
pub fn string_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Session {
    /// Opens a session over the files of some runs. `memory_limit_bytes`: queries that need more spill to disk, or fail.
    pub async fn open(files: &[RunFile], memory_limit_bytes: Option<usize>) -> Result<Self, AnalyzeError> {
        let context = context(memory_limit_bytes).map_err(query_error)?;
        register_events(&context, files).await?;
        Ok(Self { context, queries: Vec::new() })
    }

    /// Opens a session whose table `events` is empty and takes rows, for tests of queries.
    pub fn literal() -> Result<Self, AnalyzeError> {
        let context = context(None).map_err(query_error)?;
        let mut fields = vec![Arc::new(Field::new("run", DataType::Utf8, true))];
        fields.extend(arrow_schema().fields().iter().cloned());
        let schema = Arc::new(Schema::new(fields));
        let table = MemTable::try_new(schema, vec![vec![]]).map_err(query_error)?;
        context.register_table("events", Arc::new(table)).map_err(query_error)?;
        Ok(Self { context, queries: Vec::new() })
    }

    /// Registers every query of a library that takes no parameters as a view. Those that are embedded are planned when they
    /// are asked for, those of the user's directory at once, so that what is wrong with them is said.
    ///
    /// # Errors
    /// Returns an error if the library cannot be read, or if a query of the user's directory does not plan.
    pub async fn register_views(
        &mut self,
        library: &Library<'_>,
        directory: Option<&Path>,
    ) -> Result<(), AnalyzeError> {
        let queries = library.queries(directory)?;
        let views = queries.iter().filter(|query| query.params.is_empty());
        let views: HashMap<String, String> =
            views.map(|query| (query.name.clone(), query.sql.clone())).collect();
        let catalog = self.context.catalog("datafusion");
        let schema = catalog.as_ref().and_then(|catalog| catalog.schema("public"));
        let (Some(catalog), Some(tables)) = (catalog, schema) else {
            return Err(AnalyzeError::Internal("the session has no schema for views".to_owned()));
        };
        let views = Views::new(&self.context, tables, views);
        catalog.register_schema("public", Arc::new(views)).map_err(query_error)?;
        for query in queries.iter().filter(|query| directory.is_some() && query.params.is_empty()) {
            let planned = self.context.table_provider(query.name.as_str()).await;
            planned.map_err(|error| {
                AnalyzeError::Query(format!("{}: {}", query.path, error.strip_backtrace()))
            })?;
        }
        self.queries = queries;
        Ok(())
    }

    /// Returns a session over the same tables whose derived tables are made from another source than the one that they were
    /// registered with. It must be of the type of that one.
    pub fn with_source<S: Send + Sync + 'static>(&self, source: Arc<S>) -> Self {
        let state = self.context.state();
        // The tables are those of this session.
        let config = state.config().clone().with_create_default_catalog_and_schema(false);
        let state = SessionStateBuilder::new_from_existing(state).with_config(config.with_extension(source));
        Self { context: SessionContext::new_with_state(state.build()), queries: self.queries.clone() }
    }

    /// Returns the names of the tables that a query scans, once for every scan; a view stands for the tables that it reads.
    ///
    /// # Errors
    /// Returns an error if the query cannot be planned.
    pub async fn scanned(&self, query: &str) -> Result<Vec<String>, AnalyzeError> {
        let plan = self.sql(query).await?.into_optimized_plan().map_err(query_error)?;
        derived_table::scanned(&plan).map_err(query_error)
    }

    /// Returns DataFusion's own context.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Returns the events, for readers that know no session.
    pub fn events(&self) -> Arc<SessionEvents> {
        Arc::new(SessionEvents::new(&self.context))
    }

    /// Returns the queries of the library and the user's own.
    pub fn queries(&self) -> &[Query] {
        &self.queries
    }

    /// Plans a query; nothing that writes is allowed.
    ///
    /// # Errors
    /// Returns an error that points at the place if the query is wrong, or is no query.
    pub async fn sql(&self, query: &str) -> Result<DataFrame, AnalyzeError> {
        let options =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let planned = self.context.sql_with_options(query, options).await;
        planned.map_err(|error| diagnostics::explained(error, query, &self.context, &self.queries))
    }

    /// Plans a query of the library with some of its parameters; the others have the values of its header.
    ///
    /// # Errors
    /// Returns an error if a parameter is unknown or of another type.
    pub async fn query(&self, query: &Query, params: &[(String, String)]) -> Result<DataFrame, AnalyzeError> {
        let mut values = Vec::new();
        if let Some((name, _)) =
            params.iter().find(|(name, _)| !query.params.iter().any(|param| param.name == *name))
        {
            return Err(AnalyzeError::Query(format!("{} has no parameter {name}", query.name)));
        }
        for param in &query.params {
            let given = params.iter().find(|(name, _)| *name == param.name);
            let text = given.map_or(param.default.as_str(), |(_, value)| value);
            values.push((param.name.clone(), typed(&param.name, text, &param.ty)?));
        }
        self.sql(query.select()).await?.with_param_values(values).map_err(query_error)
    }

    /// Runs a query to its end.
    ///
    /// # Errors
    /// Returns an error if the query is wrong or the data is damaged.
    pub async fn batches(&self, query: &str) -> Result<Vec<RecordBatch>, AnalyzeError> {
        self.sql(query).await?.collect().await.map_err(query_error)
    }
}

/// A parameter's value, as the type its header names.
fn typed(name: &str, text: &str, ty: &str) -> Result<ScalarValue, AnalyzeError> {
    let wrong = |what: &str| AnalyzeError::Query(format!("parameter {name}: {text:?} is {what}"));
    Ok(match ty {
        "int64" => ScalarValue::Int64(Some(text.parse().map_err(|_| wrong("no whole number"))?)),
        "float64" => ScalarValue::Float64(Some(text.parse().map_err(|_| wrong("no number"))?)),
        "ns" => {
            ScalarValue::Int64(Some(text.parse::<Nanos>().map_err(|_| wrong("no time, such as 10ms"))?.0))
        }
        "bytes" => {
            ScalarValue::Int64(Some(text.parse::<Bytes>().map_err(|_| wrong("no size, such as 2MiB"))?.0))
        }
        _ => ScalarValue::Utf8(Some(text.to_owned())),
    })
}

/// A parameter that nobody has named a type for: a number if it reads as one.
pub fn guessed(text: &str) -> ScalarValue {
    let whole = text.parse().ok().map(|value| ScalarValue::Int64(Some(value)));
    let number = || text.parse().ok().map(|value| ScalarValue::Float64(Some(value)));
    whole.or_else(number).unwrap_or_else(|| ScalarValue::Utf8(Some(text.to_owned())))
}

/// Returns a context with the settings, rules and functions of this engine.
fn context(memory_limit_bytes: Option<usize>) -> datafusion::error::Result<SessionContext> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = memory_limit_bytes {
        runtime = runtime.with_memory_limit(bytes, 1.0);
    }
    let mut config = SessionConfig::new().with_information_schema(true);
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.execution.parquet.schema_force_view_types = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    let runtime = runtime.build_arc()?;
    let query_rules = planner::query_rules(&runtime.memory_pool);
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_physical_optimizer_rules(planner::plan_rules());
    let state = query_rules.into_iter().fold(state, SessionStateBuilder::with_optimizer_rule);
    let context = SessionContext::new_with_state(state.build());
    functions::register(&context);
    Ok(context)
}

/// Registers `events`: the rows of every file with the name of their run.
async fn register_events(context: &SessionContext, files: &[RunFile]) -> Result<(), AnalyzeError> {
    let mut parts = Vec::new();
    for file in files {
        for path in &file.paths {
            let table = format!("_run_{}", parts.len());
            let stored = StoredFile::open(path)?;
            let run = panics::decoding(path, || RunTable::new(stored).map_err(query_error))?;
            context.register_table(table.as_str(), Arc::new(run)).map_err(query_error)?;
            parts.push(format!("SELECT {} AS run, * FROM {table}", string_literal(&file.name)));
        }
    }
    let events = context.sql(&parts.join(" UNION ALL ")).await.map_err(query_error)?.into_view();
    context.register_table("events", events).map_err(query_error)?;
    Ok(())
}
