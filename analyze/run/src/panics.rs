//! Panics of decoders as errors. A damaged or forged file may make a library panic that trusts what it reads; that is an error
//! of the file, and no end of the program.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use parking_lot::Mutex;
use tokio::task::JoinError;

use crate::{error::AnalyzeError, text::harmless};

/// Where the last panic happened.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// Makes panics silent, because whoever catches one reports it as an error. With the environment variable RUST_BACKTRACE, a
/// panic prints what it does by default.
pub fn silence() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        *PLACE.lock() = panic.location().map(ToString::to_string);
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            usual(panic);
        }
    }));
}

/// Returns what a panic says, as one line without control characters.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = match panic.downcast_ref::<String>() {
        Some(text) => text,
        None => panic.downcast_ref::<&str>().copied().unwrap_or("a panic without a message"),
    };
    harmless(text).replace(['\n', '\t'], " ")
}

/// Returns the error of a panic that nothing in the input explains.
pub fn internal(panic: &(dyn Any + Send)) -> AnalyzeError {
    let place = PLACE.lock().take().map(|place| format!(" ({})", harmless(&place)));
    AnalyzeError::Internal(format!("{}{}", message(panic), place.unwrap_or_default()))
}

/// Returns the error of a panic while the content of a file was decoded.
pub fn undecodable(path: &Path, panic: &(dyn Any + Send)) -> AnalyzeError {
    AnalyzeError::Damaged(format!("{}: its content cannot be decoded: {}", path.display(), message(panic)))
}

/// Does work that decodes the content of a file.
///
/// # Errors
/// Returns the errors of the work, and an error that names the file if it panics.
pub fn decoding<T>(path: &Path, work: impl FnOnce() -> Result<T, AnalyzeError>) -> Result<T, AnalyzeError> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(undecodable(path, panic.as_ref())))
}

/// Returns the error of a task that did not come to its end.
pub fn joined(error: JoinError) -> AnalyzeError {
    match error.try_into_panic() {
        Ok(panic) => internal(panic.as_ref()),
        Err(error) => AnalyzeError::Internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_decoder_names_the_file() {
        let said = |error: AnalyzeError| error.to_string();
        let panics = || -> Result<(), AnalyzeError> { panic!("index {} is\nout\u{1b}[31m of bounds", 7) };
        assert_eq!(
            said(decoding(Path::new("run.parquet"), panics).expect_err("a panic")),
            "damaged data: run.parquet: its content cannot be decoded: index 7 is out\\u001b[31m of bounds"
        );
        assert_eq!(decoding(Path::new("run.parquet"), || Ok(7)).expect("no panic"), 7);
    }
}
