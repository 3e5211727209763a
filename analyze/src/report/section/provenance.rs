//! Where the figures come from, and what they cannot show.

use trace_schema::{Bytes, Nanos};

use crate::analysis::info::Info;

/// Facts and reservations.
pub(crate) struct Provenance {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn build(info: &Info) -> Provenance {
    let run = &info.provenance;
    let placed = run.probes.iter().filter(|probe| probe.error.is_none()).count();
    let mut facts = vec![
        ("Recorded by", run.producer.clone()),
        ("Command", run.command.join(" ")),
        ("Events", format!("{} in {}", info.rows_count, Bytes(info.size_bytes as i64))),
        (
            "Lost",
            if run.lost_is_counted {
                run.lost_count().to_string()
            } else {
                "not counted by the source".to_owned()
            },
        ),
    ];
    if run.clock.end_ns > run.clock.start_ns {
        facts.push(("Length", Nanos(run.clock.end_ns - run.clock.start_ns).to_string()));
    }
    if !run.probes.is_empty() {
        facts.push((
            "Probes",
            format!("{placed} of {} placed in {} libraries", run.probes.len(), run.libraries.len()),
        ));
    }
    for gpu in &run.gpus {
        facts.push(("GPU", format!("{}, driver {}", gpu.name, gpu.driver)));
    }
    facts.push(("Host", [run.host.os.as_str(), run.host.kernel.as_str(), run.host.cpu.as_str()].join(", ")));
    facts.retain(|(_, value)| !value.trim_matches([' ', ',']).is_empty());
    Provenance { facts, warnings: info.warnings.clone() }
}
