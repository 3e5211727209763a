//! Converts the whole snapshot: its events while they are read, then its state, then its metadata.

use std::path::Path;

use trace_schema::{Clock, ProcessInfo, Run};
use trace_writer::{Finished, Recorder};

use crate::{
    compressed,
    importer::{Head, Importer, Job},
    pickle::{Consumer, Keys, Machine, PickleError, Shape, Source, Store, Streamed, Value},
};
use analyze_run::error::{AnalyzeError, Place};

use super::{
    annotations,
    events::{DEVICES, Events},
    fields::field,
    keys, settings, state,
};

/// Snapshots of PyTorch's caching allocator.
pub(crate) struct TorchSnapshot;

impl Importer for TorchSnapshot {
    fn name(&self) -> &'static str {
        "torch-snapshot"
    }

    fn about(&self) -> &'static str {
        "Pickle of `torch.cuda.memory._snapshot()` or `_dump_snapshot()`, also with gzip"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        // A pickle of protocol 2 or later begins with the protocol's number; an earlier one begins with a
        // dict.
        matches!(head.bytes, [0x80, 2..=5, ..] | [b'(', b'd', ..] | [b'}', ..])
            && (head.contains("device_traces") || head.contains("segments"))
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(job.file, job.out, job.force)
    }
}

/// Converts a snapshot to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the file is not a snapshot, is damaged or malicious, or the run cannot be written.
fn import(path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let error = |error| match error {
        PickleError::Io(source) => AnalyzeError::Io { path: path.to_owned(), source },
        PickleError::Write(source) => AnalyzeError::Write(source),
        PickleError::At { offset, reason } => AnalyzeError::unreadable(path, Place::Byte(offset), reason),
    };
    let (bytes, length) =
        compressed::open(path).map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })?;
    let source = Source::new(bytes, length);
    let recorder = Recorder::create(out, force, &base())?;
    let mut events = Events::new(recorder);
    match convert(source, &mut events) {
        Ok(run) => Ok(events.recorder.finish(&run)?),
        Err(failed) => {
            events.recorder.discard();
            Err(error(failed))
        }
    }
}

/// Returns the metadata that every snapshot has.
fn base() -> Run {
    Run {
        producer: "torch snapshot".to_owned(),
        lost_is_counted: false,
        not_captured: vec![
            "calls of CUDA, kernels and copies: a snapshot has the allocator's side only".to_owned(),
            "what the scheduler did, and which process and threads allocated: they are 0 here".to_owned(),
            "memory outside of PyTorch's caching allocator (contexts, modules, cuBLAS, NCCL), other processes \
             and the memory of the whole device"
                .to_owned(),
        ],
        ..Run::default()
    }
}

/// Writes all rows and returns the metadata of the run. Errs if the pickle is damaged or is not a snapshot.
pub(super) fn convert(source: Source<'_>, events: &mut Events) -> Result<Run, PickleError> {
    let keys = Keys { streamed: keys::DEVICE_TRACES, condensed: keys::FRAMES };
    let (root, mut store, streamed) = Machine::new(source, keys::KNOWN, keys).run(events)?;
    let (_, pairs) = store.values(root, Shape::Dict, "this is no snapshot of PyTorch: its top", 0)?;
    let [traces, segments, given, annotations] =
        [keys::DEVICE_TRACES, keys::SEGMENTS, keys::ALLOCATOR_SETTINGS, keys::EXTERNAL_ANNOTATIONS]
            .map(|key| field(pairs, key));
    if traces.is_none() && segments.is_none() {
        let reason =
            "this is no snapshot of PyTorch: its top dict has neither `segments` nor `device_traces`";
        return Err(PickleError::at(0, reason));
    }
    finish_traces(events, &mut store, traces, &streamed)?;
    events.end_notes(&store)?;
    if let Some(annotations) = annotations {
        annotations::write(events, &store, annotations)?;
    }
    let taken_ns = events.last_ns.map_or(0, |last| last + 1);
    let segments_count =
        segments.map_or(Ok(0), |segments| state::write(events, &mut store, segments, taken_ns))?;
    let mut run = base();
    run.clock = Clock { start_ns: events.first_ns.unwrap_or(taken_ns), end_ns: taken_ns, ..Clock::default() };
    let environment = given.map(|given| settings::environment(given, &store)).unwrap_or_default();
    run.processes = vec![ProcessInfo { environment, ..ProcessInfo::default() }];
    add_limits(&mut run, events, segments_count);
    Ok(run)
}

/// Checks that the lists whose events were streamed are where they seemed to be, and writes the events of the
/// lists that were not streamed.
fn finish_traces(
    events: &mut Events,
    store: &mut Store,
    traces: Option<Value>,
    streamed: &[Streamed],
) -> Result<(), PickleError> {
    let lists = match traces {
        Some(traces) => store.values(traces, Shape::List, "`device_traces`", 0)?.1.to_vec(),
        None => Vec::new(),
    };
    if lists.len() > DEVICES {
        let reason = format!("it has {} devices: no machine has that many", lists.len());
        return Err(PickleError::at(0, reason));
    }
    for list in streamed {
        let id = Value::Object(list.list);
        if lists.iter().filter(|found| **found == id).count() != 1 || lists.get(list.index) != Some(&id) {
            let reason =
                "a list of events that begins here is not in its place in `device_traces`, or more than once";
            return Err(PickleError::at(store.offset(list.list), reason));
        }
    }
    for (index, list) in lists.iter().enumerate() {
        let (id, _) = store.values(*list, Shape::List, "a device's trace", 0)?;
        let offset = store.offset(id);
        events.device(index, offset)?;
        let entries = store.take(id);
        for entry in &entries {
            events.element(index, *entry, store, offset)?;
        }
        store.finish(id, entries, None);
    }
    Ok(())
}

/// Adds what this snapshot cannot show to the metadata.
fn add_limits(run: &mut Run, events: &Events, segments_count: usize) {
    let mut add = |what: String| run.not_captured.push(what);
    let counted: u64 = events.devices.iter().map(|device| device.history.events_count()).sum();
    if counted == 0 {
        add("any event: no history was recorded, only the final state; its time is not known and is 0 here"
            .to_owned());
    }
    let mut begins_late = counted == 0 && segments_count > 0;
    for (index, device) in events.devices.iter().enumerate() {
        let unexplained = device.history.unexplained_count();
        if unexplained > 0 && device.history.events_count() > 0 {
            begins_late = true;
            add(format!(
                "the beginning, on device {index}: the history begins in the middle. {unexplained} times memory is \
                 freed, or there in the end, whose allocation it does not have: its ring was full, or it was \
                 switched on late"
            ));
        } else if unexplained > 0 && counted > 0 {
            begins_late = true;
            add(format!("any event of device {index}, only its final state"));
        }
    }
    if events.timeless_count > 0 {
        add(format!(
            "when {} events happened: they have no times in this version; theirs are their order",
            events.timeless_count
        ));
    }
    if events.backward_count > 0 {
        add(format!(
            "the exact times of {} events that are dated before their predecessors; they keep their order",
            events.backward_count
        ));
    }
    let left_out = events.stacks.left_out_count();
    if left_out > 0 {
        add(format!("{left_out} call stacks: they are too long to be kept"));
    }
    run.joined_running = begins_late;
}
