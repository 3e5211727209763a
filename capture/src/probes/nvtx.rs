//! NVTX (libnvToolsExt), through which a program names its phases. Programs built with the header-only
//! version 3 have no such library; their marks are visible only to a tool that they load themselves.

use super::spec::{Event, Fields, FunctionProbe, Library, MarkKind, Profile::Light};

const fn mark(symbol: &'static str, kind: MarkKind) -> FunctionProbe {
    FunctionProbe {
        library: Library::Nvtx,
        symbol,
        prefix: false,
        profile: Light,
        event: Event::Mark(kind),
        out: None,
        reads: None,
        fields: Fields::NONE,
    }
}

pub(super) const PROBES: &[FunctionProbe] = &[
    mark("nvtxMarkA", MarkKind::Point),
    mark("nvtxMarkEx", MarkKind::Point),
    mark("nvtxRangePushA", MarkKind::Push),
    mark("nvtxRangePushEx", MarkKind::Push),
    mark("nvtxRangePop", MarkKind::Pop),
];
