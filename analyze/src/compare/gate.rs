//! Gates: limits on how much a figure may get worse.
//!
//! ```text
//! p99(cudaLaunchKernel) < +5%            a quantile of a function's calls; the unit's suffix may be omitted
//! calls_ns(cudaMemcpyAsync; h2d, 2^24 bytes) < +5%     one group of a function's calls
//! phase_p50_ns(step #) < +2% floor 1ms   differences of up to 1 ms do not count
//! reserved_peak_bytes < +512MiB          an absolute amount rather than a share
//! calls_count(*) < +0                    a separate gate for each function
//! copy_rate_bytes(h2d) > -5%             for a metric of which more is better
//! ```
//! A limit says how much worse is a failure, and what a pass excludes. A gate file is TOML: `gates = ["…", …]`,
//! and optionally `alpha` and `resolution`, which `--alpha` and `--resolution` override. The resolution has no
//! default: it is the wish to let gates with smaller limits pass on fewer runs.

use std::{path::Path, str::FromStr};

use serde::{Deserialize, Serialize};
use trace_schema::UnitError;

use super::quantity::quantity;
use super::{
    figure::{Key, Wanted},
    metric::Metric,
};
use analyze_run::{error::AnalyzeError, text_file};

/// Amount by which a figure may change for the worse.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Share of the base value: 0.05 is 5 %.
    Ratio(f64),
    /// Amount in the figure's unit.
    By(f64),
}

/// Part of a run that a gate checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The whole run.
    Whole,
    /// Every subject, each with a gate of its own.
    Each,
    /// One subject, or one group of it.
    One {
        /// Name of the function, phase, …
        name: String,
        /// Group within the subject; `None` for the whole subject.
        stratum: Option<String>,
    },
}

/// A gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// Text of the gate as the user wrote it.
    pub text: String,
    /// Name of the metric; the suffix with its unit may be missing.
    pub metric: String,
    /// Part of the run that the gate checks.
    pub subject: Subject,
    /// True if the figure may not fall; otherwise it may not rise.
    pub may_not_fall: bool,
    /// Largest allowed change for the worse.
    pub limit: Limit,
    /// Differences up to this amount do not count, in the metric's unit; `None` for the metric's default
    /// floor.
    pub floor: Option<f64>,
}

/// Gates used if the user gives none. They concern whole runs, and those that the recordings do not measure
/// are skipped. Their limit says which changes are worth a failure. Times differ from run to run, by 2 % on a quiet
/// machine: a smaller limit would leave most comparisons of five runs a side undecided although nothing changed.
/// Peaks of memory and numbers of calls hardly differ.
pub const DEFAULTS: [&str; 6] = [
    "wall_ns < +5%",
    "launch_gap_ns < +5%",
    "calls_ns < +5%",
    "alloc_calls_count < +2%",
    "reserved_peak_bytes < +2%",
    "allocated_peak_bytes < +2%",
];

