//! Comparison of two sets of runs as a document: first what the difference of the wall times was spent on, then the gates,
//! then the parts of other differences, then everything that changed.

use crate::{
    compare::{
        change::Change,
        facts::Discord,
        findings::{Difference, FindingChange},
        judge::{Comparison, Judged, Outcome, Taking, p_shown},
        run_time::{Name, Part, RunTime, Stage, signed_ns},
        why::Account,
    },
    report::{
        chart::forest,
        document::{Block, Cell, Document, Figure, Headline, Row, Section, Table, Tone, number, whole, word},
    },
};

/// Number of changes that are listed.
const CHANGES: usize = 40;
/// Number of accounts in the first lines.
const REASONS: usize = 3;

fn tone(outcome: Outcome) -> Tone {
    match outcome {
        Outcome::Pass => Tone::Good,
        Outcome::Regression => Tone::Bad,
        Outcome::Inconclusive | Outcome::Suspect => Tone::Open,
    }
}

fn headline(comparison: &Comparison) -> Headline {
    let of = |outcome: Outcome| comparison.gates.iter().filter(move |gate| gate.outcome == outcome);
    let named = |gate: &Judged| {
        let by = gate.change.as_ref().map_or_else(String::new, |change| format!(" {}", change.shown()));
        format!("{}{by}", gate.key)
    };
    let list = |outcome: Outcome| of(outcome).map(named).collect::<Vec<_>>().join(", ");
    let verdict = match comparison.outcome {
        Outcome::Regression => format!("Regression: {}.", list(Outcome::Regression)),
        Outcome::Pass => "No regression.".to_owned(),
        Outcome::Suspect => format!("Suspect, but not proven: {}.", list(Outcome::Suspect)),
        Outcome::Inconclusive => "Inconclusive.".to_owned(),
    };
    let work = if comparison.work.is_empty() { "" } else { "The sides do different work. " };
    let verdict = format!("{work}{verdict}");
    let (main, verdict) = match &comparison.run_time {
        Some(run_time) => (run_time.sentence(), Some(verdict)),
        None => (verdict, None),
    };
    let count = |outcome: Outcome| of(outcome).count();
    let mut sentences: Vec<String> = verdict.into_iter().collect();
    sentences.push(format!(
        "{} on {} and {} runs: {} fail, {} pass, {} inconclusive.",
        match comparison.gates.len() {
            1 => "1 gate".to_owned(),
            count => format!("{count} gates"),
        },
        comparison.base.len(),
        comparison.new.len(),
        count(Outcome::Regression),
        count(Outcome::Pass),
        count(Outcome::Inconclusive) + count(Outcome::Suspect)
    ));
    let is_worse = |change: &&FindingChange| matches!(change.difference, Difference::New | Difference::More);
    for change in comparison.findings.iter().flatten().filter(is_worse).take(REASONS) {
        sentences.push(format!("{}: {}.", change.difference.name(), finding(comparison, change)));
    }
    if matches!(comparison.outcome, Outcome::Regression | Outcome::Suspect) {
        sentences.extend(comparison.accounts.iter().take(REASONS).map(Account::sentence));
    }
    if comparison.outcome == Outcome::Inconclusive {
        let mut reasons: Vec<String> =
            of(Outcome::Inconclusive).map(|gate| format!("{}: {}.", gate.key, gate.reason)).collect();
        if comparison.gates.is_empty() {
            reasons.push("The runs measure no figure that a gate is about.".to_owned());
        }
        sentences.append(&mut reasons);
    }
    Headline { main, sentences, answers: Vec::new(), tone: tone(comparison.outcome) }
}

/// Names a finding with its cost in the new runs, and who is behind it if the account of the wall time has it.
fn finding(comparison: &Comparison, change: &FindingChange) -> String {
    let part = change.kind.replace('-', "_");
    let parts = comparison.run_time.iter().flat_map(|run_time| &run_time.parts);
    let name = parts.filter(|one| one.part == part).find_map(|one| one.names.first());
    let by = name.map_or_else(String::new, |name| format!(" ({})", name.name));
    format!("{} {}{by}", change.kind, finding_cost(change.new_ns, change.new_bytes))
}

/// Formats what findings cost.
fn finding_cost(ns: f64, bytes: f64) -> String {
    let costs = [(ns, super::time(ns)), (bytes, super::size(bytes.round() as i64))];
    let costs: Vec<String> =
        costs.into_iter().filter(|(cost, _)| *cost > 0.0).map(|(_, text)| text).collect();
    if costs.is_empty() { "–".to_owned() } else { costs.join(", ") }
}

