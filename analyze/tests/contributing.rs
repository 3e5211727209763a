//! The worked examples of CONTRIBUTING.md are parts of files that are compiled; its query is run in `tests/all`. It links
//! nothing of the product.

use std::{fs, path::Path};

#[test]
fn worked_examples_are_parts_of_compiled_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let blocks: Vec<_> = page.split("```rust file=").skip(1).collect();
    assert!(blocks.len() >= 4, "{} examples", blocks.len());
    for block in blocks {
        let (file, rest) = block.split_once('\n').unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let code = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(code.contains(example), "{file} has no such part any more:\n{example}");
    }
}