impl FromStr for Gate {
    /// Description of the syntax error.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("gate {text:?}: {why}");
        let place =
            text.rfind(['<', '>']).ok_or_else(|| wrong("it has neither < nor >, as in: wall_ns < +2%"))?;
        let may_not_fall = text[place..].starts_with('>');
        let (left, right) = (text[..place].trim(), text[place + 1..].trim());
        let (metric, subject) = match left.split_once('(') {
            None => (left, Subject::Whole),
            Some((metric, rest)) => {
                let inner = rest.strip_suffix(')').ok_or_else(|| wrong("a ) is missing"))?.trim();
                let subject = match inner.split_once(';') {
                    _ if inner == "*" => Subject::Each,
                    None => Subject::One { name: inner.to_owned(), stratum: None },
                    Some((name, stratum)) => Subject::One {
                        name: name.trim().to_owned(),
                        stratum: Some(stratum.trim().to_owned()),
                    },
                };
                (metric.trim(), subject)
            }
        };
        if metric.is_empty() || metric.contains(char::is_whitespace) {
            return Err(wrong("it names no metric"));
        }
        let (limit, floor) = match right.split_once(" floor ") {
            Some((limit, floor)) => (limit.trim(), Some(floor.trim())),
            None => (right, None),
        };
        let sign = if may_not_fall { '-' } else { '+' };
        let amount = limit.strip_prefix(sign).ok_or_else(|| {
            wrong("a gate says by how much a figure may get worse: < +5%, or > -5% where more is better")
        })?;
        let limit = match amount.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .filter(|value| (0.0..=1e6).contains(value))
                .map(|p: f64| Limit::Ratio(p / 100.0)),
            None => quantity(amount).map(Limit::By),
        };
        let limit = limit.ok_or_else(|| {
            wrong("its limit is neither a share such as 5% nor a quantity such as 2, 10us or 64MiB")
        })?;
        let floor = floor
            .map(|floor| quantity(floor).ok_or_else(|| wrong("its floor is no quantity such as 10us")))
            .transpose()?;
        Ok(Self {
            text: text.trim().to_owned(),
            metric: metric.to_owned(),
            subject,
            may_not_fall,
            limit,
            floor,
        })
    }
}

/// Contents of a gate file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default)]
    gates: Vec<String>,
    alpha: Option<f64>,
    resolution: Option<String>,
}

/// The gates, and how strictly they are judged.
#[derive(Clone, Debug, Serialize)]
pub struct Rules {
    /// Gates of the comparison.
    pub gates: Vec<Gate>,
    /// True if these are the default gates, of which those that cannot be measured are left out.
    are_default: bool,
    /// Probability that any gate fails although nothing changed (family-wise error rate).
    pub alpha: f64,
    /// Share of the base value that the user asked for: a gate with a smaller limit passes if its confidence
    /// interval excludes a change for the worse beyond this share. `None` if the limits alone apply.
    pub resolution_ratio: Option<f64>,
}

/// The largest number of gates in a file.
const MAX_GATES: usize = 4096;

/// Default of [`Rules::alpha`].
pub const ALPHA: f64 = 0.05;

/// Parses a share such as `10%` to a ratio, here 0.1. What grows can grow to more than twice what it was.
///
/// # Errors
/// Returns an error if the text is not a share, or if the share is negative or more than 1,000,000 %.
pub fn share(text: &str) -> Result<f64, UnitError> {
    trace_schema::parse_share(text, 1e6)
}

impl Rules {
    /// Builds the rules from the command line. Each of `given` is a gate or the path of a gate file; without
    /// any, the default gates apply.
    ///
    /// # Errors
    /// Returns an error if a gate or file is malformed, if two gates concern the same figure in the same
    /// direction, or if `alpha` is out of range.
    pub fn new(given: &[String], alpha: Option<f64>, resolution: Option<f64>) -> Result<Self, AnalyzeError> {
        let mut gates: Vec<Gate> = Vec::new();
        let (mut file_alpha, mut file_resolution) = (None, None);
        for text in given {
            let path = Path::new(text);
            if !text.contains(['<', '>']) {
                let content = text_file::read(path)?;
                let wrong = |why: String| AnalyzeError::Query(format!("{}: {why}", path.display()));
                let file: File = toml::from_str(&content)
                    .map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
                if file.gates.is_empty() {
                    return Err(wrong("it has no gates".to_owned()));
                }
                if file.gates.len() > MAX_GATES {
                    return Err(wrong(format!(
                        "{} gates are more than the limit gates_count of {MAX_GATES}",
                        file.gates.len()
                    )));
                }
                for gate in &file.gates {
                    gates.push(gate.parse().map_err(wrong)?);
                }
                file_alpha = file.alpha.or(file_alpha);
                file_resolution = file
                    .resolution
                    .as_deref()
                    .map(share)
                    .transpose()
                    .map_err(|why| wrong(why.to_string()))?
                    .or(file_resolution);
            } else {
                gates.push(text.parse().map_err(AnalyzeError::Query)?);
            }
        }
        let are_default = gates.is_empty();
        if are_default {
            gates = DEFAULTS.iter().filter_map(|text| text.parse().ok()).collect();
        }
        for (place, gate) in gates.iter().enumerate() {
            let same = |other: &&Gate| {
                (&other.metric, &other.subject, other.may_not_fall)
                    == (&gate.metric, &gate.subject, gate.may_not_fall)
            };
            if let Some(other) = gates[..place].iter().find(same) {
                return Err(AnalyzeError::Query(format!(
                    "gates {:?} and {:?} contradict each other, or are the same",
                    other.text, gate.text
                )));
            }
        }
        let alpha = alpha.or(file_alpha).unwrap_or(ALPHA);
        if !(alpha > 0.0 && alpha < 0.5) {
            return Err(AnalyzeError::Query(format!(
                "alpha is {alpha}: it is a probability below 0.5, such as 0.05"
            )));
        }
        Ok(Self { gates, are_default, alpha, resolution_ratio: resolution.or(file_resolution) })
    }
}

