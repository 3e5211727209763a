//! Stages of a process: before its first launch, running, the pauses in which code is compiled, and those of host code.
//!
//! ```text
//! launches            ││││ │││                    │││││││            ││││││││
//! compilers started             ▲  ▲   ▲                     ▲
//! stage    │ start-up │ running │   compiling     │ running │recompiling│ running
//! ```
//! A pause lasts from the end of the last launch before a compiler is started to the next launch: what the process does in it,
//! tracing and generating code included, comes before what it can launch then. The first pause is the warm-up. A program
//! that compiles its forward pass, its backward pass and its optimizer once has three; later ones are called recompilation
//! where there are more.
//!
//! A stretch of host code is a pause if it is far longer than what usually passes between two calls of its thread
//! ([`super::calls::Calls::pause_ns`]): collecting garbage, saving and logging look so, and the code of each step does not.

/// A stage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Before the first launch.
    StartUp,
    /// The first pause in which a compiler was started, or one of a few.
    Compiling,
    /// Later pauses, if there are more than [`WARM_UP_PAUSES`] in all.
    Recompiling,
    /// A stretch of host code after the first launch that is far longer than what usually passes between calls.
    HostPause,
    /// Otherwise.
    Running,
}

/// Largest number of pauses that a program has which compiles nothing again.
const WARM_UP_PAUSES: usize = 3;

impl Stage {
    /// The name of the stage in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StartUp => "start-up",
            Self::Compiling => "compiling",
            Self::Recompiling => "recompiling",
            Self::HostPause => "host-pause",
            Self::Running => "running",
        }
    }
}

/// The stages of one process.
#[derive(Debug, Default)]
pub(super) struct Stages {
    /// Time of the first launch in nanoseconds; `None` if it need not be on record.
    first_launch_ts: Option<i64>,
    /// Start and end of the pauses in nanoseconds, in order and disjoint.
    pauses: Vec<(i64, i64)>,
}

impl Stages {
    /// Creates the stages of a process from its first launch, the times in order at which compilers were started, and
    /// the pause between launches that a time lies in, if one came before, all in nanoseconds.
    pub(super) fn new(
        first_launch_ts: Option<i64>,
        compilers: impl Iterator<Item = i64>,
        pause_at: impl Fn(i64) -> Option<(i64, i64)>,
    ) -> Self {
        let mut pauses: Vec<(i64, i64)> = Vec::new();
        for ts in compilers {
            if pauses.last().is_none_or(|(_, end)| *end <= ts) {
                pauses.extend(pause_at(ts).filter(|(from, to)| from < to));
            }
        }
        Self { first_launch_ts, pauses }
    }

    /// Cuts `[ts, end)`, in nanoseconds, at the stages, and calls `piece` with start, end and stage of each part in order; outside
    /// of pauses, the stage is `None` if the first launch need not be on record.
    pub(super) fn cut(&self, ts: i64, end: i64, mut piece: impl FnMut(i64, i64, Option<Stage>)) {
        let first = self.first_launch_ts.map(|first| first.clamp(ts, end));
        let running = first.map(|_| Stage::Running);
        let mut piece = |from: i64, to: i64, stage| {
            if from < to {
                piece(from, to, stage);
            }
        };
        let mut at = first.unwrap_or(ts);
        piece(ts, at, Some(Stage::StartUp));
        let next = self.pauses.partition_point(|(_, to)| *to <= at);
        for (place, (from, to)) in self.pauses.iter().enumerate().skip(next) {
            if *from >= end {
                break;
            }
            let (from, to) = ((*from).clamp(at, end), (*to).min(end));
            let is_later = place > 0 && self.pauses.len() > WARM_UP_PAUSES;
            piece(at, from, running);
            piece(from, to, Some(if is_later { Stage::Recompiling } else { Stage::Compiling }));
            at = to;
        }
        piece(at, end, running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(stages: &Stages, ts: i64, end: i64) -> Vec<(i64, i64, Option<&'static str>)> {
        let mut parts = Vec::new();
        stages.cut(ts, end, |ts, end, stage| parts.push((ts, end, stage.map(Stage::name))));
        parts
    }

    /// Launches take no time, and there is one every 100 ns from 100 ns on.
    fn hundreds(ts: i64) -> Option<(i64, i64)> {
        (ts >= 100).then_some((ts / 100 * 100, ts / 100 * 100 + 100))
    }

    #[test]
    fn a_pause_lasts_from_launch_to_launch() {
        let stages = Stages::new(Some(100), [50, 210, 250, 420].into_iter(), hundreds);
        let expected = [
            (0, 100, Some("start-up")),
            (100, 200, Some("running")),
            (200, 300, Some("compiling")),
            (300, 400, Some("running")),
            (400, 450, Some("compiling")),
        ];
        assert_eq!(parts(&stages, 0, 450), expected);
        assert_eq!(parts(&stages, 250, 350), [(250, 300, Some("compiling")), (300, 350, Some("running"))]);
        assert_eq!(parts(&stages, 500, 510), [(500, 510, Some("running"))]);
        assert_eq!(parts(&Stages::default(), 5, 9), [(5, 9, None)]);
        let joined = Stages::new(None, [210].into_iter(), hundreds);
        assert_eq!(
            parts(&joined, 150, 310),
            [(150, 200, None), (200, 300, Some("compiling")), (300, 310, None)]
        );
    }

    #[test]
    fn more_than_three_pauses_are_recompilation() {
        let stages = |count: i64| Stages::new(Some(0), (1..=count).map(|n| 200 * n + 1), hundreds);
        let names = |count| {
            let parts = parts(&stages(count), 0, 2000);
            parts
                .into_iter()
                .filter_map(|(_, _, name)| name)
                .filter(|name| *name != "running")
                .collect::<Vec<_>>()
        };
        assert_eq!(names(3), ["compiling"; 3]);
        assert_eq!(names(4), ["compiling", "recompiling", "recompiling", "recompiling"]);
    }
}
