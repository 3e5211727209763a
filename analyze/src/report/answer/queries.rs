//! The query library, and what a query says of itself.

use crate::report::document::{Block, Document, Table, whole, word};
use analyze_engine::catalog::Query;

/// Arranges the list of queries.
pub fn list(queries: &[Query]) -> Document {
    let rows = queries.iter().map(|one| [one.package().to_owned(), one.name.clone(), one.purpose.clone()]);
    Document::answer(vec![Block::Table(Table::texts(
        &[word("package"), whole("query"), word("one row")],
        rows,
    ))])
}

fn columns(query: &Query) -> Table {
    let rows = query
        .columns
        .iter()
        .map(|column| [column.name.clone(), column.ty.clone(), column.unit.clone(), column.doc.clone()]);
    Table::texts(&[whole("column"), word("type"), word("unit"), word("")], rows)
}

/// Arranges the purpose of a view and its columns.
pub fn view(query: &Query) -> Document {
    Document::answer(vec![Block::Note(query.purpose.clone()), Block::Table(columns(query))])
}

/// Arranges the list of views by name.
pub fn views(queries: &[Query]) -> Document {
    let rows = queries.iter().map(|query| [query.name.clone(), query.purpose.clone()]);
    Document::answer(vec![Block::Table(Table::texts(&[whole("view"), word("one row")], rows))])
}

/// Arranges all that a query says of itself, with its SQL.
pub fn document(query: &Query) -> Document {
    let mut blocks = vec![
        Block::Note(format!("{}: {}", query.name, query.purpose)),
        Block::Note(format!("needs {}", query.needs.join(", "))),
    ];
    if !query.params.is_empty() {
        let rows = query
            .params
            .iter()
            .map(|param| [param.name.clone(), param.ty.clone(), param.default.clone(), param.doc.clone()]);
        let columns = [whole("parameter"), word("type"), word("default"), word("")];
        blocks.push(Block::Table(Table::texts(&columns, rows)));
    }
    blocks.push(Block::Table(columns(query)));
    blocks.push(Block::Code(query.select().to_string()));
    Document::answer(blocks)
}
