//! What ingero counted without storing: its table `event_aggregates` has, per minute, function and process, the number of
//! events and of those that it stored.
//!
//! A row of the table may have been replaced by a later one of the same minute, which counts the rest of the minute only. So
//! the numbers are lower bounds: where more events are stored than the row says, those were counted by a row that is gone.

use std::collections::{BTreeMap, HashMap};

use rusqlite::Connection;
use trace_schema::{Kind, Stored, TIME_LIMIT_NS, Text};

use super::codes::{HOST_SWITCH, SOURCE_DRIVER, SOURCE_HOST, SOURCE_RUNTIME};

/// Length of the spans that are counted.
const BUCKET_NS: i64 = 60_000_000_000;
/// Columns that the table must have.
pub(super) const COLUMNS: [&str; 7] = ["bucket", "source", "op", "pid", "count", "stored", "max_dur"];

const AGGREGATES: &str = "SELECT a.bucket, a.source, a.op, a.pid, a.count, a.stored, a.max_dur, coalesce(e.rows_count, 0) \
     FROM event_aggregates a LEFT JOIN ( \
       SELECT timestamp / 60000000000 * 60000000000 AS bucket, source, op, pid, count(*) AS rows_count \
       FROM events GROUP BY 1, 2, 3, 4 \
     ) e ON e.bucket = a.bucket AND e.source = a.source AND e.op = a.op AND e.pid = a.pid \
     WHERE a.source IN (?1, ?2, ?3) ORDER BY a.source, a.op, a.pid, a.bucket";

/// One row of the table, with the number of rows that the events have of it.
struct Aggregate {
    bucket: i64,
    source: i64,
    op: i64,
    pid: u32,
    made: u64,
    stored: u64,
    longest_ns: i64,
    rows: u64,
}

/// Returns a statement of the events of one row; `None` for events that become no calls and no switches, and for numbers that
/// no clock has.
fn statement(of: &Aggregate, names: &HashMap<(i64, i64), Text>) -> Option<Stored> {
    let is_time = |ns: &i64| ns.unsigned_abs() <= TIME_LIMIT_NS.unsigned_abs();
    let end = of.bucket.checked_add(BUCKET_NS).filter(|end| is_time(&of.bucket) && is_time(end))?;
    let made_count = Some(of.made.saturating_add(of.rows.saturating_sub(of.stored)));
    let whole =
        Stored { from_ns: of.bucket, to_ns: end, made_count, stored_count: of.rows, ..Stored::default() };
    match (of.source, of.op) {
        (SOURCE_RUNTIME | SOURCE_DRIVER, _) => Some(Stored {
            kind: Kind::Call.name().to_owned(),
            op: (**names.get(&(of.source, of.op))?).to_owned(),
            pid: of.pid,
            ..whole
        }),
        // A switch is counted in the minute in which it ends; its process ID is the kernel's thread ID.
        (SOURCE_HOST, HOST_SWITCH) => Some(Stored {
            kind: Kind::OffCpu.name().to_owned(),
            tid: of.pid,
            from_ns: of.bucket.checked_sub(of.longest_ns.max(0)).filter(is_time)?,
            ..whole
        }),
        _ => None,
    }
}

/// Joins statements of consecutive minutes that say alike: all stored, or not.
fn joined(all: Vec<Stored>) -> Vec<Stored> {
    let mut found: Vec<Stored> = Vec::new();
    for next in all {
        let of = |stored: &Stored| {
            (stored.kind.clone(), stored.op.clone(), stored.pid, stored.tid, stored.is_whole())
        };
        match found.last_mut().filter(|last| of(last) == of(&next) && next.from_ns <= last.to_ns) {
            Some(last) => {
                last.to_ns = last.to_ns.max(next.to_ns);
                last.stored_count = last.stored_count.saturating_add(next.stored_count);
                last.made_count =
                    last.made_count.zip(next.made_count).map(|(one, other)| one.saturating_add(other));
            }
            None => found.push(next),
        }
    }
    found
}

