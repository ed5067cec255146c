//! The figures of a validation: per source, per GPU kind, and overall.

use super::baseline::{self, ConstantMfu};
use super::metrics::{Confusion, ErrorSummary, mean, median, quantile};
use super::ranking::{RankedGroup, ranked_groups};
use super::score::Scored;
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of a set of runs; fractions. A figure is none where no run of the set has what it needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Figures {
    /// Runs.
    pub rows: usize,
    /// Runs scored by step time.
    pub step_time_rows: usize,
    /// Median absolute error of the step time; overall, the mean over sources of their medians.
    pub step_time_median_error: Option<f64>,
    /// 90th percentile over all rows.
    pub step_time_p90_error: Option<f64>,
    /// Median signed error; overall, the mean over sources.
    pub step_time_bias: Option<f64>,
    /// Share of the runs whose measured step time lies inside the interval of the prediction.
    pub step_time_in_interval: Option<f64>,
    /// Runs scored by memory.
    pub memory_rows: usize,
    /// Median absolute error of the memory a source measured; overall, the mean over sources.
    pub memory_median_error: Option<f64>,
    /// 90th percentile over all rows.
    pub memory_p90_error: Option<f64>,
    /// Median signed error; overall, the mean over sources.
    pub memory_bias: Option<f64>,
    /// Out of memory: predicted against reported.
    pub oom: Confusion,
    /// Share of the out-of-memory runs that are predicted not to fit.
    pub oom_recall: Option<f64>,
    /// Share of the runs that ran that are predicted not to fit.
    pub false_oom_rate: Option<f64>,
    /// Mean of the recalls of both classes.
    pub oom_balanced_accuracy: Option<f64>,
    /// Mean of Kendall's tau over the ranking groups.
    pub kendall_tau: Option<f64>,
    /// Mean regret over the groups.
    pub mean_regret: Option<f64>,
    /// Median regret.
    pub median_regret: Option<f64>,
    /// Ranking groups.
    pub groups: usize,
}

/// Step-time errors of the constant-MFU baseline, beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// Mean over sources of the median absolute error.
    pub step_time_median_error: Option<f64>,
    /// 90th percentile over all rows.
    pub step_time_p90_error: Option<f64>,
    /// Per source.
    pub sources: BTreeMap<String, ErrorSummary>,
    /// The constants.
    pub constants: Vec<ConstantMfu>,
}

/// Everything `validate` reports of a set of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Over all runs.
    pub overall: Figures,
    /// By source.
    pub sources: BTreeMap<String, Figures>,
    /// By GPU kind.
    pub gpus: BTreeMap<String, Figures>,
    /// By architecture within Megatron-Bridge, the only source with many of both.
    pub subsets: BTreeMap<String, Figures>,
    /// Step-time errors of sources that only state an MFU.
    pub mfu_only: BTreeMap<String, ErrorSummary>,
    /// One MFU per GPU kind and precision.
    pub baseline: Baseline,
}

impl Summary {
    /// Summarises `runs`.
    #[must_use]
    pub fn of(runs: &[Scored]) -> Self {
        let groups = ranked_groups(runs);
        let sources =
            by(runs, &groups, |run| Some(run.case.row.source_key.clone()), |group| &group.source_key);
        let gpus = by(runs, &groups, |run| Some(run.case.row.gpu.clone()), |group| &group.gpu);
        Self {
            overall: overall(runs, &groups, &sources),
            subsets: by(runs, &[], subset, |group| &group.source_key),
            sources,
            gpus,
            mfu_only: mfu_only(runs),
            baseline: Baseline::of(runs),
        }
    }
}

fn subset(run: &Scored) -> Option<String> {
    let kind = if run.case.model.is_moe() { "MoE" } else { "dense" };
    (run.case.row.source_key == "MB").then(|| format!("Megatron-Bridge {kind}"))
}

fn mfu_only(runs: &[Scored]) -> BTreeMap<String, ErrorSummary> {
    let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in runs {
        if let Some(error) = run.mfu_error() {
            errors.entry(run.case.row.source_key.clone()).or_default().push(error);
        }
    }
    errors.into_iter().map(|(source, errors)| (source, ErrorSummary::of(&errors))).collect()
}

