//! Where a run comes from, what was probed, what was lost, and what it contains.

use trace_schema::{Bytes, Nanos};

use super::align;
use crate::{
    questions::info::Info,
    report::document::{Block, Document, Table, number, word},
};

fn facts(info: &Info) -> Table {
    let run = &info.provenance;
    let host = [&run.host.name, &run.host.os, &run.host.kernel].map(String::as_str).join(" ");
    let cpu = match run.host.cpu.is_empty() {
        true => String::new(),
        false => format!("{} × {}", run.host.cpu_count, run.host.cpu),
    };
    let mut facts = vec![
        ("run", info.run.clone()),
        ("size", format!("{} events, {}", info.rows_count, Bytes(info.size_bytes as i64))),
        ("producer", run.producer.clone()),
        ("command", run.command.join(" ")),
        ("host", host.trim().to_owned()),
        ("cpu", cpu),
    ];
    if !run.redacted.is_empty() {
        facts.push(("redacted", format!("command lines: {}", run.redacted.join(", "))));
    }
    facts.extend(run.gpus.iter().map(|gpu| ("gpu", format!("{}, driver {}", gpu.name, gpu.driver))));
    if run.clock.end_ns > run.clock.start_ns {
        facts.push(("recorded", Nanos(run.clock.end_ns - run.clock.start_ns).to_string()));
    }
    let library = run.libraries.iter();
    facts.extend(library.map(|one| ("library", format!("{} (build id {})", one.path, one.build_id))));
    let placed = run.probes.iter().filter(|probe| probe.error.is_none()).count();
    facts.push(("probes", format!("{placed} of {} placed", run.probes.len())));
    for probe in &run.probes {
        if let Some(error) = &probe.error {
            facts.push(("", format!("{} in {}: {error}", probe.symbol, probe.library)));
        }
    }
    for alignment in &run.alignments {
        facts.push(("aligned", format!("with {}, {}", alignment.profile, alignment.producer)));
        facts.extend(align::facts(alignment).map(|(name, value)| ("", format!("{name}: {value}"))));
    }
    for source in &run.schedules {
        facts.push(("scheduler", format!("of {}, {}", source.trace, source.producer)));
        let error = Nanos(source.offset_error_ns);
        facts.push(("", format!("offset: {} ns, within {error}", source.offset_ns)));
    }
    let lost = match run.lost_is_counted {
        true => run.lost_count().to_string(),
        false => "not counted by the source".to_owned(),
    };
    facts.push(("lost", lost));
    facts.extend(info.warnings.iter().map(|warning| ("note", warning.clone())));
    Table::facts(facts)
}

/// Arranges what is known about each run.
pub fn document(infos: &[Info]) -> Document {
    let blocks = infos.iter().flat_map(|info| {
        let count = |count: &crate::questions::info::Count| {
            [count.kind.clone(), count.op.clone(), count.rows_count.to_string()]
        };
        let counts = info.counts.iter().map(count);
        let counts = Table::texts(&[word("kind"), word("op"), number("events")], counts);
        [Block::Table(facts(info)), Block::Table(counts)]
    });
    Document::answer(blocks.collect())
}
