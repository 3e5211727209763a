//! Symbols of an ELF file, with their offsets in the file.
//!
//! Uprobes want file offsets. A symbol's virtual address lies in a loadable segment:
//! `offset = address − segment.address + segment.offset`.
//!
//! A traced process chooses the file, and a privileged recorder reads it. So the recorder opens plain files only, reads no
//! more of one than [`ELF_BYTES`], however long its tables say that they are, and takes no number in it for one that adds up.

use std::{cell::Cell, fs::File, io, ops::Range, os::unix::fs::OpenOptionsExt, path::Path};

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

use crate::error::CaptureError;

/// The most that is read of one file, in bytes. The symbols of the largest libraries take some hundred mebibytes.
const ELF_BYTES: u64 = 1 << 30;
/// What keeping a name costs besides the name, in bytes.
const NAME_COST_BYTES: u64 = 64;

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

/// Opens a plain file. Its process may have put anything else in its place meanwhile, and opening a pipe must not wait for its
/// writer.
fn open(path: &Path) -> io::Result<ReadCache<File>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    Ok(ReadCache::new(file))
}

/// A file of which no more than a limit is read.
#[derive(Clone, Copy)]
struct Limited<'a> {
    cache: &'a ReadCache<File>,
    /// Number of bytes that may still be read; `None` once more was asked for.
    left: &'a Cell<Option<u64>>,
}

impl Limited<'_> {
    fn spend(self, bytes: u64) -> Result<(), ()> {
        let left = self.left.get().and_then(|left| left.checked_sub(bytes));
        self.left.set(left);
        left.map(drop).ok_or(())
    }
}

impl<'a> ReadRef<'a> for Limited<'a> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.spend(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.spend(NAME_COST_BYTES)?;
        let bytes = self.cache.read_bytes_at_until(range, delimiter)?;
        self.spend(bytes.len() as u64)?;
        Ok(bytes)
    }
}

/// Returns a function that turns virtual addresses of a file into offsets in it, in bytes.
fn offsets<'a, O: Object<'a>>(object: &O) -> impl Fn(u64) -> Option<u64> + use<'a, O> {
    let mut segments: Vec<(u64, u64, u64)> = object
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    segments.sort_unstable();
    move |address| {
        let after = segments.partition_point(|(start, ..)| *start <= address);
        let (start, size, offset) = segments.get(after.checked_sub(1)?)?;
        let within = Some(address - start).filter(|within| within < size)?;
        within.checked_add(*offset)
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
/// If the file cannot be read, is not an ELF file, or has more symbols than [`ELF_BYTES`] hold.
pub(crate) fn read(path: &Path, scope: Scope, wanted: impl Fn(&str) -> bool) -> Result<Elf, CaptureError> {
    let bad = |reason: String| CaptureError::Elf { path: path.to_owned(), reason };
    let cache = open(path).map_err(|source| CaptureError::Io { what: path.display().to_string(), source })?;
    let left = Cell::new(Some(ELF_BYTES));
    let data = Limited { cache: &cache, left: &left };
    let object = object::File::parse(data).map_err(|error| bad(error.to_string()))?;
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
    if left.get().is_none() {
        return Err(bad(format!("its symbols are longer than the limit elf_bytes of {ELF_BYTES}")));
    }
    Ok(Elf { functions, build_id })
}

/// Whether the file's own symbol table (not the exported names) has all these functions. A file that is
/// no ELF file, or is stripped, has none.
pub(crate) fn has_static_functions(path: &Path, names: &[&str]) -> bool {
    let Ok(cache) = open(path) else {
        return false;
    };
    let left = Cell::new(Some(ELF_BYTES));
    let Ok(object) = object::File::parse(Limited { cache: &cache, left: &left }) else {
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
        let Ok(cache) = open(path) else {
            return Self::default();
        };
        let left = Cell::new(Some(ELF_BYTES));
        let Ok(object) = object::File::parse(Limited { cache: &cache, left: &left }) else {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns an ELF file with one segment, which begins at address 0x1000 and at this offset, and with the function `f` at
    /// 0x1800 in a symbol table that states this size in bytes.
    fn forged(segment_offset: u64, symbols_bytes: u64) -> Vec<u8> {
        const NAMES_AT: u64 = 64 + 56;
        const SYMBOLS_AT: u64 = NAMES_AT + 8;
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend([3_u16, 62].iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend([0, 64, SYMBOLS_AT + 48].iter().flat_map(|number: &u64| number.to_le_bytes()));
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend([64_u16, 56, 1, 64, 3, 1].iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend([1_u32, 5].iter().flat_map(|number| number.to_le_bytes()));
        let segment = [segment_offset, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000];
        bytes.extend(segment.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(b"\0f\0\0\0\0\0\0");
        bytes.resize(bytes.len() + 24, 0);
        bytes.extend(b"\x01\0\0\0\x12\0\x01\0");
        bytes.extend([0x1800_u64, 16].iter().flat_map(|number| number.to_le_bytes()));
        // The sections: none, the names, the symbols.
        for (kind, offset, size, link, entry) in
            [(0_u32, 0, 0, 0_u32, 0), (3, NAMES_AT, 3, 0, 0), (2, SYMBOLS_AT, symbols_bytes, 1, 24)]
        {
            bytes.extend([0, kind].iter().flat_map(|number| number.to_le_bytes()));
            bytes.extend([0, 0, offset, size].iter().flat_map(|number: &u64| number.to_le_bytes()));
            bytes.extend([link, 1].iter().flat_map(|number| number.to_le_bytes()));
            bytes.extend([8, entry].iter().flat_map(|number: &u64| number.to_le_bytes()));
        }
        bytes
    }

    #[test]
    fn a_forged_file_neither_ends_nor_fills_the_recorder() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("libcudart.so");
        let functions = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            read(&path, Scope::All, |_| true).map(|elf| elf.functions)
        };
        let whole = functions(&forged(0x2000, 48)).expect("an ELF file");
        assert_eq!(whole, [Function { name: "f".to_owned(), address: 0x1800, offset: 0x2800 }]);
        assert!(has_static_functions(&path, &["f"]) && Symbols::read(&path).name(0x2804) == Some("f"));
        assert!(
            functions(&forged(u64::MAX - 4, 48)).expect("an ELF file").is_empty(),
            "an offset beyond all"
        );
        // The file has as many bytes as its table says, and takes no room on the disk.
        let endless_bytes = 24 * (ELF_BYTES / 8);
        fs::write(&path, forged(0x2000, endless_bytes)).expect("a file");
        let file = File::options().write(true).open(&path).expect("the file");
        file.set_len(2 * endless_bytes).expect("a longer file");
        assert!(read(&path, Scope::All, |_| true).is_err());
        assert!(!has_static_functions(&path, &["f"]));
    }

    #[test]
    fn a_pipe_in_place_of_a_library_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("libcudart.so");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert!(read(&path, Scope::All, |_| true).is_err());
        assert!(!has_static_functions(&path, &["f"]));
    }
}
