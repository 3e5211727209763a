//! The allocator's settings that decide how large a block is and which segment it comes from:
//! `PYTORCH_CUDA_ALLOC_CONF` and its successor `PYTORCH_ALLOC_CONF`, parsed as PyTorch parses them.

use std::{collections::BTreeMap, fmt};

use crate::setting_keys::{self, Effect, NEW_PARSER, Version, decimal, truth, version, whole};

/// Block sizes are multiples of this many bytes (`kMinBlockSize`).
pub const MIN_BLOCK_BYTES: u64 = 512;
/// The largest block of the small pool, in bytes (`kSmallSize`); a large block is split only if the remainder
/// is larger than this.
pub const SMALL_BYTES: u64 = 1 << 20;
/// The size in bytes of a segment of small blocks, and of a page of an expandable segment of small blocks
/// (`kSmallBuffer`).
pub const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// The default size in bytes of a segment for blocks below 10 MiB, and of a page of a large expandable
/// segment (`kLargeBuffer`).
pub const LARGE_SEGMENT_BYTES: u64 = 20 << 20;

/// A block of at least this many bytes gets a segment of its own size (`kMinLargeAlloc`).
const LARGE_REQUEST_BYTES: u64 = 10 << 20;

/// The number of size intervals of `roundup_power2_divisions`: powers of two from 1 MiB.
const INTERVALS: usize = 16;
const FIRST_INTERVAL_LOG2: u32 = 20;

/// A setting that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The setting as it was given: `name:value`.
    pub entry: String,
    /// Why it cannot be followed.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.entry, self.reason)
    }
}

/// The allocator settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Blocks of at least this many bytes are not split (`max_split_size_mb`); `u64::MAX` means no limit.
    pub max_split_bytes: u64,
    /// Whether segments grow in place (`expandable_segments`).
    pub expandable_segments: bool,
    /// The size in bytes of a large segment, and of a page of a large expandable segment
    /// (`large_segment_size_mb`).
    pub large_segment_bytes: u64,
    /// A block that is too large to be split serves a request only if it is at most this many bytes larger
    /// (`max_non_split_rounding_mb`; the size of a large segment if it is not set).
    pub max_rounding_bytes: u64,
    /// The number of steps between two powers of two that sizes are rounded up to
    /// (`roundup_power2_divisions`), by size interval; 0 and 1 mean multiples of 512 bytes.
    divisions: [u64; INTERVALS],
    /// The fraction of the process's memory limit from which the allocator releases unused segments early
    /// (`garbage_collection_threshold`).
    pub gc_threshold_ratio: Option<f64>,
    /// The share of the device's memory that the process may reserve (`per_process_memory_fraction`); `None`
    /// if there is no limit, as with 1.
    pub memory_ratio: Option<f64>,
    /// Whether a request to a pool that the program made may release unused memory if it finds no room: never before
    /// PyTorch 2.13; since then unless a CUDA graph is captured, which the record does not tell.
    pub(crate) may_release_in_pools: bool,
    /// Whether the allocator prefers free blocks of one size by the age of their segments, as since PyTorch 2.13, and
    /// not by their addresses; `None` if the version is not known.
    pub(crate) orders_by_age: Option<bool>,
    /// The settings that PyTorch does not accept; they change nothing here.
    pub refused: Vec<Refusal>,
    /// The settings that change what is reserved in a way that is not simulated.
    pub not_simulated: Vec<Refusal>,
    /// The names of settings that do not change which memory is reserved, and the reasons.
    pub without_effect: Vec<(&'static str, &'static str)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_split_bytes: u64::MAX,
            expandable_segments: false,
            large_segment_bytes: LARGE_SEGMENT_BYTES,
            max_rounding_bytes: LARGE_SEGMENT_BYTES,
            divisions: [0; INTERVALS],
            gc_threshold_ratio: None,
            memory_ratio: None,
            may_release_in_pools: true,
            orders_by_age: None,
            refused: Vec::new(),
            not_simulated: Vec::new(),
            without_effect: Vec::new(),
        }
    }
}

/// The environment variables in the order in which PyTorch looks for them; old versions do not know the last.
const VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

