//! The reasons for which PyTorch's allocator reserves and releases memory.

/// The reason for which a segment was reserved or released; the table in `history.rs` gives the
/// conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pool had never had memory.
    FirstUse,
    /// Enough memory was free in the pool, but no single block was large enough.
    Fragmentation,
    /// A free block of the same pool was large enough, but belonged to another stream.
    OtherStream,
    /// The pool had reserved as much before, and had released it.
    AfterRelease,
    /// The pool needed more than ever before.
    Growth,
    /// The program called `empty_cache()`.
    EmptyCache,
    /// The allocator released memory to make room for a request.
    MakeRoom,
    /// The program called `ipc_collect()`.
    IpcCollect,
    /// The record does not show the cause.
    NotKnown,
}

impl Cause {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstUse => "first_use",
            Self::Fragmentation => "fragmentation",
            Self::OtherStream => "other_stream",
            Self::AfterRelease => "after_release",
            Self::Growth => "growth",
            Self::EmptyCache => "empty_cache",
            Self::MakeRoom => "make_room",
            Self::IpcCollect => "ipc_collect",
            Self::NotKnown => "not_known",
        }
    }
}
