//! The strings that a snapshot consists of, with the ids that its reader gives them.

use crate::pickle::TextId;

macro_rules! define {
    ($($name:ident = $text:literal;)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "their numbers only")]
        enum Order {
            $($name,)*
        }

        /// All known strings, in the order of their ids.
        pub(super) const KNOWN: &[&str] = &[$($text,)*];

        $(#[doc = concat!("`", $text, "`")] pub(super) const $name: TextId = TextId(Order::$name as u32);)*
    };
}

define! {
    // Actions come first: their ids are the indices of `ACTIONS`.
    ALLOC = "alloc";
    FREE_REQUESTED = "free_requested";
    FREE_COMPLETED = "free_completed";
    SEGMENT_ALLOC = "segment_alloc";
    SEGMENT_FREE = "segment_free";
    SEGMENT_MAP = "segment_map";
    SEGMENT_UNMAP = "segment_unmap";
    SNAPSHOT = "snapshot";
    OOM = "oom";
    // These are keys of the whole snapshot.
    SEGMENTS = "segments";
    DEVICE_TRACES = "device_traces";
    ALLOCATOR_SETTINGS = "allocator_settings";
    EXTERNAL_ANNOTATIONS = "external_annotations";
    // These are keys of an entry of a trace.
    ACTION = "action";
    ADDR = "addr";
    DEVICE_FREE = "device_free";
    SIZE = "size";
    STREAM = "stream";
    TIME_US = "time_us";
    FRAMES = "frames";
    USER_METADATA = "user_metadata";
    POOL_ID = "pool_id";
    MEMPOOL_ID = "mempool_id";
    SEGMENT_POOL_ID = "segment_pool_id";
    // These are keys of a segment and of a block.
    DEVICE = "device";
    ADDRESS = "address";
    TOTAL_SIZE = "total_size";
    REQUESTED_SIZE = "requested_size";
    SEGMENT_TYPE = "segment_type";
    IS_EXPANDABLE = "is_expandable";
    BLOCKS = "blocks";
    STATE = "state";
    HISTORY = "history";
    REAL_SIZE = "real_size";
    // These are keys of a frame and of an annotation.
    NAME = "name";
    FILENAME = "filename";
    LINE = "line";
    STAGE = "stage";
}

/// Names of the actions, which are the first of the known strings and the values of `op` in rows.
pub(super) const ACTIONS: &[&str] = KNOWN.split_at(OOM.0 as usize + 1).0;