impl Settings {
    /// Returns these settings in a version of PyTorch that prefers blocks by the age of their segments.
    pub(crate) fn ordered_by_age(self) -> Self {
        Self { orders_by_age: Some(true), ..self }
    }

    /// Parses the settings from a process's environment variables. An empty `torch_version` means that the
    /// version is not known; the newest is assumed.
    pub fn of_environment(environment: &BTreeMap<String, String>, torch_version: &str) -> Self {
        let is_old = version(torch_version) < NEW_PARSER;
        let known = &VARIABLES[..VARIABLES.len() - usize::from(is_old)];
        let text = known.iter().find_map(|name| environment.get(*name));
        Self::parse(text.map_or("", String::as_str), torch_version)
    }

    /// Parses `name:value,name:[size:value,…]` as that version of PyTorch does; what cannot be followed is
    /// kept in [`Self::refused`] and [`Self::not_simulated`].
    pub fn parse(text: &str, torch_version: &str) -> Self {
        let version = version(torch_version);
        let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let (first, others): (Vec<_>, Vec<_>) =
            entries(&text).partition(|entry| entry.split(':').next() == Some(setting_keys::FIRST));
        let mut settings = Self {
            may_release_in_pools: version >= setting_keys::RELEASES_IN_POOLS,
            orders_by_age: (version != setting_keys::NEWEST)
                .then_some(version >= setting_keys::ORDERS_BY_AGE),
            ..Self::default()
        };
        for entry in first.into_iter().chain(others) {
            if let Err(reason) = settings.set(entry, version) {
                settings.refused.push(Refusal { entry: entry.to_owned(), reason });
            }
        }
        if let (Some(ratio), None) = (settings.gc_threshold_ratio, settings.memory_ratio) {
            let reason = "PyTorch follows it only within a limit: per_process_memory_fraction below 1, \
                          or one that the program sets, which is not on record";
            let entry = format!("garbage_collection_threshold:{ratio}");
            settings.not_simulated.push(Refusal { entry, reason: reason.to_owned() });
        }
        settings
    }

    /// Sets what an entry `name:value` says.
    ///
    /// # Errors
    /// Returns why PyTorch does not accept the entry.
    fn set(&mut self, entry: &str, version: Version) -> Result<(), String> {
        let (name, value) = entry.split_once(':').unwrap_or((entry, ""));
        let key = setting_keys::find(name, version)?;
        let rejected = |rule: &str| format!("PyTorch demands {rule}");
        // Only a list has more than one part.
        if !value.starts_with('[') && value.contains([':', '[', ']']) {
            return Err(rejected("settings of the form name:value, separated by commas"));
        }
        let mebibytes = |least: u64| {
            let number = whole(value, version).filter(|number| *number >= least);
            number.map(|number| number.min(u64::MAX >> 20) << 20)
        };
        // Before 2.10 the smallest values were not allowed themselves.
        let least = (self.large_segment_bytes >> 20) + u64::from(version < NEW_PARSER);
        let at_least = |least: u64| rejected(&format!("a whole number of MiB, at least {least}"));
        match key.effect {
            Effect::LargeSegment => {
                let least = (LARGE_REQUEST_BYTES >> 20) + 1;
                self.large_segment_bytes = mebibytes(least).ok_or_else(|| at_least(least))?;
                self.max_rounding_bytes = self.large_segment_bytes;
            }
            Effect::MaxSplit => self.max_split_bytes = mebibytes(least).ok_or_else(|| at_least(least))?,
            Effect::MaxRounding => {
                self.max_rounding_bytes = mebibytes(least).ok_or_else(|| at_least(least))?;
            }
            Effect::Divisions => self.divisions = divisions(value, version).map_err(rejected)?,
            Effect::Expandable => {
                self.expandable_segments = truth(value).ok_or_else(|| rejected(setting_keys::TRUTH))?;
            }
            Effect::GcThreshold => {
                let found = decimal(value).filter(|ratio| *ratio > 0.0 && *ratio < 1.0);
                let found = found.ok_or_else(|| rejected("a number above 0 and below 1"))?;
                self.gc_threshold_ratio = Some(found);
            }
            Effect::MemoryFraction => {
                let found = decimal(value).filter(|ratio| (0.0..=1.0).contains(ratio));
                let found = found.ok_or_else(|| rejected("a number from 0 to 1"))?;
                self.memory_ratio = (found < 1.0).then_some(found);
            }
            Effect::Nothing(form, reason) => {
                form.check(value, version).map_err(rejected)?;
                self.without_effect.push((key.name, reason));
            }
            Effect::NotSimulated(form, default, reason) => {
                form.check(value, version).map_err(rejected)?;
                if value != default {
                    let reason = format!("not simulated: {reason}");
                    self.not_simulated.push(Refusal { entry: entry.to_owned(), reason });
                }
            }
        }
        Ok(())
    }

