//! Which files clients may open: those at or below the roots that the server was started with, and nothing else.
//!
//! A name is resolved to a path without symbolic links before it is compared with the roots, so that neither `..` nor a link
//! leads out of them.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use analyze_run::error::AnalyzeError;

/// The number of folders below a root in which runs are listed.
const DEPTH: usize = 4;
/// The number of entries of folders that one listing looks at.
const MOST_ENTRIES: usize = 10_000;

/// The files and folders that may be opened, without symbolic links.
#[derive(Clone, Debug)]
pub struct Roots(Vec<PathBuf>);

/// A file that may be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The name that stands for it in ids: its path below the first root that has one, or its whole path if that means another file.
    pub name: String,
    /// Its path, without symbolic links.
    pub path: PathBuf,
}

fn refused(name: &str, why: &str) -> AnalyzeError {
    AnalyzeError::Query(format!("{name:?} cannot be opened: {why}"))
}

impl Roots {
    /// Creates the roots from paths that exist; without any, the current folder is the root.
    ///
    /// # Errors
    /// Returns an error if a path does not exist.
    pub fn new(paths: &[PathBuf]) -> Result<Self, AnalyzeError> {
        let here = [PathBuf::from(".")];
        let paths: &[PathBuf] = if paths.is_empty() { &here } else { paths };
        let whole = |path: &PathBuf| {
            path.canonicalize().map_err(|source| AnalyzeError::Io { path: path.clone(), source })
        };
        Ok(Self(paths.iter().map(whole).collect::<Result<_, _>>()?))
    }

    /// Returns the path that a name has below a root, if the name can be one.
    fn below(root: &Path, name: &Path) -> PathBuf {
        // What is below a file is the file itself, by its name.
        if root.is_file() { root.with_file_name(name) } else { root.join(name) }
    }

    /// Returns whether a path without symbolic links is at or below a root.
    fn contains(&self, path: &Path) -> bool {
        self.0.iter().any(|root| path.starts_with(root))
    }

