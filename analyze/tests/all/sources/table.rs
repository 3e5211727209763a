//! Fills the tables of `analyze/SOURCES.md`, and compares the page with the one in the repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use analyze::{library::LIBRARY, questions::info, trace::Trace};
use analyze_engine::catalog::Query;
use parking_lot::Mutex;

use super::{
    answer::{self, Answer},
    ask::{self, OTHERS, QUESTIONS},
    observe::Observed,
    page::{self, Page, Row},
    samples::{self, Source},
};
use crate::support::stdout;

/// Number of sources that are read at once.
const THREADS_COUNT: usize = 4;
/// The stack of such a thread: without optimization, planning a view of views takes more than the usual 2 MiB.
const STACK_BYTES: usize = 16 << 20;

/// What the program answered about the samples of one source.
#[derive(Clone, Default)]
struct Found {
    /// What each query answered, in the order of the library.
    views: Vec<Observed>,
    /// The best answer to each question.
    questions: BTreeMap<&'static str, Answer>,
    /// The best answer of each part of the report.
    report: BTreeMap<String, Answer>,
    /// What the first sample says that it lacks.
    warnings: Vec<String>,
}

/// Returns the better one of two answers: a sample in which more happened tells more.
fn better(one: Answer, other: Answer) -> Answer {
    let rank = |answer: &Answer| match answer {
        Answer::Computed => 3,
        Answer::Bounded(_) => 2,
        Answer::Inconclusive(_) => 1,
        Answer::Silent => 0,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

impl Found {
    async fn read(&mut self, run: &Path, queries: &[Query]) {
        let trace = Trace::open_one(run).await.unwrap();
        let is_first = self.views.is_empty();
        if is_first {
            self.warnings = info::warnings(&trace.files()[0].run);
        }
        for (place, query) in queries.iter().enumerate() {
            if is_first {
                self.views.push(Observed::of(&trace, query).await);
            } else if !self.views[place].is_complete(query) {
                self.views[place].add(Observed::of(&trace, query).await);
            }
        }
        for question in QUESTIONS {
            if self.questions.get(question).is_none_or(Answer::is_open) {
                self.add_answer(question, ask::question(&trace, question).await);
            }
        }
        if is_first || self.report.values().any(Answer::is_open) {
            for (part, answer) in ask::report(&trace).await {
                let known = self.report.remove(&part).unwrap_or(Answer::Silent);
                self.report.insert(part, better(known, answer));
            }
        }
    }

    fn add_answer(&mut self, question: &'static str, answer: Answer) {
        let known = self.questions.remove(question).unwrap_or(Answer::Silent);
        self.questions.insert(question, better(known, answer));
    }

    /// Adds what the program answered about the samples of another source.
    fn add(&mut self, other: &Self) {
        for (observed, more) in self.views.iter_mut().zip(&other.views) {
            observed.add(more.clone());
        }
        for (question, answer) in &other.questions {
            self.add_answer(question, answer.clone());
        }
        for (part, answer) in &other.report {
            let known = self.report.remove(part).unwrap_or(Answer::Silent);
            self.report.insert(part.clone(), better(known, answer.clone()));
        }
    }

    fn of(source: &Source, queries: &[Query]) -> Self {
        let mut found = Self::default();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for run in &source.runs {
            runtime.block_on(found.read(run, queries));
        }
        found
    }
}

/// Reads the samples of all sources, some at once.
fn read(sources: &[Source], queries: &[Query]) -> Vec<Found> {
    let next = AtomicUsize::new(0);
    let found: Vec<Mutex<Found>> = sources.iter().map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for _ in 0..THREADS_COUNT {
            let work = || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(source) = sources.get(place) else { break };
                    *found[place].lock() = Found::of(source, queries);
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).unwrap();
        }
    });
    let mut found: Vec<Found> = found.into_iter().map(Mutex::into_inner).collect();
    for (place, source) in sources.iter().enumerate() {
        if let Some(name) = &source.contains {
            let other = sources.iter().position(|other| other.name == *name).unwrap();
            let other = found[other].clone();
            found[place].add(&other);
        }
    }
    found
}

/// Returns the columns of a query that a sample of some source fills.
fn known(found: &[Found], place: usize) -> BTreeSet<String> {
    found.iter().flat_map(|of| of.views[place].filled.iter().cloned()).collect()
}

/// Makes a row of a question or a view.
fn row(name: &str, answers: Vec<Answer>) -> Row {
    Row { group: String::new(), name: name.to_owned(), answers }
}

fn rows(queries: &[Query], found: &[Found]) -> [Vec<Row>; 3] {
    let asked =
        QUESTIONS.iter().map(|name| row(name, found.iter().map(|of| of.questions[name].clone()).collect()));
    let parts = found[0].report.keys();
    let parts = parts.map(|name| row(name, found.iter().map(|of| of.report[name].clone()).collect()));
    let questions = asked.chain(parts).collect();
    let (mut views, mut metrics) = (Vec::new(), Vec::new());
    for (place, query) in queries.iter().enumerate() {
        let known = known(found, place);
        if query.metrics.is_empty() {
            let answers = found.iter().map(|of| answer::of_view(query, &of.views[place], &known)).collect();
            views.push(row(&query.name, answers));
        }
        metrics.extend(query.metrics.iter().map(|metric| Row {
            group: query.name.clone(),
            name: metric.name.clone(),
            answers:
                found.iter().map(|of| answer::of_metric(query, &metric.name, &of.views[place])).collect(),
        }));
    }
    [questions, views, metrics]
}

/// Where nothing is said, the program claims that nothing happened; and where a probe was placed, a sample is missing in which
/// the function is called.
fn check(tables: &[Vec<Row>], sources: &[Source]) {
    let mut wrong = Vec::new();
    for row in tables.iter().flatten() {
        for (source, answer) in sources.iter().zip(&row.answers) {
            let is_unused = answer.reason().is_some_and(|reason| reason.ends_with("and nothing was called"));
            if *answer == Answer::Silent || is_unused {
                wrong.push(format!("{} {} of {}: {answer:?}", row.group, row.name, source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "no rows and no reason, or no sample with such calls:\n{}", wrong.join("\n"));
}

#[test]
fn sources_are_current() {
    let directory = tempfile::tempdir().unwrap();
    let sources = samples::all(directory.path());
    let mut queries = LIBRARY.queries(None).unwrap();
    // An alias has the rows of its view.
    queries.retain(|query| query.alias_of.is_none());
    let found = read(&sources, &queries);
    let tables = rows(&queries, &found);
    let page = Page {
        sources: sources.iter().map(|source| source.name.clone()).collect(),
        warnings: found.into_iter().map(|of| of.warnings).collect(),
        tables,
    };
    let text = page::text(&page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SOURCES.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    check(&page.tables, &sources);
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "analyze/SOURCES.md is not current: BLESS=1 writes it");
}

/// A verb that is new is a question with a row of its own, or none.
#[test]
fn every_verb_is_a_question_or_none() {
    let help = stdout(&["--help"]);
    let (_, verbs) = help.split_once("Commands:\n").unwrap();
    let (verbs, _) = verbs.split_once("\n\n").unwrap();
    // The lines between are the rest of a description.
    let is_verb = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let verbs: BTreeSet<&str> =
        verbs.lines().filter(is_verb).filter_map(|line| line.split_whitespace().next()).collect();
    let words = QUESTIONS.iter().filter_map(|question| question.split(' ').next());
    let listed: BTreeSet<&str> = words.chain(OTHERS).chain(["help"]).collect();
    assert_eq!(verbs, listed);
}
