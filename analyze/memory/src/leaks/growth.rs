//! Computes the growth of allocated memory from the end of the warm-up to the end of the last epoch, for each
//! of PyTorch's allocators: it combines epochs, replay, account and verdict.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use trace_schema::Run;

use super::{
    account::{self, Named},
    epochs::{self, Epochs},
    live,
    measured::Verdict,
    site::{Amount, Place, Site},
    stacks::{self, Frames},
    survivors::{Heard, Survivors},
    trend::trend,
    verdict,
};
use crate::{
    input::{Input, Key, Replay},
    totals::Totals,
};
use analyze_run::{error::AnalyzeError, events::Events, hash::HashMap, run_file::RunFile};

pub use super::measured::{Bin, Growth, Point};

/// The parameters of the analysis.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// The name of the marks that are the epochs; `None` selects those that fit best.
    pub epochs: Option<String>,
}

/// Analyzes every allocator of some runs, in order of run, process and device.
///
/// # Errors
/// Returns an error if there is no such mark, or the data cannot be read.
pub async fn run(
    events: &Arc<dyn Events>,
    files: &[RunFile],
    params: &Params,
) -> Result<Vec<Growth>, AnalyzeError> {
    let input = Input::new(Arc::clone(events), files);
    let plan = Plan::of(&input, params).await?;
    let input = input.with_runs(&plan.runs);
    let (replay, survivors) = input.replay(Vec::new(), plan.survivors()).await?;
    plan.finish(events, &replay, survivors).await
}

/// The analysis before the replay: the runs and the epochs of their allocators.
pub struct Plan {
    runs: Vec<(String, Run)>,
    epochs: HashMap<Key, Epochs>,
}

impl Plan {
    /// Reads the epochs of all allocators.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`run`].
    pub async fn of(input: &Input, params: &Params) -> Result<Self, AnalyzeError> {
        let prepared = input.prepared().await?;
        let wanted = params.epochs.as_deref();
        let candidates = epochs::candidates(&**input.events(), &prepared.allocating, wanted).await?;
        if let Some(name) = &params.epochs
            && !candidates.is_empty()
            && !candidates.values().any(|of_run| of_run.has(name))
        {
            let query = "`analyze sql RUN 'SELECT DISTINCT name FROM marks'` lists them";
            return Err(AnalyzeError::Query(format!("the run has no marks {name:?}; {query}")));
        }
        let mut runs: Vec<(String, Run)> = input.runs().to_vec();
        let is_known = |name: &String| input.runs().iter().any(|(known, _)| known == name);
        for name in candidates.keys().filter(|name| !is_known(name)) {
            // Rows without a file have no metadata, and nothing of them was lost.
            runs.push((name.clone(), Run { lost_is_counted: true, ..Run::default() }));
        }
        let mut epochs = HashMap::default();
        for (number, (name, _)) in runs.iter().enumerate() {
            let Some(of_run) = candidates.get(name) else { continue };
            for (pid, device) in of_run.allocators() {
                if let Some(of) = of_run.epochs(pid, device, params.epochs.as_deref()) {
                    epochs.insert(Key { run: number as u32, pid, device }, of);
                }
            }
        }
        Ok(Self { runs, epochs })
    }

    /// Returns the listener that the replay has to feed.
    pub fn survivors(&self) -> Survivors {
        Survivors::new(self.epochs.clone())
    }

    /// Completes the analysis after the replay.
    pub async fn finish(
        self,
        events: &Arc<dyn Events>,
        replay: &Replay,
        mut survivors: Survivors,
    ) -> Result<Vec<Growth>, AnalyzeError> {
        survivors.finish();
        let heard: BTreeMap<Key, Heard> = survivors.heard.into_iter().collect();
        let mut wanted = HashSet::new();
        for (key, heard) in &heard {
            let stacks = heard.sites.keys().chain(heard.live.keys()).filter_map(|place| place.stack);
            wanted.extend(stacks.map(|stack| (replay.name(key.run).to_owned(), key.pid, stack)));
        }
        let frames = stacks::frames(&**events, &wanted).await?;
        let mut answers = Vec::new();
        for (key, heard) in heard {
            if let Some((name, run)) = self.runs.get(key.run as usize) {
                answers.push(growth(key, name, run, &heard, &frames));
            }
        }
        Ok(answers)
    }
}

