//! Metadata of a trace: its GPUs, and the names of processes and threads.

use std::{collections::BTreeMap, io::Read};

use trace_schema::{Gpu, ProcessInfo, Run, Thread};

use super::event::{Event, Field};
use crate::{
    json::{Json, JsonError, Shape},
    limits::NAMES_BYTES,
};

/// Largest number of names that are kept; no real program has more.
const MAX_NAMES: usize = 1 << 16;

/// Metadata collected while the trace is read.
#[derive(Default)]
pub(super) struct Metadata {
    gpus: Vec<String>,
    /// Newest CUDA version that the driver supports, as 1000 × major + 10 × minor.
    cuda_version: Option<u32>,
    labels: BTreeMap<u32, String>,
    processes: BTreeMap<u32, String>,
    threads: BTreeMap<(u32, u32), String>,
    /// Size of the names that are kept, in bytes.
    names_bytes: usize,
    /// Number of names that were not kept because there were too many.
    left_out_count: u64,
}

/// Returns the name of a thread: Kineto writes the thread `python3` as `thread 681 (python3)`.
fn thread_name(name: &str) -> &str {
    let inner = name.strip_prefix("thread ").and_then(|rest| rest.split_once(" (")).map(|(_, name)| name);
    inner.and_then(|name| name.strip_suffix(')')).unwrap_or(name).trim()
}

impl Metadata {
    /// Reads `deviceProperties`, and keeps the names of the GPUs.
    ///
    /// # Errors
    /// Returns an error if the value is not a list of objects, or a name is not a string.
    pub(super) fn read_devices(&mut self, json: &mut Json<impl Read>) -> Result<(), JsonError> {
        json.begin(Shape::List, "`deviceProperties`")?;
        let (mut is_first, mut key) = (true, String::new());
        while json.next_element(&mut is_first)? {
            json.begin(Shape::Object, "a device")?;
            let mut is_first = true;
            while json.next_key(&mut is_first, &mut key)? {
                if key == "name" {
                    json.text(&mut key, "the name of a device")?;
                    if self.gpus.len() < MAX_NAMES && self.has_room(&key) {
                        self.gpus.push(key.clone());
                    } else {
                        self.left_out_count += 1;
                    }
                } else {
                    json.skip()?;
                }
            }
        }
        Ok(())
    }

    /// Reads `cuda_driver_version`, the newest CUDA version that the driver supports.
    ///
    /// # Errors
    /// Returns an error if the value is not a number.
    pub(super) fn read_cuda_version(&mut self, json: &mut Json<impl Read>) -> Result<(), JsonError> {
        let mut text = String::new();
        json.number(&mut text, "`cuda_driver_version`")?;
        self.cuda_version = text.parse().ok();
        Ok(())
    }

    /// Returns whether a name can be kept, and counts its bytes if it can.
    fn has_room(&mut self, name: &str) -> bool {
        let names_bytes = self.names_bytes.saturating_add(name.len());
        let has_room = !NAMES_BYTES.is_exceeded_by(names_bytes);
        if has_room {
            self.names_bytes = names_bytes;
        }
        has_room
    }

    /// Takes a metadata event (phase `M`).
    pub(super) fn event(&mut self, event: &Event) {
        let number = |field| match field {
            Field::Integer(number) => u32::try_from(number).ok(),
            _ => None,
        };
        let Some(pid) = number(event.pid) else { return };
        let count = self.labels.len() + self.processes.len() + self.threads.len();
        if count >= MAX_NAMES || !self.has_room(&event.label) {
            self.left_out_count += 1;
            return;
        }
        match (event.name.as_str(), number(event.tid)) {
            ("process_labels", _) => drop(self.labels.insert(pid, event.label.clone())),
            ("process_name", _) => drop(self.processes.insert(pid, event.label.clone())),
            ("thread_name", Some(tid)) => {
                drop(self.threads.insert((pid, tid), thread_name(&event.label).to_owned()));
            }
            _ => {}
        }
    }

    /// Adds the metadata to that of the run.
    pub(super) fn finish(self, run: &mut Run) {
        let driver = self.cuda_version.map_or_else(
            || "unknown".to_owned(),
            |version| format!("of CUDA {}.{}", version / 1000, version % 1000 / 10),
        );
        run.gpus = self.gpus.into_iter().map(|name| Gpu { name, driver: driver.clone() }).collect();
        // A GPU has the device's number where a process has its id.
        let is_gpu = |pid: u32| self.labels.get(&pid).is_some_and(|label| label.starts_with("GPU"));
        let mut threads: BTreeMap<(u32, u32), String> = self
            .processes
            .iter()
            .filter(|(pid, _)| !is_gpu(**pid))
            .map(|(pid, name)| ((*pid, *pid), name.clone()))
            .collect();
        let processes: Vec<u32> = threads.keys().map(|(pid, _)| *pid).collect();
        threads.extend(self.threads.into_iter().filter(|((pid, _), _)| !is_gpu(*pid)));
        run.processes =
            processes.into_iter().map(|pid| ProcessInfo { pid, ..ProcessInfo::default() }).collect();
        run.threads = threads.into_iter().map(|((pid, tid), comm)| Thread { pid, tid, comm }).collect();
        if self.left_out_count > 0 {
            run.not_captured
                .push(format!("{} names of processes and threads: there are too many", self.left_out_count));
        }
    }
}
