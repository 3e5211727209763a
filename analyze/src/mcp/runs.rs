//! The runs that are open: a few, of which the one that was not asked for the longest time makes room.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::roots::{Allowed, Roots};
use crate::{
    questions::findings::{self, Findings},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// The number of runs that stay open.
pub const MOST_OPEN: usize = 8;

/// A run that is open.
pub struct Opened {
    /// The name that stands for it in ids.
    pub name: String,
    /// The run.
    pub trace: Trace,
    /// What is wrong with it, once somebody asked.
    findings: OnceCell<Findings>,
}

impl Opened {
    /// Returns what is wrong with the run; it is computed once.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub async fn findings(&self) -> Result<&Findings, AnalyzeError> {
        self.findings.get_or_try_init(|| findings::run(&self.trace)).await
    }
}

/// The open runs, and the roots below which runs can be opened.
pub struct Runs {
    /// Which files may be opened.
    pub roots: Roots,
    /// The open runs, the one that was asked last at the end.
    open: Mutex<Vec<Arc<Opened>>>,
}

impl Runs {
    /// Creates the set without an open run.
    pub fn new(roots: Roots) -> Self {
        Self { roots, open: Mutex::new(Vec::new()) }
    }

    /// Returns the names of the open runs, the one that was asked last at the end.
    pub fn names(&self) -> Vec<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().map(|opened| opened.name.clone()).collect()
    }

    /// Returns an open run, as the one that was asked last.
    fn again(&self, name: &str) -> Option<Arc<Opened>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let place = open.iter().position(|opened| opened.name == name)?;
        let opened = open.remove(place);
        open.push(Arc::clone(&opened));
        Some(opened)
    }

    /// Returns the run that a client names, and opens it if it is not open. Without a name, it is the only run that is open, or
    /// else the only one that can be opened.
    ///
    /// # Errors
    /// Returns an error that says which runs there are if none or several could be meant, or why the run cannot be opened.
    pub async fn get(&self, name: Option<&str>) -> Result<Arc<Opened>, AnalyzeError> {
        let Allowed { name, path } = match name {
            Some(name) => self.roots.find(name)?,
            None => self.roots.find(&self.only()?)?,
        };
        if let Some(opened) = self.again(&name) {
            return Ok(opened);
        }
        let trace = Trace::open_one(&path).await?;
        let opened = Arc::new(Opened { name, trace, findings: OnceCell::new() });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have opened it meanwhile.
        open.retain(|other| other.name != opened.name);
        if open.len() >= MOST_OPEN {
            open.remove(0);
        }
        open.push(Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns the name of the only run that a client can mean without naming one.
    fn only(&self) -> Result<String, AnalyzeError> {
        /// The number of runs that an error names.
        const NAMED: usize = 10;
        let open = self.names();
        let (listed, _) = self.roots.list();
        match (open.as_slice(), listed.as_slice()) {
            ([one], _) | ([], [one]) => Ok(one.clone()),
            ([], []) => Err(AnalyzeError::Query(
                "there is no run (*.parquet) below the folders that the server was started with; start it with a run or its folder"
                    .to_owned(),
            )),
            ([], several) | (several, _) => {
                let named: Vec<String> = several.iter().take(NAMED).map(|name| format!("{name:?}")).collect();
                let more = several.len().saturating_sub(NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                Err(AnalyzeError::Query(format!("say which run: {}{more}", named.join(", "))))
            }
        }
    }
}
