//! Names sites by their call stacks.
//!
//! The frames of the allocator itself and those without a name are left out; see the `frames` module.

use std::collections::{HashMap, HashSet};

use futures::TryStreamExt;

use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    events::Events,
    symbols,
};

/// The names of call stacks, by run, process and stack number: functions separated by semicolons, outermost
/// first.
pub type Frames = HashMap<(String, u32, u32), String>;

/// Returns the frames that name a site, or `None` if no frame does.
fn site(frames: &str) -> Option<String> {
    let named: Vec<&str> = symbols::of_program(frames).collect();
    (!named.is_empty()).then(|| named.join(";"))
}

/// Reads the names of the wanted stacks; stacks without a named frame are left out.
pub async fn frames(
    events: &dyn Events,
    wanted: &HashSet<(String, u32, u32)>,
) -> Result<Frames, AnalyzeError> {
    let mut found = Frames::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let query = "SELECT run, pid, stack, frames FROM stacks";
    let mut batches = events.select(query);
    while let Some(batch) = batches.try_next().await? {
        let (runs, frames) = (strings(&batch, "run")?, strings(&batch, "frames")?);
        let (pids, stacks) = (integers(&batch, "pid")?, integers(&batch, "stack")?);
        for row in 0..batch.num_rows() {
            let (Some(pid), Some(stack)) = (pids.at(row), stacks.at(row)) else { continue };
            let key = (runs.value(row).to_owned(), pid as u32, stack as u32);
            if wanted.contains(&key)
                && let Some(site) = frames.at(row).and_then(site)
            {
                found.insert(key, site);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::site;

    #[test]
    fn a_site_is_what_the_program_called() {
        let frames = "main;0x7ffd37f59b30;at::empty;c10::CUDACachingAllocator::malloc;memcpy";
        assert_eq!(site(frames).as_deref(), Some("main;at::empty"));
        assert_eq!(site("0x1;c10::CUDACachingAllocator::malloc"), None);
    }
}