fn growth(key: Key, name: &str, run: &Run, heard: &Heard, frames: &Frames) -> Growth {
    let named = |place: &Place| Named {
        frames: place.stack.and_then(|stack| frames.get(&(name.to_owned(), key.pid, stack)).cloned()),
        tid: Some(place.tid),
        stream: Some(place.stream),
        size_class: Some(place.size_class),
    };
    let mut sites: BTreeMap<Named, Site> = BTreeMap::new();
    for (place, site) in &heard.sites {
        sites.entry(named(place)).and_modify(|sum| sum.merge(site)).or_insert_with(|| site.clone());
    }
    let warm_up = heard.epochs.warm_up_count();
    let points = points(heard);
    let (account, sites_found) =
        account::judge(&sites, warm_up, points.last().map_or(0, |point| point.live_bytes));
    let of_points = |get: fn(&Point) -> i64| {
        let values: Vec<i64> = points.iter().skip(warm_up).map(get).collect();
        trend(&values)
    };
    let mut growth = Growth {
        run: name.to_owned(),
        pid: key.pid,
        device: key.device,
        verdict: Verdict::Inconclusive,
        reasons: Vec::new(),
        epochs_count: heard.epochs.count(),
        epochs: heard.epochs.clone(),
        warm_up_count: warm_up,
        account,
        live_trend: of_points(|point| point.live_bytes),
        reserved_trend: of_points(|point| point.reserved_bytes),
        sites: sites_found,
        ages: ages(sites.values()),
        sizes: sizes(&sites),
        points,
        end_bytes: heard.live.values().collect::<Amount>().bytes,
        live_sites: Vec::new(),
        failed_count: heard.failed_count,
    };
    (growth.verdict, growth.reasons) = verdict::decide(&growth, &heard.faults, run);
    if growth.verdict == Verdict::Inconclusive {
        growth.live_sites = live::sites(heard.live.iter().map(|(place, amount)| (named(place), *amount)));
    }
    growth
}

fn points(heard: &Heard) -> Vec<Point> {
    let of = |(slot, (ts_ns, totals)): (usize, (&i64, &Totals))| {
        let survived: Amount = heard.sites.values().filter_map(|site| site.alive().get(slot)).collect();
        let releasable_bytes = totals.releasable_bytes + totals.private_releasable_bytes;
        Point {
            ts_ns: *ts_ns,
            live_bytes: totals.allocated_bytes,
            pending_bytes: totals.active_bytes - totals.allocated_bytes,
            reserved_bytes: totals.reserved_bytes,
            releasable_bytes,
            pinned_bytes: totals.reserved_bytes
                - totals.active_bytes
                - releasable_bytes
                - totals.unknown_bytes,
            unknown_bytes: totals.unknown_bytes,
            survived_count: survived.count,
            survived_bytes: survived.bytes,
        }
    };
    heard.epochs.bounds_ns.iter().zip(&heard.totals).enumerate().map(of).collect()
}

/// Converts classes, which are exponents of two, into bins.
fn bins(classes: BTreeMap<u32, Amount>) -> Vec<Bin> {
    let bin = |(class, amount): (u32, Amount)| Bin {
        from: 1_u64.checked_shl(class).unwrap_or(u64::MAX),
        to: 1_u64.checked_shl(class + 1).unwrap_or(u64::MAX),
        count: amount.count,
        bytes: amount.bytes,
    };
    classes.into_iter().filter(|(_, amount)| amount.count > 0).map(bin).collect()
}

fn ages<'a>(sites: impl Iterator<Item = &'a Site>) -> Vec<Bin> {
    let mut classes: BTreeMap<u32, Amount> = BTreeMap::new();
    for site in sites {
        for (age, amount) in site.recent_by_age() {
            classes.entry(age.ilog2()).or_default().add(amount);
        }
    }
    bins(classes)
}

fn sizes(sites: &BTreeMap<Named, Site>) -> Vec<Bin> {
    let mut classes: BTreeMap<u32, Amount> = BTreeMap::new();
    for (named, site) in sites {
        let class = classes.entry(named.size_class.unwrap_or_default()).or_default();
        site.recent_by_age().for_each(|(_, amount)| class.add(amount));
    }
    bins(classes)
}
