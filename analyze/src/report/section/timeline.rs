//! How each thread spent the run.

use crate::report::{
    data::Report,
    document::{Block, Figure, Section},
    time_svg,
};

pub(super) fn build(report: &Report) -> Option<Section> {
    let (timeline, origin_ns, has_schedule) = (&report.timeline, report.origin_ns(), report.has_schedule);
    let blocks = if timeline.lanes.is_empty() {
        vec![Block::Note("No call is on record.".to_owned())]
    } else {
        let lanes = timeline.lanes.len() as f64;
        let mut spark = vec![0.0; timeline.lanes[0].in_calls_ratio.len()];
        for lane in &timeline.lanes {
            spark.iter_mut().zip(&lane.in_calls_ratio).for_each(|(sum, ratio)| *sum += ratio / lanes);
        }
        vec![Block::Figure(Figure {
            name: "timeline".to_owned(),
            caption: format!(
                "Threads with calls, {} of {} shown: share of time inside CUDA calls (up); waiting for a CPU {}",
                timeline.lanes.len(),
                timeline.threads_count,
                if has_schedule { "(down)" } else { "not known" }
            ),
            svg: time_svg::timeline(timeline, origin_ns, has_schedule),
            legend: vec![
                ("in-calls", "inside CUDA calls (up)".to_owned()),
                (
                    "scheduler",
                    format!("waiting for a CPU ({})", if has_schedule { "down" } else { "not known" }),
                ),
            ],
            spark,
            is_folded: false,
        })]
    };
    let question = "How did each thread spend the run?".to_owned();
    Some(Section { id: "timeline", short: "Timeline", question, blocks })
}
