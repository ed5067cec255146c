//! Fit of the step-time numbers to published step times.

use super::gauss_newton::{Residuals, minimise};
use super::kernels::FittedCurve;
use super::parameters::{Parameter, Slot, rounded, step_parameters};
use super::siblings::apply_curves;
use crate::validate::RunCase;
use crate::validate::metrics::median;
use cost_models::TrainingRun;
use cost_models::step::{PreparedSchedule, StageCosts, step_seconds};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A published run, prepared.
struct Sample {
    case: RunCase,
    measured: f64,
    source: usize,
    schedule: PreparedSchedule,
}

/// Errors beyond this hardly count more: rows that far off are of another kind.
const LARGEST_ERROR: f64 = 0.35;
/// Errors below this hardly matter: repeats of one run differ by as much.
const NOISE: f64 = 0.02;
/// Weight of the numbers' distance from their priors.
const PRIOR_WEIGHT: f64 = 0.000_25;
/// Rows of a source that count as one full source.
const FULL_SOURCE: f64 = 6.0;
/// Share of the objective that sources have alike; the rest is shared by rows.
const BY_SOURCE: f64 = 0.7;
/// Steps of the search; it ends earlier when nothing improves.
const STEPS: usize = 14;

/// The fitted numbers.
#[derive(Debug, Clone)]
pub struct StepFit {
    /// The numbers.
    pub parameters: Vec<Parameter>,
    /// Runs that each of them was fitted to.
    pub runs: Vec<usize>,
    /// Median error of these runs under the fitted numbers.
    pub median_errors: Vec<f64>,
    /// Smallest value of the objective.
    pub objective: f64,
}

/// Fits the step-time numbers to `cases`, on top of the kernel curves of their GPUs (or of `curves`, where given).
#[must_use]
pub fn fit_step(cases: &[RunCase], curves: &[FittedCurve]) -> StepFit {
    let problem = Problem::new(cases, curves);
    let mut values: Vec<f64> = problem.parameters.iter().map(|parameter| parameter.value).collect();
    let objective = minimise(&problem, &mut values, STEPS);
    values.iter_mut().for_each(|value| *value = rounded(*value));
    let all: Vec<usize> = (0..problem.samples.len()).collect();
    let errors = problem.errors_at(&all, &values);
    let median_of = |terms: &Vec<usize>| {
        let absolute: Vec<f64> = terms.iter().map(|&term| errors[term].exp_m1().abs()).collect();
        median(&absolute).unwrap_or(0.0)
    };
    let median_errors = problem.touched.iter().map(median_of).collect();
    let runs = problem.touched.iter().map(Vec::len).collect();
    let mut parameters = problem.parameters;
    parameters.iter_mut().zip(values).for_each(|(parameter, value)| parameter.value = value);
    StepFit { parameters, runs, median_errors, objective }
}

/// Every number at its prior: what is known before any step time is.
#[must_use]
pub fn unfitted() -> StepFit {
    let parameters = step_parameters();
    let none = vec![0; parameters.len()];
    StepFit { median_errors: vec![0.0; parameters.len()], parameters, runs: none, objective: f64::INFINITY }
}

impl StepFit {
    /// The numbers, each with the runs it was fitted to and their median error.
    pub fn with_runs(&self) -> impl Iterator<Item = (&Parameter, usize, f64)> {
        let runs = self.runs.iter().zip(&self.median_errors);
        self.parameters.iter().zip(runs).map(|(parameter, (runs, error))| (parameter, *runs, *error))
    }

    /// A case with the fitted numbers.
    #[must_use]
    pub fn applied(&self, case: &RunCase) -> RunCase {
        let mut case = case.clone();
        for parameter in &self.parameters {
            set(&mut case, parameter, parameter.value);
        }
        case
    }
}

impl crate::validate::Fitted for StepFit {
    fn error(&self, case: &RunCase) -> Option<f64> {
        let applied = self.applied(case);
        let step = cost_models::step_time(&applied.training_run()).ok()?;
        Some(step.total().get() / case.row.step_seconds? - 1.0)
    }
}

fn set(case: &mut RunCase, parameter: &Parameter, value: f64) {
    match parameter.slot {
        Slot::Shared(get) => *get(&mut case.runtime.shared) = value,
        Slot::Engine(get) if case.runtime.name == parameter.owner => *get(&mut case.runtime.time) = value,
        Slot::Engine(_) => {}
        Slot::Gpu(get) => {
            for group in case.cluster.groups.iter_mut().filter(|group| group.gpu.name == parameter.owner) {
                *get(&mut group.gpu.kernels) = value;
            }
        }
    }
}

