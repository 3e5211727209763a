//! Lists the files of `queries/` for the program to embed: a query is a file in that folder, and nothing else names it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Collects the `.sql` files below `folder`, in the order of their paths.
fn sql_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sql_files(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "sql") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The linker makes functions of equal code one: 6.8 of 103.5 MB. So it does with constants of equal content, such as vtables and
    // the places that panics name: nothing here asks for the address of one, and functions that differ in them only are then equal.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all,--ignore-data-address-equality");
    }
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../queries").canonicalize()?;
    let mut files = Vec::new();
    sql_files(&root, &mut files)?;
    let mut list = String::from("&[\n");
    for path in &files {
        let name = path.strip_prefix(&root)?.to_str().ok_or("a name that is not UTF-8")?;
        list += &format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string());
    }
    list += "]\n";
    fs::write(Path::new(&env::var("OUT_DIR")?).join("queries.rs"), list)?;
    Ok(())
}
