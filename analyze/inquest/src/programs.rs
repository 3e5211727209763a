//! The two programs that `inquest` starts, and where they are.
//!
//! They are sought from the folder of `inquest` itself, links resolved, in the places in which packages put them, and
//! beside it last: in a folder that many packages share, such as `/usr/bin`, a program called `capture` may be anybody's.
//! Neither PATH nor the environment decides what is started, because `inquest capture` often runs as root.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// A program of the package.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The recorder.
    Capture,
    /// What answers questions about a recording.
    Analyze,
}

impl Program {
    /// Both programs, in the order in which one needs them.
    pub(crate) const ALL: [Self; 2] = [Self::Capture, Self::Analyze];

    /// Returns the word on the command line, which is also the name of the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Analyze => "analyze",
        }
    }

    /// Returns what the program does, as the help says it.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Capture => "Record CUDA processes into one Parquet file",
            Self::Analyze => "Answer questions about recorded runs",
        }
    }
}

/// A program that is in none of the places.
pub(crate) struct NotFound {
    program: Program,
    places: Vec<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program {} is not installed beside `inquest`; it was sought in", self.program.name())?;
        self.places.iter().try_for_each(|place| write!(f, "\n  {place:?}"))?;
        write!(f, "\nInstall the package again, or keep its files together.")
    }
}

/// Returns the folder of the running `inquest`, links resolved.
///
/// # Errors
/// If the system does not say where the program is, as without `/proc`.
pub(crate) fn own_folder() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    // A path from the kernel has a folder, if only the root.
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Returns the folders of Python's packages below a prefix, the one that has this version of the distribution first:
/// two versions of Python can share a `bin`.
fn python_packages(prefix: &Path) -> Vec<PathBuf> {
    let own = format!("inquest_gpu-{}.dist-info", env!("CARGO_PKG_VERSION"));
    let mut found = Vec::new();
    for library in ["lib", "lib64"] {
        for entry in fs::read_dir(prefix.join(library)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b"python3")
                || name.as_encoded_bytes().starts_with(b"pypy3")
            {
                let packages = ["site-packages", "dist-packages"].map(|packages| entry.path().join(packages));
                found.extend(packages.into_iter().filter(|folder| folder.join("inquest_gpu").is_dir()));
            }
        }
    }
    found.sort_by_key(|folder| (!folder.join(&own).is_dir(), folder.clone()));
    found
}

/// Returns the folders that may have the programs, in the order in which they are tried.
fn places(own: &Path) -> Vec<PathBuf> {
    let prefix = own.parent().unwrap_or(own);
    // Packages of systems and the archive; `pip install --target`; wheels.
    let mut places = vec![prefix.join("libexec/inquest"), prefix.join("inquest_gpu/_bin")];
    places.extend(python_packages(prefix).iter().map(|folder| folder.join("inquest_gpu/_bin")));
    places.push(own.to_owned());
    places
}

/// Returns the path of a program, for an `inquest` in the folder `own`.
///
/// # Errors
/// If it is in no place: the error lists the places.
pub(crate) fn find(program: Program, own: &Path) -> Result<PathBuf, NotFound> {
    let places = places(own);
    match places.iter().map(|folder| folder.join(program.name())).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => Err(NotFound { program, places }),
    }
}
