//! The questions this program answers, one a file: parameters in, data out, nothing printed.

pub(crate) mod causes;
pub(crate) mod chains;
pub(crate) mod copy_cost;
pub(crate) mod holders;
pub(crate) mod info;
pub(crate) mod memory;
pub(crate) mod phases;
pub(crate) mod summary;
pub(crate) mod time_split;
pub(crate) mod timeline;
