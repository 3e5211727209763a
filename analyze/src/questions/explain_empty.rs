//! Explains an empty result: names the events that a query asks for and that no run contains, and says what
//! would have recorded them.
//!
//! The conditions come from the query's logical plan, in which each view is replaced by its definition: a
//! comparison of `kind`, `op`, `layer` or `class` with a string literal, and scans of tables that Rust
//! derives from events of certain kinds. A condition that is written in another way is not recognised. Where
//! no condition is the reason, runs are named whose source lost events or does not count those that it loses:
//! what is absent from them need not have been absent.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use datafusion::{
    common::{
        JoinType,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, Like, LogicalPlan, Operator, expr::InList, utils::split_conjunction},
    scalar::ScalarValue,
};
use trace_schema::{Kind, Op, Run};

use super::info;
use crate::{tables, trace::Trace};
use analyze_engine::error::query_error;
use analyze_run::{columns::strings, coverage::is_version_of, error::AnalyzeError, run_file::RunFile};
use analyze_run::{suggest, text};

/// A property that a row of `events` must have for the query to use it: the value that one column is compared
/// with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Kind(String),
    Op(String),
    Layer(String),
    Class(String),
}

impl Asked {
    fn name(&self) -> &str {
        match self {
            Self::Kind(name) | Self::Op(name) | Self::Layer(name) | Self::Class(name) => name,
        }
    }
}

fn word(value: &ScalarValue) -> Option<String> {
    value.try_as_str().flatten().map(str::to_owned)
}

fn column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(cast) => column(&cast.expr),
        Expr::Alias(alias) => column(&alias.expr),
        _ => None,
    }
}

fn asked(column: &str, value: &Expr) -> Option<Asked> {
    let Expr::Literal(value, _) = value else { return None };
    let of = match column {
        "kind" => Asked::Kind,
        "op" => Asked::Op,
        "layer" => Asked::Layer,
        "class" => Asked::Class,
        _ => return None,
    };
    word(value).map(of)
}

/// Returns the values that a condition allows for one of these columns, any of which satisfies it. Returns
/// `None` if the condition is of another form or involves more than one of the columns.
fn alternatives(expr: &Expr) -> Option<Vec<Asked>> {
    match expr {
        Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
            let of = |name: &Expr, value: &Expr| asked(column(name)?, value);
            let found = of(&binary.left, &binary.right).or_else(|| of(&binary.right, &binary.left))?;
            Some(vec![found])
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
            let both = [alternatives(&binary.left)?, alternatives(&binary.right)?].concat();
            let column = both.first().map(std::mem::discriminant);
            both.iter().all(|asked| Some(std::mem::discriminant(asked)) == column).then_some(both)
        }
        // A pattern without wildcards is a name.
        Expr::Like(Like { negated: false, expr, pattern, escape_char: None, case_insensitive: false }) => {
            let found = asked(column(expr)?, pattern)?;
            (!found.name().contains(['%', '_'])).then(|| vec![found])
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let column = column(expr)?;
            list.iter().map(|value| asked(column, value)).collect()
        }
        _ => None,
    }
}

