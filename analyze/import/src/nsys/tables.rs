//! The tables whose rows are spans or points in time, and the conversion of their rows.

use std::ops::Deref;

use trace_schema::{Direction, Kind, Row, Text};

use super::{
    source::{Cells, Wanted},
    state::{Import, thread_of},
};
use crate::kineto::without_version;
use analyze_run::error::AnalyzeError;

/// One table: the columns that it must and may have, and the conversion of its rows.
pub(super) struct Table {
    /// Name of the table.
    pub(super) name: &'static str,
    /// Content of the table, which the run lacks if the export does not have it.
    pub(super) what: &'static str,
    /// Names of the columns that the table must have.
    pub(super) required: &'static [&'static str],
    optional: &'static [&'static str],
    /// Names of the columns that hold ids of texts.
    texts: &'static [&'static str],
    row: fn(&Spans<'_>) -> Result<Option<Row>, String>,
}

/// Size in bytes of the texts that may wait in the recorder's memory to be written.
const WAITING_BYTES: usize = 16 << 20;
/// Names of the values of `syncType` (`CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_…`).
const SYNC_TYPES: [&str; 5] =
    ["unknown", "event synchronize", "stream wait event", "stream synchronize", "context synchronize"];
/// Values of `eventType` in `NVTX_EVENTS`.
const NVTX_MARK: i64 = 34;
const NVTX_PUSH_POP: i64 = 59;
const NVTX_START_END: i64 = 60;

const DEVICE_OPTIONAL: &[&str] = &["deviceId", "streamId", "correlationId", "globalPid"];

/// All tables that are read; an export has some of them.
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
            // A range without a text is still a range.
            let name = cells.text("textId").or_else(|_| cells.text("text")).unwrap_or_default();
            Ok(Some(Row { detail: Some(name.into()), ..cells.on_host(Kind::Mark, op.into())? }))
        },
    },
];

/// A row that is converted to a span or a point in time.
struct Spans<'a> {
    cells: &'a Cells<'a>,
    base_ns: i64,
}

impl<'a> Deref for Spans<'a> {
    type Target = Cells<'a>;

    fn deref(&self) -> &Cells<'a> {
        self.cells
    }
}

impl Spans<'_> {
    /// Returns a row with the start and, if the table has an end, the duration in ns.
    fn at(&self, kind: Kind, op: Text, (pid, tid): (u32, u32)) -> Result<Row, String> {
        let start = self.required("start")?;
        let ts = Import::time(self.base_ns, start).ok_or_else(|| format!("start is {start}"))?;
        let dur = match self.integer("end")? {
            None => None,
            Some(end) => {
                let dur = end.checked_sub(start).filter(|dur| *dur >= 0 && Import::time(ts, *dur).is_some());
                Some(dur.ok_or_else(|| format!("end is {end} and start {start}"))?)
            }
        };
        Ok(Row { dur, ..Row::new(ts, kind, op, pid, tid) })
    }

    fn on_host(&self, kind: Kind, op: Text) -> Result<Row, String> {
        self.at(kind, op, thread_of(self.required("globalTid")?))
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
    /// Converts a table and writes its rows.
    pub(super) fn table(&mut self, table: &Table) -> Result<(), AnalyzeError> {
        let names: Vec<&'static str> = table.required.iter().chain(table.optional).copied().collect();
        let wanted = Wanted { table: table.name, columns: &names, texts: table.texts, by: Some("start") };
        let (mut left_out_count, mut waiting_bytes) = (0_u64, 0_usize);
        let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
        let (recorder, base_ns) = (&mut self.recorder, self.base_ns);
        self.source.rows(&wanted, &mut |cells| {
            match (table.row)(&Spans { cells, base_ns })? {
                Some(row) => {
                    first_ns = first_ns.min(row.ts);
                    last_ns = last_ns.max(row.ts + row.dur.unwrap_or(0));
                    waiting_bytes += row.op.len() + row.detail.as_deref().map_or(0, str::len);
                    recorder.push(&row)?;
                    if waiting_bytes > WAITING_BYTES {
                        waiting_bytes = 0;
                        recorder.flush()?;
                    }
                }
                None => left_out_count += 1,
            }
            Ok(())
        })?;
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
