//! A library of queries: files with a header that says what they answer, in the order of what they need.
//!
//! A query file is a header of comments and one SELECT:
//!
//! ```sql
//! -- name: one sentence on what a row is.
//! -- needs: tables and views it reads, separated by commas
//! -- columns:
//! --   name  type  unit-or-dash  meaning
//! SELECT ...
//! ```
//! A file that takes parameters has before its columns
//!
//! ```sql
//! -- params:
//! --   name  type  default  meaning
//! ```
//! and `$name` in its SELECT; it is no view, but run by `analyze queries`. A view of metrics declares them:
//!
//! ```sql
//! -- measured with: a metric that shows that a run without a row was measured all the same
//! -- metrics:
//! --   name  direction  floor  unit, and more
//! ```
//! This crate hands both through to the code that compares runs. A view that was renamed has `-- alias: old_name` after its
//! needs, and is also known by that name until the next format version. Names that begin with `_` are internal. Files of a
//! user's own directory are read the same way; one of a name that is known replaces it.

use std::path::{Path, PathBuf};

use serde::Serialize;
use trace_schema::FORMAT_VERSION;

use analyze_run::{error::AnalyzeError, text_file};

/// One column as its header documents it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name.
    pub name: String,
    /// SQL type.
    pub ty: String,
    /// Unit; empty if the column has none.
    pub unit: String,
    /// Meaning.
    pub doc: String,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Param {
    /// Name.
    pub name: String,
    /// SQL type.
    pub ty: String,
    /// What it is unless given.
    pub default: String,
    /// Meaning.
    pub doc: String,
}

/// What a header says about a metric; its meaning is that of the code which compares runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Column of the query.
    pub name: String,
    /// Whether lower or higher values are better.
    pub direction: String,
    /// Difference up to which a change is of no interest.
    pub floor: String,
    /// Unit, and what else is declared, separated by commas.
    pub unit: String,
}

/// One query file.
#[derive(Clone, Debug, Serialize)]
pub struct Query {
    /// Path of the file below `queries/`.
    pub path: String,
    /// Name of the query, and of the view that it defines.
    pub name: String,
    /// What the query answers.
    pub purpose: String,
    /// Tables and views that the query reads.
    pub needs: Vec<String>,
    /// Parameters, in the order of the header.
    pub params: Vec<Param>,
    /// Columns of the result, in order.
    pub columns: Vec<Column>,
    /// Metrics that the header declares; empty for a query that declares none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// Metric of another view: a run that has it was measured by this query, even if it has no row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_with: Option<String>,
    /// Text of the query.
    pub sql: String,
    /// The view that this one is a deprecated alias of, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias_of: Option<String>,
}

impl Query {
    /// Returns the view that has an old name of this one and the same rows.
    fn alias(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            purpose: format!(
                "Deprecated alias of {}; removed with format version {}.",
                self.name,
                FORMAT_VERSION + 1
            ),
            needs: vec![self.name.clone()],
            sql: format!("SELECT * FROM {}\n", self.name),
            alias_of: Some(self.name.clone()),
            ..self.clone()
        }
    }

    /// The folder it lies in.
    pub fn package(&self) -> &str {
        Path::new(&self.path).parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("")
    }

    /// Its SELECT, without the header.
    pub fn select(&self) -> &str {
        let header: usize =
            self.sql.split_inclusive('\n').take_while(|line| line.starts_with("--")).map(str::len).sum();
        self.sql[header..].trim_end()
    }
}

/// Splits "a   b  c d" into its first three words and the rest.
fn words(line: &str) -> Option<[String; 4]> {
    let mut rest = line.trim_start();
    let mut word = || {
        let end = rest.find(char::is_whitespace)?;
        let (first, tail) = rest.split_at(end);
        rest = tail.trim_start();
        Some(first.to_owned())
    };
    let (first, second, third) = (word()?, word()?, word()?);
    Some([first, second, third, rest.trim_end().to_owned()])
}

/// Reads a file's header. Returns the query and, if it was renamed, its alias; or what is wrong with the header.
fn parse(path: &str, text: &str) -> Result<Vec<Query>, String> {
    let mut query = Query {
        path: path.to_owned(),
        name: String::new(),
        purpose: String::new(),
        needs: Vec::new(),
        params: Vec::new(),
        columns: Vec::new(),
        metrics: Vec::new(),
        measured_with: None,
        sql: text.to_owned(),
        alias_of: None,
    };
    let mut alias = None;
    let mut part = "";
    for line in text.lines().map_while(|line| line.strip_prefix("--")) {
        let incomplete =
            || format!("{path}: of {} a line is incomplete: --{line}", part.trim_end_matches(':'));
        if let Some(needs) = line.strip_prefix(" needs:") {
            query.needs = needs.split(',').map(|need| need.trim().to_owned()).collect();
        } else if let Some(name) = line.strip_prefix(" alias:") {
            alias = Some(name.trim());
        } else if let Some(metric) = line.strip_prefix(" measured with:") {
            query.measured_with = Some(metric.trim().to_owned());
        } else if matches!(line.trim(), "columns:" | "params:" | "metrics:") {
            part = line.trim();
        } else if part == "columns:" {
            let [name, ty, unit, doc] = words(line).ok_or_else(incomplete)?;
            query.columns.push(Column { name, ty, unit, doc });
        } else if part == "params:" {
            let [name, ty, default, doc] = words(line).ok_or_else(incomplete)?;
            query.params.push(Param { name, ty, default, doc });
        } else if part == "metrics:" {
            let [name, direction, floor, unit] = words(line).ok_or_else(incomplete)?;
            if !query.columns.iter().any(|column| column.name == name) {
                return Err(format!("{path}: the metric {name} is no column that stands above it"));
            }
            query.metrics.push(Metric { name, direction, floor, unit });
        } else if query.name.is_empty() {
            let (name, purpose) =
                line.trim().split_once(": ").ok_or_else(|| format!("{path}: no purpose"))?;
            (query.name, query.purpose) = (name.to_owned(), purpose.to_owned());
        }
    }
    if query.name.is_empty() || query.needs.is_empty() || query.columns.is_empty() {
        return Err(format!("{path}: the header lacks its name, its needs or its columns"));
    }
    if alias.is_some_and(str::is_empty) {
        return Err(format!("{path}: the alias has no name"));
    }
    let alias = alias.map(|name| query.alias(name));
    Ok([query].into_iter().chain(alias).collect())
}

