//! Profiles for pprof. Field numbers are those of `profile.proto`. A sample is a stack of [`super::folded`],
//! innermost frame first; its sum is the value of the quantity that was summed, and its other values are
//! zero.
//!
//! Nothing was sampled, so there is no period. Each function has one location, without address or mapping.

mod proto;

use std::{
    collections::HashMap,
    io::{self, Write},
};

use prost::Message;
use trace_schema::Run;

use self::proto::{Function, Line, Location, Profile, Sample, ValueType};
use super::folded::{Folded, What};

/// String table: strings by their index. The first one is empty, as the format requires.
struct Strings {
    places: HashMap<String, i64>,
    table: Vec<String>,
}

impl Strings {
    fn place(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// Writes a part of a profile.
fn write_part(part: &Profile, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&part.encode_to_vec())
}

/// Writes all sums as one profile. `notes` become the profile's comments: what must be known to read its
/// numbers.
pub(super) fn write(
    found: &[(What, Folded)],
    run: &Run,
    notes: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut strings = Strings { places: HashMap::from([(String::new(), 0)]), table: vec![String::new()] };
    for (what, _) in found {
        let ty = ValueType { ty: strings.place(what.name()), unit: strings.place(what.unit()) };
        write_part(&Profile { sample_type: vec![ty], ..Profile::default() }, out)?;
    }
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (place, (_, folded)) in found.iter().enumerate() {
        for (stack, sum) in folded.stacks() {
            let mut part = Profile::default();
            let mut sample = Sample { location_id: Vec::new(), value: vec![0; found.len()] };
            for frame in stack.rsplit(';') {
                let number = functions.len() as u64 + 1;
                let function = *functions.entry(frame).or_insert(number);
                if function == number {
                    let name = strings.place(frame);
                    part.function.push(Function { id: number, name, system_name: name });
                    part.location.push(Location { id: number, line: vec![Line { function_id: number }] });
                }
                sample.location_id.push(function);
            }
            // The format's numbers are signed. No run is 292 years long, so that the bound is never reached.
            sample.value[place] = i64::try_from(sum).unwrap_or(i64::MAX);
            part.sample.push(sample);
            write_part(&part, out)?;
        }
    }
    let clock = &run.clock;
    let comment = notes.iter().map(|note| strings.place(note)).collect();
    let last = Profile {
        time_nanos: match clock.wall_offset_ns {
            0 => 0,
            offset_ns => clock.start_ns.saturating_add(offset_ns),
        },
        duration_nanos: clock.end_ns.saturating_sub(clock.start_ns).max(0),
        comment,
        string_table: strings.table,
        ..Profile::default()
    };
    write_part(&last, out)
}
