//! The fuzz targets under libFuzzer: `inquest-libfuzzer --target=NAME [flags of libFuzzer] [folders or files]`.
//!
//! libFuzzer has the `main`, hands every flag that begins with two dashes on unread, and passes it to the processes that it
//! starts. Half of the inputs are changed by the target's own mutator, which knows the format, and half by libFuzzer's.

#![no_main]

use std::{env, process, sync::OnceLock};

use analyze_run::random::Random;
use inquest_fuzz::{
    findings,
    target::Target,
    targets::{find, TARGETS},
};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// Returns the target that the command line names.
fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = env::args().find_map(|word| word.strip_prefix("--target=").map(str::to_owned));
        name.as_deref().and_then(find).unwrap_or_else(|| {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("--target=NAME is missing, with one of: {}", names.join(", "));
            process::exit(2)
        })
    })
}

fuzz_target!(init: { target(); }, |bytes: &[u8]| {
    let target = target();
    let (_, found) = findings::of(|| (target.run)(bytes));
    if !found.is_empty() {
        eprintln!("ERROR: fuzz target {}: {}", target.name, found.join("; "));
        process::abort();
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut input = data[..size].to_vec();
    (target().mutate)(&mut input, &mut Random::nth(seed.into(), 0));
    let length = input.len().min(max_size);
    data[..length].copy_from_slice(&input[..length]);
    length
});
