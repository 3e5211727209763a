//! The scores as one table.

use std::fmt::Write;

use crate::judge::Score;

/// Aligned text, one line a scenario.
pub(crate) fn render(scores: &[Score]) -> String {
    let mut text = format!(
        "{:<21} {:<19} {:>6} {:>5} {:>6} {:>6} {:>9} {:>6} {:>6} {:>9} {:>6} {:>4}  held\n",
        "scenario",
        "label",
        "calls",
        "slow",
        "guilty",
        "blamed",
        "precision",
        "recall",
        "decoys",
        "contested",
        "books",
        "lost"
    );
    for score in scores {
        let ratio = |value: Option<f64>| value.map_or("–".to_owned(), |ratio| format!("{ratio:.3}"));
        let explained = (score.books.excess_ns > 0)
            .then(|| score.books.explained_ns as f64 / score.books.excess_ns as f64);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<21} {:<19} {:>6} {:>5} {:>6} {:>6} {:>9} {:>6} {:>6} {:>9} {:>6} {:>4}  {}",
            score.scenario,
            score.label.unwrap_or("–"),
            score.calls_count,
            score.slow_count,
            score.guilty_count,
            score.blamed_count,
            ratio(score.precision_ratio),
            ratio(score.recall_ratio),
            score.decoys_count,
            score.contested_count,
            ratio(explained),
            score.lost_count,
            if score.holds() { "yes" } else { "NO" },
        );
    }
    text.push_str(
        "books: share of the guilty calls' excess that the truth itself accounts for to this label\n",
    );
    text
}