struct Problem {
    samples: Vec<Sample>,
    parameters: Vec<Parameter>,
    touched: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

impl Problem {
    fn new(cases: &[RunCase], curves: &[FittedCurve]) -> Self {
        let parameters = step_parameters();
        let sources: BTreeSet<&str> = cases.iter().map(|case| case.row.source_key.as_str()).collect();
        let index: BTreeMap<&str, usize> =
            sources.into_iter().enumerate().map(|(i, name)| (name, i)).collect();
        let unfitted = unfitted();
        let prepare =
            |case: &RunCase| Sample::new(case, curves, &unfitted, *index.get(case.row.source_key.as_str())?);
        let samples: Vec<Sample> = cases.par_iter().filter_map(prepare).collect();
        let touched = parameters.iter().map(|parameter| touched(parameter, &samples)).collect();
        let weights = weights(&samples, index.len());
        Self { samples, parameters, touched, weights }
    }

    /// Logarithm of predicted over measured.
    fn error(&self, term: usize, values: &[f64]) -> f64 {
        let sample = &self.samples[term];
        let mut case = sample.case.clone();
        self.parameters.iter().zip(values).for_each(|(parameter, value)| set(&mut case, parameter, *value));
        let run: TrainingRun = case.training_run();
        let predicted = StageCosts::of(&run).and_then(|stages| step_seconds(&run, &stages, &sample.schedule));
        predicted.map_or(LARGEST_ERROR, |seconds| (seconds.get() / sample.measured).ln())
    }
}

impl Sample {
    /// The orders of searched schedules come from times at the priors, so that a fit does not depend on an earlier one.
    fn new(case: &RunCase, curves: &[FittedCurve], unfitted: &StepFit, source: usize) -> Option<Self> {
        let measured = case.row.step_seconds?;
        let mut case = unfitted.applied(case);
        case.cluster.groups.iter_mut().for_each(|group| apply_curves(&mut group.gpu, curves));
        let run = case.training_run();
        let stages = StageCosts::of(&run).ok()?;
        let schedule = PreparedSchedule::of(&run, &stages).ok()?;
        Some(Self { case, measured, source, schedule })
    }
}

/// Sources count alike from [`FULL_SOURCE`] rows on, less below.
fn weights(samples: &[Sample], sources: usize) -> Vec<f64> {
    let mut counts = vec![0.0_f64; sources];
    samples.iter().for_each(|sample| counts[sample.source] += 1.0);
    let share = |n: f64| (n / FULL_SOURCE).min(1.0);
    let total: f64 = counts.iter().map(|n| share(*n)).sum();
    let rows = samples.len() as f64;
    let weight = |sample: &Sample| {
        let n = counts[sample.source];
        BY_SOURCE * share(n) / (n * total) + (1.0 - BY_SOURCE) / rows
    };
    samples.iter().map(weight).collect()
}

fn touched(parameter: &Parameter, samples: &[Sample]) -> Vec<usize> {
    let belongs = |sample: &Sample| match parameter.slot {
        Slot::Shared(_) => true,
        Slot::Engine(_) => sample.case.runtime.name == parameter.owner,
        Slot::Gpu(_) => sample.case.cluster.gpu().name == parameter.owner,
    };
    samples.iter().enumerate().filter(|(_, sample)| belongs(sample)).map(|(index, _)| index).collect()
}

impl Residuals for Problem {
    fn terms(&self) -> usize {
        self.samples.len()
    }

    fn terms_of(&self, index: usize) -> &[usize] {
        &self.touched[index]
    }

    fn errors_at(&self, terms: &[usize], values: &[f64]) -> Vec<f64> {
        terms.par_iter().map(|&term| self.error(term, values)).collect()
    }

    fn weight(&self, term: usize) -> f64 {
        self.weights[term]
    }

    fn loss(&self, error: f64) -> (f64, f64) {
        let size = error.hypot(NOISE);
        let scaled = ((size - NOISE) / LARGEST_ERROR).tanh();
        (LARGEST_ERROR * scaled, (1.0 - scaled * scaled) / size)
    }

    fn prior(&self, index: usize) -> (f64, f64, (f64, f64)) {
        let parameter = &self.parameters[index];
        (parameter.prior, parameter.spread, (parameter.low, parameter.high))
    }

    fn prior_weight(&self) -> f64 {
        PRIOR_WEIGHT
    }
}
