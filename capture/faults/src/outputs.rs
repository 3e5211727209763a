//! A verb of `analyze` as a scenario: it writes the same files whenever it is run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    campaign::{Scenario, State, Verdict},
    disk::files,
    error::FaultError,
    fault::{Fault, FileSystem},
    trial::Trial,
};

/// Files by their path in the folder.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What stands in place of every output before the program replaces it.
const OLD: &[u8] = b"an output of an earlier run";

/// A command that writes files into its folder.
pub struct Outputs {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    file_system: FileSystem,
    /// What is in the folder before, and stays as it is.
    inputs: Files,
    /// What the command writes.
    outputs: Files,
    /// Whether outputs of an earlier run are there, which it replaces.
    replaces: bool,
}

fn contents(folder: &Path) -> Result<Files, FaultError> {
    let io = || FaultError::test(folder.display().to_string());
    let mut found = Files::new();
    for file in files(folder).map_err(io())? {
        let bytes = fs::read(&file).map_err(io())?;
        found.insert(file.strip_prefix(folder).unwrap_or(&file).to_owned(), bytes);
    }
    Ok(found)
}

impl Outputs {
    /// Takes a command whose arguments name its outputs relative to the folder, and files of the folder that it reads. It is
    /// run twice, to learn what it writes.
    ///
    /// # Errors
    /// Returns an error if the command fails, writes nothing, or writes something else the second time.
    pub fn new(
        program: &Path,
        args: &[&str],
        inputs: impl IntoIterator<Item = (&'static str, Vec<u8>)>,
    ) -> Result<Self, FaultError> {
        let mut this = Self {
            name: args.join(" "),
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            file_system: FileSystem::Local,
            inputs: inputs.into_iter().map(|(name, bytes)| (name.into(), bytes)).collect(),
            outputs: Files::new(),
            replaces: false,
        };
        this.outputs = this.written()?;
        if this.outputs.is_empty() || this.outputs != this.written()? {
            let what = format!("{}: it writes nothing, or not the same each time", this.name);
            return Err(FaultError::Wrong(what));
        }
        Ok(this)
    }

    /// Lets outputs of an earlier run be there, which the command replaces.
    #[must_use]
    pub fn replacing(self) -> Self {
        Self { replaces: true, name: format!("{} (replacing)", self.name), ..self }
    }

    /// Puts the folder on another kind of file system.
    #[must_use]
    pub fn on(self, file_system: FileSystem) -> Self {
        Self { file_system, name: format!("{} ({file_system:?})", self.name), ..self }
    }

    /// What the command writes into a folder of its own.
    fn written(&self) -> Result<Files, FaultError> {
        let directory = tempfile::tempdir().map_err(FaultError::test("a temporary folder"))?;
        let folder = directory.path();
        self.prepare(folder)?;
        let output = self.command(folder, false).output().map_err(FaultError::test(self.name.clone()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(FaultError::Wrong(format!("{}: {}: {said}", self.name, output.status)));
        }
        let mut found = contents(folder)?;
        found.retain(|path, _| !self.inputs.contains_key(path));
        Ok(found)
    }
}

impl Scenario for Outputs {
    fn name(&self) -> &str {
        &self.name
    }

    fn file_system(&self) -> FileSystem {
        self.file_system
    }

    fn prepare(&self, folder: &Path) -> Result<(), FaultError> {
        let old = self.outputs.keys().filter(|_| self.replaces).map(|path| (path, OLD));
        let inputs = self.inputs.iter().map(|(path, bytes)| (path, bytes.as_slice()));
        for (path, bytes) in inputs.chain(old) {
            let path = folder.join(path);
            let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
            parent
                .and_then(|()| fs::write(&path, bytes))
                .map_err(FaultError::test(path.display().to_string()))?;
        }
        Ok(())
    }

    fn command(&self, folder: &Path, force: bool) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(folder).args(&self.args);
        if force || self.replaces {
            command.arg("--force");
        }
        command
    }

    fn judge(&self, folder: &Path, _: &Trial, _: Option<Fault>) -> Result<Verdict, FaultError> {
        let wrong = |path: &Path, what: &str| FaultError::Wrong(format!("{} {what}", path.display()));
        let found = contents(folder)?;
        let mut new_count = 0;
        for (path, bytes) in &found {
            match (self.inputs.get(path), self.outputs.get(path)) {
                (Some(input), _) if input == bytes => {}
                (Some(_), _) => return Err(wrong(path, "is an input, and was changed")),
                (None, Some(output)) if output == bytes => new_count += 1,
                (None, Some(_)) if self.replaces && bytes == OLD => {}
                (None, Some(_)) => return Err(wrong(path, "is not whole")),
                // Whether it may be there is another question.
                (None, None) if path.to_string_lossy().contains(".inquest-") => {}
                (None, None) => return Err(wrong(path, "is none of the outputs")),
            }
        }
        let mut before = self.inputs.keys().chain(self.outputs.keys().filter(|_| self.replaces));
        if let Some(path) = before.find(|path| !found.contains_key(*path)) {
            return Err(wrong(path, "was there before, and is gone"));
        }
        let state = match new_count {
            0 => State::Kept,
            count if count == self.outputs.len() => State::Complete,
            _ => State::Partial,
        };
        Ok(Verdict { state, lost_ns: 0 })
    }
}