impl Rules {
    /// Returns the metrics that the gates need of a run.
    pub fn wanted(&self) -> Wanted {
        let of_gate = |gate: &Gate| (gate.metric.clone(), gate.subject == Subject::Whole);
        Wanted::named(self.gates.iter().map(of_gate))
    }

    /// Returns the figures that the gates check, each with its gate. Default gates that the recordings do not
    /// measure are left out.
    ///
    /// # Errors
    /// Returns an error if a gate that the user asked for matches no metric or more than one, or has to name
    /// a subject.
    pub fn figures<'a>(
        &self,
        known: impl Iterator<Item = &'a Key> + Clone,
    ) -> Result<Vec<(&Gate, Key)>, AnalyzeError> {
        let mut figures = Vec::new();
        for gate in &self.gates {
            match gate.keys(known.clone()) {
                Err(_) if self.are_default => {}
                keys => figures.extend(keys.map_err(AnalyzeError::Query)?.into_iter().map(|key| (gate, key))),
            }
        }
        Ok(figures)
    }
}

impl Gate {
    /// Returns those of the known figures that the gate checks.
    ///
    /// # Errors
    /// Returns an error that lists the known metrics if none of them matches.
    fn keys<'a>(&self, known: impl Iterator<Item = &'a Key> + Clone) -> Result<Vec<Key>, String> {
        let is_named = |key: &&Key| key.metric.is_named(&self.metric);
        let mut metrics: Vec<&Metric> = known.clone().filter(is_named).map(|key| &key.metric).collect();
        metrics.sort_unstable();
        metrics.dedup();
        let metric = match metrics.as_slice() {
            [] => return Err(self.unknown(known)),
            [one] => *one,
            several => {
                let names: Vec<&str> = several.iter().map(|metric| metric.name()).collect();
                return Err(format!("gate {:?}: {} may be {}", self.text, self.metric, names.join(" or ")));
            }
        };
        let of_metric = || known.clone().filter(|key| key.metric == *metric);
        let keys: Vec<Key> = match &self.subject {
            Subject::Whole if of_metric().all(|key| key.subject.is_some()) => {
                let names: Vec<&str> = of_metric()
                    .filter(|key| key.stratum.is_none())
                    .filter_map(|key| key.subject.as_deref())
                    .collect();
                return Err(format!(
                    "gate {:?}: {metric} is of {}: name one, or all by {metric}(*)",
                    self.text,
                    some(&names),
                    metric = metric.name()
                ));
            }
            Subject::Whole => vec![Key::with(metric.clone(), None, None)],
            Subject::Each => {
                let mut keys: Vec<Key> = of_metric()
                    .filter(|key| key.subject.is_some() && key.stratum.is_none())
                    .cloned()
                    .collect();
                keys.sort();
                keys.dedup();
                keys
            }
            Subject::One { name, stratum } => vec![Key::with(metric.clone(), Some(name), stratum.as_deref())],
        };
        Ok(keys)
    }

    fn unknown<'a>(&self, known: impl Iterator<Item = &'a Key>) -> String {
        let mut names: Vec<&str> = known.map(|key| key.metric.name()).collect();
        names.sort_unstable();
        names.dedup();
        format!("gate {:?}: no run has a metric {}; there are {}", self.text, self.metric, names.join(", "))
    }
}

