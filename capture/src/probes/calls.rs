//! Turns events of the generic function probes into rows.

use capture_wire::{Call, tag};
use trace_schema::{Direction, Kind, Op, Row, Text};
use trace_writer::Rows;

use super::{
    Event, FunctionProbe, Source, by_number, nccl,
    spec::{DirectionSource, ShapeSource},
    torch,
};
use crate::caller::Callers;

/// Writes the row of a call or allocator event, unless it is a mark or concerns no CUDA memory.
///
/// `censored`: the call had not returned when recording ended, so its length, its result and what it
/// wrote are unknown. `stack`: number of its call stack.
#[inline]
pub(crate) fn write(call: &Call, censored: bool, stack: Option<u32>, callers: &mut Callers, rows: &mut Rows) {
    let Some(probe) = by_number(u32::from(call.probe)) else {
        return;
    };
    match probe.event {
        Event::Allocator => torch::write_event(call, stack, rows),
        Event::EmptyCache => rows.push(&Row { stack, ..torch::empty_cache_row(call) }),
        Event::IpcCollect => torch::write_ipc_collect(call, censored, stack, callers, rows),
        Event::AllocatorUsage => {
            if let Some(row) = torch::usage_row(call) {
                rows.push(&Row { stack, ..row });
            }
        }
        Event::Call(op) | Event::NamingCall(op) => {
            write_call(call, probe, op, censored, stack, callers, rows)
        }
        Event::Mark(_) | Event::KernelName => {}
    }
}

/// Handle of the kernel that a launch starts; `None` if the call is not a kernel launch.
pub(crate) fn launched(call: &Call) -> Option<u64> {
    let probe = by_number(u32::from(call.probe))?;
    match probe.fields.func {
        Source::Arg(n) if probe.fields.shape != ShapeSource::None => call.args.get(n).copied(),
        _ => None,
    }
}

/// The direction of a copy between two values of `CUmemorytype`: 1 is the host, 2 a device, 3 an array on a device,
/// 4 inferred from the address.
fn direction_of(from: u64, to: u64) -> Option<Direction> {
    Some(match (from as u32, to as u32) {
        (4, _) | (_, 4) => Direction::Default,
        (1, 1) => Direction::HostToHost,
        (1, 2 | 3) => Direction::HostToDevice,
        (2 | 3, 1) => Direction::DeviceToHost,
        (2 | 3, 2 | 3) => Direction::DeviceToDevice,
        _ => return None,
    })
}

/// Grid and block of a launch, as x y z each.
fn shape(call: &Call, source: ShapeSource) -> Option<[u32; 6]> {
    let low = |word: u64| word as u32;
    let high = |word: u64| (word >> 32) as u32;
    let (a, m) = (&call.args, &call.more);
    Some(match source {
        ShapeSource::None => return None,
        ShapeSource::Integers => [low(a[1]), low(a[2]), low(a[3]), low(a[4]), low(a[5]), low(m[0])],
        ShapeSource::Dim3 => [low(a[1]), high(a[1]), low(a[2]), low(a[3]), high(a[3]), low(a[4])],
        ShapeSource::Config => [low(m[0]), high(m[0]), low(m[1]), high(m[1]), low(m[2]), high(m[2])],
    })
}

fn write_call(
    call: &Call,
    probe: &FunctionProbe,
    op: Op,
    censored: bool,
    stack: Option<u32>,
    callers: &mut Callers,
    rows: &mut Rows,
) {
    debug_assert_eq!(call.tag, tag::CALL);
    let value = |source: Source| match source {
        Source::None => None,
        Source::Arg(n) => call.args.get(n).copied(),
        Source::Word(n) => call.more.get(n).copied(),
        // A function that failed leaves its result unwritten.
        Source::Out => (!censored && call.ret as i32 == 0).then_some(call.out),
        Source::Area(a, b) => Some(call.args[a].wrapping_mul(call.args[b])),
        Source::ScaledArea(a, b, by) => Some(call.args[a].wrapping_mul(call.args[b]).wrapping_mul(by)),
        Source::ArgByWord(a, b) => Some(call.args[a].wrapping_mul(call.more[b])),
        Source::Words(first, count) => {
            Some(call.more[first..first + count].iter().fold(1, |product: u64, n| product.wrapping_mul(*n)))
        }
        Source::Scaled(n, by) => Some(call.args[n].wrapping_mul(by)),
    };
    let fields = &probe.fields;
    let direction = match fields.direction {
        DirectionSource::None => None,
        DirectionSource::Fixed(direction) => Some(direction),
        DirectionSource::Kind(source) => {
            value(source).map(|kind| u64::from(kind as u32)).and_then(Direction::from_cuda)
        }
        DirectionSource::MemoryTypes(from, to) => {
            value(from).zip(value(to)).and_then(|(from, to)| direction_of(from, to))
        }
    };
    let shape = shape(call, fields.shape);
    let count = value(fields.count);
    let data_type = value(fields.dtype).and_then(nccl::data_type);
    let exchanged = count.zip(data_type).map(|(count, (_, bytes))| count.wrapping_mul(bytes));
    // A struct on the host side has no address here.
    let address = |source| value(source).filter(|address| *address != 0 || matches!(source, Source::Arg(_)));
    let mut row = rows.start(call.ts as i64, Kind::Call, op.name().into(), call.pid, call.tid);
    row.dur((!censored).then_some(call.dur_ns as i64))
        .ret((!censored).then_some(call.ret as i32))
        .addr(address(fields.addr))
        .src_addr(address(fields.src))
        .size_bytes(value(fields.size).or(exchanged).map(|size| size as i64))
        .stream(value(fields.stream).filter(|stream| *stream != 0))
        .func(value(fields.func))
        .caller(callers.name(call.pid, call.caller))
        .stack(stack);
    if let Some(direction) = direction {
        row.direction(Text::Static(direction.name()));
    }
    if let Some([grid_x, grid_y, grid_z, block_x, block_y, block_z]) = shape {
        row.grid_x(grid_x).grid_y(grid_y).grid_z(grid_z);
        row.block_x(block_x).block_y(block_y).block_z(block_z);
    }
    if fields.communicator != Source::None {
        row.element_count(count.map(|count| count as i64))
            .dtype(data_type.map(|(name, _)| Text::Static(name)))
            .communicator(value(fields.communicator))
            .peer(value(fields.peer).map(|peer| peer as i32));
    }
}