/// Visits the parts of a plan whose rows a result needs: not the optional side of an outer join, nor the rows that an anti
/// join excludes. If those are missing, they are not why a result is empty.
fn needed(plan: &LogicalPlan, mut visit: impl FnMut(&LogicalPlan)) -> Result<(), AnalyzeError> {
    let mut optional: Vec<*const LogicalPlan> = Vec::new();
    plan.apply(|node| {
        if optional.contains(&std::ptr::from_ref(node)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        if let LogicalPlan::Join(join) = node {
            match join.join_type {
                JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => {
                    optional.push(Arc::as_ptr(&join.right));
                }
                JoinType::Right | JoinType::RightAnti | JoinType::RightMark => {
                    optional.push(Arc::as_ptr(&join.left));
                }
                JoinType::Full => optional.extend([Arc::as_ptr(&join.left), Arc::as_ptr(&join.right)]),
                JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => {}
            }
        }
        visit(node);
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(query_error)?;
    Ok(())
}

/// Collects every condition that the needed parts of a plan contain.
fn asked_by(plan: &LogicalPlan) -> Result<BTreeSet<Vec<Asked>>, AnalyzeError> {
    let mut found = BTreeSet::new();
    needed(plan, |node| match node {
        LogicalPlan::TableScan(scan) => {
            let kinds = tables::kinds_of(scan.table_name.table()).unwrap_or_default();
            found.extend(kinds.iter().map(|kind| vec![Asked::Kind(kind.name().to_owned())]));
            let class = tables::class_of(scan.table_name.table());
            found.extend(class.map(|class| vec![Asked::Class(class.name().to_owned())]));
        }
        LogicalPlan::Filter(filter) => {
            found.extend(split_conjunction(&filter.predicate).into_iter().filter_map(alternatives));
        }
        _ => {}
    })?;
    Ok(found)
}

/// The distinct pairs of `kind` and `op` in `events`.
struct Present(HashSet<(String, String)>);

impl Present {
    async fn read(trace: &Trace) -> Result<Self, AnalyzeError> {
        let mut pairs = HashSet::new();
        for batch in trace.batches("SELECT DISTINCT kind, op FROM events").await? {
            let (kinds, ops) = (strings(&batch, "kind")?, strings(&batch, "op")?);
            pairs.extend(
                (0..batch.num_rows()).map(|row| (kinds.value(row).to_owned(), ops.value(row).to_owned())),
            );
        }
        Ok(Self(pairs))
    }

    fn has(&self, asked: &Asked) -> bool {
        let call = |is: &dyn Fn(Op) -> bool| {
            let ops = self.0.iter().filter(|(kind, _)| kind == Kind::Call.name());
            ops.filter_map(|(_, op)| Op::from_name(op)).any(is)
        };
        match asked {
            Asked::Kind(name) => self.0.iter().any(|(kind, _)| kind == name),
            Asked::Op(name) => self.0.iter().any(|(_, op)| op == name),
            Asked::Layer(name) => call(&|op| op.layer().name() == name),
            Asked::Class(name) => call(&|op| op.class().name() == name),
        }
    }
}

/// Returns the reason why a run has no calls of the functions that `wanted` selects.
fn why(run: &Run, wanted: impl Fn(&str) -> bool) -> String {
    if run.probes.is_empty() {
        return format!("{}, which brings none", run.producer);
    }
    let probes: Vec<_> = run.probes.iter().filter(|probe| wanted(&probe.symbol)).collect();
    let failed = probes.iter().find_map(|probe| Some((&probe.symbol, probe.error.as_ref()?)));
    let lost = run.lost.iter().any(|lost| wanted(&lost.probe));
    if probes.iter().any(|probe| probe.error.is_none()) {
        let or_lost = if lost { ", or what was is lost: see `lost`" } else { "" };
        return format!("a probe was placed, and nothing was called{or_lost}{}", not_probed(run, &wanted));
    }
    if let Some((symbol, error)) = failed {
        return format!("the probe in {symbol} could not be placed: {error}");
    }
    let without = run.libraries.iter().find(|library| library.absent.iter().any(|symbol| wanted(symbol)));
    match without {
        Some(library) => format!("{} does not have it", library.path),
        None if run.profile.is_empty() => "not probed".to_owned(),
        None => {
            format!("not probed with --profile {}: `capture probes` says which profile does", run.profile)
        }
    }
}

/// Returns words on those of the functions that `wanted` selects in which a recorder placed no probe; empty if there are none.
fn not_probed(run: &Run, wanted: &impl Fn(&str) -> bool) -> String {
    let is_probed = |op: &str| run.probes.iter().any(|probe| is_version_of(&probe.symbol, op));
    let is_absent =
        |op: &str| run.libraries.iter().any(|library| library.absent.iter().any(|of| is_version_of(of, op)));
    let ops = Op::ALL.iter().map(|op| op.name());
    let ops: Vec<&str> = ops.filter(|op| wanted(op) && !is_probed(op) && !is_absent(op)).collect();
    match ops.split_first_chunk::<3>() {
        _ if ops.is_empty() || run.profile.is_empty() => String::new(),
        Some((first, rest)) if !rest.is_empty() => {
            format!(
                "; not probed with --profile {}: {} and {} more",
                run.profile,
                first.join(", "),
                rest.len()
            )
        }
        _ => format!("; not probed with --profile {}: {}", run.profile, ops.join(", ")),
    }
}

/// Joins reasons, each behind the names of its runs.
fn by_run<'a>(reasons: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut runs_of: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (run, reason) in reasons {
        runs_of.entry(reason).or_default().push(run);
    }
    let each = runs_of.into_iter().map(|(reason, runs)| match runs.split_first_chunk::<3>() {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more: {reason}", first.join(", "), rest.len())
        }
        _ => format!("{}: {reason}", runs.join(", ")),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Returns whether a plan needs rows of a table.
fn scans(plan: &LogicalPlan, table: &str) -> Result<bool, AnalyzeError> {
    let mut found = false;
    needed(plan, |node| {
        found |= matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.table() == table);
    })?;
    Ok(found)
}

/// Returns whether a plan reads what runs recorded, or what they say about themselves.
fn reads_runs(plan: &LogicalPlan) -> Result<bool, AnalyzeError> {
    plan.exists(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(false) };
        let name = scan.table_name.table();
        // Contradictions are sought among the rows that there are.
        Ok(name.starts_with('_') && tables::kinds_of(name).is_none_or(|kinds| !kinds.is_empty()))
    })
    .map_err(query_error)
}