    /// Finds the file that a client names: by its path below a root, or by its whole path.
    ///
    /// # Errors
    /// Returns an error if there is none, if it is a folder, or if it is outside of the roots.
    pub fn find(&self, name: &str) -> Result<Allowed, AnalyzeError> {
        let given = Path::new(name);
        if name.is_empty() || name.contains('\0') {
            return Err(refused(name, "it is no path; `open` without a run lists those that there are"));
        }
        if given.components().any(|component| component == Component::ParentDir) {
            return Err(refused(name, "a path may not have `..`; give it as `open` lists it"));
        }
        let mut is_outside = false;
        for root in &self.0 {
            let path = match Self::below(root, given).canonicalize() {
                Ok(path) => path,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match self.in_parts(&Self::below(root, given)) {
                        Some(path) => return Ok(Allowed { name: self.name(&path), path }),
                        None => continue,
                    }
                }
                Err(error) => return Err(refused(name, &error.to_string())),
            };
            if !self.contains(&path) {
                is_outside = true;
                continue;
            }
            if path.is_dir() {
                return Err(refused(name, "it is a folder; name a file in it"));
            }
            return Ok(Allowed { name: self.name(&path), path });
        }
        Err(match is_outside {
            true => refused(
                name,
                "it is outside of the files and folders that the server was started with (symbolic links are followed before that is decided)",
            ),
            false => refused(name, "there is no such file; `open` without a run lists those that there are"),
        })
    }

    /// Returns the path of a run in numbered parts, all of which are at or below a root and no links.
    fn in_parts(&self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent()?.canonicalize().ok().filter(|folder| self.contains(folder))?;
        let path = folder.join(path.file_name()?);
        let parts = trace_writer::parts_of(&path);
        let is_own = |part: &PathBuf| part.canonicalize().is_ok_and(|whole| whole == *part);
        (!parts.is_empty() && parts.iter().all(is_own)).then_some(path)
    }

    /// Returns the name that stands for a file at or below a root.
    fn name(&self, path: &Path) -> String {
        let short = self.0.iter().find_map(|root| {
            let below = path.strip_prefix(root).ok()?;
            let below = if below.as_os_str().is_empty() { Path::new(path.file_name()?) } else { below };
            Some(below.to_str()?.to_owned())
        });
        // The same name below an earlier root is another file.
        let is_first = |name: &String| {
            let found = self.0.iter().find_map(|root| Self::below(root, Path::new(name)).canonicalize().ok());
            found.as_deref() == Some(path)
        };
        short.filter(is_first).unwrap_or_else(|| path.to_string_lossy().into_owned())
    }

    /// Returns the names of runs that can be opened, sorted: the roots that are files, and the `*.parquet` files below the others
    /// that are no links. The second value is true if there may be more than were looked at.
    pub fn list(&self) -> (Vec<String>, bool) {
        let mut names = Vec::new();
        let mut open: Vec<(PathBuf, usize)> = Vec::new();
        for root in &self.0 {
            if root.is_dir() {
                open.push((root.clone(), DEPTH));
            } else {
                names.push(self.name(root));
            }
        }
        let (mut seen_count, mut is_cut) = (0, false);
        while let Some((folder, depth)) = open.pop() {
            // A folder that cannot be read has no run that could be opened.
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                seen_count += 1;
                if seen_count > MOST_ENTRIES {
                    is_cut = true;
                    break;
                }
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                if kind.is_dir() && !is_hidden {
                    if depth > 1 {
                        open.push((path, depth - 1));
                    } else {
                        is_cut = true;
                    }
                } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "parquet") {
                    names.push(self.name(&path));
                }
            }
        }
        names.sort();
        names.dedup();
        (names, is_cut)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn nothing_outside_of_the_roots_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        for path in [&root.join("below"), &other] {
            fs::create_dir_all(path).expect("folders");
        }
        for path in [root.join("a.parquet"), root.join("below/b.parquet"), other.join("c.parquet")] {
            fs::write(path, "x").expect("a file");
        }
        symlink(other.join("c.parquet"), root.join("link.parquet")).expect("a link");
        symlink(&other, root.join("linked")).expect("a link");
        symlink(root.join("a.parquet"), root.join("inside.parquet")).expect("a link");
        let roots = Roots::new(std::slice::from_ref(&root)).expect("roots");
        let name = |name: &str| roots.find(name).map(|found| found.name).map_err(|error| error.to_string());
        assert_eq!(name("a.parquet"), Ok("a.parquet".to_owned()));
        assert_eq!(name("below/b.parquet"), Ok("below/b.parquet".to_owned()));
        assert_eq!(name("inside.parquet"), Ok("a.parquet".to_owned()));
        let whole = root.canonicalize().expect("a path").join("below/b.parquet");
        assert_eq!(name(whole.to_str().expect("text")), Ok("below/b.parquet".to_owned()));
        let said = |text: &str| name(text).expect_err("an error");
        for outside in ["link.parquet", "linked/c.parquet", "/etc/passwd"] {
            assert!(said(outside).contains("outside"), "{}", said(outside));
        }
        assert!(said("below/../a.parquet").contains("`..`"));
        assert!(said("../other/c.parquet").contains("`..`"));
        assert!(said("absent.parquet").contains("no such file"));
        assert!(said("below").contains("folder"));
        assert!(said("").contains("no path") && said("a\0").contains("no path"));
        assert_eq!(roots.list(), (vec!["a.parquet".to_owned(), "below/b.parquet".to_owned()], false));
    }

    #[test]
    fn a_root_that_is_a_file_stands_for_itself_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("x")).expect("a folder");
        for name in ["a.parquet", "b.parquet", "x/a.parquet"] {
            fs::write(path(name), "x").expect("a file");
        }
        let roots = Roots::new(&[path("a.parquet"), path("x/a.parquet")]).expect("roots");
        assert_eq!(roots.find("a.parquet").expect("a file").name, "a.parquet");
        assert!(roots.find("b.parquet").is_err());
        // The name below the second root is that of another file.
        let second = path("x/a.parquet").canonicalize().expect("a path");
        let found = roots.find(second.to_str().expect("text")).expect("a file");
        assert_eq!(found, Allowed { name: second.to_string_lossy().into_owned(), path: second });
        assert!(Roots::new(&[path("absent")]).is_err());
    }
}
