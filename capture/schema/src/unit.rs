//! Quantities with a unit: how they are parsed from options and shown in output.

use std::{fmt, str::FromStr};

/// A time span in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub i64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub i64);

/// The error of text that is not a quantity with a known unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.expected)
    }
}

impl std::error::Error for UnitError {}

const TIMES: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("h", 3600e9),
];

const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// Splits "1.5 ms" into number and factor; `None` if it is not of that form, or not a finite,
/// non-negative number that fits.
fn parse(text: &str, units: &[(&str, f64)]) -> Option<i64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let number: f64 = text[..split].parse().ok()?;
    let unit = text[split..].trim();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    let value = (number * factor).round();
    (value < i64::MAX as f64).then_some(value as i64)
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, TIMES)
            .map(Self)
            .ok_or_else(|| UnitError { text: text.to_owned(), expected: "a time such as 90s, 1.5ms or 2min" })
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let plain = || text.trim().parse::<u64>().ok().and_then(|bytes| i64::try_from(bytes).ok());
        parse(text, SIZES).or_else(plain).map(Self).ok_or_else(|| UnitError {
            text: text.to_owned(),
            expected: "a size such as 512KiB, 64MiB or 1048576 (bytes)",
        })
    }
}

/// Three significant digits, without an exponent.
fn three_digits(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let digits = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    write!(f, "{value:.digits$} {unit}")
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        match self.0.unsigned_abs() {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => three_digits(f, value / 1e3, "µs"),
            1_000_000..1_000_000_000 => three_digits(f, value / 1e6, "ms"),
            _ => three_digits(f, value / 1e9, "s"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs() as f64;
        match SIZES.iter().skip(1).rev().find(|(_, factor)| magnitude >= *factor) {
            Some((unit, factor)) => three_digits(f, self.0 as f64 / factor, unit),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_three_digits() {
        let shown = |ns| Nanos(ns).to_string();
        assert_eq!(shown(0), "0 ns");
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(1_234), "1.23 µs");
        assert_eq!(shown(12_345), "12.3 µs");
        assert_eq!(shown(351_000_000), "351 ms");
        assert_eq!(shown(-12_300_000_000), "-12.3 s");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(8_519_680).to_string(), "8.12 MiB");
        assert_eq!(Bytes(-(20 << 20)).to_string(), "-20.0 MiB");
        assert_eq!(Bytes(i64::MIN).to_string(), "-8388608 TiB");
    }

    #[test]
    fn reads_what_people_type() {
        assert_eq!("90s".parse(), Ok(Nanos(90_000_000_000)));
        assert_eq!(" 1.5 ms ".parse(), Ok(Nanos(1_500_000)));
        assert_eq!("64MiB".parse(), Ok(Bytes(64 << 20)));
        for bad in ["", "90", "s", "-1s", "1e9s", "9999999999999999h", "1 parsec", "1..2s"] {
            assert!(bad.parse::<Nanos>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_size_without_a_unit_is_in_bytes() {
        assert_eq!("85899345920".parse(), Ok(Bytes(80 << 30)));
        assert_eq!(" 0 ".parse(), Ok(Bytes(0)));
        assert_eq!(i64::MAX.to_string().parse(), Ok(Bytes(i64::MAX)));
        for bad in ["", "1.5", "-1", "1e9", "9223372036854775808", "64 Mib"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }
}
