//! NCCL: signatures from its user guide. Sizes count elements; their type tells the bytes.

use trace_schema::Op;

use super::spec::{
    Event, Fields, FunctionProbe, Library,
    Profile::Light,
    Source::{Arg, Out, Word},
};

const fn call(symbol: &'static str, op: Op, out: Option<u32>, fields: Fields) -> FunctionProbe {
    FunctionProbe {
        library: Library::Nccl,
        symbol,
        prefix: false,
        profile: Light,
        event: Event::Call(op),
        out,
        reads: None,
        fields,
    }
}

const NONE: Fields = Fields::NONE;
/// (send, receive, count, type, ...)
const BOTH: Fields = Fields { src: Arg(0), addr: Arg(1), count: Arg(2), dtype: Arg(3), ..NONE };
/// ... communicator, stream)
const PLAIN: Fields = Fields { communicator: Arg(4), ..BOTH }.on(Arg(5));
/// ... reduction or root, communicator | stream)
const REDUCED: Fields = Fields { communicator: Arg(5), ..BOTH }.on(Word(0));
const ROOTED: Fields = Fields { peer: Arg(4), ..REDUCED };
/// (buffer, count, type, peer or root, communicator, stream)
const ONE_BUFFER: Fields =
    Fields { count: Arg(1), dtype: Arg(2), peer: Arg(3), communicator: Arg(4), ..NONE }.on(Arg(5));
const COMMUNICATOR: Fields = Fields { communicator: Arg(0), ..NONE };

pub(super) const PROBES: &[FunctionProbe] = &[
    call("ncclAllReduce", Op::NcclAllReduce, None, REDUCED),
    // (send, receive, count, type, reduction, root | communicator, stream)
    call(
        "ncclReduce",
        Op::NcclReduce,
        None,
        Fields { peer: Arg(5), communicator: Word(0), stream: Word(1), ..BOTH },
    ),
    call("ncclBroadcast", Op::NcclBroadcast, None, ROOTED),
    call("ncclBcast", Op::NcclBcast, None, Fields { addr: Arg(0), ..ONE_BUFFER }),
    call("ncclAllGather", Op::NcclAllGather, None, PLAIN),
    call("ncclReduceScatter", Op::NcclReduceScatter, None, REDUCED),
    call("ncclAlltoAll", Op::NcclAlltoAll, None, PLAIN),
    call("ncclGather", Op::NcclGather, None, ROOTED),
    call("ncclScatter", Op::NcclScatter, None, ROOTED),
    call("ncclSend", Op::NcclSend, None, Fields { src: Arg(0), ..ONE_BUFFER }),
    call("ncclRecv", Op::NcclRecv, None, Fields { addr: Arg(0), ..ONE_BUFFER }),
    call("ncclGroupStart", Op::NcclGroupStart, None, NONE),
    call("ncclGroupEnd", Op::NcclGroupEnd, None, NONE),
    // (&communicator, ranks, id by value in memory, own rank)
    call(
        "ncclCommInitRank",
        Op::NcclCommInitRank,
        Some(0),
        Fields { communicator: Out, peer: Arg(2), ..NONE },
    ),
    call(
        "ncclCommInitRankConfig",
        Op::NcclCommInitRankConfig,
        Some(0),
        Fields { communicator: Out, peer: Arg(2), ..NONE },
    ),
    call("ncclCommInitAll", Op::NcclCommInitAll, None, NONE),
    call("ncclCommSplit", Op::NcclCommSplit, Some(3), Fields { communicator: Out, ..NONE }),
    call("ncclCommFinalize", Op::NcclCommFinalize, None, COMMUNICATOR),
    call("ncclCommDestroy", Op::NcclCommDestroy, None, COMMUNICATOR),
    call("ncclCommAbort", Op::NcclCommAbort, None, COMMUNICATOR),
    call("ncclMemAlloc", Op::NcclMemAlloc, Some(0), Fields { addr: Out, size: Arg(1), ..NONE }),
    call("ncclMemFree", Op::NcclMemFree, None, Fields { addr: Arg(0), ..NONE }),
];

/// `ncclDataType_t`: name and bytes of an element.
pub(super) fn data_type(number: u64) -> Option<(&'static str, u64)> {
    Some(match number as u32 {
        0 => ("int8", 1),
        1 => ("uint8", 1),
        2 => ("int32", 4),
        3 => ("uint32", 4),
        4 => ("int64", 8),
        5 => ("uint64", 8),
        6 => ("float16", 2),
        7 => ("float32", 4),
        8 => ("float64", 8),
        9 => ("bfloat16", 2),
        10 => ("float8e4m3", 1),
        11 => ("float8e5m2", 1),
        _ => return None,
    })
}
