//! Tells which panics are findings.
//!
//! Readers catch the panics of the decoders that they use (Parquet, Arrow) and report them as errors of the file. A panic in
//! code of this repository is a finding, also if something catches it; so is one in the standard library, which its caller
//! has caused. A panic in a dependency is a finding only if nobody catches it.

use std::{
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// What the panics during the work say.
struct Seen {
    /// Those that are findings.
    own: Vec<String>,
    /// The last one of all.
    last: String,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen { own: Vec::new(), last: String::new() });
/// Whether panics are collected, instead of being reported as usual.
static IS_COLLECTING: AtomicBool = AtomicBool::new(false);

fn seen() -> MutexGuard<'static, Seen> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a file is one of a dependency.
fn is_foreign(file: &str) -> bool {
    ["/registry/src/", "/git/checkouts/", "/vendor/"].iter().any(|folder| file.contains(folder))
}

fn note(info: &PanicHookInfo<'_>) {
    let is_own = info.location().is_none_or(|location| !is_foreign(location.file()));
    let mut seen = seen();
    seen.last = info.to_string();
    if is_own {
        let text = seen.last.clone();
        seen.own.push(text);
    }
}

/// Does work and returns what came of it, `None` if it panicked, and the panics of all threads meanwhile that are findings.
/// One work is done at a time.
pub fn of<T>(work: impl FnOnce() -> T) -> (Option<T>, Vec<String>) {
    static HOOK: Once = Once::new();
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_COLLECTING.load(Ordering::SeqCst) {
                note(info);
            } else {
                usual(info);
            }
        }));
    });
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    IS_COLLECTING.store(true, Ordering::SeqCst);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_COLLECTING.store(false, Ordering::SeqCst);
    let mut seen = seen();
    let mut found = std::mem::take(&mut seen.own);
    if result.is_err() && found.is_empty() {
        found.push(format!("nothing caught this panic of a dependency: {}", seen.last));
    }
    (result.ok(), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_of_dependencies_are_told_from_our_own() {
        let dependency =
            "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/parquet-59.3.2/src/lib.rs";
        assert!(is_foreign(dependency));
        assert!(!is_foreign("analyze/run/src/stored_file.rs"));
        assert!(!is_foreign("/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/str/mod.rs"));
        assert_eq!(of(|| 7), (Some(7), Vec::new()));
        let caught = || panic::catch_unwind(|| -> u8 { panic!("ours, and caught") }).is_err();
        let (result, found) = of(caught);
        assert_eq!((result, found.len()), (Some(true), 1), "{found:?}");
        assert!(found[0].contains("findings.rs") && found[0].contains("ours, and caught"), "{found:?}");
        let (result, found) = of(|| -> u8 { panic!("ours, and not caught") });
        assert_eq!((result, found.len()), (None, 1), "{found:?}");
    }
}