/// Reads the table.
pub(super) fn read(
    connection: &Connection,
    names: &HashMap<(i64, i64), Text>,
) -> Result<Vec<Stored>, rusqlite::Error> {
    let mut query = connection.prepare(AGGREGATES)?;
    let rows = query.query_map([SOURCE_RUNTIME, SOURCE_HOST, SOURCE_DRIVER], |row| {
        Ok(Aggregate {
            bucket: row.get(0)?,
            source: row.get(1)?,
            op: row.get(2)?,
            pid: row.get(3)?,
            made: row.get::<_, i64>(4)?.max(0) as u64,
            stored: row.get::<_, i64>(5)?.max(0) as u64,
            longest_ns: row.get(6)?,
            rows: row.get::<_, i64>(7)?.max(0) as u64,
        })
    })?;
    let mut all = Vec::new();
    for row in rows {
        all.extend(statement(&row?, names));
    }
    Ok(joined(all))
}

/// Says of all calls and switches that they were not counted: ingero stores events in part, and this database does not tell
/// which.
pub(super) fn not_counted(connection: &Connection) -> Result<Vec<Stored>, rusqlite::Error> {
    let query = "SELECT count(*) FILTER (WHERE source IN (?1, ?2)), count(*) FILTER (WHERE source = ?3 AND op = ?4) FROM events";
    let parameters = (SOURCE_RUNTIME, SOURCE_DRIVER, SOURCE_HOST, HOST_SWITCH);
    let (calls, switches): (i64, i64) =
        connection.query_row(query, parameters, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let all = |kind: Kind, rows: i64| Stored {
        kind: kind.name().to_owned(),
        from_ns: -TIME_LIMIT_NS,
        to_ns: TIME_LIMIT_NS,
        made_count: None,
        stored_count: rows.unsigned_abs(),
        ..Stored::default()
    };
    Ok(vec![all(Kind::Call, calls), all(Kind::OffCpu, switches)])
}

/// Says in a sentence which events are stored in part, most missing first; `None` if all are stored.
pub(super) fn sentence(all: &[Stored]) -> Option<String> {
    /// Names that are listed.
    const LISTED: usize = 6;
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for stored in all {
        let name = if stored.op.is_empty() { "switches of threads" } else { &stored.op };
        let sum = sums.entry(name).or_default();
        sum.0 = sum.0.saturating_add(stored.stored_count);
        sum.1 = sum.1.saturating_add(stored.made_count.unwrap_or(stored.stored_count));
    }
    let mut cut: Vec<(&str, (u64, u64))> = sums.into_iter().filter(|(_, (rows, made))| made > rows).collect();
    cut.sort_by_key(|(_, (rows, made))| std::cmp::Reverse(made - rows));
    let more = if cut.len() > LISTED { format!(", and {} more", cut.len() - LISTED) } else { String::new() };
    let each =
        cut.iter().take(LISTED).map(|(name, (rows, made))| format!("{name} {rows} of at least {made}"));
    let each = each.collect::<Vec<_>>().join(", ");
    (!cut.is_empty()).then(|| {
        format!(
            "events that ingero counted and did not store: {each}{more} are stored, the slow ones first, so that percentiles are biased upward and sums are lower bounds; what needs every call (gaps between launches, rates, first launches) is left out"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_that_say_alike_are_joined_and_told() {
        let names = HashMap::from([((1, 3), Text::from("cudaLaunchKernel".to_owned()))]);
        let aggregate = |source, op, minute: i64, made, stored, rows| Aggregate {
            bucket: minute * BUCKET_NS,
            source,
            op,
            pid: 5,
            made,
            stored,
            longest_ns: 7,
            rows,
        };
        // In the second minute, a row that counted 906 stored ones was replaced.
        let all = [
            aggregate(1, 3, 1, 100, 10, 10),
            aggregate(1, 3, 2, 30, 9, 915),
            aggregate(3, 1, 1, 40, 40, 80),
            aggregate(3, 1, 2, 40, 40, 20),
            aggregate(3, 5, 2, 40, 40, 20),
        ];
        let found = joined(all.iter().filter_map(|of| statement(of, &names)).collect());
        let of = |stored: &Stored| (stored.from_ns, stored.to_ns, stored.stored_count, stored.made_count);
        let minute = BUCKET_NS;
        assert_eq!(
            found.iter().map(of).collect::<Vec<_>>(),
            [
                (minute, 3 * minute, 925, Some(100 + 30 + 906)),
                (minute - 7, 2 * minute, 80, Some(80)),
                (2 * minute - 7, 3 * minute, 20, Some(40)),
            ]
        );
        let text = sentence(&found).unwrap();
        assert!(
            text.contains(
                "cudaLaunchKernel 925 of at least 1036, switches of threads 100 of at least 120 are"
            ),
            "{text}"
        );
        assert_eq!(sentence(&found[1..2]), None);
    }
}
