//! The keys of `PYTORCH_CUDA_ALLOC_CONF`: the version of PyTorch that brought each, the values that PyTorch
//! accepts, and what the simulation of its allocator makes of them. The rules are those of
//! c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp; the libraries of PyTorch 2.9.1 to
//! 2.15.0 were seen to follow them.

use analyze_run::suggest;

/// A version of PyTorch: its major and minor number.
pub(crate) type Version = (u32, u32);

/// The version that is assumed if none is known.
pub(crate) const NEWEST: Version = (u32::MAX, u32::MAX);
/// The version of the keys that the oldest version, 2.9, knows.
const ALWAYS: Version = (0, 0);
/// The version that brought the present parser of settings.
pub(crate) const NEW_PARSER: Version = (2, 10);
/// The version from which free blocks of one size are preferred by the age of their segments.
pub(crate) const ORDERS_BY_AGE: Version = (2, 13);
/// The version from which unused memory is released while a program allocates from a `torch.cuda.MemPool`.
pub(crate) const RELEASES_IN_POOLS: Version = (2, 13);

/// Parses a version such as `2.11.0+cu130`; an empty one is not known, and the newest is assumed.
pub(crate) fn version(torch_version: &str) -> Version {
    let mut numbers = torch_version.split(['.', '+']).map_while(|word| word.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).unwrap_or(NEWEST)
}

/// The form of a value that is checked and otherwise not used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Truth,
    Whole,
    Positive,
    Threads,
    Backend,
    Any,
}

/// The largest number of threads that register pinned memory.
const THREADS: u64 = 128;

impl Form {
    /// Returns the rule that a value breaks, if it breaks one.
    pub(crate) fn check(self, value: &str, version: Version) -> Result<(), &'static str> {
        let number = whole(value, version);
        let (is_met, rule) = match self {
            Self::Truth => (truth(value).is_some(), TRUTH),
            Self::Whole => (number.is_some(), "a whole number"),
            Self::Positive => (number.is_some_and(|number| number > 0), "a whole number above 0"),
            Self::Threads => (
                number.is_some_and(|number| number.is_power_of_two() && number <= THREADS),
                "a power of two, at most 128",
            ),
            Self::Backend => (["native", "cudaMallocAsync"].contains(&value), "native or cudaMallocAsync"),
            Self::Any => (true, ""),
        };
        if is_met { Ok(()) } else { Err(rule) }
    }
}

