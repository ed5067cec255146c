//! The whole fit, from a folder of data to new profiles.

use super::kernels::{FittedCurve, fit_kernels};
use super::parameters::Parameter;
use super::siblings::apply_curves;
use super::step::{StepFit, fit_step};
use super::unseen::{published, text};
use super::write::{Files, literal, written};
use crate::validate::{Models, RunCase, Selection, ValidateError, predict, read_cases, read_file};
use cost_models::estimate::Published;
use rayon::prelude::*;
use std::path::Path;

/// Every fitted number.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// Kernel curves of every measured GPU kind, and of the kinds that take them over.
    pub curves: Vec<FittedCurve>,
    /// What step times tell.
    pub step: StepFit,
    /// Published runs, and how far off predictions of those that a fit had not seen were.
    pub published: Published,
}

/// Where the table of published runs stands, from the repository's root.
const PUBLISHED: &str = "cost_models/published.toml";

/// One line of the table of fitted numbers.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Line {
    /// GPU kind, engine or `shared`, and the key.
    pub name: String,
    /// Value with its unit, as the profile writes it.
    pub value: String,
    /// What it was fitted to.
    pub fitted_to: String,
    /// Median error on that, where the number belongs to a curve of its own.
    pub median_error: Option<f64>,
    /// Median error on the points it never saw.
    pub held_out_error: Option<f64>,
    /// Distance from its prior in the prior's standard deviations, for numbers fitted to step times.
    pub pull: Option<f64>,
}

/// Fits everything to `data`, a folder with `kernels`, `links` and `validation`.
///
/// # Errors
/// [`ValidateError`] if a file is missing or broken.
pub fn fit_all(data: &Path) -> Result<Fitted, ValidateError> {
    let curves = fit_kernels(&data.join("kernels"))?;
    let cases = step_cases(data)?;
    let step = fit_step(&cases, &curves);
    let published = published(&cases, &curves);
    Ok(Fitted { curves, step, published })
}

/// The runs that step times are fitted to: those scored by default, with what they do not say inferred.
///
/// # Errors
/// [`ValidateError`] if a file is missing or broken.
pub fn step_cases(data: &Path) -> Result<Vec<RunCase>, ValidateError> {
    let folder = data.join("validation");
    let (models, runs) = (folder.join("models.json"), folder.join("measured_runs.csv"));
    let text = String::from_utf8_lossy(&read_file(&models)?).into_owned();
    let models = Models::read(&models.display().to_string(), &text)?;
    let (cases, _) = read_cases(&runs.display().to_string(), &read_file(&runs)?, &models, Selection::Core)?;
    let scored = |case: &RunCase| case.row.time_scored && case.row.step_seconds.is_some();
    let inferred = cases.into_par_iter().filter(scored).filter_map(|case| Some(predict(case).ok()?.case));
    Ok(inferred.collect())
}

impl Fitted {
    /// A case with every fitted number.
    #[must_use]
    pub fn applied(&self, case: &RunCase) -> RunCase {
        let mut case = case.clone();
        case.cluster.groups.iter_mut().for_each(|group| apply_curves(&mut group.gpu, &self.curves));
        self.step.applied(&case)
    }

    /// The profiles with the fitted numbers, by path from the repository's root.
    ///
    /// # Errors
    /// A profile that cannot be read or lacks a table.
    pub fn files(&self, root: &Path) -> Result<Files, String> {
        let read = |path: &str| {
            let path = root.join(path);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut files = written(&self.curves, &self.step, &read)?;
        files.insert(PUBLISHED.to_owned(), text(&self.published));
        Ok(files)
    }

    /// Every fitted number as a line of a table.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let line = |parameter: &Parameter, fitted_to: String| Line {
            name: parameter.name(),
            value: literal(parameter).trim_matches('"').to_owned(),
            fitted_to,
            median_error: None,
            held_out_error: None,
            pull: None,
        };
        let curves = self.curves.iter().flat_map(|curve| {
            curve.parameters.iter().map(move |parameter| Line {
                median_error: Some(curve.median_error.0),
                held_out_error: Some(curve.median_error.1),
                ..line(parameter, format!("{} points of {}", curve.points.0, curve.file))
            })
        });
        let step = self.step.with_runs().map(|(parameter, runs, error)| Line {
            median_error: Some(error),
            pull: Some(parameter.pull(parameter.value)),
            ..line(parameter, format!("step times of {runs} published runs"))
        });
        curves.chain(step).collect()
    }
}
