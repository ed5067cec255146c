//! Single changes to a layout, with the memory they free and the time they cost.

use crate::launch::{Launcher, difference};
use crate::report::summary::heaviest;
use crate::room::tightest;
use cluster_profiles::{Bytes, Seconds};
use cost_models::layerwise::LayerStrategies;
use cost_models::schedule::Schedule;
use cost_models::stages::default_stages;
use cost_models::{Estimate, ParallelConfig, RankOrder, Recompute, StageMap, TrainingRun, rules};
use serde::Serialize;
use solver::Constraints;

/// A change with both its numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// The change, such as `tp 4 -> 8`.
    pub change: String,
    /// The same in the launcher's own flags or keys: what goes (`-`) and what comes (`+`).
    pub flags: Vec<String>,
    /// The layout after it.
    pub parallel: ParallelConfig,
    /// Bytes it frees on the fullest rank (negative where it takes more).
    pub freed_bytes: Bytes,
    /// Step time after it.
    pub step_time_seconds: Seconds,
    /// Step time after it over the step time before, less one.
    pub slower: f64,
    /// Whether the layout fits after it.
    pub fits: bool,
}

/// A layout that is to be changed.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The layout and all it depends on.
    pub run: TrainingRun<'a>,
    /// What blocks have of their own, where they differ: nothing is changed then.
    pub strategies: Option<&'a LayerStrategies>,
    /// Bytes a GPU may use.
    pub memory_limit: Bytes,
    /// Rules of the engine that do not hold for the launcher.
    pub waived: &'a [&'static str],
    /// The launcher whose words changes are told in.
    pub launcher: Option<&'static dyn Launcher>,
}

/// Every legal single change, estimated. With a launcher these are the ones that it can state, each once.
#[must_use]
pub fn changes(subject: &Subject, before: &Estimate) -> Vec<Remedy> {
    let none: [&str; 0] = [];
    let barred = subject.launcher.and_then(|launcher| Constraints::parse(&none, launcher.forbids()).ok());
    let breaks = |parallel: &ParallelConfig| {
        barred.as_ref().is_some_and(|barred| barred.first_broken(parallel, subject.run.cluster).is_some())
    };
    let already = breaks(subject.run.parallel);
    let mut changes: Vec<Remedy> = Vec::new();
    for parallel in variants(subject.run.parallel).into_iter().filter(|p| already || !breaks(p)) {
        let flags = subject.launcher.map(|launcher| {
            difference(launcher, subject.run.parallel, &parallel, subject.run.workload.seq_len)
        });
        let stated = flags
            .as_ref()
            .is_none_or(|flags| !flags.is_empty() && !changes.iter().any(|change| change.flags == *flags));
        if stated {
            changes.extend(remedy(subject, before, parallel, flags.unwrap_or_default()));
        }
    }
    changes
}

/// Changes that free memory: those that fit first, then by what they cost in time.
#[must_use]
pub fn freeing(changes: &[Remedy]) -> Vec<Remedy> {
    let mut list: Vec<Remedy> =
        changes.iter().filter(|change| change.freed_bytes.get() > 0.0).cloned().collect();
    list.sort_by(|a, b| {
        b.fits.cmp(&a.fits).then(a.step_time_seconds.get().total_cmp(&b.step_time_seconds.get()))
    });
    list
}

/// Changes that fit and make the step shorter, fastest first.
#[must_use]
pub fn speeding(changes: &[Remedy]) -> Vec<Remedy> {
    let mut list: Vec<Remedy> =
        changes.iter().filter(|change| change.fits && change.slower < -0.005).cloned().collect();
    list.sort_by(|a, b| a.step_time_seconds.get().total_cmp(&b.step_time_seconds.get()));
    list
}

fn remedy(
    subject: &Subject,
    before: &Estimate,
    parallel: ParallelConfig,
    flags: Vec<String>,
) -> Option<Remedy> {
    let old = subject.run;
    let stages = stages(&old, &parallel)?;
    let run = TrainingRun { parallel: &parallel, stages: &stages, ..old };
    if rules::broken(&run).iter().any(|rule| !subject.waived.contains(&rule.id.as_str())) {
        return None;
    }
    let after = cost_models::estimate(&run).ok()?;
    let (was, is) = (heaviest(&before.memory).peak_bytes, heaviest(&after.memory).peak_bytes);
    let step = after.step_time_seconds;
    let axes = crate::report::difference::axes(old.parallel, &parallel);
    let change = axes.iter().map(|axis| format!("{} {} -> {}", axis.name, axis.first, axis.second));
    let fits = tightest(&run, &after, subject.memory_limit).left() >= Bytes::ZERO;
    Some(Remedy {
        change: change.collect::<Vec<_>>().join(", "),
        flags,
        parallel,
        freed_bytes: was - is,
        step_time_seconds: step,
        slower: step / before.step_time_seconds - 1.0,
        fits,
    })
}