/// Files of a directory, and of the directories in it.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, AnalyzeError> {
    let list = |directory: &Path| -> Result<Vec<PathBuf>, AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: directory.to_owned(), source };
        let entries = std::fs::read_dir(directory).map_err(io)?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(io))
            .collect::<Result<Vec<_>, _>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut files = Vec::new();
    for path in list(directory)? {
        if path.is_dir() {
            files.extend(list(&path)?);
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "sql"));
    Ok(files)
}

/// The query files that a program brings, and the tables that exist before any view.
#[derive(Clone, Copy, Debug)]
pub struct Library<'a> {
    /// Every embedded file: its path below `queries/`, and its text.
    pub files: &'a [(&'a str, &'a str)],
    /// The names of the tables that a query may need.
    pub tables: &'a [&'a str],
}

impl Library<'_> {
    /// Returns every query, each after what it needs. `directory`: the user's own, which add to the embedded ones or replace them.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if its header is malformed or needs something that does not exist. In an
    /// embedded file that is an internal error.
    pub fn queries(&self, directory: Option<&Path>) -> Result<Vec<Query>, AnalyzeError> {
        let mut waiting = Vec::new();
        for (path, text) in self.files {
            waiting.extend(parse(&format!("queries/{path}"), text).map_err(AnalyzeError::Internal)?);
        }
        for path in directory.map_or_else(|| Ok(Vec::new()), files_of)? {
            let text = text_file::read(&path)?;
            for query in parse(&path.display().to_string(), &text).map_err(AnalyzeError::Query)? {
                waiting.retain(|known| known.name != query.name);
                waiting.push(query);
            }
        }
        let mut ordered: Vec<Query> = Vec::new();
        while !waiting.is_empty() {
            let known =
                |name: &str| self.tables.contains(&name) || ordered.iter().any(|query| query.name == name);
            let (ready, rest): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|query| query.needs.iter().all(|need| known(need)));
            if ready.is_empty() {
                let needs = |query: &Query| {
                    let missing: Vec<&str> =
                        query.needs.iter().map(String::as_str).filter(|need| !known(need)).collect();
                    format!("{} needs {}", query.path, missing.join(", "))
                };
                let needs: Vec<String> = rest.iter().map(needs).collect();
                let text = format!("queries that need what there is not: {}", needs.join("; "));
                return Err(if directory.is_some() {
                    AnalyzeError::Query(text)
                } else {
                    AnalyzeError::Internal(text)
                });
            }
            ordered.extend(ready);
            waiting = rest;
        }
        Ok(ordered)
    }

    /// Returns the embedded files as a document.
    ///
    /// # Errors
    /// Returns an error if the header of a file is malformed.
    pub fn reference(&self) -> Result<String, AnalyzeError> {
        let mut queries = self.queries(None)?;
        queries.sort_by(|a, b| a.path.cmp(&b.path));
        let line = |name: &str, ty: &str, third: &str, doc: &str| {
            format!("| {name} | {ty} | {third} | {} |\n", doc.replace('|', "\\|"))
        };
        let mut text = "# The query library: reference\n\nGenerated from the headers of the files; `BLESS=1 cargo nextest run reference` writes it.\n".to_owned();
        for query in &queries {
            if query.alias_of.is_some() {
                text += &format!("\n## {}\n\n{}\n", query.name, query.purpose);
                continue;
            }
            text += &format!(
                "\n## {}\n\n`{}`: {}\n\nNeeds {}.\n",
                query.name,
                query.path,
                query.purpose,
                query.needs.join(", ")
            );
            if !query.params.is_empty() {
                text += "\n| parameter | type | default | meaning |\n|---|---|---|---|\n";
                for param in &query.params {
                    text += &line(&param.name, &param.ty, &param.default, &param.doc);
                }
            }
            text += "\n| column | type | unit | meaning |\n|---|---|---|---|\n";
            for column in &query.columns {
                text += &line(&column.name, &column.ty, &column.unit, &column.doc);
            }
        }
        Ok(text)
    }
}
