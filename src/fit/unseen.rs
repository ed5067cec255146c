//! How far off predictions of unseen runs are: the runs are split in halves, each is predicted by a fit to the other, and the
//! errors by engine and kind of model become the intervals of estimates.

use super::kernels::FittedCurve;
use super::parameters::rounded;
use super::siblings::apply_curves;
use super::step::{StepFit, fit_step, unfitted};
use crate::validate::metrics::quantile;
use crate::validate::{Fitted, RunCase, in_fitted_half};
use cost_models::estimate::published::{Published, Regime, axes};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Share of the unseen runs that an interval holds.
const INSIDE: f64 = 0.9;
/// Share of the errors before any fit that the interval of runs unlike all published ones holds: such runs may be further off
/// than the ones the model was built on.
const INSIDE_UNLIKE: f64 = 0.95;
/// Runs below which a regime takes the errors of all runs of its kind of model.
const FEWEST: usize = 20;

/// A run's engine and whether its model routes tokens to experts.
type Key = (String, bool);

/// The table of published runs, with the errors of predictions that have not seen them.
#[must_use]
pub fn published(cases: &[RunCase], curves: &[FittedCurve]) -> Published {
    let mut cases = cases.to_vec();
    for case in &mut cases {
        case.cluster.groups.iter_mut().for_each(|group| apply_curves(&mut group.gpu, curves));
    }
    let (first, second): (Vec<RunCase>, Vec<RunCase>) = cases.iter().cloned().partition(in_fitted_half);
    let mut errors = errors(&fit_step(&first, &[]), &second);
    errors.extend(self::errors(&fit_step(&second, &[]), &first));
    let before: Vec<f64> = self::errors(&unfitted(), &cases).into_iter().map(|(_, error)| error).collect();
    let mut regimes: BTreeMap<Key, Regime> = BTreeMap::new();
    cases.iter().for_each(|case| add(regimes.entry(key(case)).or_default(), case));
    for (key, regime) in &mut regimes {
        (regime.engine, regime.experts) = key.clone();
        regime.half_width = rounded(half_width(key, &errors));
    }
    Published {
        unlike: rounded(quantile(&before, INSIDE_UNLIKE).unwrap_or(1.0)),
        regimes: regimes.into_values().collect(),
    }
}

fn key(case: &RunCase) -> Key {
    (case.runtime.name.clone(), case.model.is_moe())
}

/// The larger of predicted over measured and measured over predicted, less one.
fn errors(fit: &StepFit, cases: &[RunCase]) -> Vec<(Key, f64)> {
    let error = |case: &RunCase| {
        let ratio = 1.0 + fit.error(case)?;
        Some((key(case), ratio.max(1.0 / ratio) - 1.0))
    };
    cases.par_iter().filter_map(error).collect()
}

fn half_width(key: &Key, errors: &[(Key, f64)]) -> f64 {
    let of = |alike: &dyn Fn(&Key) -> bool| -> Vec<f64> {
        errors.iter().filter(|(other, _)| alike(other)).map(|(_, error)| *error).collect()
    };
    let own = of(&|other| other == key);
    let used = if own.len() < FEWEST { of(&|other| other.1 == key.1) } else { own };
    quantile(&used, INSIDE).unwrap_or(1.0)
}

fn add(regime: &mut Regime, case: &RunCase) {
    let run = case.training_run();
    regime.largest = regime.largest.max(case.parallel.world_size());
    *regime.gpus.entry(run.cluster.gpu().name.clone()).or_default() += 1;
    for (axis, used) in axes(&run) {
        *regime.axes.entry(axis.to_owned()).or_default() += u32::from(used);
    }
}

/// The table as the profile holds it.
#[must_use]
pub fn text(published: &Published) -> String {
    let mut text = String::from(
        "# Published runs by engine and kind of model, and how far off predictions of those were that the fit had not seen.\n\
         # `meshwright fit DATA-DIR --write` writes it.\n",
    );
    let _ = writeln!(text, "unlike = {}", published.unlike);
    for regime in &published.regimes {
        let counts = |counts: &BTreeMap<String, u32>| {
            let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{name} = {n}")).collect();
            format!("{{ {} }}", counts.join(", "))
        };
        let _ = write!(
            text,
            "\n[[regimes]]\nengine = \"{}\"\nexperts = {}\nlargest = {}\nhalf_width = {}\ngpus = {}\naxes = {}\n",
            regime.engine,
            regime.experts,
            regime.largest,
            regime.half_width,
            counts(&regime.gpus),
            counts(&regime.axes)
        );
    }
    text
}
