//! Counters of the GPUs (NVML), on the timeline's axis.

use crate::{
    questions::{
        devices::{Device, THROTTLE_REASONS, reading},
        timeline::Timeline,
    },
    report::{
        chart::counters,
        data::Report,
        document::{Block, Figure, Row, Section, Table, number, word},
    },
};

const QUESTION: &str = "What did the GPUs' own counters read?";

fn table(device: &Device) -> Table {
    let rows = device.counters.iter().map(|counter| -> Row {
        let name = counter.name.as_str();
        // The value is a set of bits, which has no mean.
        let mean = match name {
            THROTTLE_REASONS => "–".to_owned(),
            _ => reading(name, counter.mean.round() as i64),
        };
        vec![
            name.into(),
            counter.readings_count.into(),
            reading(name, counter.least).into(),
            mean.into(),
            reading(name, counter.most).into(),
        ]
        .into()
    });
    let columns = [word("Counter"), number("Readings"), number("Least"), number("Mean"), number("Most")];
    let sql = format!(
        "SELECT counter, count(*) AS readings_count, min(value) AS least, avg(value) AS mean, max(value) AS most FROM samples WHERE device = {} AND pid IS NULL GROUP BY counter ORDER BY counter",
        device.device
    );
    Table::new(&columns, rows.collect(), &sql)
}

fn figure(device: &Device, timeline: &Timeline, origin_ns: i64) -> Figure {
    let busy = device.counters.iter().find(|counter| counter.name == "gpu_busy_percent");
    let in_figure = device.counters.iter().filter(|counter| counter.is_drawn());
    let shown: usize = in_figure.map(|counter| counter.readings.len()).sum();
    let all: i64 = device.counters.iter().map(|counter| counter.readings_count).sum();
    Figure {
        name: format!("gpu-{}", device.device),
        caption: format!(
            "GPU {} over the time of the timeline: {shown} steps of {all} readings, the most of each. Before the first reading and after the last nothing is known",
            device.device
        ),
        svg: counters::draw(device, timeline, origin_ns),
        legend: Vec::new(),
        spark: busy
            .map_or_else(Vec::new, |busy| busy.readings.iter().map(|one| one.most as f64 / 100.0).collect()),
        is_folded: false,
    }
}

pub(super) fn build(report: &Report) -> Option<Section> {
    let (devices, timeline, origin_ns) = (&report.devices, &report.timeline, report.origin_ns());
    let mut blocks = Vec::new();
    if devices.is_empty() {
        blocks.push(Block::Note(
            "Not measured: no counter of a GPU is on record. `capture` reads them from NVML (not with `--nvml off`, nor where the driver has no NVML); other tools' traces have none."
                .to_owned(),
        ));
    } else {
        blocks.push(Block::Note(
            "Busy is the share of a driver's sampling period in which any kernel ran, however small: it does not say how much of the GPU was used. Readings are shown beside the calls; no verdict rests on them."
                .to_owned(),
        ));
    }
    for device in devices {
        if device.counters.iter().any(|counter| counter.is_drawn()) {
            blocks.push(Block::Figure(figure(device, timeline, origin_ns)));
        }
        blocks.push(Block::Table(table(device).caption(format!("GPU {}", device.device))));
    }
    Some(Section { id: "devices", short: "GPU counters", question: QUESTION.to_owned(), blocks })
}