fn findings(comparison: &Comparison) -> Option<Section> {
    let found = comparison.findings.as_ref().filter(|found| !found.is_empty())?;
    let row = |change: &FindingChange| {
        [
            change.kind.clone(),
            change.difference.name().to_owned(),
            finding_cost(change.base_ns, change.base_bytes),
            finding_cost(change.new_ns, change.new_bytes),
            format!("{} of {}", change.base_runs_count, comparison.base.len()),
            format!("{} of {}", change.new_runs_count, comparison.new.len()),
        ]
    };
    let columns = [
        whole("Finding"),
        whole("It is"),
        number("Base"),
        number("New"),
        number("Base runs"),
        number("New runs"),
    ];
    let note = "Costs are means over the runs of a side. `analyze RUN` lists the findings of a run with their evidence and what to do.";
    Some(Section {
        id: "findings",
        short: "Findings",
        question: "What is wrong on one side and not on the other?".to_owned(),
        blocks: vec![
            Block::Table(Table::texts(&columns, found.iter().map(row))),
            Block::Note(note.to_owned()),
        ],
    })
}

/// Builds the table of parts of the wall time.
fn parts_table(parts: &[&Part], is_tested: bool, total: &Part) -> Table {
    let row = |part: &Part, what: &str| -> Row {
        let name = |name: &Name| format!("{} {}", name.name, signed_ns(name.delta_ns()));
        let mut cells: Vec<Cell> = vec![
            what.into(),
            super::time(part.base_ns).into(),
            super::time(part.new_ns).into(),
            signed_ns(part.delta_ns).into(),
            super::percent(part.share_ratio).into(),
        ];
        if is_tested {
            cells.push(part.q.map_or_else(|| "–".to_owned(), p_shown).into());
        }
        cells.push(part.names.iter().map(name).collect::<Vec<_>>().join(", ").into());
        cells.into()
    };
    let mut columns =
        vec![word("The process"), number("Base"), number("New"), number("Difference"), number("Share of it")];
    if is_tested {
        columns.push(number("q"));
    }
    columns.push(word("Functions, threads or tasks"));
    let mut rows: Vec<Row> = parts.iter().map(|part| row(part, part.meaning())).collect();
    rows.push(row(total, "all"));
    Table::new(&columns, rows, "SELECT * FROM metrics_run_time")
}

fn run_time(comparison: &Comparison) -> Option<Section> {
    let found: &RunTime = comparison.run_time.as_ref()?;
    let is_tested = found.q.is_some();
    let whole = Part {
        stage: Stage::All,
        part: String::new(),
        base_ns: found.base.mean_ns,
        new_ns: found.new.mean_ns,
        delta_ns: found.delta_ns,
        share_ratio: 1.0,
        q: found.q,
        names: Vec::new(),
    };
    let mut blocks = vec![Block::Table(parts_table(&found.outermost(), is_tested, &whole))];
    let before: Vec<&Part> = found.parts.iter().filter(|part| part.stage == Stage::StartUp).collect();
    if let Some(start_up) = found.start_up.as_ref().filter(|_| found.is_recorded && !before.is_empty()) {
        let table = parts_table(&before, is_tested, start_up);
        blocks.push(Block::Table(table.caption("Before the first launch").folded()));
    }
    blocks.push(Block::Note(
        "The account of each run follows its process with the longest wall time, without overlap and without rest. Times are means over the runs of a side: so the differences of the parts sum to that of the wall times.".to_owned(),
    ));
    Some(Section {
        id: "run-time",
        short: "Wall time",
        question: "What was the difference in wall time spent on?".to_owned(),
        blocks,
    })
}

