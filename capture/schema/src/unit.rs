//! Quantities with a unit: how they are parsed from options and shown in output.

use std::{borrow::Cow, fmt, str::FromStr};

/// A time span in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub i64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub i64);

/// A number of things, shown with their noun in the singular or plural: `1 sleep`, `2 sleeps`, `0 processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<N>(pub N, pub &'static str);

/// The error of text that is not a quantity with a known unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    expected: Cow<'static, str>,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.expected)
    }
}

impl std::error::Error for UnitError {}

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const SIZES: &[(&str, u64)] =
    &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Splits "1.5 ms" into number and factor; `None` if it is not of that form, or not a finite,
/// non-negative number that fits. A whole number is exact.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<i64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = (&text[..split], text[split..].trim());
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    if let Ok(whole) = number.parse::<u64>() {
        return i64::try_from(whole.checked_mul(factor)?).ok();
    }
    let value = (number.parse::<f64>().ok()? * factor as f64).round();
    (value < i64::MAX as f64).then_some(value as i64)
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, TIMES).map(Self).ok_or_else(|| UnitError {
            text: text.to_owned(),
            expected: "a time such as 90s, 1.5ms or 2min".into(),
        })
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let plain = || text.trim().parse::<u64>().ok().and_then(|bytes| i64::try_from(bytes).ok());
        parse(text, SIZES).or_else(plain).map(Self).ok_or_else(|| UnitError {
            text: text.to_owned(),
            expected: "a size such as 512KiB, 64MiB or 1048576 (bytes)".into(),
        })
    }
}

/// Parses a share in percent, such as `10%`, to a ratio, here 0.1. The share is at least 0 % and at most `most_percent`.
///
/// # Errors
/// Returns an error if the text is not a number with `%`, or out of that range.
pub fn parse_share(text: &str, most_percent: f64) -> Result<f64, UnitError> {
    let percent = text.trim().strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
    let in_range = percent.filter(|percent| (0.0..=most_percent).contains(percent));
    in_range.map(|percent| percent / 100.0).ok_or_else(|| UnitError {
        text: text.to_owned(),
        expected: format!("a share from 0% to {most_percent}%, such as 10%").into(),
    })
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

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Counted<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = self;
        let ending = match noun {
            _ if *number == N::from(1_u8) => "",
            noun if ["s", "ch", "sh", "x"].iter().any(|hiss| noun.ends_with(*hiss)) => "es",
            _ => "s",
        };
        write!(f, "{number} {noun}{ending}")
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        // What would be rounded to a thousand of a unit is one of the next.
        match self.0.unsigned_abs() {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..999_500 => three_digits(f, value / 1e3, "µs"),
            999_500..999_500_000 => three_digits(f, value / 1e6, "ms"),
            _ => three_digits(f, value / 1e9, "s"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        // What would be rounded to 1024 of a unit is one of the next.
        match SIZES.iter().skip(1).rev().find(|(_, factor)| magnitude >= factor - factor / 2048) {
            Some((unit, factor)) => three_digits(f, self.0 as f64 / *factor as f64, unit),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn things_are_counted_in_the_singular_or_plural() {
        let shown = |number: i64, noun| Counted(number, noun).to_string();
        assert_eq!([0, 1, 2].map(|number| shown(number, "sleep")), ["0 sleeps", "1 sleep", "2 sleeps"]);
        assert_eq!(["process", "launch"].map(|noun| shown(2, noun)), ["2 processes", "2 launches"]);
        assert_eq!(shown(1, "process"), "1 process");
        assert_eq!(Counted(1_usize, "other thread").to_string(), "1 other thread");
    }

    #[test]
    fn shares_have_a_range() {
        for (text, most_percent, ratio) in
            [("10%", 100.0, 0.1), (" 100 % ", 100.0, 1.0), ("0%", 100.0, 0.0), ("101%", 1e6, 1.01)]
        {
            assert_eq!(parse_share(text, most_percent), Ok(ratio), "{text}");
        }
        for text in ["101%", "-1%", "10", "%", "NaN%", "inf%", "ten%"] {
            let error = parse_share(text, 100.0).unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not a share from 0% to 100%, such as 10%"));
        }
    }

    #[test]
    fn shows_three_digits() {
        let shown = |ns| Nanos(ns).to_string();
        assert_eq!(shown(0), "0 ns");
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(1_234), "1.23 µs");
        for (ns, expected) in [
            (9_994, "9.99 µs"),
            (9_995, "10.0 µs"),
            (99_949, "99.9 µs"),
            (99_950, "100 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (999_499_999, "999 ms"),
            (-999_500_000, "-1.00 s"),
        ] {
            assert_eq!(shown(ns), expected);
        }
        for (bytes, expected) in
            [(1024, "1.00 KiB"), ((1 << 20) - 513, "1023 KiB"), ((1 << 20) - 512, "1.00 MiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), expected);
        }
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

    /// Numbers of every magnitude.
    fn numbers() -> impl Strategy<Value = i64> {
        (0..=61_u32).prop_flat_map(|bits| 0..=1_i64 << bits)
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_to_its_last_digit(number in numbers()) {
            let (nanos, bytes) = (Nanos(number).to_string(), Bytes(number).to_string());
            let read = [nanos.parse::<Nanos>().unwrap().0, bytes.parse::<Bytes>().unwrap().0];
            for value in read {
                let is_exact = number < 1000;
                let error = if is_exact { 0 } else { number as u64 / 200 };
                prop_assert!(value.abs_diff(number) <= error);
            }
            prop_assert_eq!((Nanos(read[0]).to_string(), Bytes(read[1]).to_string()), (nanos, bytes));
        }

        #[test]
        fn whole_numbers_are_exact(number in any::<u64>(), shift in 0..64_u32, is_spaced: bool) {
            let number = number >> shift;
            let written = |unit: &str| format!("{number}{}{unit}", if is_spaced { " " } else { "" });
            let product = |factor: u64| i64::try_from(u128::from(number) * u128::from(factor)).ok();
            for (unit, factor) in TIMES {
                prop_assert_eq!(written(unit).parse().ok().map(|Nanos(ns)| ns), product(*factor));
            }
            for (unit, factor) in SIZES.iter().chain([&("", 1)]) {
                prop_assert_eq!(written(unit).parse().ok().map(|Bytes(bytes)| bytes), product(*factor));
            }
        }

        #[test]
        fn no_text_is_a_negative_quantity(text in "[0-9.]{0,24} ?[a-zA-Zµ]{0,3}|.*") {
            prop_assert!(!text.parse().is_ok_and(|Nanos(ns)| ns < 0));
            prop_assert!(!text.parse().is_ok_and(|Bytes(bytes)| bytes < 0));
        }
    }
}
