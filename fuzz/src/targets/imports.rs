//! Files of other tools: one target for every format, and one for files whose format has to be recognized.

use std::{fs, sync::LazyLock};

use analyze_import::{FORMATS, Job, Layout, Map};
use analyze_run::panics;

use super::check::{blames_the_input, every_row};
use crate::{mutate::frames, scratch, target::Outcome};

/// The map by which tables of any tool are read.
const MAP: &str = "ts=time_us:us,dur=took_us:us,op=func,tid=tid,addr=ptr,size_bytes=size,kind='call',pid='9'";

/// Imports a file, and checks what comes of it: a run that opens and whose rows can all be read, or an error and nothing.
fn imported(format: Option<&str>, layout: &Layout, file: &std::path::Path) -> Outcome {
    let out = scratch::absent("imported.parquet");
    let format = format.map(|name| FORMATS.find(name).expect("a format"));
    let job = Job { file, out: &out, force: false, layout };
    match panics::decoding(file, || FORMATS.run(format, &job)) {
        Ok(finished) => {
            let rows_count = every_row(&out).expect("an import that succeeds is a run");
            assert_eq!(rows_count, finished.rows_count, "rows are lost");
            Outcome::Read
        }
        Err(error) => {
            blames_the_input(&error);
            assert!(!out.exists(), "something is left of an import that failed");
            Outcome::Refused
        }
    }
}

fn import(format: &str, bytes: &[u8]) -> Outcome {
    imported(Some(format), &Layout::default(), &scratch::write("trace", bytes))
}

/// A file of any format, also with gzip.
pub fn recognized(bytes: &[u8]) -> Outcome {
    imported(None, &Layout::default(), &scratch::write("trace", bytes))
}

/// A trace of PyTorch's profiler.
pub fn kineto(bytes: &[u8]) -> Outcome {
    import("kineto", bytes)
}

/// An export of Nsight Systems that is an SQLite database.
pub fn nsys(bytes: &[u8]) -> Outcome {
    import("nsys", bytes)
}

/// An export of Nsight Systems that is a folder: the frames are the tables of texts and of kernels.
pub fn nsys_folder(bytes: &[u8]) -> Outcome {
    let folder = scratch::path("export");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("a folder");
    let tables = ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"];
    for (table, content) in tables.iter().zip(frames::split(bytes)) {
        fs::write(folder.join(table).with_extension("parquet"), content).expect("a file");
    }
    imported(Some("nsys"), &Layout::default(), &folder)
}

/// A database of ingero.
pub fn ingero(bytes: &[u8]) -> Outcome {
    import("ingero", bytes)
}

/// A trace of Perfetto.
pub fn perfetto(bytes: &[u8]) -> Outcome {
    import("perfetto", bytes)
}

/// A text of perf.
pub fn perf(bytes: &[u8]) -> Outcome {
    import("perf", bytes)
}

/// A text of ftrace.
pub fn ftrace(bytes: &[u8]) -> Outcome {
    import("ftrace", bytes)
}

/// A pickle of PyTorch's allocator.
pub fn torch_snapshot(bytes: &[u8]) -> Outcome {
    import("torch-snapshot", bytes)
}

/// Rows of `events`: CSV, JSON lines, Arrow or Parquet.
pub fn events(bytes: &[u8]) -> Outcome {
    import("events", bytes)
}

/// A table of any tool.
pub fn csv(bytes: &[u8]) -> Outcome {
    static LAYOUT: LazyLock<Layout> =
        LazyLock::new(|| Layout { map: Some(Map::parse(MAP).expect("a map")), ..Layout::default() });
    imported(Some("csv"), &LAYOUT, &scratch::write("table.csv", bytes))
}
