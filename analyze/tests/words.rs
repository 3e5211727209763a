//! Texts use the field's words: none of the private ones of earlier versions comes back, in output, help, documentation or
//! comments. It links nothing of the product.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Words that readers would not search for, and those that they would.
const PRIVATE: &[(&str, &str)] = &[
    ("guilty", "caused … % of the excess latency"),
    ("alibi", "not a factor"),
    ("innocent", "not a factor"),
    ("handed out", "allocated"),
    ("had from the driver", "reserved"),
    ("given back", "released"),
    ("could be given", "reclaimable"),
    ("hungrier", "uses more memory"),
    ("stint", "scheduling slice"),
    ("cannot be told", "inconclusive"),
    ("cries wolf", "raises a false alarm"),
    ("the dearer", "higher overhead"),
    ("defect of this program", "internal error"),
    ("defect in analyze", "internal error"),
    ("explained by unexplained", "cause unknown"),
    ("one's own", "explicit"),
];
/// Beginnings of a doc comment that has no subject.
const HEADLESS: &[&str] = &["/// Of ", "/// The same", "//! Of ", "//! The same"];
/// Where texts are.
const ROOMS: &[&str] = &["analyze", "capture", "fuzz", "queries", "notebooks", ".github", ".ci"];
/// Files that may have them: this one, the courtroom's truth (calls whose cause was made), which tests read, and code whose
/// built form is compared byte for byte; and answers in JSON, which keep their values.
const EXEMPT: &[&str] =
    &["analyze/tests/words.rs", "capture/stub/src/bin", "capture/ebpf", "analyze/tests/all/causes.rs"];
const ENDINGS: &[&str] = &["rs", "md", "sql", "html", "js", "css", "py", "ipynb", "yml", "sh"];

fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                texts(&path, found);
            }
        } else if path.extension().and_then(|ending| ending.to_str()).is_some_and(|e| ENDINGS.contains(&e)) {
            found.push(path);
        }
    }
}

/// A word stands alone: `stint` is not in `abstinent`.
fn has(line: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| {
        !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next())
    })
}

#[test]
fn texts_use_the_field_s_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for room in ROOMS {
        texts(&root.join(room), &mut files);
    }
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"] {
        files.push(root.join(page));
    }
    assert!(files.len() > 400, "only {} files were found", files.len());
    let mut found = Vec::new();
    let is_exempt = |path: &Path| EXEMPT.iter().any(|exempt| path.starts_with(root.join(exempt)));
    for path in files.iter().filter(|path| !is_exempt(path)) {
        let text = fs::read_to_string(path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            // Old names stay readable for one version of the format.
            if lower.contains("deprecated alias") || lower.contains("rename = ") {
                continue;
            }
            let place = || format!("{}:{}", path.display(), number + 1);
            for (word, instead) in PRIVATE {
                if has(&lower, word) {
                    found.push(format!("{}: {word:?}; say {instead:?}", place()));
                }
            }
            if let Some(headless) = HEADLESS.iter().find(|start| line.trim_start().starts_with(**start)) {
                found.push(format!("{}: a comment that begins with {headless:?} has no subject", place()));
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}