    /// Rounds a requested size up to the size of the smallest block that serves it, in bytes.
    pub fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK_BYTES {
            return MIN_BLOCK_BYTES;
        }
        let interval = bytes.ilog2().saturating_sub(FIRST_INTERVAL_LOG2) as usize;
        let divisions = self.divisions[interval.min(INTERVALS - 1)];
        if divisions > 1 && bytes > MIN_BLOCK_BYTES.saturating_mul(divisions) {
            if bytes.is_power_of_two() {
                return bytes;
            }
            let floor = 1_u64 << bytes.ilog2();
            let step = floor >> divisions.ilog2();
            return if step == 0 { floor.saturating_mul(2) } else { up(bytes, step) };
        }
        up(bytes, MIN_BLOCK_BYTES)
    }

    /// Returns the smallest request in bytes that is rounded to a block size as [`Self::round`] returns it.
    pub(crate) fn least_request_bytes(&self, block_bytes: u64) -> u64 {
        let (mut too_small, mut least) = (0, block_bytes);
        while least.saturating_sub(too_small) > 1 {
            let middle = too_small.midpoint(least);
            match self.round(middle) < block_bytes {
                true => too_small = middle,
                false => least = middle,
            }
        }
        least
    }

    /// Returns the size in bytes of the segment that the allocator reserves when no free block serves a
    /// request; an expandable segment only needs room for it under the limit of the process.
    pub fn segment_bytes(&self, block_bytes: u64) -> u64 {
        if block_bytes <= SMALL_BYTES {
            SMALL_SEGMENT_BYTES
        } else if block_bytes < LARGE_REQUEST_BYTES {
            self.large_segment_bytes
        } else {
            up(block_bytes, SMALL_SEGMENT_BYTES)
        }
    }

    /// Returns whether the allocator splits the remainder off a block.
    pub fn splits(&self, wanted_bytes: u64, rest_bytes: u64, is_small: bool, is_expandable: bool) -> bool {
        match is_small || is_expandable {
            true => rest_bytes >= MIN_BLOCK_BYTES,
            false => wanted_bytes < self.max_split_bytes && rest_bytes > SMALL_BYTES,
        }
    }
}

fn up(bytes: u64, step: u64) -> u64 {
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}

/// Splits the text into its entries; commas within brackets belong to the entry, and one at the end ends it.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let text = text.strip_suffix(',').unwrap_or(text);
    let entries = text.split(move |c| {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        c == ',' && depth <= 0
    });
    entries.filter(move |_| !text.is_empty())
}