fn by(
    runs: &[Scored],
    groups: &[RankedGroup],
    key: impl Fn(&Scored) -> Option<String>,
    group_key: impl Fn(&RankedGroup) -> &String,
) -> BTreeMap<String, Figures> {
    let mut parts: BTreeMap<String, Vec<&Scored>> = BTreeMap::new();
    for run in runs {
        if let Some(key) = key(run) {
            parts.entry(key).or_default().push(run);
        }
    }
    let figures = |key: &String, runs: &[&Scored]| {
        let groups: Vec<&RankedGroup> = groups.iter().filter(|group| group_key(group) == key).collect();
        Figures::of(runs, &groups)
    };
    parts.into_iter().map(|(key, runs)| (key.clone(), figures(&key, &runs))).collect()
}

/// Share of the answers that are yes.
fn share(answers: impl Iterator<Item = bool>) -> Option<f64> {
    let answers: Vec<f64> = answers.map(|yes| f64::from(u8::from(yes))).collect();
    mean(&answers)
}

impl Figures {
    fn of(runs: &[&Scored], groups: &[&RankedGroup]) -> Self {
        let step: Vec<f64> = runs.iter().filter_map(|run| run.step_error()).collect();
        let memory: Vec<f64> = runs.iter().filter_map(|run| run.memory_error()).collect();
        let (step, memory) = (ErrorSummary::of(&step), ErrorSummary::of(&memory));
        let mut figures = Self {
            rows: runs.len(),
            step_time_rows: step.rows,
            step_time_median_error: step.median_error,
            step_time_p90_error: step.p90_error,
            step_time_bias: step.bias,
            step_time_in_interval: share(runs.iter().filter_map(|run| run.in_interval())),
            memory_rows: memory.rows,
            memory_median_error: memory.median_error,
            memory_p90_error: memory.p90_error,
            memory_bias: memory.bias,
            ..Self::default()
        };
        figures.set_oom(runs);
        figures.set_ranking(groups);
        figures
    }

    fn set_oom(&mut self, runs: &[&Scored]) {
        for run in runs {
            if let Some(died) = run.case.row.out_of_memory {
                self.oom.add(died, !run.estimate.fits);
            }
        }
        self.oom_recall = self.oom.recall();
        self.false_oom_rate = self.oom.false_rate();
        self.oom_balanced_accuracy = self.oom.balanced_accuracy();
    }

    fn set_ranking(&mut self, groups: &[&RankedGroup]) {
        let taus: Vec<f64> = groups.iter().filter_map(|group| group.tau).collect();
        let regrets: Vec<f64> = groups.iter().map(|group| group.regret).collect();
        self.kendall_tau = mean(&taus);
        self.mean_regret = mean(&regrets);
        self.median_regret = median(&regrets);
        self.groups = groups.len();
    }
}

/// Errors as the mean over sources; percentiles, confusion and ranking over everything.
fn overall(runs: &[Scored], groups: &[RankedGroup], sources: &BTreeMap<String, Figures>) -> Figures {
    let over_sources = |figure: fn(&Figures) -> Option<f64>| {
        mean(&sources.values().filter_map(figure).collect::<Vec<f64>>())
    };
    let all = Figures::of(&runs.iter().collect::<Vec<_>>(), &groups.iter().collect::<Vec<_>>());
    Figures {
        step_time_median_error: over_sources(|figures| figures.step_time_median_error),
        step_time_bias: over_sources(|figures| figures.step_time_bias),
        memory_median_error: over_sources(|figures| figures.memory_median_error),
        memory_bias: over_sources(|figures| figures.memory_bias),
        ..all
    }
}

impl Baseline {
    fn of(runs: &[Scored]) -> Self {
        let constants = baseline::constants(runs);
        let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for run in runs {
            if let Some(error) = baseline::error(&constants, run) {
                errors.entry(run.case.row.source_key.clone()).or_default().push(error);
            }
        }
        let absolute: Vec<f64> = errors.values().flatten().map(|error| error.abs()).collect();
        let sources: BTreeMap<String, ErrorSummary> =
            errors.into_iter().map(|(key, errors)| (key, ErrorSummary::of(&errors))).collect();
        let medians: Vec<f64> = sources.values().filter_map(|summary| summary.median_error).collect();
        Self {
            step_time_median_error: mean(&medians),
            step_time_p90_error: quantile(&absolute, 0.9),
            sources,
            constants,
        }
    }
}
