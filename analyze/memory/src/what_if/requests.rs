//! Serves a list of requests that were not recorded but are known, such as the weights of a model, to compare
//! the resulting segments with recorded ones.

use std::path::Path;

use super::{
    super::{settings::Settings, totals::DEFAULT_POOL},
    policy::{Policy, Use},
};
use analyze_run::{error::AnalyzeError, text_file};

/// A request for a block that is never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requested size in bytes.
    pub size_bytes: u64,
    /// The name of what it is for; empty if there is none.
    pub name: String,
}

/// The largest accepted size in bytes, more than any device has.
const MAX_BYTES: u64 = 1 << 46;

/// Reads a file of lines `BYTES` or `BYTES,NAME`; the first line may be the header `bytes` or `bytes,name`.
///
/// # Errors
/// Returns an error if the file cannot be read or has no requests, or, naming the line, if a line is
/// malformed.
pub fn read(path: &Path) -> Result<Vec<Request>, AnalyzeError> {
    let text = text_file::read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let requests = lines.filter(|(number, line)| *number > 0 || !line.starts_with("bytes"));
    let read: Result<Vec<Request>, AnalyzeError> = requests
        .map(|(number, line)| {
            let (bytes, name) = line.split_once(',').unwrap_or((line, ""));
            let size_bytes = bytes.trim().parse().ok().filter(|bytes| *bytes <= MAX_BYTES);
            let bad = || {
                AnalyzeError::Query(format!(
                    "{}: line {}: {:?} is not BYTES or BYTES,NAME",
                    path.display(),
                    number + 1,
                    analyze_run::text::harmless(line)
                ))
            };
            Ok(Request { size_bytes: size_bytes.ok_or_else(bad)?, name: name.trim().to_owned() })
        })
        .collect();
    let requests = read?;
    if requests.is_empty() {
        return Err(AnalyzeError::Query(format!("{}: has no requests", path.display())));
    }
    // The blocks are all there at a time.
    let all_bytes = requests.iter().fold(0_u64, |sum, request| sum.saturating_add(request.size_bytes));
    if all_bytes > MAX_BYTES {
        return Err(AnalyzeError::Query(format!(
            "{}: its requests are more than the limit requests_bytes of {MAX_BYTES} together",
            path.display()
        )));
    }
    Ok(requests)
}

/// A segment as the policy lays it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The size in bytes.
    pub size_bytes: u64,
    /// The sizes of the free blocks in bytes, in order of their addresses.
    pub free_bytes: Vec<u64>,
    /// The names of the requests in it.
    pub names: Vec<String>,
}

/// The memory that serving the requests takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The segments, in the order in which they were reserved.
    pub segments: Vec<Segment>,
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
}

/// Serves the requests in order, from the default pool on the default stream.
pub fn lay_out(requests: &[Request], settings: Settings) -> Layout {
    let mut policy = Policy::new(settings, None, None);
    let names: std::collections::HashMap<u64, &str> = requests
        .iter()
        .filter_map(|request| {
            Some((policy.alloc(request.size_bytes, 0, DEFAULT_POOL)?, request.name.as_str()))
        })
        .collect();
    let mut segments = vec![Segment::default(); policy.spaces.len()];
    for (addr, block) in &policy.blocks {
        let segment = &mut segments[block.space];
        match block.is {
            Use::Unmapped => continue,
            Use::Free => segment.free_bytes.push(block.size_bytes),
            Use::Active | Use::Pending => {
                segment.names.extend(names.get(addr).map(|name| (*name).to_owned()))
            }
        }
        segment.size_bytes += block.size_bytes;
    }
    let counts = policy.counts;
    Layout { segments, reserved_bytes: counts.reserved_bytes, allocated_bytes: counts.allocated_bytes }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_first_line_that_is_no_request_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("requests.csv");
        for (text, expected) in [
            ("bytes,name\n5,a\n\n 7 , b\n", Ok(vec![5, 7])),
            ("12\n", Ok(vec![12])),
            ("12\n-3\n", Err("line 2")),
            ("99999999999999999\n", Err("line 1")),
            ("70368744177664\n1\n", Err("requests_bytes of 70368744177664")),
            ("bytes\n", Err("no requests")),
            ("", Err("no requests")),
            ("1,a\nbytes\n", Err("line 2")),
        ] {
            fs::write(&path, text).expect("a file");
            let sizes =
                |found: Vec<Request>| found.iter().map(|request| request.size_bytes).collect::<Vec<_>>();
            let found = read(&path).map(sizes);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, expected) => panic!("{text:?}: {found:?}, not {expected:?}"),
            }
        }
    }

    /// Returns the weights of Qwen2.5-0.5B in the order of its modules, with two bytes per number.
    fn weights() -> Vec<Request> {
        let mut found = vec![("embed_tokens.weight".to_owned(), 151_936 * 896)];
        for layer in 0..24 {
            let mut add = |name: &str, count: u64| found.push((format!("layers.{layer}.{name}"), count));
            for (name, rows) in [("q_proj", 896), ("k_proj", 128), ("v_proj", 128)] {
                add(&format!("self_attn.{name}.weight"), rows * 896);
                add(&format!("self_attn.{name}.bias"), rows);
            }
            add("self_attn.o_proj.weight", 896 * 896);
            ["gate_proj", "up_proj", "down_proj"]
                .iter()
                .for_each(|name| add(&format!("mlp.{name}.weight"), 4864 * 896));
            add("input_layernorm.weight", 896);
            add("post_attention_layernorm.weight", 896);
        }
        found.push(("norm.weight".to_owned(), 896));
        found.into_iter().map(|(name, count)| Request { size_bytes: 2 * count, name }).collect()
    }

    /// Compares with a published investigation of this model: 43 segments, 992.0 MiB reserved, 950.2 MiB
    /// allocated, a gap of 41.8 MiB; and a gap of 53.7 MiB after cuBLAS allocated its workspace.
    #[test]
    fn a_published_gap_is_the_rests_of_the_weights() {
        let mut requests = weights();
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let layout = lay_out(&requests, Settings::default());
        assert_eq!(layout.segments.len(), 43);
        let first: Vec<u64> =
            layout.segments.iter().map(|segment| segment.size_bytes >> 20).take(10).collect();
        assert_eq!(first, [260, 20, 2, 20, 20, 20, 20, 20, 2, 20]);
        assert_eq!(layout.reserved_bytes, 992 << 20);
        assert_eq!(format!("{:.2}", mebibytes(layout.allocated_bytes)), "950.17");
        requests.push(Request { size_bytes: 8_519_680, name: "workspace".to_owned() });
        let layout = lay_out(&requests, Settings::default());
        assert_eq!(layout.reserved_bytes, 1012 << 20);
        assert_eq!(format!("{:.2}", mebibytes(layout.reserved_bytes - layout.allocated_bytes)), "53.71");
        let mut split_policies: Vec<u64> =
            layout.segments.iter().flat_map(|segment| &segment.free_bytes).copied().collect();
        split_policies.sort_unstable();
        assert_eq!(split_policies.len(), 14);
        assert!(split_policies[1..13].iter().all(|bytes| mebibytes(*bytes) == 3.375), "{split_policies:?}");
        assert_eq!(mebibytes(split_policies[13]), 11.875);
        assert_eq!(format!("{:.3}", mebibytes(split_policies[0])), "1.334");
        assert!(layout.segments.iter().all(|segment| !segment.names.is_empty()), "none is unused");
    }
}