/// What a key sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// The size of a large segment.
    LargeSegment,
    /// The size from which blocks are not split.
    MaxSplit,
    /// How much larger an unsplit block may be than the request that it serves.
    MaxRounding,
    /// The steps between powers of two.
    Divisions,
    /// Whether segments grow in place.
    Expandable,
    /// From where on unused segments are released early.
    GcThreshold,
    /// The process's share of the device's memory.
    MemoryFraction,
    /// Something that does not change which memory is reserved, for this reason.
    Nothing(Form, &'static str),
    /// Something that is not simulated: its default, and how it changes what is reserved.
    NotSimulated(Form, &'static str, &'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: &'static str,
    /// The first version of PyTorch that knows it.
    since: Version,
    /// What it sets.
    pub(crate) effect: Effect,
}

const fn key(name: &'static str, since: Version, effect: Effect) -> Key {
    Key { name, since, effect }
}

const PINNED: &str = "pinned memory is the host's";
const ORDER: &str = "requests are served in the recorded order";
const RESERVE: &str = "it limits how far an expandable segment can grow";

/// The key that is read before all others, whose smallest values depend on it.
pub(crate) const FIRST: &str = "large_segment_size_mb";

/// Every key that some version of PyTorch knows.
const KEYS: [Key; 22] = [
    key(FIRST, (2, 11), Effect::LargeSegment),
    key("max_split_size_mb", ALWAYS, Effect::MaxSplit),
    key("max_non_split_rounding_mb", ALWAYS, Effect::MaxRounding),
    key("roundup_power2_divisions", ALWAYS, Effect::Divisions),
    key("expandable_segments", ALWAYS, Effect::Expandable),
    key("garbage_collection_threshold", ALWAYS, Effect::GcThreshold),
    key("per_process_memory_fraction", (2, 10), Effect::MemoryFraction),
    key(
        "backend",
        ALWAYS,
        Effect::NotSimulated(Form::Backend, "native", "it replaces the allocator whose rules are followed"),
    ),
    key(
        "graph_capture_record_stream_reuse",
        ALWAYS,
        Effect::NotSimulated(
            Form::Truth,
            "False",
            "it changes when a block that another stream used is free again during a capture",
        ),
    ),
    key("expandable_segments_reserve", (2, 15), Effect::NotSimulated(Form::Any, "1.125", RESERVE)),
    key("expandable_segments_reserve_by_class", (2, 15), Effect::NotSimulated(Form::Any, "[]", RESERVE)),
    key("release_lock_on_cudamalloc", ALWAYS, Effect::Nothing(Form::Truth, ORDER)),
    key("release_lock_on_hipmalloc", ALWAYS, Effect::Nothing(Form::Truth, ORDER)),
    key(
        "throw_on_cudamalloc_oom",
        (2, 12),
        Effect::Nothing(Form::Truth, "it changes only how a request fails"),
    ),
    key("pinned_use_cuda_host_register", ALWAYS, Effect::Nothing(Form::Truth, PINNED)),
    key("pinned_use_hip_host_register", ALWAYS, Effect::Nothing(Form::Truth, PINNED)),
    key("pinned_num_register_threads", ALWAYS, Effect::Nothing(Form::Threads, PINNED)),
    key("pinned_use_background_threads", ALWAYS, Effect::Nothing(Form::Truth, PINNED)),
    key("pinned_reserve_segment_size_mb", (2, 10), Effect::Nothing(Form::Positive, PINNED)),
    key("pinned_free_catch_all", (2, 12), Effect::Nothing(Form::Truth, PINNED)),
    key("pinned_max_round_threshold_mb", (2, 13), Effect::Nothing(Form::Whole, PINNED)),
    key("pinned_max_cached_size_mb", (2, 13), Effect::Nothing(Form::Whole, PINNED)),
];

/// Finds the key with a name.
///
/// # Errors
/// Returns why the version does not know the key, with similar names if no version does.
pub(crate) fn find(name: &str, version: Version) -> Result<Key, String> {
    match KEYS.iter().find(|key| key.name == name) {
        Some(key) if key.since <= version => Ok(*key),
        Some(Key { since, .. }) => Err(format!(
            "PyTorch {}.{} has no such setting, it came with {}.{}",
            version.0, version.1, since.0, since.1
        )),
        None => {
            let known = KEYS.iter().filter(|key| key.since <= version).map(|key| key.name);
            let alike = suggest::perhaps(&suggest::alike(name, known));
            Err(format!("PyTorch's allocator has no such setting{alike}"))
        }
    }
}

/// The rule for [`truth`].
pub(crate) const TRUTH: &str = "True or False";

/// Reads a truth value.
pub(crate) fn truth(value: &str) -> Option<bool> {
    match value {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// Reads a whole number as `std::stoull` does, or as `std::stoi` does in old versions: what follows the
/// digits is ignored, and a negative number becomes a very large one.
pub(crate) fn whole(value: &str, version: Version) -> Option<u64> {
    let most = if version < NEW_PARSER { i32::MAX as u64 } else { u64::MAX };
    let digits = value.trim_start_matches(['+', '-']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse::<u64>().ok().filter(|number| *number <= most)?;
    match &value[..value.len() - digits.len()] {
        "" | "+" => Some(number),
        "-" => Some(number.wrapping_neg()),
        _ => None,
    }
}

/// Reads a decimal number as `std::stod` does: what follows it is ignored.
pub(crate) fn decimal(value: &str) -> Option<f64> {
    let end = value.find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c)).unwrap_or(value.len());
    value[..end].parse::<f64>().ok()
}
