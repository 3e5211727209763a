//! Several sinks that take the calls of one sweep. A sink that fails is left out of what follows, and the others go on.

use super::{
    call::{Call, Marked, Sink},
    measure_pipeline::Measuring,
    schedule::Schedule,
    time_split::Parts,
};
use analyze_run::{error::AnalyzeError, reading::Helper};

/// A sink, and the numbers of the readers whose sink it is: several, if their sinks have joined.
struct Member {
    sink: Box<dyn Sink>,
    readers: Vec<usize>,
}

/// See the module documentation.
pub(super) struct Sinks {
    measuring: Option<Measuring>,
    members: Vec<Member>,
    /// The readers whose sinks have failed, each with the error.
    failed: Vec<(Vec<usize>, AnalyzeError)>,
    /// Returns whether somebody still waits for the sweep.
    is_wanted: Box<dyn Fn() -> bool + Send>,
}

impl Sinks {
    /// Makes sinks of which one measures calls, if it is given. Once `is_wanted` is false, they end the sweep.
    pub(super) fn new(measuring: Option<Measuring>, is_wanted: impl Fn() -> bool + Send + 'static) -> Self {
        Self { measuring, members: Vec::new(), failed: Vec::new(), is_wanted: Box::new(is_wanted) }
    }

    /// Adds the sink of a reader.
    pub(super) fn add(&mut self, reader: usize, mut sink: Box<dyn Sink>) {
        for member in &mut self.members {
            match member.sink.join(sink) {
                None => return member.readers.push(reader),
                Some(other) => sink = other,
            }
        }
        self.members.push(Member { sink, readers: vec![reader] });
    }

    /// Returns the measuring sink and, for each of so many readers, whether its sink has got everything.
    pub(super) fn results(self, readers_count: usize) -> (Option<Measuring>, Vec<Result<(), AnalyzeError>>) {
        let mut results: Vec<Result<(), AnalyzeError>> = (0..readers_count).map(|_| Ok(())).collect();
        for (readers, error) in &self.failed {
            readers.iter().for_each(|reader| results[*reader] = Err(error.again()));
        }
        (self.measuring, results)
    }

    /// Passes something on to every sink but the measuring one.
    fn each(
        &mut self,
        mut pass: impl FnMut(&mut dyn Sink) -> Result<(), AnalyzeError>,
    ) -> Result<(), AnalyzeError> {
        let mut place = 0;
        while place < self.members.len() {
            match pass(&mut *self.members[place].sink) {
                Ok(()) => place += 1,
                Err(error) => self.failed.push((self.members.swap_remove(place).readers, error)),
            }
        }
        if !(self.is_wanted)() {
            return Err(AnalyzeError::Internal("nobody waits for the calls any more".to_owned()));
        }
        match self.failed.first() {
            Some((_, error)) if self.members.is_empty() && self.measuring.is_none() => Err(error.again()),
            _ => Ok(()),
        }
    }
}

impl Sink for Sinks {
    fn helper(&self) -> Option<Helper> {
        self.measuring.as_ref().and_then(Sink::helper)
    }

    fn entered(&mut self, call: &Call, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if let Some(measuring) = &mut self.measuring {
            measuring.entered(call, schedule)?;
        }
        self.each(|sink| sink.entered(call, schedule))
    }

    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if let Some(measuring) = &mut self.measuring {
            measuring.left(call, parts, schedule)?;
        }
        self.each(|sink| sink.left(call, parts, schedule))
    }

    fn marked(&mut self, range: &Marked) {
        self.measuring.iter_mut().for_each(|measuring| measuring.marked(range));
        self.members.iter_mut().for_each(|member| member.sink.marked(range));
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if let Some(measuring) = &mut self.measuring {
            measuring.finished(schedule)?;
        }
        self.each(|sink| sink.finished(schedule))
    }
}
