//! The allocator's settings that decide how large a block is and where it comes from: `PYTORCH_CUDA_ALLOC_CONF` and its successor
//! `PYTORCH_ALLOC_CONF`, as c10/core/AllocatorConfig.cpp reads them.

use std::collections::BTreeMap;

/// Blocks are multiples of this.
pub const MIN_BLOCK_BYTES: u64 = 512;
/// Up to here a block comes from the pool of small ones; a larger rest than this is split off a large block.
pub const SMALL_BYTES: u64 = 1 << 20;
/// A segment of small blocks, and a page of an expandable one.
pub const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// A segment of blocks below 10 MiB, and a page of an expandable one.
pub const LARGE_SEGMENT_BYTES: u64 = 20 << 20;

/// From here a block has a segment of its own size.
const LARGE_REQUEST_BYTES: u64 = 10 << 20;

/// Intervals of `roundup_power2_divisions`: powers of two from 1 MiB.
const INTERVALS: usize = 16;
const FIRST_INTERVAL_LOG2: u32 = 20;

/// Settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Blocks from here are not split.
    pub max_split_bytes: u64,
    /// Segments grow in place.
    pub expandable_segments: bool,
    /// The large segment, and the page of an expandable one.
    pub large_segment_bytes: u64,
    /// A block that is not split serves no request that it is so much larger than.
    pub max_rounding_bytes: u64,
    /// Steps between powers of two that sizes are rounded up to, by size; 0 and 1: multiples of 512.
    divisions: [u64; INTERVALS],
    /// The share of memory from which unused blocks are released early.
    pub gc_threshold_ratio: Option<f64>,
    /// Words that were not understood.
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
    /// Reads the environment of a process with this version of PyTorch; empty: not known, taken as a recent one.
    pub fn of_environment(environment: &BTreeMap<String, String>, torch_version: &str) -> Self {
        let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];
        let known = &names[usize::from(is_old(torch_version))..];
        let text = known.iter().find_map(|name| environment.get(*name));
        text.map_or_else(Self::default, |text| Self::parse(text, torch_version))
    }

    /// Reads `name:value,name:[size:value,…]`.
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
            // These decide when memory is asked for or given back, which the events say.
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

    /// The size of the smallest block for a request.
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

    /// The segment that is asked for if no block serves a request, but for expandable ones.
    pub fn segment_bytes(&self, block_bytes: u64) -> u64 {
        if block_bytes <= SMALL_BYTES {
            SMALL_SEGMENT_BYTES
        } else if block_bytes < LARGE_REQUEST_BYTES {
            self.large_segment_bytes
        } else {
            up(block_bytes, SMALL_SEGMENT_BYTES)
        }
    }

    /// Whether what is left of a block is split off.
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

/// `name:value` pairs; commas within brackets belong to the value.
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

/// Before 2.10, whose reader of settings was another: it knew one name of the variable only.
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
            // The old reader lets it hold for the last size named, too.
            let first = last.map_or(0, |last| last + usize::from(!is_old));
            divisions[first.min(INTERVALS)..].fill(count);
            continue;
        }
        let mebibytes: u64 = from.trim().parse().ok()?;
        let index = (mebibytes.checked_ilog2()? as usize).min(INTERVALS - 1);
        // The first entry holds for everything below it, too.
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
