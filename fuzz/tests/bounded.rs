//! Every target, on its seeds and on what is made of them, for two seconds. No input may panic, take too long, or take too much
//! memory; seeds are read, and inputs that were findings once are handled.
//!
//! `INQUEST_FUZZ_SECONDS` and `INQUEST_FUZZ_SEED` change the time and the seed.

#![expect(clippy::panic, reason = "tests")]

use std::{env, path::Path, time::Duration};

use inquest_fuzz::{
    campaign::{self, Budget},
    targets::{TARGETS, find},
};

/// The most rounds of a target: readers of short texts make thousands a second.
const ROUNDS: usize = 3000;

fn setting(name: &str, default: u64) -> u64 {
    env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn check(name: &str) {
    let target = find(name).unwrap_or_else(|| panic!("there is no target {name}"));
    let budget = Budget {
        seed: setting("INQUEST_FUZZ_SEED", 1),
        time: Duration::from_secs(setting("INQUEST_FUZZ_SECONDS", 2)),
        rounds: ROUNDS,
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz");
    match campaign::run(target, &budget, &folder) {
        Ok(report) => println!("{name}: {report:?}"),
        Err(finding) => panic!("{finding}"),
    }
}

macro_rules! bounded {
    ($($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_here() {
            let here = [$(stringify!($name)),*];
            let all: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(all, here);
        }
    };
}

bounded! {
    run,
    rows,
    recording,
    baseline,
    recognized,
    kineto,
    nsys,
    nsys_folder,
    ingero,
    perfetto,
    perf,
    ftrace,
    torch_snapshot,
    events,
    csv,
    gates,
    queries,
    requests,
    symbols,
    elf,
    perf_map,
    marks,
    kernel_events,
    process_texts,
    command_line,
}
