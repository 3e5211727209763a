//! Events of the generic function probes to rows.

use capture_wire::{Call, tag};
use trace_schema::{Direction, Kind, Op, Row};

use super::{Event, FunctionProbe, Source, by_number, spec::DirectionSource, torch};
use crate::caller::Callers;

/// The row of a call or allocator event; `None` if it concerns no CUDA memory.
///
/// `censored`: the call had not returned when recording ended, so its length, its result and what it
/// wrote are unknown.
pub(crate) fn row(call: &Call, censored: bool, callers: &mut Callers) -> Option<Row> {
    let probe = by_number(u32::from(call.probe))?;
    match probe.event {
        Event::Allocator => Some(torch::event_row(call)),
        Event::AllocatorUsage => torch::usage_row(call),
        Event::Call(op) => Some(call_row(call, probe, op, censored, callers)),
    }
}

fn call_row(call: &Call, probe: &FunctionProbe, op: Op, censored: bool, callers: &mut Callers) -> Row {
    debug_assert_eq!(call.tag, tag::CALL);
    let value = |source: Source| match source {
        Source::None => None,
        Source::Arg(n) => call.args.get(n).copied(),
        Source::Stack(n) => call.stack.get(n).copied(),
        // A function that failed leaves its result unwritten.
        Source::Out => (!censored && call.ret as i32 == 0).then_some(call.out),
        Source::Area(a, b) => Some(call.args[a].wrapping_mul(call.args[b])),
        Source::Scaled(n, by) => Some(call.args[n].wrapping_mul(by)),
    };
    let fields = &probe.fields;
    let direction = match fields.direction {
        DirectionSource::None => None,
        DirectionSource::Fixed(direction) => Some(direction),
        DirectionSource::Kind(source) => {
            value(source).map(|kind| u64::from(kind as u32)).and_then(Direction::from_cuda)
        }
    };
    Row {
        dur: (!censored).then_some(call.dur_ns as i64),
        ret: (!censored).then_some(call.ret as i32),
        addr: value(fields.addr),
        src_addr: value(fields.src),
        size_bytes: value(fields.size).map(|size| size as i64),
        direction: direction.map(|direction| direction.name().into()),
        stream: value(fields.stream).filter(|stream| *stream != 0),
        func: value(fields.func),
        caller: callers.name(call.pid, call.caller),
        ..Row::new(call.ts as i64, Kind::Call, op.name().into(), call.pid, call.tid)
    }
}
