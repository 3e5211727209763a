//! Changes of texts: of lines, of the numbers and words in them, and of characters.

use std::ops::Range;

use analyze_run::random::Random;

use super::bytes;

/// Numbers and what is like them.
const NUMBERS: [&str; 20] = [
    "0",
    "-0",
    "-1",
    "1",
    "00",
    "255",
    "4294967295",
    "4294967296",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "2305843009213693953",
    "1e308",
    "1e-400",
    "NaN",
    "0x7f",
    "0.000000001",
    "99999999999999999999999999999999999999",
];
/// Characters that end, quote or escape something, and some that are no ASCII or no UTF-8.
const SPECIAL: [&[u8]; 20] = [
    b",",
    b":",
    b";",
    b"=",
    b"\"",
    b"'",
    b"\\",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"[",
    b"]",
    b"(",
    b")",
    b"  ",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\xe2\x80\xae",
];

/// Returns where the parts of a text are that consist of bytes which `belongs` accepts.
pub(super) fn runs(data: &[u8], belongs: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, byte) in data.iter().enumerate() {
        match (belongs(*byte), found.last_mut().filter(|last| last.end == at)) {
            (true, Some(last)) => last.end += 1,
            (true, None) => found.push(at..at + 1),
            (false, _) => {}
        }
    }
    found
}

/// Returns where the lines of a text are, each with its end.
fn lines(data: &[u8]) -> Vec<Range<usize>> {
    let mut start = 0;
    data.split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            start += line.len();
            start - line.len()..start
        })
        .collect()
}

/// Changes a text.
pub fn text(data: &mut Vec<u8>, random: &mut Random) {
    with(data, &[], random);
}

/// Changes a text in which these words mean something.
pub fn with(data: &mut Vec<u8>, words: &[&str], random: &mut Random) {
    let lines = lines(data);
    let Some(line) = (!lines.is_empty()).then(|| lines[random.below(lines.len())].clone()) else {
        return data.extend_from_slice(words.first().copied().unwrap_or("a").as_bytes());
    };
    let choices = if words.is_empty() { 9 } else { 11 };
    match random.below(choices) {
        0 => drop(data.drain(line)),
        1 => {
            let copy = data[line.clone()].to_vec();
            let place = lines[random.below(lines.len())].start;
            data.splice(place..place, copy);
        }
        2 => {
            let other = lines[random.below(lines.len())].clone();
            let copy = data[other].to_vec();
            data.splice(line, copy);
        }
        3 | 4 => {
            let numbers = runs(&data[line.clone()], |byte| byte.is_ascii_digit());
            replace(data, &line, &numbers, NUMBERS[random.below(NUMBERS.len())].as_bytes(), random);
        }
        5 => {
            // A word takes the place of another.
            let words = runs(data, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !words.is_empty() {
                let other = words[random.below(words.len())].clone();
                let copy = data[other].to_vec();
                data.splice(words[random.below(words.len())].clone(), copy);
            }
        }
        6 => {
            let at = line.start + random.below(line.len());
            data.splice(at..at, SPECIAL[random.below(SPECIAL.len())].iter().copied());
        }
        7 => {
            // Something becomes long.
            let some = bytes::range(data.len(), 8, random);
            let copy = data[some.clone()].repeat(1 << random.below(10));
            data.splice(some, copy);
        }
        8 => bytes::change(data, line, random),
        9 => {
            let found = runs(&data[line.clone()], |byte| byte.is_ascii_alphabetic() || byte == b'_');
            replace(data, &line, &found, words[random.below(words.len())].as_bytes(), random);
        }
        _ => {
            let at = line.start + random.below(line.len());
            data.splice(at..at, words[random.below(words.len())].bytes());
        }
    }
}

/// Replaces one of the places in a line.
fn replace(
    data: &mut Vec<u8>,
    line: &Range<usize>,
    places: &[Range<usize>],
    new: &[u8],
    random: &mut Random,
) {
    if !places.is_empty() {
        let place = places[random.below(places.len())].clone();
        data.splice(line.start + place.start..line.start + place.end, new.iter().copied());
    }
}
