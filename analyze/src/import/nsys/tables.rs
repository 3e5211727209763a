//! The tables of spans and points, and the row that each of their rows becomes.

use rusqlite::types::ValueRef;
use trace_schema::{Direction, Kind, Row, Text};

use super::{Import, thread_of};
use crate::{error::AnalyzeError, import::kineto::without_version};

/// One table: what it needs, what it may have, and its rows.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// What is missing without it.
    pub(super) what: &'static str,
    pub(super) required: &'static [&'static str],
    optional: &'static [&'static str],
    /// Columns that are numbers of texts.
    texts: &'static [&'static str],
    row: fn(&Cells<'_>) -> Result<Option<Row>, String>,
}

/// `CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_…`.
const SYNC_TYPES: [&str; 5] =
    ["unknown", "event synchronize", "stream wait event", "stream synchronize", "context synchronize"];
/// `eventType` of NVTX.
const NVTX_MARK: i64 = 34;
const NVTX_PUSH_POP: i64 = 59;
const NVTX_START_END: i64 = 60;

const DEVICE_OPTIONAL: &[&str] = &["deviceId", "streamId", "correlationId", "globalPid"];

/// Every table that is read; a trace has some of them.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "CUPTI_ACTIVITY_KIND_RUNTIME",
        what: "calls of CUDA",
        required: &["start", "end", "globalTid", "nameId"],
        optional: &["correlationId", "returnValue"],
        texts: &["nameId"],
        row: |cells| {
            let name = cells.text("nameId")?;
            Ok(Some(Row {
                correlation: cells.unsigned("correlationId")?,
                ret: cells.integer("returnValue")?.and_then(|ret| i32::try_from(ret).ok()),
                ..cells.on_host(Kind::Call, Text::new(without_version(&name)))?
            }))
        },
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_KERNEL",
        what: "kernels",
        required: &["start", "end"],
        optional: &[
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
        ],
        texts: &["demangledName", "shortName"],
        row: |cells| {
            let name = cells.text("demangledName").or_else(|_| cells.text("shortName"))?;
            Ok(Some(Row {
                detail: Some(name.into()),
                grid_x: cells.extent("gridX")?,
                grid_y: cells.extent("gridY")?,
                grid_z: cells.extent("gridZ")?,
                block_x: cells.extent("blockX")?,
                block_y: cells.extent("blockY")?,
                block_z: cells.extent("blockZ")?,
                ..cells.on_device("kernel")?
            }))
        },
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_MEMCPY",
        what: "copies on the GPU",
        required: &["start", "end", "bytes", "copyKind"],
        optional: DEVICE_OPTIONAL,
        texts: &[],
        row: |cells| {
            let direction = match cells.integer("copyKind")? {
                Some(1 | 3 | 11) => Some(Direction::HostToDevice),
                Some(2 | 4 | 12) => Some(Direction::DeviceToHost),
                Some(5..=8) => Some(Direction::DeviceToDevice),
                Some(9) => Some(Direction::HostToHost),
                Some(10) => Some(Direction::PeerToPeer),
                _ => None,
            };
            Ok(Some(Row {
                size_bytes: cells.integer("bytes")?,
                direction: direction.map(|direction| direction.name().into()),
                ..cells.on_device("memcpy")?
            }))
        },
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_MEMSET",
        what: "fills on the GPU",
        required: &["start", "end", "bytes"],
        optional: DEVICE_OPTIONAL,
        texts: &[],
        row: |cells| Ok(Some(Row { size_bytes: cells.integer("bytes")?, ..cells.on_device("memset")? })),
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        what: "waits on the GPU",
        required: &["start", "end"],
        optional: &["deviceId", "streamId", "correlationId", "globalPid", "syncType"],
        texts: &[],
        row: |cells| {
            let number = cells.integer("syncType")?.and_then(|number| usize::try_from(number).ok());
            let name = SYNC_TYPES.get(number.unwrap_or(0)).copied().unwrap_or("unknown");
            Ok(Some(Row { detail: Some(name.into()), ..cells.on_device("sync")? }))
        },
    },
    Table {
        name: "OSRT_API",
        what: "calls of the operating system's libraries",
        required: &["start", "end", "globalTid", "nameId"],
        optional: &["returnValue"],
        texts: &["nameId"],
        row: |cells| {
            Ok(Some(Row {
                detail: Some(cells.text("nameId")?.into()),
                ret: cells.integer("returnValue")?.and_then(|ret| i32::try_from(ret).ok()),
                ..cells.on_host(Kind::Host, "osrt".into())?
            }))
        },
    },
    Table {
        name: "NVTX_EVENTS",
        what: "marks (NVTX)",
        required: &["start", "end", "eventType", "globalTid"],
        optional: &["text", "textId"],
        texts: &["textId"],
        row: |cells| {
            let op = match cells.integer("eventType")? {
                Some(NVTX_PUSH_POP | NVTX_START_END) => "range",
                Some(NVTX_MARK) => "point",
                _ => return Ok(None),
            };
            // A range without a text is one all the same.
            let name = cells.text("textId").or_else(|_| cells.text("text")).unwrap_or_default();
            Ok(Some(Row { detail: Some(name.into()), ..cells.on_host(Kind::Mark, op.into())? }))
        },
    },
];

