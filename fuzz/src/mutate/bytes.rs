//! Changes of bytes that know no format, and choices that other mutators are made of.

use std::ops::Range;

use analyze_run::random::Random;

/// Numbers at which readers change their mind: around the ends of the types, of pages, of limits.
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    100,
    127,
    128,
    255,
    256,
    4095,
    4096,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 61,
    i64::MAX as u64,
    1 << 63,
];

/// Returns any number.
pub fn word(random: &mut Random) -> u64 {
    (random.below(1 << 32) as u64) << 32 | random.below(1 << 32) as u64
}

/// Returns a number that a reader may not expect.
pub fn number(random: &mut Random) -> u64 {
    let number = NUMBERS[random.below(NUMBERS.len())];
    match random.below(8) {
        0 => word(random),
        1 => number.wrapping_add(1),
        2 => number.wrapping_sub(1),
        3 => number.wrapping_neg(),
        4 => random.below(1 << 16) as u64,
        _ => number,
    }
}

/// Returns a range of at most `most` bytes within a length.
pub fn range(length: usize, most: usize, random: &mut Random) -> Range<usize> {
    if length == 0 {
        return 0..0;
    }
    let start = random.below(length);
    start..(start + 1 + random.below(most)).min(length)
}

/// Changes some bytes anywhere.
pub fn bytes(data: &mut Vec<u8>, random: &mut Random) {
    let length = data.len();
    change(data, 0..length, random);
}

/// Changes some bytes whose first one is in a range.
pub fn change(data: &mut Vec<u8>, place: Range<usize>, random: &mut Random) {
    let place = place.start.min(data.len())..place.end.min(data.len());
    if place.is_empty() {
        data.push(random.below(256) as u8);
        return;
    }
    let at = place.start + random.below(place.len());
    let some = at..(at + 1 + random.below(32)).min(data.len());
    match random.below(10) {
        0 | 1 => data[at] ^= 1 << random.below(8),
        2 => data[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        3 => data[at] = random.below(256) as u8,
        4 => drop(data.drain(some)),
        5 => {
            let copy = data[some].to_vec();
            data.splice(at..at, copy);
        }
        6 => {
            let other = range(data.len(), 32, random);
            let copy = data[other].to_vec();
            data.splice(some, copy);
        }
        7 => data[some].fill([0, 0xff, b' ', b'9'][random.below(4)]),
        8 => put(data, at, random),
        _ => {
            let new: Vec<u8> = (0..1 + random.below(8)).map(|_| random.below(256) as u8).collect();
            data.splice(at..at, new);
        }
    }
}

/// Writes a number over the bytes from a place on, in a width and a byte order.
pub fn put(data: &mut [u8], at: usize, random: &mut Random) {
    let number = number(random);
    let width = 1 << random.below(4);
    let bytes = if random.below(4) == 0 { number.to_be_bytes() } else { number.to_le_bytes() };
    let bytes = if random.below(4) == 0 { &bytes[8 - width..] } else { &bytes[..width] };
    for (byte, new) in data.iter_mut().skip(at).zip(bytes) {
        *byte = *new;
    }
}

/// Changes words of formats whose numbers lie at multiples of their width: Arrow, ELF, events.
pub fn words(data: &mut Vec<u8>, random: &mut Random) {
    if data.len() < 8 || random.below(4) == 0 {
        return bytes(data, random);
    }
    let width = [2, 4, 8][random.below(3)];
    let at = random.below(data.len() / width) * width;
    let number = number(random);
    let end = (at + width).min(data.len());
    let old = data[at..end].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let new = match random.below(4) {
        0 => old.wrapping_add(1 + random.below(64) as u64),
        1 => old.wrapping_sub(1 + random.below(64) as u64),
        _ => number,
    };
    data[at..end].copy_from_slice(&new.to_le_bytes()[..end - at]);
}

/// Changes records of one size: one is changed, removed, doubled, or changes its place with another.
pub fn records(data: &mut Vec<u8>, size: usize, random: &mut Random) {
    let count = data.len() / size;
    if count == 0 {
        return bytes(data, random);
    }
    let (at, other) = (random.below(count) * size, random.below(count) * size);
    match random.below(6) {
        0 => drop(data.drain(at..at + size)),
        1 => {
            let copy = data[at..at + size].to_vec();
            data.splice(other..other, copy);
        }
        2 => {
            let copy = data[at..at + size].to_vec();
            data.copy_within(other..other + size, at);
            data[other..other + size].copy_from_slice(&copy);
        }
        3 => put(data, at + random.below(size), random),
        _ => data[at + random.below(size)] = random.below(256) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_one_and_stays_within_bounds() {
        let mut random = Random::nth(3, 4);
        let all: [fn(&mut Vec<u8>, &mut Random); 3] =
            [bytes, words, |data, random| records(data, 16, random)];
        for mutate in all {
            let mut changed_count = 0;
            for round in 0..3000 {
                let old: Vec<u8> = (0..random.below(80)).map(|_| random.below(256) as u8).collect();
                let mut new = old.clone();
                mutate(&mut new, &mut random);
                assert!(new.len() <= old.len() + 40, "round {round}: {} from {}", new.len(), old.len());
                changed_count += usize::from(new != old);
            }
            assert!(changed_count > 2000, "{changed_count}");
        }
    }
}