/// The stages after a change: the same where only what is recomputed or the batch changed, else the engine's own.
fn stages(old: &TrainingRun, parallel: &ParallelConfig) -> Option<StageMap> {
    let same = old.parallel.pp == parallel.pp && old.parallel.vpp == parallel.vpp;
    if same && old.parallel.schedule == parallel.schedule {
        return Some(old.stages.clone().with_recompute(parallel.recompute));
    }
    let schedule: Schedule = parallel.schedule.parse().ok()?;
    let split = old.runtime.memory.pipeline.split;
    default_stages(old.model, parallel, split, schedule.kind.definition().placement).ok()
}

/// The layouts with one thing changed; the global batch and the number of GPUs stay.
fn variants(parallel: &ParallelConfig) -> Vec<ParallelConfig> {
    let with = |edit: &dyn Fn(&mut ParallelConfig)| {
        let mut changed = parallel.clone();
        edit(&mut changed);
        changed
    };
    let mut variants = Vec::new();
    for recompute in [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }] {
        variants.push(with(&|p| p.recompute = recompute));
    }
    variants.extend((0..=3).map(|zero| with(&|p| p.zero_stage = zero)));
    for axis in [tp, pp, cp] {
        variants.extend([traded(parallel, axis, true), traded(parallel, axis, false)].into_iter().flatten());
    }
    variants.extend([true, false].into_iter().filter_map(|double| rebatched(parallel, double)));
    if parallel.ep > 1 {
        variants.push(with(&|p| p.ep *= 2));
        variants.push(with(&|p| p.ep /= 2));
    }
    variants.push(with(&|p| p.sequence_parallel = p.tp > 1));
    variants.extend(RankOrder::ALL.map(|order| with(&|p| p.rank_order = order)));
    variants.retain(|changed| changed != parallel);
    variants
}

type Axis = fn(&mut ParallelConfig) -> &mut u32;

fn tp(parallel: &mut ParallelConfig) -> &mut u32 {
    &mut parallel.tp
}

fn pp(parallel: &mut ParallelConfig) -> &mut u32 {
    &mut parallel.pp
}

fn cp(parallel: &mut ParallelConfig) -> &mut u32 {
    &mut parallel.cp
}

/// An axis doubled or halved; the data-parallel ranks (the shards, where there are any) and the microbatches make up for
/// it.
fn traded(parallel: &ParallelConfig, axis: Axis, double: bool) -> Option<ParallelConfig> {
    let mut changed = parallel.clone();
    let degree = axis(&mut changed);
    *degree = if double { *degree * 2 } else { half(u64::from(*degree))? as u32 };
    let whole = changed.dp_shard == 1 && changed.dp_replicate > 1;
    let data = if whole { &mut changed.dp_replicate } else { &mut changed.dp_shard };
    if double {
        *data = half(u64::from(*data))? as u32;
        changed.num_microbatches *= 2;
    } else {
        *data *= 2;
        changed.num_microbatches = half(changed.num_microbatches)?;
    }
    changed.sequence_parallel = changed.tp > 1 && (parallel.sequence_parallel || parallel.tp == 1);
    if changed.pp == 1 {
        changed.vpp = 1;
        changed.schedule = "1f1b".to_owned();
    }
    Some(changed)
}

/// The micro batch doubled or halved.
fn rebatched(parallel: &ParallelConfig, double: bool) -> Option<ParallelConfig> {
    let mut changed = parallel.clone();
    if double {
        changed.num_microbatches = half(changed.num_microbatches)?;
        changed.micro_batch_size *= 2;
    } else {
        changed.micro_batch_size = half(changed.micro_batch_size)?;
        changed.num_microbatches *= 2;
    }
    Some(changed)
}

fn half(value: u64) -> Option<u64> {
    value.is_multiple_of(2).then_some(value / 2)
}
