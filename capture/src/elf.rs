//! Symbols of an ELF file and where they lie in it.
//!
//! Uprobes want file offsets. A symbol's virtual address lies in a loadable segment:
//! `offset = address − segment.address + segment.offset`.

use std::{fs::File, path::Path};

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

use crate::error::CaptureError;

/// A function, or a variable of the loader's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Mangled name.
    pub(crate) name: String,
    /// Virtual address, in bytes.
    pub(crate) address: u64,
    /// Where its first instruction lies in the file, in bytes.
    pub(crate) offset: u64,
}

/// What attaching needs to know of a library.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elf {
    /// Functions the caller asked for, by name, without duplicates.
    pub(crate) functions: Vec<Function>,
    /// GNU build id in hexadecimal; empty if there is none.
    pub(crate) build_id: String,
}

/// Reads the file and keeps the symbols (functions and data) whose name `wanted` accepts. Static symbols
/// count as well as exported ones.
pub(crate) fn read(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Elf, CaptureError> {
    let bad = |reason: String| CaptureError::Elf { path: path.to_owned(), reason };
    let file =
        File::open(path).map_err(|source| CaptureError::Io { what: path.display().to_string(), source })?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|error| bad(error.to_string()))?;
    let segments: Vec<(u64, u64, u64)> = object
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    let to_offset = |address: u64| {
        segments
            .iter()
            .find(|(start, size, _)| address >= *start && address - start < *size)
            .map(|(start, _, offset)| address - start + offset)
    };
    let mut functions: Vec<Function> = object
        .symbols()
        .chain(object.dynamic_symbols())
        .filter(|symbol| symbol.address() != 0)
        .filter(|symbol| matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data))
        .filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| wanted(name))?;
            let address = symbol.address();
            Some(Function { name: name.to_owned(), address, offset: to_offset(address)? })
        })
        .collect();
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    functions.dedup_by(|a, b| a.name == b.name);
    let build_id = object
        .build_id()
        .ok()
        .flatten()
        .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
        .unwrap_or_default();
    Ok(Elf { functions, build_id })
}