/// Returns the line on runs of which an event may be missing; `None` if every loss was counted and there was none.
fn losses(files: &[RunFile]) -> Option<String> {
    let lossy = files.iter().filter(|file| file.run.lost_count() > 0 || !file.run.lost_is_counted);
    // The first warning is the one on losses.
    let reasons =
        lossy.filter_map(|file| Some((file.name.as_str(), info::warnings(&file.run).into_iter().next()?)));
    let said = by_run(reasons);
    (!said.is_empty()).then(|| format!("{said}; `analyze info` lists what is not recorded"))
}

/// Formats one line about absent events. `asked` holds the values of one column, any of which would do;
/// `kinds` holds the kinds of event that the query asks for.
fn note(asked: &[Asked], kinds: &[Kind], files: &[RunFile]) -> Option<String> {
    let names: Vec<&str> = asked.iter().map(Asked::name).collect();
    let (first, listed) = (asked.first()?, names.join(" or "));
    let runs = |wanted: &dyn Fn(&str) -> bool| {
        by_run(files.iter().map(|file| (file.name.as_str(), why(&file.run, wanted))))
    };
    let sources = |kinds: &[Kind]| kinds.iter().map(|kind| kind.source()).collect::<Vec<_>>().join(" ");
    let of = |has: &dyn Fn(Op) -> bool| {
        let ops: Vec<&str> = Op::ALL.iter().filter(|op| has(**op)).map(|op| op.name()).collect();
        (!ops.is_empty()).then(|| runs(&|symbol| ops.iter().any(|op| is_version_of(symbol, op))))
    };
    let is_named = |name: &str| names.contains(&name);
    Some(match first {
        Asked::Kind(_) => {
            let known: Vec<Kind> = names.iter().filter_map(|name| Kind::from_name(name)).collect();
            if known.is_empty() {
                let all = Kind::ALL.map(Kind::name).join(", ");
                return Some(format!("there is no kind {listed}; kinds are {all}"));
            }
            format!("no events of kind {listed} here. They come from {}", sources(&known))
        }
        Asked::Op(_) => match of(&|op| is_named(op.name())) {
            Some(runs) => format!("no calls of {listed} here. {runs}"),
            None if kinds.is_empty() || kinds.contains(&Kind::Call) => {
                let nearest = suggest::perhaps(&suggest::alike(&listed, Op::ALL.iter().map(|op| op.name())));
                format!("no events with op {listed} here{nearest}; `analyze info` lists what there is")
            }
            None => format!("no events with op {listed} here. They come from {}", sources(kinds)),
        },
        Asked::Layer(_) => match of(&|op| is_named(op.layer().name())) {
            Some(runs) => format!("no calls of layer {listed} here. {runs}"),
            None => format!("there is no layer {listed}"),
        },
        Asked::Class(_) => match of(&|op| is_named(op.class().name())) {
            Some(runs) => format!("no calls of class {listed} here. {runs}"),
            None => format!("there is no class {listed}"),
        },
    })
}

/// Returns one line for each condition of a query that no event of any run satisfies; if there is none, one
/// line on runs that may lack events. An empty list means that missing events are not the reason why the result
/// is empty.
pub async fn notes(trace: &Trace, plan: &LogicalPlan) -> Result<Vec<String>, AnalyzeError> {
    let mut notes = unsatisfied(trace, plan).await?;
    if notes.is_empty() && scans(plan, "_processes")? {
        let without = trace.files().iter().filter(|file| file.run.processes.is_empty());
        let said =
            by_run(without.map(|file| (file.name.as_str(), "its source names no processes".to_owned())));
        notes.extend((!said.is_empty()).then(|| format!("no processes here. {said}")));
    }
    if notes.is_empty() && scans(plan, "_steps")? {
        notes.push(
            "no steps here: no marks and no calls recur regularly with most of the launches (VERDICTS.md says by which rule)"
                .to_owned(),
        );
    }
    if notes.is_empty() && reads_runs(plan)? {
        notes.extend(losses(trace.files()));
    }
    Ok(notes.iter().map(|note| text::harmless(note)).collect())
}

async fn unsatisfied(trace: &Trace, plan: &LogicalPlan) -> Result<Vec<String>, AnalyzeError> {
    let asked = asked_by(plan)?;
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let present = Present::read(trace).await?;
    let absent = asked.iter().filter(|any| !any.iter().any(|asked| present.has(asked)));
    let absent: Vec<&Vec<Asked>> = absent.collect();
    // The most general condition is reported alone: if a kind is absent, its functions are absent too.
    let rank = |any: &Vec<Asked>| any.first().map(std::mem::discriminant);
    let widest = absent.first().map(|any| rank(any));
    let names = asked.iter().flatten().filter(|asked| matches!(asked, Asked::Kind(_)));
    let kinds: Vec<Kind> = names.filter_map(|asked| Kind::from_name(asked.name())).collect();
    let said = absent.into_iter().filter(|any| Some(rank(any)) == widest);
    Ok(said.filter_map(|any| note(any, &kinds, trace.files())).collect())
}