/// Parses the number of divisions of all sizes, or a list of those from some sizes on.
///
/// # Errors
/// Returns the rule that the value breaks.
fn divisions(value: &str, version: Version) -> Result<[u64; INTERVALS], &'static str> {
    const LIST: &str = "a list [MIB:DIVISIONS,…,>:DIVISIONS] of powers of two, or 0 for no divisions";
    let Some(list) = value.strip_prefix('[') else {
        let count = whole(value, version).filter(|count| count.is_power_of_two());
        return count.map(|count| [count; INTERVALS]).ok_or("a power of two, or a list");
    };
    let list = list.strip_suffix(']').ok_or(LIST)?;
    let list = list.strip_suffix(',').unwrap_or(list);
    let mut divisions = [0; INTERVALS];
    let (mut last, mut is_first) = (0, true);
    for entry in list.split(',').filter(|_| !list.is_empty()) {
        let [from, count] = entry.split(':').collect::<Vec<_>>()[..] else { return Err(LIST) };
        let count = whole(count, version).filter(|count| *count == 0 || count.is_power_of_two());
        let count = count.ok_or(LIST)?;
        if from == ">" {
            // The old parser applies it to the last named size, too.
            let first = last + usize::from(version >= NEW_PARSER);
            divisions[first..].fill(count);
            continue;
        }
        let mebibytes = whole(from, version).filter(|mebibytes| mebibytes.is_power_of_two()).ok_or(LIST)?;
        let index = (mebibytes.ilog2() as usize).min(INTERVALS - 1);
        // The first entry also applies to every smaller size.
        divisions[if is_first { 0 } else { index }..=index].fill(count);
        (last, is_first) = (index, false);
    }
    Ok(divisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_request_is_the_smallest_that_is_rounded_to_a_block() {
        let text = "roundup_power2_divisions:[1:8,64:2,>:1]";
        for settings in ["", "roundup_power2_divisions:2", text].map(|text| Settings::parse(text, "2.11.0")) {
            for bytes in
                [1, 512, 513, 5000, 1 << 20, 3 << 20, (64 << 20) - 1, 64 << 20, (64 << 20) + 1, 900 << 20]
            {
                let block = settings.round(bytes);
                let least = settings.least_request_bytes(block);
                assert!(least <= bytes && settings.round(least) == block, "{bytes} {least}");
                assert!(least <= 1 || settings.round(least - 1) < block, "{bytes} {least}");
            }
        }
        let halves = Settings::parse("roundup_power2_divisions:2", "2.11.0");
        assert_eq!(halves.least_request_bytes(96 << 20), (64 << 20) + 1);
    }

    #[test]
    fn sizes_are_rounded_as_the_allocator_does() {
        let plain = Settings::default();
        assert_eq!([1, 512, 513, 1_048_577].map(|size| plain.round(size)), [512, 512, 1024, 1_049_088]);
        let quarters = Settings::parse("roundup_power2_divisions:4", "");
        assert_eq!([1200, 2049, 1 << 20].map(|size| quarters.round(size)), [1536, 2560, 1 << 20]);
        let listed =
            Settings::parse("roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:64", "2.11.0");
        assert_eq!(listed.max_split_bytes, 64 << 20);
        assert_eq!(listed.round(600 << 20), 768 << 20, "two steps from 512 MiB");
        assert_eq!(listed.round((1025 << 20) + 1), 1152 << 20, "eight from 1 GiB");
        assert_eq!(listed.round((300 << 20) + 1), (300 << 20) + 512);
        let old = Settings::parse("roundup_power2_divisions:[256:1,512:2,>:8]", "2.9.1+cu128");
        assert_eq!(old.round(600 << 20), 640 << 20, "eight from 512 MiB");
        let rest = Settings::parse("roundup_power2_divisions:[>:4]", "2.11.0");
        assert_eq!([1_100_000, 2_200_000].map(|size| rest.round(size)), [1_100_288, 2_621_440]);
    }

    /// Returns why a text is refused, if it is.
    fn refused(text: &str, version: &str) -> Option<String> {
        let settings = Settings::parse(text, version);
        assert!(settings.refused.len() <= 1, "{text}: {:?}", settings.refused);
        settings.refused.first().map(|refusal| refusal.reason.clone())
    }

    /// The libraries of the versions accept and reject these very values.
    #[test]
    fn values_are_accepted_and_rejected_as_by_pytorch() {
        const EVER: [&str; 3] = ["2.9.1+cu128", "2.11.0+cu130", ""];
        for text in [
            "",
            "max_split_size_mb:21",
            "max_split_size_mb:-1",
            "max_split_size_mb:128MB",
            "max_split_size_mb:100.5",
            "max_non_split_rounding_mb:21,",
            " max_split_size_mb : 64 , expandable_segments : True",
            "expandable_segments:False",
            "garbage_collection_threshold:.5",
            "roundup_power2_divisions:1",
            "roundup_power2_divisions:[256:0,512:2,>:8]",
            "roundup_power2_divisions:[>:4]",
            "roundup_power2_divisions:[]",
            "roundup_power2_divisions:[65536:4,>:2]",
            "backend:native",
            "backend:cudaMallocAsync",
            "release_lock_on_hipmalloc:True",
            "pinned_num_register_threads:128",
        ] {
            EVER.iter().for_each(|version| assert_eq!(refused(text, version), None, "{text} {version}"));
        }
        for (text, part) in [
            ("max_split_size_mb:10", "at least 2"),
            ("max_split_size_mb:1.5", "at least 2"),
            ("max_split_size_mb:foo", "a whole number of MiB"),
            ("max_split_size_mb:", "a whole number of MiB"),
            ("max_split_size_mb", "a whole number of MiB"),
            ("max_split_size_mb:99999999999999999999999", "a whole number of MiB"),
            ("max_split_size_mb:64:5", "separated by commas"),
            ("max_split_size_mb:64 expandable_segments:True", "separated by commas"),
            ("max_non_split_rounding_mb:10", "at least 2"),
            ("expandable_segments:true", "True or False"),
            ("expandable_segments:1", "True or False"),
            ("garbage_collection_threshold:0", "above 0 and below 1"),
            ("garbage_collection_threshold:1.0", "above 0 and below 1"),
            ("garbage_collection_threshold:nan", "above 0 and below 1"),
            ("roundup_power2_divisions:3", "a power of two"),
            ("roundup_power2_divisions:0", "a power of two"),
            ("roundup_power2_divisions:[256:3]", "powers of two"),
            ("roundup_power2_divisions:[300:2]", "powers of two"),
            ("roundup_power2_divisions:[0:4]", "powers of two"),
            ("roundup_power2_divisions:[256]", "a list"),
            ("roundup_power2_divisions:[256:1", "a list"),
            ("backend:foo", "native or cudaMallocAsync"),
            ("release_lock_on_cudamalloc:1", "True or False"),
            ("pinned_num_register_threads:3", "a power of two, at most 128"),
            ("pinned_num_register_threads:256", "a power of two, at most 128"),
            ("colour:red", "PyTorch's allocator has no such setting"),
            ("expandable_segment:True", "no such setting; perhaps expandable_segments"),
            (",max_split_size_mb:64", "no such setting"),
            ("max_split_size_mb:64,,expandable_segments:True", "no such setting"),
            ("max_split_size_mb=64", "no such setting; perhaps max_split_size_mb"),
        ] {
            for version in EVER {
                let reason = refused(text, version);
                assert!(
                    reason.as_ref().is_some_and(|reason| reason.contains(part)),
                    "{text} {version}: {reason:?}"
                );
            }
        }
    }

    #[test]
    fn rules_change_with_the_version() {
        let at_least = |number| Some(format!("PyTorch demands a whole number of MiB, at least {number}"));
        assert_eq!(refused("max_split_size_mb:20", "2.9.1"), at_least(21));
        assert_eq!(refused("max_split_size_mb:20", "2.10.0"), None);
        assert_eq!(refused("max_split_size_mb:19", "2.10.0"), at_least(20));
        assert_eq!(refused("max_split_size_mb:32,large_segment_size_mb:64", "2.11.0"), at_least(64));
        assert_eq!(refused("max_non_split_rounding_mb:32,large_segment_size_mb:64", "2.11.0"), at_least(64));
        assert_eq!(refused("large_segment_size_mb:11,max_split_size_mb:12", "2.11.0"), None);
        assert_eq!(refused("large_segment_size_mb:10", "2.11.0"), at_least(11));
        assert_eq!(refused("large_segment_size_mb:0", ""), at_least(11));
        assert_eq!(Settings::parse("large_segment_size_mb:64", "").max_rounding_bytes, 64 << 20);
        assert!(refused("max_split_size_mb:99999999999999", "2.9.1").is_some());
        assert_eq!(refused("max_split_size_mb:99999999999999", "2.10.0"), None);
        for (text, before, since) in [
            ("per_process_memory_fraction:0.5", "2.9.1", "2.10.0"),
            ("pinned_reserve_segment_size_mb:64", "2.9.1", "2.10.0"),
            ("large_segment_size_mb:11", "2.10.0", "2.11.0"),
            ("throw_on_cudamalloc_oom:True", "2.11.0", "2.12.1"),
            ("pinned_free_catch_all:True", "2.11.0", "2.12.1"),
            ("pinned_max_round_threshold_mb:0", "2.12.1", "2.13.0"),
            ("pinned_max_cached_size_mb:1", "2.12.1", "2.13.0"),
            ("expandable_segments_reserve:40G", "2.14.1", "2.15.0"),
            ("expandable_segments_reserve_by_class:[a:0.5]", "2.14.1", "2.15.0"),
        ] {
            let reason = refused(text, before).unwrap_or_default();
            assert!(reason.contains("has no such setting, it came with 2."), "{text}: {reason}");
            assert_eq!((refused(text, since), refused(text, "")), (None, None), "{text}");
        }
        assert_eq!(
            refused("per_process_memory_fraction:0.5", "2.9.1").as_deref(),
            Some("PyTorch 2.9 has no such setting, it came with 2.10")
        );
        for text in ["per_process_memory_fraction:1.5", "per_process_memory_fraction:-0.1"] {
            assert_eq!(refused(text, "").as_deref(), Some("PyTorch demands a number from 0 to 1"), "{text}");
        }
        assert!(refused("pinned_reserve_segment_size_mb:0", "").is_some());
    }

    #[test]
    fn what_is_not_simulated_or_has_no_effect_is_kept() {
        let not_simulated = |text: &str| {
            let settings = Settings::parse(text, "");
            assert!(settings.refused.is_empty(), "{text}: {:?}", settings.refused);
            settings.not_simulated.into_iter().map(|refusal| refusal.entry).collect::<Vec<_>>()
        };
        for text in [
            "backend:native",
            "graph_capture_record_stream_reuse:False",
            "expandable_segments_reserve:1.125",
            "per_process_memory_fraction:1",
            "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5",
        ] {
            assert_eq!(not_simulated(text), Vec::<String>::new(), "{text}");
        }
        for text in [
            "backend:cudaMallocAsync",
            "graph_capture_record_stream_reuse:True",
            "expandable_segments_reserve:0.5",
            "expandable_segments_reserve_by_class:[a:0.5,b:8G]",
            "garbage_collection_threshold:0.8",
        ] {
            assert_eq!(not_simulated(text), [text]);
        }
        let unlimited = "garbage_collection_threshold:0.8,per_process_memory_fraction:1.0";
        assert_eq!(not_simulated(unlimited), ["garbage_collection_threshold:0.8"]);
        let settings = Settings::parse("pinned_use_background_threads:True,throw_on_cudamalloc_oom:True", "");
        let names: Vec<&str> = settings.without_effect.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["pinned_use_background_threads", "throw_on_cudamalloc_oom"]);
        assert!(settings.not_simulated.is_empty());
        let settings = Settings::parse("expandable_segments:maybe, colour:red,max_split_size_mb:20", "");
        let entries: Vec<&str> = settings.refused.iter().map(|refusal| refusal.entry.as_str()).collect();
        assert_eq!(entries, ["expandable_segments:maybe", "colour:red"]);
        assert_eq!(settings.max_split_bytes, 20 << 20);
        assert_eq!(Settings::parse("", ""), Settings::default());
    }

    #[test]
    fn the_variable_of_cuda_comes_first() {
        let pair = |name: &str, mebibytes: u64| (name.to_owned(), format!("max_split_size_mb:{mebibytes}"));
        let both = BTreeMap::from([pair("PYTORCH_CUDA_ALLOC_CONF", 64), pair("PYTORCH_ALLOC_CONF", 128)]);
        let last = BTreeMap::from([pair("PYTORCH_ALLOC_CONF", 128)]);
        for (environment, version, expected) in [
            (&both, "2.9.1", 64 << 20),
            (&both, "2.11.0", 64 << 20),
            (&last, "2.9.1", u64::MAX),
            (&last, "", 128 << 20),
        ] {
            assert_eq!(Settings::of_environment(environment, version).max_split_bytes, expected, "{version}");
        }
    }
}
