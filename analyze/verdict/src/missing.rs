//! What the record may lack of one call: rows of the scheduler, and calls that may be nested in it.

use trace_schema::{Class, Layer, Op};

use crate::schedule::ThreadKey;
use analyze_run::{coverage::Coverage, reading::Names};

/// What the record may lack of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// True if a switch of the call's thread may lack its row, so that the call may have run for less time than it seems.
    pub switches: bool,
    /// True if a call may be missing that would explain the time of this one, if it was nested in it.
    pub nested: bool,
}

impl Missing {
    /// Determines what may be missing of a call of the function `op` over `[from, to)`, in nanoseconds.
    pub fn of(
        coverage: &Coverage,
        names: &Names,
        thread: ThreadKey,
        op: u32,
        (from, to): (i64, i64),
    ) -> Self {
        let (run, pid, _) = thread;
        let outer = names.op(op);
        let is_nested = |inner| match (outer, names.op(inner)) {
            (Some(outer), Some(inner)) => may_be_nested(outer, inner),
            _ => true,
        };
        Self {
            switches: !coverage.has_schedule(thread, from, to),
            nested: !coverage.has_calls((run, pid), from, to, is_nested),
        }
    }

    /// Returns whether anything may be missing.
    pub fn is_any(self) -> bool {
        self.switches || self.nested
    }
}

/// Returns whether a call may be nested in one of another class, and be what takes it long. NCCL calls the runtime, which
/// calls the driver; launches, copies and communication are nested in calls of their own class only.
fn may_be_nested(outer: Op, inner: Op) -> bool {
    let is_lower = match (outer.layer(), inner.layer()) {
        (Layer::Nccl, inner) => inner != Layer::Nccl,
        (Layer::Runtime, inner) => inner == Layer::Driver,
        (Layer::Driver, _) => false,
    };
    let is_apart = match inner.class() {
        Class::Launch | Class::Copy | Class::Set | Class::Collective | Class::PointToPoint => false,
        Class::Alloc | Class::Map => outer.class() != Class::Free,
        Class::Free => outer.class() == Class::Alloc,
        _ => true,
    };
    is_lower && is_apart && outer.class() != inner.class()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_nested_in_a_call_is_lower_and_of_another_kind() {
        for (outer, inner, expected) in [
            (Op::CudaMalloc, Op::CuModuleLoad, true),
            (Op::CudaMalloc, Op::CuMemMap, true),
            (Op::CudaMalloc, Op::CuMemFree, true),
            (Op::CudaLaunchKernel, Op::CuMemAlloc, true),
            (Op::NcclAllReduce, Op::CudaMalloc, true),
            (Op::NcclAllReduce, Op::CuMemAlloc, true),
            // Of the same class, the call is made of it.
            (Op::CudaMalloc, Op::CuMemAlloc, false),
            // A free allocates nothing, and only an allocation frees something.
            (Op::CudaFree, Op::CuMemAlloc, false),
            (Op::CudaFree, Op::CuMemUnmap, false),
            (Op::CudaLaunchKernel, Op::CuMemFree, false),
            // These are in calls of their own class.
            (Op::CudaMalloc, Op::CuLaunchKernel, false),
            (Op::CudaMalloc, Op::CuMemcpy, false),
            (Op::NcclAllReduce, Op::CuMemsetD8, false),
            (Op::NcclCommSplit, Op::NcclSend, false),
            // Not lower.
            (Op::CudaMalloc, Op::CudaStreamSynchronize, false),
            (Op::NcclAllReduce, Op::NcclMemAlloc, false),
            (Op::CuMemAlloc, Op::CuModuleLoad, false),
        ] {
            assert_eq!(may_be_nested(outer, inner), expected, "{} in {}", inner.name(), outer.name());
        }
    }
}