/// Returns the first names in alphabetical order, and how many more there are.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    let rest = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*, sample::select};

    use super::*;

    /// A quantity as it is written, and its number.
    fn quantities() -> impl Strategy<Value = (String, f64)> {
        let units = vec![
            ("", 1.0),
            ("ns", 1.0),
            ("us", 1e3),
            ("ms", 1e6),
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
        ];
        (0..100_000_u32, select(units))
            .prop_map(|(number, (unit, factor))| (format!("{number}{unit}"), f64::from(number) * factor))
    }

    /// A limit as it is written after its sign.
    fn limits() -> impl Strategy<Value = (String, Limit)> {
        let share = (0..100_000_u32).prop_map(|hundredths| {
            let percent = f64::from(hundredths) / 100.0;
            (format!("{percent}%"), Limit::Ratio(percent / 100.0))
        });
        prop_oneof![share, quantities().prop_map(|(text, number)| (text, Limit::By(number)))]
    }

    /// A subject as it is written after the metric. The names of functions may have brackets of any kind.
    fn subjects() -> impl Strategy<Value = (String, Subject)> {
        let name = "[a-zA-Z_]|[a-zA-Z_][a-zA-Z0-9_:<>(), #]{0,12}[a-zA-Z0-9>)]";
        let stratum = option::of("[a-z0-9]|[a-z0-9][a-z0-9^, ]{0,12}[a-z0-9]");
        let one = (name, stratum).prop_map(|(name, stratum)| {
            let text = match &stratum {
                None => format!("({name})"),
                Some(stratum) => format!("({name}; {stratum})"),
            };
            (text, Subject::One { name, stratum })
        });
        prop_oneof![Just((String::new(), Subject::Whole)), Just(("(*)".to_owned(), Subject::Each)), one,]
    }

    proptest! {
        #[test]
        fn a_gate_is_read_as_it_is_written(
            metric in "[a-z][a-z0-9_]{0,9}",
            (subject_text, subject) in subjects(),
            may_not_fall: bool,
            (limit_text, limit) in limits(),
            floor in option::of(quantities()),
            spaces in [" {0,2}", " {0,2}", " {0,2}"],
        ) {
            let [before, after, end] = spaces;
            let sign = if may_not_fall { ">" } else { "<" };
            let direction = if may_not_fall { "-" } else { "+" };
            let floor_text = floor.as_ref().map_or_else(String::new, |(text, _)| format!(" floor {text}"));
            let text = format!("{metric}{subject_text}{before}{sign}{after}{direction}{limit_text}{floor_text}{end}");
            let gate: Gate = text.parse().unwrap();
            let floor = floor.map(|(_, number)| number);
            let expected = Gate { text: text.trim().to_owned(), metric, subject, may_not_fall, limit, floor };
            prop_assert_eq!(&gate, &expected);
            // What a comparison prints is read as the same gate.
            prop_assert_eq!(gate.text.parse::<Gate>(), Ok(expected));
        }

        #[test]
        fn no_text_makes_the_parser_panic_or_a_gate_without_sense(
            text in prop_oneof![".*", "[a-c(]{0,4}[ ();*<>]{0,3}[<>][ +-]{0,2}[0-9.einf%-]{0,6}( floor [0-9.einfsB-]{0,5})?"]
        ) {
            if let Ok(gate) = text.parse::<Gate>() {
                let (Limit::Ratio(limit) | Limit::By(limit)) = gate.limit;
                prop_assert!(limit.is_finite() && limit >= 0.0);
                prop_assert!(gate.floor.is_none_or(|floor| floor.is_finite() && floor >= 0.0));
                prop_assert!(!gate.metric.is_empty() && !gate.metric.contains(char::is_whitespace));
                prop_assert_eq!(gate.text.parse::<Gate>(), Ok(gate));
            }
            prop_assert!(!share(&text).is_ok_and(|share| !(0.0..=1e4).contains(&share)));
        }
    }

    #[test]
    fn gates_are_read() {
        let gate: Gate = "p99(cudaLaunchKernel) < +5% floor 2us".parse().expect("a gate");
        assert_eq!((gate.metric.as_str(), gate.limit, gate.floor), ("p99", Limit::Ratio(0.05), Some(2000.0)));
        assert_eq!(gate.subject, Subject::One { name: "cudaLaunchKernel".to_owned(), stratum: None });
        let gate: Gate = "calls_ns(cudaMemcpyAsync; h2d, 2^24 bytes)<+64MiB".parse().expect("a gate");
        assert_eq!(gate.limit, Limit::By(67_108_864.0));
        assert_eq!(
            gate.subject,
            Subject::One { name: "cudaMemcpyAsync".to_owned(), stratum: Some("h2d, 2^24 bytes".to_owned()) }
        );
        let gate: Gate = "copy_rate_bytes(*) > -5 %".parse().expect("a gate");
        assert!(gate.may_not_fall && gate.subject == Subject::Each);
        for bad in [
            "",
            "wall_ns",
            "wall_ns < 5%",
            "wall_ns < -5%",
            "wall_ns > +5%",
            "p99(x < +5%",
            "< +5%",
            "a b < +5%",
            "w < +nan%",
            "w < +5 parsec",
            "w < +5% floor x",
        ] {
            assert!(bad.parse::<Gate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn gates_find_their_figures() {
        let known = [
            Key::of("wall_ns", None, None),
            Key::of("p99_ns", Some("f"), None),
            Key::of("p99_ns", Some("g"), None),
            Key::of("calls_ns", Some("f"), None),
            Key::of("calls_ns", Some("f"), Some("h2d")),
            Key::of("calls_count", Some("f"), None),
        ];
        let keys = |text: &str| text.parse::<Gate>().expect("a gate").keys(known.iter());
        assert_eq!(keys("wall < +1%").expect("keys"), [known[0].clone()]);
        assert_eq!(keys("p99(*) < +1%").expect("keys"), [known[1].clone(), known[2].clone()]);
        assert_eq!(keys("calls_ns(*) < +1%").expect("keys"), [known[3].clone()]);
        assert_eq!(
            keys("p99(h) < +1%").expect("keys"),
            [Key::of("p99_ns", Some("h"), None)],
            "perhaps in none of the runs"
        );
        assert!(keys("p99 < +1%").expect_err("whose").contains("is of f, g: name one"));
        assert!(keys("calls(f) < +1%").expect_err("which").contains("calls_count or calls_ns"));
        assert!(
            keys("speed < +1%")
                .expect_err("unknown")
                .contains("there are calls_count, calls_ns, p99_ns, wall_ns")
        );
    }

    #[test]
    fn contradictions_are_errors() {
        let rules = |gates: &[&str]| {
            Rules::new(&gates.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>(), None, None)
        };
        assert!(rules(&["wall_ns < +1%", "wall_ns < +2%"]).is_err());
        assert!(rules(&["wall_ns < +1%", "wall_ns > -2%"]).is_ok(), "a band");
        assert!(rules(&["no_such_file.toml"]).is_err());
        let usual = rules(&[]).expect("the usual");
        assert_eq!((usual.gates.len(), usual.resolution_ratio), (DEFAULTS.len(), None));
    }
}
