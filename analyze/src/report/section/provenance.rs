//! Where the figures come from, and what they cannot show.

use trace_schema::{Bytes, Nanos};

use crate::report::{
    data::Report,
    document::{Block, Row, Section, Table, word},
};

pub(super) fn build(report: &Report) -> Option<Section> {
    let info = &report.info;
    let run = &info.provenance;
    let placed = run.probes.iter().filter(|probe| probe.error.is_none()).count();
    let lost = if run.lost_is_counted {
        run.lost_count().to_string()
    } else {
        "not counted by the source".to_owned()
    };
    let mut facts = vec![
        ("Recorded by", run.producer.clone()),
        ("Command", run.command.join(" ")),
        ("Events", format!("{} in {}", info.rows_count, Bytes(info.size_bytes as i64))),
        ("Lost", lost),
    ];
    if run.clock.end_ns > run.clock.start_ns {
        facts.push(("Length", Nanos(run.clock.end_ns - run.clock.start_ns).to_string()));
    }
    if !run.probes.is_empty() {
        let libraries = run.libraries.len();
        facts.push(("Probes", format!("{placed} of {} placed in {libraries} libraries", run.probes.len())));
    }
    for gpu in &run.gpus {
        facts.push(("GPU", format!("{}, driver {}", gpu.name, gpu.driver)));
    }
    facts.push(("Host", [run.host.os.as_str(), run.host.kernel.as_str(), run.host.cpu.as_str()].join(", ")));
    facts.retain(|(_, value)| !value.trim_matches([' ', ',']).is_empty());
    let facts = facts.into_iter().map(|(name, value)| Row::from(vec![name.into(), value.into()])).collect();
    let mut blocks =
        vec![Block::Table(Table::new(&[word("What"), word("Value")], facts, "SELECT * FROM data_quality"))];
    blocks.push(Block::Heading("Not measured, or to be known".to_owned()));
    blocks.push(if info.warnings.is_empty() {
        Block::Note("Nothing: every probe was placed, and no event was lost.".to_owned())
    } else {
        Block::List(info.warnings.clone())
    });
    let question = "Where do these figures come from, and what do they not show?".to_owned();
    Some(Section { id: "provenance", short: "Provenance", question, blocks })
}
