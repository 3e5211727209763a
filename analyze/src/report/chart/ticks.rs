//! Chooses round values for the ticks of axes, and formats them.

use super::text_width::{NARROW, text_width};
use trace_schema::Bytes;

/// Common units of time, in nanoseconds.
const UNITS_OF_TIME: [(f64, &str); 7] =
    [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"), (6e10, "min"), (3.6e12, "h"), (8.64e13, "d")];

/// A value with its label.
pub(super) type Tick = (f64, String);

/// Returns the smallest of 1, 2 and 5 times a power of ten that is at least `least`.
fn decimal_step(least: f64) -> f64 {
    let decimal = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|count| count * decimal)
        .find(|step| *step >= least)
        .unwrap_or(least)
}

/// Returns the smallest round step of time, in ns, that is at least `least`.
fn time_step(least: f64) -> f64 {
    let sixties =
        [10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0];
    if least <= 1e10 {
        return decimal_step(least.max(1.0));
    }
    let days = 8.64e13 * decimal_step((least / 8.64e13).max(1.0));
    let steps = sixties.map(|count| count * 1e9).into_iter().chain([days]);
    steps.into_iter().find(|step| *step >= least).unwrap_or(least)
}

/// Returns the times between `from` and `to` (ns) at a step of about a `count`th of the span.
fn steps_of_time(from: f64, to: f64, count: f64) -> Vec<Tick> {
    let step = time_step((to - from).max(1.0) / count);
    // The unit suits the whole span. From minutes on it suits the step, so that labels are no fractions of
    // it.
    let of = if step < 6e10 { to.abs().min(5e10) } else { step };
    let (unit, name) = UNITS_OF_TIME.iter().rev().find(|(unit, _)| *unit <= of).unwrap_or(&UNITS_OF_TIME[0]);
    let decimals = (unit / step).log10().ceil().clamp(0.0, 9.0) as usize;
    ((from / step).ceil() as i64..=(to / step).floor() as i64)
        .map(|number| number as f64 * step)
        .map(|at| (at, format!("{:.decimals$} {name}", at / unit)))
        .collect()
}

/// Returns about six round times between `from` and `to` (ns); fewer if their labels are long.
pub(super) fn times(from: f64, to: f64) -> Vec<Tick> {
    let fits = |ticks: &[Tick]| ticks.iter().map(|(_, label)| text_width(label) + 8.0).sum::<f64>() <= NARROW;
    let choices = [6.0, 4.0, 3.0].into_iter().map(|count| steps_of_time(from, to, count));
    choices.into_iter().find(|ticks| fits(ticks)).unwrap_or_else(|| steps_of_time(from, to, 2.0))
}

/// Returns round times between `from` and `to` (ns) as shares of the span, with their labels.
pub(in crate::report) fn time_shares(from: f64, to: f64) -> Vec<Tick> {
    let span = (to - from).max(1.0);
    times(from, to).into_iter().map(|(at, label)| ((at - from) / span, label)).collect()
}

/// Returns about four round sizes up to `top` bytes, in binary units.
pub(super) fn sizes(top: f64) -> Vec<Tick> {
    let least = (top / 5.0).max(1.0);
    let unit = 1024_f64.powf((least.log2() / 10.0).floor());
    let counts = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1024.0];
    let step = counts.iter().map(|count| count * unit).find(|step| *step >= least).unwrap_or(least);
    (1..=(top / step) as i64)
        .map(|number| number as f64 * step)
        .map(|size| (size, Bytes(size as i64).to_string()))
        .collect()
}

/// Returns the powers of ten between two durations (ns), at most about six.
pub(super) fn decades(from: f64, to: f64) -> Vec<Tick> {
    let (first, last) = (from.max(1.0).log10().ceil() as i32, to.max(1.0).log10().floor() as i32);
    let step = ((last - first) / 6 + 1).max(1) as usize;
    (first..=last)
        .step_by(step)
        .map(|power| 10_f64.powi(power))
        .map(|at| {
            let unit = UNITS_OF_TIME[..4].iter().rev().find(|(unit, _)| *unit <= at * 1.001);
            let (unit, name) = unit.unwrap_or(&UNITS_OF_TIME[0]);
            (at, format!("{:.0} {name}", at / unit))
        })
        .collect()
}

/// Returns five round changes from `-reach` to `reach`, both shares, with no change in the middle.
pub(super) fn changes(reach: f64) -> Vec<Tick> {
    let step = decimal_step(reach / 2.0 * 0.99);
    let step = if 2.0 * step > reach { step / 2.0 } else { step };
    let label = |number: i32| match number {
        0 => "no change".to_owned(),
        // Steps are rounded: a floating-point product has further digits.
        number => format!("{:+} %", (f64::from(number) * step * 1e6).round() / 1e4),
    };
    (-2..=2).map(|number| (f64::from(number) * step, label(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(ticks: Vec<Tick>) -> Vec<String> {
        ticks.into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn ticks_are_round() {
        let words = |from, to| words(times(from, to));
        assert_eq!(words(0.0, 4e9), ["0 s", "1 s", "2 s", "3 s", "4 s"]);
        assert_eq!(words(3.61e9, 3.66e9), ["3.61 s", "3.62 s", "3.63 s", "3.64 s", "3.65 s", "3.66 s"]);
        assert_eq!(words(0.0, 3.1536e16).first().unwrap(), "0 d");
        assert!(words(0.0, 3.1536e16).len() > 2, "a year");
        assert_eq!(words(0.0, 3.6e12), ["0 min", "10 min", "20 min", "30 min", "40 min", "50 min", "60 min"]);
        assert!((1..=9).all(|power| {
            let count = words(0.0, 7.3 * 10_f64.powi(power * 2)).len();
            (2..=8).contains(&count)
        }));
    }

    #[test]
    fn ticks_have_units() {
        let gib = f64::from(1 << 30);
        assert_eq!(words(sizes(139.0 * gib)), [Bytes(50 << 30).to_string(), Bytes(100 << 30).to_string()]);
        assert_eq!(words(decades(900.0, 2e6)), ["1 µs", "10 µs", "100 µs", "1 ms"]);
        assert_eq!(words(changes(0.25)), ["-20 %", "-10 %", "no change", "+10 %", "+20 %"]);
    }
}
