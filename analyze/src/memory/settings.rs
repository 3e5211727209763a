//! The allocator's settings that decide how large a block is and which segment it comes from:
//! `PYTORCH_CUDA_ALLOC_CONF` and its successor `PYTORCH_ALLOC_CONF`, parsed as c10/core/AllocatorConfig.cpp
//! parses them.

use std::collections::BTreeMap;

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

/// The allocator settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Blocks of at least this many bytes are not split (`max_split_size_mb`); `u64::MAX` means no limit.
    pub max_split_bytes: u64,
    /// Whether segments grow in place (`expandable_segments`).
    pub expandable_segments: bool,
    /// The size in bytes of a large segment, and of a page of a large expandable segment.
    pub large_segment_bytes: u64,
    /// A block that is too large to be split serves a request only if it is at most this many bytes larger
    /// (`max_non_split_rounding_mb`).
    pub max_rounding_bytes: u64,
    /// The number of steps between two powers of two that sizes are rounded up to
    /// (`roundup_power2_divisions`), by size interval; 0 and 1 mean multiples of 512 bytes.
    divisions: [u64; INTERVALS],
    /// The fraction of memory in use from which the allocator frees unused blocks early
    /// (`garbage_collection_threshold`).
    pub gc_threshold_ratio: Option<f64>,
    /// The `name:value` pairs that were not understood.
    pub unknown: Vec<String>,
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
            unknown: Vec::new(),
        }
    }
}

impl Settings {
    /// Parses the settings from a process's environment variables. An empty `torch_version` means that the
    /// version is not known; a recent one is assumed.
    pub fn of_environment(environment: &BTreeMap<String, String>, torch_version: &str) -> Self {
        let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];
        let known = &names[usize::from(is_old(torch_version))..];
        let text = known.iter().find_map(|name| environment.get(*name));
        text.map_or_else(Self::default, |text| Self::parse(text, torch_version))
    }

    /// Parses `name:value,name:[size:value,…]`; pairs that are not understood are kept in [`Self::unknown`].
    pub fn parse(text: &str, torch_version: &str) -> Self {
        let mut settings = Self::default();
        for (name, value) in pairs(text) {
            if settings.set(name, value, is_old(torch_version)).is_none() {
                settings.unknown.push(format!("{name}:{value}"));
            }
        }
        settings
    }

    fn set(&mut self, name: &str, value: &str, is_old: bool) -> Option<()> {
        let mebibytes = || value.parse::<u64>().ok()?.checked_mul(1 << 20);
        match name {
            "max_split_size_mb" => self.max_split_bytes = mebibytes()?,
            "max_non_split_rounding_mb" => self.max_rounding_bytes = mebibytes()?,
            "large_segment_size_mb" => self.large_segment_bytes = mebibytes()?,
            "expandable_segments" => self.expandable_segments = truth(value)?,
            "garbage_collection_threshold" => self.gc_threshold_ratio = Some(value.parse().ok()?),
            "roundup_power2_divisions" => self.divisions = divisions(value, is_old)?,
            // These decide when memory is reserved or released, which the events tell.
            "backend"
            | "pinned_use_cuda_host_register"
            | "pinned_num_register_threads"
            | "pinned_use_background_threads"
            | "pinned_reserve_segment_size_mb"
            | "release_lock_on_cudamalloc"
            | "release_lock_on_device_malloc"
            | "graph_capture_record_stream_reuse"
            | "per_process_memory_fraction"
            | "throw_on_cudamalloc_oom" => (),
            _ => return None,
        }
        Some(())
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

    /// Returns the size in bytes of the segment that the allocator reserves when no free block serves a
    /// request; expandable segments do not use it.
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

fn truth(value: &str) -> Option<bool> {
    match value {
        "True" | "true" | "1" => Some(true),
        "False" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// Splits the text into `name:value` pairs; commas within brackets belong to the value.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut depth = 0;
    text.split(move |c| {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        c == ',' && depth <= 0
    })
    .map(str::trim)
    .filter(|pair| !pair.is_empty())
    .map(|pair| pair.split_once(':').unwrap_or((pair, "")))
    .map(|(name, value)| (name.trim(), value.trim()))
}

/// Returns whether this is PyTorch before 2.10, whose settings parser differed and read only one environment
/// variable.
fn is_old(torch_version: &str) -> bool {
    let mut numbers = torch_version.split(['.', '+']).map_while(|word| word.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < (2, 10))
}

fn divisions(value: &str, is_old: bool) -> Option<[u64; INTERVALS]> {
    let Some(list) = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) else {
        return Some([value.parse().ok()?; INTERVALS]);
    };
    let mut divisions = [0; INTERVALS];
    let mut last = None;
    for entry in list.split(',') {
        let (from, count) = entry.split_once(':')?;
        let count: u64 = count.trim().parse().ok()?;
        if from.trim() == ">" {
            // The old parser applies it to the last named size, too.
            let first = last.map_or(0, |last| last + usize::from(!is_old));
            divisions[first.min(INTERVALS)..].fill(count);
            continue;
        }
        let mebibytes: u64 = from.trim().parse().ok()?;
        let index = (mebibytes.checked_ilog2()? as usize).min(INTERVALS - 1);
        // The first entry also applies to every smaller size.
        divisions[if last.is_none() { 0 } else { index }..=index].fill(count);
        last = Some(index);
    }
    Some(divisions)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn what_is_not_understood_is_kept() {
        let settings = Settings::parse("expandable_segments:maybe, colour:red,max_split_size_mb:20", "");
        assert_eq!(settings.unknown, ["expandable_segments:maybe", "colour:red"]);
        assert_eq!(settings.max_split_bytes, 20 << 20);
        assert_eq!(Settings::parse("", ""), Settings::default());
        assert_eq!(Settings::parse("roundup_power2_divisions:[9", "").unknown.len(), 1);
    }
}
