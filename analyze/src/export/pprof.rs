//! Profiles for pprof. Field numbers are those of `profile.proto`. A sample is a stack of [`super::folded`],
//! innermost frame first; its sum is the value of the quantity that was summed, and its other values are
//! zero.
//!
//! Nothing was sampled, so there is no period. Each function has one location, without address or mapping.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use trace_schema::Run;

use super::folded::{Folded, What};
use analyze_import::protobuf::Message;

/// String table: strings by their index. The first one is empty, as the format requires.
struct Strings {
    places: HashMap<String, u64>,
    table: Vec<String>,
}

impl Strings {
    fn place(&mut self, text: &str) -> u64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.table.len() as u64;
        self.table.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// Writes all sums as one profile. `notes` become the profile's comments: what must be known to read its
/// numbers.
///
/// # Errors
/// Returns an error if the profile cannot be written.
pub(super) fn write(
    found: &[(What, Folded)],
    run: &Run,
    notes: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut profile = Message::default();
    let mut strings = Strings { places: HashMap::from([(String::new(), 0)]), table: vec![String::new()] };
    for (what, _) in found {
        let (name, unit) = (strings.place(what.name()), strings.place(what.unit()));
        profile.with(1, |ty| {
            ty.number(1, name);
            ty.number(2, unit);
        });
    }
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (place, (_, folded)) in found.iter().enumerate() {
        for (stack, sum) in folded.stacks() {
            let mut locations = Vec::new();
            for frame in stack.rsplit(';') {
                let number = functions.len() as u64 + 1;
                let function = *functions.entry(frame).or_insert(number);
                if function == number {
                    let name = strings.place(frame);
                    profile.with(5, |function| {
                        function.number(1, number);
                        function.number(2, name);
                        function.number(3, name);
                    });
                    profile.with(4, |location| {
                        location.number(1, number);
                        location.with(4, |line| line.number(1, number));
                    });
                }
                locations.push(function);
            }
            let mut values = vec![0; found.len()];
            // The format's numbers are signed. No run is 292 years long, so that the bound is never reached.
            values[place] = sum.min(i64::MAX as u64);
            profile.with(2, |sample| {
                sample.packed(1, &locations);
                sample.packed(2, &values);
            });
        }
    }
    if run.clock.wall_offset_ns != 0 {
        profile.number(9, run.clock.start_ns.saturating_add(run.clock.wall_offset_ns) as u64);
    }
    profile.number(10, run.clock.end_ns.saturating_sub(run.clock.start_ns).max(0) as u64);
    let comments: Vec<u64> = notes.iter().map(|note| strings.place(note)).collect();
    profile.packed(13, &comments);
    for text in &strings.table {
        profile.bytes(6, text.as_bytes());
    }
    out.write_all(profile.encoded())
}
