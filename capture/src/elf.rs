//! Symbols of an ELF file, with their offsets in the file.
//!
//! Uprobes want file offsets. A symbol's virtual address lies in a loadable segment:
//! `offset = address − segment.address + segment.offset`.

use std::{fs::File, path::Path};

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

use crate::error::CaptureError;

/// A function, or a variable of the dynamic loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Mangled name.
    pub(crate) name: String,
    /// Virtual address, in bytes.
    pub(crate) address: u64,
    /// Offset of its first instruction in the file, in bytes.
    pub(crate) offset: u64,
}

/// The symbols and the build id that attaching to a library needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elf {
    /// The wanted functions, sorted by name, without duplicates.
    pub(crate) functions: Vec<Function>,
    /// GNU build id in hexadecimal; empty if there is none.
    pub(crate) build_id: String,
}

/// Returns a function that turns virtual addresses of a file into offsets in it, in bytes.
fn offsets<'a, O: Object<'a>>(object: &O) -> impl Fn(u64) -> Option<u64> + use<'a, O> {
    let segments: Vec<(u64, u64, u64)> = object
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    move |address| {
        segments
            .iter()
            .find(|(start, size, _)| address >= *start && address - start < *size)
            .map(|(start, _, offset)| address - start + offset)
    }
}

/// The symbols of a file that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Static and exported symbols.
    All,
    /// Exported symbols. Large libraries have ten times as many static ones, which take a fraction of a second to read.
    Exported,
}

/// Reads the file and keeps the symbols (functions and data) whose name `wanted` accepts.
///
/// # Errors
/// If the file cannot be read or is not an ELF file.
pub(crate) fn read(path: &Path, scope: Scope, wanted: impl Fn(&str) -> bool) -> Result<Elf, CaptureError> {
    let bad = |reason: String| CaptureError::Elf { path: path.to_owned(), reason };
    let file =
        File::open(path).map_err(|source| CaptureError::Io { what: path.display().to_string(), source })?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|error| bad(error.to_string()))?;
    let to_offset = offsets(&object);
    let own = (scope == Scope::All).then(|| object.symbols());
    let mut functions: Vec<Function> = own
        .into_iter()
        .flatten()
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

/// Whether the file's own symbol table (not the exported names) has all these functions. A file that is
/// no ELF file, or is stripped, has none.
pub(crate) fn has_static_functions(path: &Path, names: &[&str]) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else {
        return false;
    };
    let mut missing: Vec<&str> = names.to_vec();
    for symbol in object.symbols() {
        if symbol.kind() == SymbolKind::Text
            && symbol.address() != 0
            && let Ok(name) = symbol.name()
        {
            missing.retain(|wanted| *wanted != name);
            if missing.is_empty() {
                return true;
            }
        }
    }
    false
}

/// The functions of a file by their offset in it, for naming addresses.
#[derive(Default)]
pub(crate) struct Symbols {
    /// `(file offset, size, name)`, sorted.
    functions: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Reads the functions of a file; a file without symbols, or one that cannot be read, has none.
    pub(crate) fn read(path: &Path) -> Self {
        let Ok(file) = File::open(path) else {
            return Self::default();
        };
        let cache = ReadCache::new(file);
        let Ok(object) = object::File::parse(&cache) else {
            return Self::default();
        };
        let to_offset = offsets(&object);
        let mut functions: Vec<(u64, u64, String)> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .filter_map(|symbol| {
                Some((to_offset(symbol.address())?, symbol.size(), symbol.name().ok()?.to_owned()))
            })
            .collect();
        functions.sort();
        Self { functions }
    }

    /// Name of the function at a file offset; `None` if no function is there.
    pub(crate) fn name(&self, offset: u64) -> Option<&str> {
        let after = self.functions.partition_point(|function| function.0 <= offset);
        let (start, size, name) = self.functions.get(after.checked_sub(1)?)?;
        // Assembler functions often have no size.
        (*size == 0 || offset - start < *size).then_some(name)
    }
}
