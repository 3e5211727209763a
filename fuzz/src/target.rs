//! What a fuzz target consists of.

use analyze_run::random::Random;

/// What a reader did with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It read the input to its end.
    Read,
    /// It returned an error, or found nothing of its format.
    Refused,
}

impl Outcome {
    /// Returns what a reader did that says whether it has read something.
    pub fn of(is_read: bool) -> Self {
        if is_read { Self::Read } else { Self::Refused }
    }
}

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, which is that of its function.
    pub name: &'static str,
    /// What it reads, as a sentence without a full stop.
    pub about: &'static str,
    /// Passes bytes to the reader. Panics if the reader does, or if what it returned is not what it promises.
    pub run: fn(&[u8]) -> Outcome,
    /// Returns inputs that the reader reads.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Changes an input; the format of most inputs stays whole.
    pub mutate: fn(&mut Vec<u8>, &mut Random),
}
