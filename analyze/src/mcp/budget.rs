//! Answers within a budget of bytes: lists are cut at whole items, from their ends, and what was left out is said.
//!
//! The list with the most items is cut first. A list of numbers is one figure, and a list within a list one item: neither
//! is cut.

use rmcp::schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The budget of an answer unless the request has one.
pub const DEFAULT_BYTES: usize = 16 << 10;
/// The least budget.
pub const LEAST_BYTES: usize = 2 << 10;
/// The largest budget.
pub const MOST_BYTES: usize = 256 << 10;

/// What was left out of one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct LeftOut {
    /// The list, as a JSON pointer into the answer; empty for the answer as a whole.
    pub list: String,
    /// The number of items that are there.
    pub shown_count: usize,
    /// The number of items that there would be; `null` if that is not known.
    pub all_count: Option<usize>,
}

/// Returns the number of bytes that an answer may have, given what the request asks for.
pub fn bytes(asked: Option<usize>) -> usize {
    asked.unwrap_or(DEFAULT_BYTES).clamp(LEAST_BYTES, MOST_BYTES)
}

/// Returns the size of a value as text.
fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(0, |text| text.len())
}

/// Finds the list with the most items that can be cut, by its JSON pointer and its number of items.
fn longest(value: &Value, pointer: &str) -> Option<(String, usize)> {
    match value {
        Value::Array(items) => {
            let is_cut = !items.is_empty() && !items.iter().all(Value::is_number);
            let own = is_cut.then(|| (pointer.to_owned(), items.len()));
            let inner = items.iter().enumerate().filter(|(_, item)| !item.is_array());
            let inner = inner.filter_map(|(place, item)| longest(item, &format!("{pointer}/{place}")));
            // Of lists with as many items, the first and outermost one.
            own.into_iter().chain(inner).reduce(|most, other| if other.1 > most.1 { other } else { most })
        }
        Value::Object(fields) => {
            let inner = fields.iter().filter_map(|(name, field)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                longest(field, &format!("{pointer}/{name}"))
            });
            inner.reduce(|most, other| if other.1 > most.1 { other } else { most })
        }
        _ => None,
    }
}

/// Cuts a value by at least `excess_bytes`, or as far as one list allows without losing more than half of its items. Returns
/// false if nothing is left that could be cut.
pub fn cut(value: &mut Value, excess_bytes: usize, left_out: &mut Vec<LeftOut>) -> bool {
    let Some((pointer, all_count)) = longest(value, "") else { return false };
    let Some(Value::Array(items)) = value.pointer_mut(&pointer) else { return false };
    let (least_count, mut cut_bytes) = (all_count / 2, 0);
    while items.len() > least_count && cut_bytes < excess_bytes {
        cut_bytes += items.pop().map_or(0, |item| size(&item) + 1);
    }
    let shown_count = items.len();
    // What was left out within an item that is gone is of no interest.
    let is_gone = |list: &str| {
        let place = list
            .strip_prefix(&pointer)
            .and_then(|rest| rest.strip_prefix('/')?.split('/').next()?.parse::<usize>().ok());
        place.is_some_and(|place| place >= shown_count)
    };
    left_out.retain(|other| !is_gone(&other.list));
    match left_out.iter_mut().find(|other| other.list == pointer) {
        Some(known) => known.shown_count = shown_count,
        None => left_out.push(LeftOut { list: pointer, shown_count, all_count: Some(all_count) }),
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_cut_at_whole_items_and_the_longest_first() {
        let mut value = json!({ "few": [{ "numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9] }], "rows": [["a", "b"], ["c", "d"], ["e", "f"]] });
        let mut left_out = Vec::new();
        assert!(cut(&mut value, 1, &mut left_out));
        assert_eq!(value["rows"], json!([["a", "b"], ["c", "d"]]));
        assert_eq!(left_out, [LeftOut { list: "/rows".to_owned(), shown_count: 2, all_count: Some(3) }]);
        assert!(cut(&mut value, 1000, &mut left_out));
        assert!(cut(&mut value, 1000, &mut left_out) && cut(&mut value, 1000, &mut left_out));
        assert_eq!(value, json!({ "few": [], "rows": [] }));
        assert!(!cut(&mut value, 1000, &mut left_out));
        let counts: Vec<_> =
            left_out.iter().map(|list| (list.list.as_str(), list.shown_count, list.all_count)).collect();
        assert_eq!(counts, [("/rows", 0, Some(3)), ("/few", 0, Some(1))]);
    }

    #[test]
    fn a_list_in_an_item_that_is_gone_is_not_named() {
        let mut value = json!([{ "a": ["x", "y", "z"] }, { "a": ["x", "y", "z", "w"] }]);
        let mut left_out = Vec::new();
        while value.as_array().is_some_and(|items| items.len() == 2) {
            assert!(cut(&mut value, 1000, &mut left_out));
        }
        assert!(left_out.iter().all(|list| !list.list.starts_with("/1/")), "{left_out:?}");
        assert_eq!(left_out.iter().filter(|list| list.list.is_empty()).count(), 1);
    }

    #[test]
    fn the_budget_is_within_bounds() {
        assert_eq!(
            [None, Some(0), Some(5000), Some(1 << 30)].map(bytes),
            [DEFAULT_BYTES, LEAST_BYTES, 5000, MOST_BYTES]
        );
    }
}
