//! Converts `external_annotations`, which profilers and users have written into the history, to marks.

use std::collections::HashMap;

use trace_schema::{TIME_LIMIT_NS, Text};

use crate::pickle::{PickleError, Shape, Store, TextId, Value};

use super::{
    events::{Events, mark_row},
    fields::{field, required, signed},
    keys,
};

/// Values of `stage`: an annotation begins a range, or ends one.
const BEGIN: &str = "START";
const END: &str = "END";

/// Writes the marks. An annotation that begins a range and one of the same name and device that ends it
/// become one mark. A beginning without an end becomes a range without a duration, and every other annotation
/// becomes a point.
pub(super) fn write(events: &mut Events, store: &Store, annotations: Value) -> Result<(), PickleError> {
    let (id, annotations) = store.values(annotations, Shape::List, "`external_annotations`", 0)?;
    let near = store.offset(id);
    let mut open: HashMap<(TextId, i64), Vec<i64>> = HashMap::new();
    for annotation in annotations {
        let (id, pairs) = store.values(*annotation, Shape::Dict, "an annotation", near)?;
        let offset = store.offset(id);
        let time_us = signed(required(pairs, keys::TIME_US, "the annotation", offset)?, "time_us", offset)?;
        let ts = time_us
            .checked_mul(1000)
            .filter(|ts| *ts <= TIME_LIMIT_NS)
            .ok_or_else(|| PickleError::at(offset, format!("`time_us` of what begins here is {time_us}")))?;
        let device = match field(pairs, keys::DEVICE) {
            Some(Value::Int(device)) => device,
            _ => 0,
        };
        let Some(Value::Text(name)) = field(pairs, keys::NAME) else {
            events.recorder.push(&mark_row(ts, None, "point", "annotation".into()))?;
            continue;
        };
        let word = Text::Shared(store.word(name).clone());
        let stage = match field(pairs, keys::STAGE) {
            Some(Value::Text(stage)) => &**store.word(stage),
            _ => "",
        };
        let begun = open.entry((name, device)).or_default();
        match stage {
            BEGIN => begun.push(ts),
            END => {
                // A range whose beginning is missing began before the history.
                let row = match begun.pop() {
                    Some(start) => mark_row(start, Some((ts - start).max(0)), "range", word),
                    None => mark_row(ts, None, "point", word),
                };
                events.recorder.push(&row)?;
            }
            _ => events.recorder.push(&mark_row(ts, None, "point", word))?,
        }
    }
    let mut unended: Vec<(TextId, i64)> = open
        .into_iter()
        .flat_map(|((name, _), starts)| starts.into_iter().map(move |ts| (name, ts)))
        .collect();
    unended.sort_unstable_by_key(|(name, ts)| (*ts, name.0));
    for (name, ts) in unended {
        let word = Text::Shared(store.word(name).clone());
        events.recorder.push(&mark_row(ts, None, "range", word))?;
    }
    Ok(())
}
