//! Converts `allocator_settings` to the settings of a process.

use std::collections::BTreeMap;

use crate::pickle::{Shape, Store, Value};

/// The environment variable that PyTorch reads, and the setting in which later versions repeat it.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// Settings that are in bytes here and in mebibytes in the variable, each with its name in the variable.
const IN_MEBIBYTES: [(&str, &str); 2] =
    [("max_split_size", "max_split_size_mb"), ("large_segment_size", "large_segment_size_mb")];

/// Settings that have the same name in the variable.
const SAME: [&str; 1] = ["expandable_segments"];

const GARBAGE_COLLECTION: &str = "garbage_collection_threshold";
const ROUNDUP: &str = "roundup_power2_divisions";

/// Returns the text of a value, or `None` if it is not a single value.
fn scalar(value: Value, store: &Store) -> Option<String> {
    match value {
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::Unsigned(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Text(text) => Some(store.word(text).to_string()),
        _ => None,
    }
}

/// Returns the divisions by size class: one number if all are equal, and `None` if none is set.
fn roundup(value: Value, store: &Store) -> Option<String> {
    let (_, pairs) = store.values(value, Shape::Dict, ROUNDUP, 0).ok()?;
    let classes: Vec<(String, String)> = pairs
        .chunks_exact(2)
        .filter_map(|pair| Some((scalar(pair[0], store)?, scalar(pair[1], store)?)))
        .collect();
    let (_, first) = classes.first()?;
    if classes.iter().all(|(_, divisions)| divisions == first) {
        return (first != "0").then(|| first.clone());
    }
    let classes: Vec<String> =
        classes.iter().map(|(size, divisions)| format!("{size}:{divisions}")).collect();
    Some(format!("[{}]", classes.join(",")))
}

/// Returns the options in the variable's text: `name:value`, separated by commas that are not within
/// brackets.
fn options(text: &str) -> Vec<(String, String)> {
    let mut depth = 0_u32;
    let parts = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let option = |part: &str| {
        let (name, value) = part.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    parts.filter_map(option).collect()
}

/// Returns the settings of a process: the text that the variable would need to have to produce them, and all
/// other settings under their own names.
pub(super) fn environment(settings: Value, store: &Store) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    let Ok((_, pairs)) = store.values(settings, Shape::Dict, "`allocator_settings`", 0) else {
        return environment;
    };
    let mut given = String::new();
    let mut in_force: Vec<(String, String)> = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let Value::Text(name) = pair[0] else {
            continue;
        };
        let name = store.word(name).to_string();
        let value = pair[1];
        if name == VARIABLE {
            given = scalar(value, store).unwrap_or_default();
        } else if let Some((_, option)) = IN_MEBIBYTES.iter().find(|(setting, _)| *setting == name) {
            // A value below zero, or one whose bits are all ones, means that the option is not set.
            if let Value::Int(bytes) = value
                && bytes > 0
                && bytes < i64::MAX
            {
                in_force.push(((*option).to_owned(), (bytes >> 20).to_string()));
            }
        } else if SAME.contains(&name.as_str()) {
            in_force.extend(scalar(value, store).map(|text| (name, text)));
        } else if name == GARBAGE_COLLECTION {
            let threshold = match value {
                Value::Float(threshold) => threshold,
                Value::Int(threshold) => threshold as f64,
                _ => 0.0,
            };
            if threshold > 0.0 {
                in_force.push((name, threshold.to_string()));
            }
        } else if name == ROUNDUP {
            in_force.extend(roundup(value, store).map(|text| (name, text)));
        } else if let Some(text) = scalar(value, store) {
            environment.insert(name, text);
        }
    }
    // An option that the settings do not repeat is known from the text that was given. (Divisions and the
    // like that are not in force are left out, because the allocator did not accept them.)
    let known: Vec<&str> = IN_MEBIBYTES.iter().map(|(_, option)| *option).chain(SAME).collect();
    for (name, value) in options(&given) {
        let repeated =
            known.contains(&name.as_str()) || [GARBAGE_COLLECTION, ROUNDUP].contains(&name.as_str());
        if !repeated && !environment.contains_key(&name) {
            in_force.push((name, value));
        }
    }
    if !in_force.is_empty() {
        let options: Vec<String> = in_force.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        environment.insert(VARIABLE.to_owned(), options.join(","));
    }
    environment
}
