//! The version of PyTorch that a process runs: the allocator's library lies in `…/torch/lib/`, and `…/torch/version.py` names the
//! version, in a line of its own: `__version__ = '2.11.0+cu130'`.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::attach::through_root;

/// Longer files and versions are not PyTorch's.
const FILE_BYTES: u64 = 64 << 10;
const VERSION_BYTES: usize = 100;

/// The version of the PyTorch that an allocator library, by its path in the process, belongs to; empty if it is
/// not known.
pub(crate) fn beside(pid: u32, library: &Path) -> String {
    version_file(library)
        .and_then(|path| read(&through_root(pid, &path)))
        .and_then(|text| version(&text).map(str::to_owned))
        .unwrap_or_default()
}

/// Path of the version file for an allocator library: `…/torch/lib/libc10_cuda.so` → `…/torch/version.py`.
fn version_file(library: &Path) -> Option<PathBuf> {
    let lib = library.parent()?;
    let torch = lib.parent()?;
    (lib.file_name()? == "lib" && torch.file_name()? == "torch").then(|| torch.join("version.py"))
}

/// Reads a plain file. The traced process chooses the path, so anything else could block or never end.
fn read(path: &Path) -> Option<String> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The string that a line assigns to `__version__`, with or without a type.
pub(crate) fn version(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let name = name.split_once(':').map_or(name, |(name, _)| name).trim_end();
        let value = value.trim();
        let quote = value.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
        let (version, _) = value[1..].split_once(quote)?;
        let plain = version.len() <= VERSION_BYTES && version.bytes().all(|byte| byte.is_ascii_graphic());
        (name == "__version__" && plain).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_what_its_line_says() {
        let file = "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n";
        assert_eq!(version(file), Some("2.11.0+cu130"));
        assert_eq!(version("__version__: str = \"2.15.0a0\"  # a comment\r\n"), Some("2.15.0a0"));
        for text in
            ["", "__version__ = 2", "__version__ = '2.1", "__version__ = 'a b'", "  __version__='1'", "='1'"]
        {
            assert_eq!(version(text), None, "{text:?}");
        }
    }

    #[test]
    fn only_a_torch_folder_has_one() {
        let path = version_file(Path::new("/venv/torch/lib/libc10_cuda.so"));
        assert_eq!(path.as_deref(), Some(Path::new("/venv/torch/version.py")));
        assert_eq!(version_file(Path::new("/usr/lib/libc10_cuda.so")), None);
        assert_eq!(version_file(Path::new("libc10_cuda.so")), None);
    }

    #[test]
    fn what_is_no_plain_file_is_not_read() {
        assert_eq!(read(Path::new("/dev/zero")), None);
        assert_eq!(read(Path::new("/")), None);
    }
}