fn gates(comparison: &Comparison) -> Section {
    let row = |gate: &Judged| -> Row {
        let shown = |of: fn(&Change) -> String| gate.change.as_ref().map_or_else(|| "–".to_owned(), of);
        let outcome = Cell { tone: tone(gate.outcome), ..Cell::from(gate.outcome.name()) };
        let cells = vec![
            (&gate.gate.text).into(),
            outcome,
            shown(|change| change.key.show(change.base_mean)).into(),
            shown(|change| change.key.show(change.new_mean)).into(),
            shown(Change::shown).into(),
            shown(Change::interval).into(),
            gate.p.map_or_else(|| "–".to_owned(), p_shown).into(),
        ];
        // The note says what the columns do not.
        let is_plain = gate.outcome == Outcome::Pass || gate.outcome == Outcome::Regression;
        let note = if is_plain { String::new() } else { gate.reason.clone() };
        Row { cells, note, ..Row::default() }
    };
    let columns = [
        whole("Gate"),
        whole("Outcome"),
        number("Base"),
        number("New"),
        number("Change"),
        number("95 % interval"),
        number("p (Holm)"),
    ];
    let sql = "SELECT * FROM metrics_run";
    let mut blocks = Vec::new();
    if !comparison.cautions.is_empty() {
        blocks.push(Block::Warnings(comparison.cautions.clone()));
    }
    blocks.push(Block::Table(Table::new(&columns, comparison.gates.iter().map(row).collect(), sql)));
    let with_interval: Vec<&Judged> = comparison
        .gates
        .iter()
        .filter(|gate| {
            gate.change
                .as_ref()
                .is_some_and(|change| change.low_ratio.is_some() && change.high_ratio.is_some())
        })
        .collect();
    if !with_interval.is_empty() {
        blocks.push(Block::Figure(Figure {
            name: "gates".to_owned(),
            caption: "Change of each gate's figure: estimate and 95 % interval; the tick is the gate's limit"
                .to_owned(),
            svg: forest::draw(&with_interval),
            legend: Vec::new(),
            spark: Vec::new(),
            is_folded: false,
        }));
    }
    let mut methods: Vec<&str> = comparison
        .gates
        .iter()
        .filter_map(|gate| Some(gate.change.as_ref()?.difference.method.name()))
        .collect();
    methods.sort_unstable();
    methods.dedup();
    let resolution = comparison.rules.resolution_ratio.map_or_else(String::new, |ratio| {
        format!(", or beyond the resolution of {} if that is larger", super::percent(ratio))
    });
    blocks.push(Block::Note(format!(
        "Runs are compared, not calls ({}). A gate fails if the change for the worse is significant (p at most {} over all gates), larger than its limit, and not tiny. It passes if its interval, and that of the mean over the runs, exclude such a change: one beyond its limit{resolution}.",
        methods.join(", "),
        comparison.rules.alpha,
    )));
    Section {
        id: "gates",
        short: "Gates",
        question: "Did it get slower, or use more memory?".to_owned(),
        blocks,
    }
}

fn why(comparison: &Comparison) -> Section {
    let mut blocks = Vec::new();
    for account in &comparison.accounts {
        let row = |(name, base, new, delta, share): (&str, f64, f64, f64, String)| -> Row {
            let shown = |value: f64| account.key.show(value);
            let sign = if delta < 0.0 { "" } else { "+" };
            vec![
                name.into(),
                shown(base).into(),
                shown(new).into(),
                format!("{sign}{}", shown(delta)).into(),
                share.into(),
            ]
            .into()
        };
        let mut rows: Vec<Row> = account
            .parts
            .iter()
            .map(|part| {
                row((
                    &part.name,
                    part.base,
                    part.new,
                    part.delta(),
                    format!("{:.1} %", 100.0 * part.share_ratio),
                ))
            })
            .collect();
        rows.push(row(("all", account.base, account.new, account.delta(), "100.0 %".to_owned())));
        let columns =
            [word("Part"), number("Base"), number("New"), number("Difference"), number("Share of it")];
        blocks.push(Block::Table(Table::new(&columns, rows, &account.sql).caption(account.title.as_str())));
    }
    if blocks.is_empty() {
        blocks.push(Block::Note("Nothing that can be taken apart differs by more than a trifle.".to_owned()));
    } else {
        let note = "Means over the runs of a side. In each table the parts sum to the whole. `analyze report RUN` takes a single run down to its calls.";
        blocks.insert(0, Block::Note(note.to_owned()));
    }
    Section { id: "why", short: "Why", question: "What are the differences made of?".to_owned(), blocks }
}

fn changes(comparison: &Comparison) -> Section {
    let row = |change: &Change| -> Row {
        vec![
            change.key.to_string().into(),
            change.key.show(change.base_mean).into(),
            change.key.show(change.new_mean).into(),
            change.shown().into(),
            change.interval().into(),
            change.q.map_or_else(|| "–".to_owned(), p_shown).into(),
        ]
        .into()
    };
    let columns = [
        word("Figure"),
        number("Base"),
        number("New"),
        number("Change"),
        number("95 % interval"),
        number("q"),
    ];
    let rows = comparison.changes.iter().take(CHANGES).map(row).collect();
    let sql = "SELECT * FROM metrics_calls";
    let note = format!(
        "Of {} figures, those that differ by at least 1 %; among them one in twenty is expected to be chance (Benjamini and Hochberg). They fail no gate.",
        comparison.figures_count
    );
    let mut blocks = vec![Block::Note(note)];
    blocks.push(if comparison.changes.is_empty() {
        Block::Note("None, or too few runs to tell.".to_owned())
    } else {
        Block::Table(Table::new(&columns, rows, sql).of(comparison.changes.len()))
    });
    Section { id: "changes", short: "Changes", question: "What else changed?".to_owned(), blocks }
}

