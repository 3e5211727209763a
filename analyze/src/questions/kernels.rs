//! Kernels that GPUs ran, by name, as an imported profile has them.

use std::borrow::Cow;

use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
};

/// Number of kernels that are kept by name.
const NAMED: usize = 20;
/// Number of characters of a name that a sentence has room for.
const NAME_CHARS: usize = 60;

const QUERY: &str = "SELECT coalesce(CAST(detail AS VARCHAR), '') AS name, count(*) AS n, coalesce(sum(dur), 0) AS total_ns, \
     coalesce(max(dur), 0) AS longest_ns FROM events WHERE kind = 'device' AND op = 'kernel' GROUP BY 1 \
     ORDER BY total_ns DESC, name";

/// The kernels of one name.
#[derive(Clone, Debug, Serialize)]
pub struct Kernel {
    /// Name; empty if the profile has none.
    pub name: String,
    /// How often a GPU ran it.
    pub runs_count: i64,
    /// Sum of their durations on the GPU in nanoseconds; kernels of several streams may overlap.
    pub total_ns: i64,
    /// Longest duration in nanoseconds.
    pub longest_ns: i64,
    /// Share of the time of all kernels, from 0 to 1.
    pub share_ratio: f64,
}

/// All kernels of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Kernels {
    /// Number of names.
    pub names_count: usize,
    /// How often a GPU ran a kernel.
    pub runs_count: i64,
    /// Sum of the durations of all kernels on the GPU in nanoseconds.
    pub total_ns: i64,
    /// The kernels with most time, longest first.
    pub kernels: Vec<Kernel>,
}

impl Kernel {
    /// Returns the name, of which a sentence has room for so much; what is left out stands as `…`.
    pub fn short_name(&self) -> Cow<'_, str> {
        match self.name.char_indices().nth(NAME_CHARS) {
            Some((end, _)) => Cow::Owned(format!("{}…", &self.name[..end])),
            None => Cow::Borrowed(&self.name),
        }
    }
}

impl Kernels {
    /// Returns the mean duration of a kernel in nanoseconds; `None` if there is none.
    pub fn mean_ns(&self) -> Option<i64> {
        self.total_ns.checked_div(self.runs_count)
    }

    fn add(&mut self, name: &str, runs_count: i64, total_ns: i64, longest_ns: i64) {
        self.names_count += 1;
        self.runs_count = self.runs_count.saturating_add(runs_count);
        self.total_ns = self.total_ns.saturating_add(total_ns);
        if self.kernels.len() < NAMED {
            let name = name.to_owned();
            self.kernels.push(Kernel { name, runs_count, total_ns, longest_ns, share_ratio: 0.0 });
        }
    }

    fn share(&mut self) {
        let whole = self.total_ns.max(1) as f64;
        for kernel in &mut self.kernels {
            kernel.share_ratio = kernel.total_ns as f64 / whole;
        }
    }
}

/// Returns the kernels of a run.
///
/// # Errors
/// Returns an error if the run cannot be read.
pub async fn run(trace: &Trace) -> Result<Kernels, AnalyzeError> {
    let mut kernels = Kernels::default();
    for batch in &trace.batches(QUERY).await? {
        let names = strings(batch, "name")?;
        let (runs, totals) = (integers(batch, "n")?, integers(batch, "total_ns")?);
        let longest = integers(batch, "longest_ns")?;
        for row in 0..batch.num_rows() {
            kernels.add(names.value(row), runs.value(row), totals.value(row), longest.value(row));
        }
    }
    kernels.share();
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_cut_between_characters() {
        let kernel =
            |name: String| Kernel { name, runs_count: 1, total_ns: 1, longest_ns: 1, share_ratio: 1.0 };
        assert_eq!(kernel("é".repeat(60)).short_name(), "é".repeat(60));
        assert_eq!(kernel("é".repeat(61)).short_name(), format!("{}…", "é".repeat(60)));
    }

    #[test]
    fn kernels_that_are_not_named_count_in_the_whole() {
        let mut kernels = Kernels::default();
        assert_eq!(kernels.mean_ns(), None);
        for number in 0..25 {
            kernels.add(&number.to_string(), 2, 100 - number, 60);
        }
        kernels.share();
        assert_eq!((kernels.names_count, kernels.kernels.len(), kernels.runs_count), (25, 20, 50));
        assert_eq!(kernels.total_ns, 2_200);
        assert_eq!(kernels.mean_ns(), Some(44));
        assert!(kernels.kernels.iter().map(|kernel| kernel.share_ratio).sum::<f64>() < 1.0);
        assert!((kernels.kernels[0].share_ratio - 100.0 / 2_200.0).abs() < 1e-12);
    }
}