/// One row of a table.
struct Cells<'a> {
    row: &'a rusqlite::Row<'a>,
    /// Names of the columns, in the order of the query.
    names: &'a [&'static str],
    base_ns: i64,
}

impl Cells<'_> {
    fn cell(&self, name: &str) -> Result<ValueRef<'_>, String> {
        let index = self.names.iter().position(|known| *known == name).ok_or("it is not read")?;
        // The first cell is the number of the row.
        self.row.get_ref(index + 1).map_err(|error| error.to_string())
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        match self.cell(name)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            other => Err(format!("{name} is of type {}, not an integer", other.data_type())),
        }
    }

    fn unsigned(&self, name: &str) -> Result<Option<u64>, String> {
        Ok(self.integer(name)?.and_then(|value| u64::try_from(value).ok()))
    }

    fn extent(&self, name: &str) -> Result<Option<u32>, String> {
        self.integer(name)?
            .map(|value| u32::try_from(value).map_err(|_| format!("{name} is {value}")))
            .transpose()
    }

    fn text(&self, name: &str) -> Result<String, String> {
        match self.cell(name)? {
            ValueRef::Text(text) => {
                String::from_utf8(text.to_vec()).map_err(|error| format!("{name}: {error}"))
            }
            ValueRef::Null => Err(format!("{name} names no text of StringIds")),
            other => Err(format!("{name} is of type {}, not a text", other.data_type())),
        }
    }

    /// A row at its time, with its length where it has one.
    fn at(&self, kind: Kind, op: Text, (pid, tid): (u32, u32)) -> Result<Row, String> {
        let start = self.integer("start")?.ok_or("start is null")?;
        let ts = Import::time(self.base_ns, start).ok_or_else(|| format!("start is {start}"))?;
        let dur = match self.integer("end")? {
            None => None,
            Some(end) => {
                let dur = end.checked_sub(start).filter(|dur| *dur >= 0 && ts.checked_add(*dur).is_some());
                Some(dur.ok_or_else(|| format!("end is {end} and start {start}"))?)
            }
        };
        Ok(Row { dur, ..Row::new(ts, kind, op, pid, tid) })
    }

    fn on_host(&self, kind: Kind, op: Text) -> Result<Row, String> {
        let global = self.integer("globalTid")?.ok_or("globalTid is null")?;
        self.at(kind, op, thread_of(global))
    }

    fn on_device(&self, op: &'static str) -> Result<Row, String> {
        let pid = self.integer("globalPid")?.map_or(0, |global| thread_of(global).0);
        Ok(Row {
            device: self.integer("deviceId")?.and_then(|device| i32::try_from(device).ok()),
            stream: self.unsigned("streamId")?,
            correlation: self.unsigned("correlationId")?,
            ..self.at(Kind::Device, op.into(), (pid, 0))?
        })
    }
}

impl Import {
    /// Writes the rows of a table.
    pub(super) fn table(&mut self, table: &Table) -> Result<(), AnalyzeError> {
        let failed = self.database.failed(table.name);
        let there = self
            .database
            .columns(table.name)
            .map_err(|reason| AnalyzeError::NotNsys { path: self.database.path.clone(), reason })?;
        let names: Vec<&'static str> = table.required.iter().chain(table.optional).copied().collect();
        let columns: Vec<String> = names
            .iter()
            .map(|name| match () {
                () if !there.iter().any(|found| found == name) => "NULL".to_owned(),
                () if table.texts.contains(name) => {
                    format!("(SELECT value FROM StringIds WHERE id = t.\"{name}\")")
                }
                () => format!("t.\"{name}\""),
            })
            .collect();
        let query = format!("SELECT t.rowid, {} FROM {} t ORDER BY t.start", columns.join(", "), table.name);
        let mut left_out_count = 0_u64;
        let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
        {
            let mut statement = self.database.connection.prepare(&query).map_err(&failed)?;
            let mut rows = statement.query([]).map_err(&failed)?;
            let progress = self.database.progress(table.name);
            while let Some(row) = rows.next().map_err(&failed)? {
                progress.add(1);
                let number = row.get::<_, i64>(0).map_err(&failed)?;
                let cells = Cells { row, names: &names, base_ns: self.base_ns };
                let found = (table.row)(&cells).map_err(|reason| AnalyzeError::BadRow {
                    path: self.database.path.clone(),
                    table: table.name,
                    row: number.to_string(),
                    reason,
                })?;
                let Some(row) = found else {
                    left_out_count += 1;
                    continue;
                };
                first_ns = first_ns.min(row.ts);
                last_ns = last_ns.max(row.ts + row.dur.unwrap_or(0));
                self.recorder.push(&row)?;
            }
        }
        if first_ns <= last_ns {
            self.saw(first_ns, last_ns);
        }
        if left_out_count > 0 {
            self.run
                .not_captured
                .push(format!("{left_out_count} rows of {} that are neither ranges nor marks", table.name));
        }
        Ok(())
    }
}
