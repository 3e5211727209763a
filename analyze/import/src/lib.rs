//! Converts traces of other tools to runs. Each format has one file or folder, which reads the source,
//! converts it to rows, and states what the source cannot show.

mod arrow_file;
mod compressed;
mod events;
mod hex;
mod importer;
mod ingero;
mod json;
mod kineto;
mod limits;
mod map;
mod nsys;
mod perfetto;
mod pickle;
mod protobuf;
mod records;
mod registry;
mod sched;
mod sqlite;
mod times;
mod torch_snapshot;
#[cfg(test)]
mod worked_example;

pub use importer::{Head, Importer, Job, Layout};
pub use map::Map;
pub use registry::Registry;

/// All formats that `analyze import` reads, in the order in which they are detected.
pub static FORMATS: Registry = Registry(&[
    &torch_snapshot::TorchSnapshot,
    &ingero::Ingero,
    &nsys::Nsys,
    &kineto::Kineto,
    &events::Events,
    &perfetto::Perfetto,
    &sched::Source::Perf,
    &sched::Source::Ftrace,
    &events::Csv,
]);