fn runs(comparison: &Comparison) -> Section {
    let row = |(side, run): (&str, &Taking)| -> Row {
        let wall = run.wall_ns.map_or_else(|| "–".to_owned(), super::time);
        let far = Cell {
            tone: if run.is_outlier_of.is_empty() { Tone::Plain } else { Tone::Open },
            ..Cell::from(run.is_outlier_of.join(", "))
        };
        vec![side.into(), (&run.run).into(), wall.into(), run.rows_count.into(), run.lost_count.into(), far]
            .into()
    };
    let sides =
        comparison.base.iter().map(|run| ("base", run)).chain(comparison.new.iter().map(|run| ("new", run)));
    let all: Vec<(&str, &Taking)> = sides.collect();
    let rows = all.iter().take(CHANGES).map(|one| row(*one)).collect();
    let columns = [
        word("Side"),
        word("Run"),
        number("Wall time"),
        number("Events"),
        number("Lost"),
        word("Far from its side in"),
    ];
    let mut blocks = vec![Block::Table(Table::new(&columns, rows, "SELECT * FROM runs").of(all.len()))];
    let discord = |discord: &Discord| -> Row {
        let forbids =
            if discord.forbids { Cell { tone: Tone::Bad, ..Cell::from("yes") } } else { Cell::from("no") };
        vec![discord.what.into(), forbids, discord.base.join("; ").into(), discord.new.join("; ").into()]
            .into()
    };
    if comparison.discords.is_empty() {
        blocks.push(Block::Note(
            "All were recorded in the same circumstances, as far as they are on record.".to_owned(),
        ));
    } else {
        let columns = [word("What differs"), word("Forbids a verdict"), word("Base"), word("New")];
        blocks.push(Block::Table(Table::new(
            &columns,
            comparison.discords.iter().map(discord).collect(),
            "SELECT * FROM runs",
        )));
    }
    Section { id: "runs", short: "Runs", question: "May these runs be compared?".to_owned(), blocks }
}

/// Arranges a comparison as a document.
pub fn document(comparison: &Comparison) -> Document {
    let name = |side: &[Taking]| match side {
        [one] => one.run.clone(),
        several => {
            format!("{} runs ({}, …)", several.len(), several.first().map_or("", |run| run.run.as_str()))
        }
    };
    Document {
        title: format!("{} → {}", name(&comparison.base), name(&comparison.new)),
        verdict: headline(comparison),
        sections: run_time(comparison)
            .into_iter()
            .chain(findings(comparison))
            .chain([gates(comparison), why(comparison), changes(comparison), runs(comparison)])
            .collect(),
        is_overview: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compare::{
            facts::Facts,
            figure::{Figure, Key},
            gate::Rules,
            judge::compare,
            runs::{RunFigures, Runs},
        },
        report,
    };

    #[test]
    fn different_work_is_said_before_the_verdict() {
        let side = |times: f64| {
            let figure = |value: f64| Figure { value: value * times, calls_count: None };
            let figures = [
                (Key::of("wall_ns", None, None), figure(1e9)),
                (Key::of("calls_count", Some("cuLaunchKernel"), None), figure(57.0)),
            ];
            let run = RunFigures { name: "run".to_owned(), facts: Facts::default(), figures: figures.into() };
            Runs::new(vec![run; 5]).unwrap()
        };
        let rules = Rules::new(&["wall_ns < +2%".to_owned()], None, None).unwrap();
        let document = document(&compare(&side(1.0), &side(2.0), &rules, &[]).unwrap());
        let terminal = report::terminal(&document, report::Screen::default());
        for text in [report::markdown(&document), terminal] {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let places = [
                "The sides do different work. Regression:",
                "note: the sides do different work: base 57 launches a run",
                "interval",
                "It passes if its interval, and that of the mean over the runs,",
            ]
            .map(|part| words.find(part));
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {text}");
        }
        let page = report::page(&document, "{}").unwrap();
        assert!(page.contains("The sides do different work.") && page.contains("base 57 launches a run"));
    }
}
