//! The study file: what every point has, what varies, what is left out and what is asked.

mod faults;
mod limits;

use super::axis::{Axis, RawAxis};
use super::draft::Draft;
use super::filter::Filter;
use super::key::{self, kind_of, nearest};
use super::library::Library;
use super::value::{Kind, Value};
use crate::error::AppError;
use crate::inputs;
use cluster_profiles::Seconds;
use faults::{contradictions, unanswered};
pub use limits::Limits;
use limits::RawConstraints;
use serde::{Deserialize, Serialize};
use solver::Objective;
use std::collections::{BTreeMap, BTreeSet};

/// Most points of a study.
pub const MOST_POINTS: u64 = 10_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    title: Option<String>,
    #[serde(default)]
    base: toml::Table,
    #[serde(default)]
    axes: Vec<RawAxis>,
    #[serde(default)]
    skip: Vec<toml::Table>,
    objective: Option<String>,
    within: Option<String>,
    #[serde(default)]
    constraints: RawConstraints,
    #[serde(default)]
    chart: Chart,
    batch_schedule: Option<BatchSchedule>,
    #[serde(default)]
    measured: Vec<Measured>,
}

/// What the sweep chart shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Key along the horizontal axis; the numeric one with most values if none.
    pub x: Option<String>,
    /// Column along the vertical axis; tokens per second and GPU if none.
    pub y: Option<String>,
}

/// The columns that the sweep chart can show along its vertical axis.
pub const FIGURES: [&str; 8] = [
    "tokens_per_second_per_gpu",
    "tokens_per_second",
    "step_time_seconds",
    "model_flops_utilization",
    "dollars_per_billion_tokens",
    "joules_per_token",
    "training_seconds",
    "training_dollars",
];

/// How the gradient noise scale grows over a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSchedule {
    /// Pairs of tokens trained and noise scale in tokens, rising in tokens.
    pub noise_scale: Vec<[f64; 2]>,
}

/// A published measurement that is drawn into the sweep chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Value of the chart's horizontal key.
    pub x: f64,
    /// Value of the chart's column.
    pub y: f64,
    /// What was measured.
    pub label: String,
    /// Where it is published.
    pub source: String,
}

/// A study, ready to run.
#[derive(Debug)]
pub struct Study {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// The text it was read from.
    pub text: String,
    /// What every point has.
    pub base: BTreeMap<String, Value>,
    /// What varies; the last axis fastest.
    pub axes: Vec<Axis>,
    /// What is left out.
    pub skip: Vec<Filter>,
    /// What a plan is best at.
    pub objective: Objective,
    /// What a point has to keep.
    pub limits: Limits,
    /// What the sweep chart shows.
    pub chart: Chart,
    /// The noise scale, if a batch schedule is asked for.
    pub batch_schedule: Option<BatchSchedule>,
    /// Published points to draw in.
    pub measured: Vec<Measured>,
    /// Models and clusters read so far.
    pub library: Library,
}

impl Study {
    /// Reads a study. Every name and value is tried once, so that what is wrong shows before the first point.
    ///
    /// # Errors
    /// [`AppError::Content`] with all faults.
    pub fn read(origin: &str, text: &str) -> Result<Self, AppError> {
        let wrong = |message: String| AppError::Content {
            origin: origin.to_owned(),
            message,
            hint: Some("the README and the files of `studies/` show the format".to_owned()),
        };
        let raw: Raw =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let mut faults = Vec::new();
        let study = Self::of(raw, text, &mut faults);
        unanswered(&study, &mut faults);
        if faults.is_empty() {
            faults = study.deep_faults();
        }
        if faults.is_empty() { Ok(study) } else { Err(wrong(faults.join("\n       "))) }
    }

    fn of(raw: Raw, text: &str, faults: &mut Vec<String>) -> Self {
        let mut base = BTreeMap::new();
        flatten("", &raw.base, &mut base, faults);
        let axes: Vec<Axis> =
            raw.axes.iter().enumerate().filter_map(|(index, axis)| axis.read(index + 1, faults)).collect();
        let skip = raw.skip.iter().enumerate();
        let skip: Vec<Filter> =
            skip.filter_map(|(index, table)| Filter::read(table, index + 1, faults)).collect();
        contradictions(&base, &axes, &skip, faults);
        let within = raw.within.as_ref().and_then(|text| {
            let time = Kind::Time.read(&toml::Value::String(text.clone()));
            time.map_err(|fault| faults.push(format!("within {fault}"))).ok()?.number().map(Seconds)
        });
        let name = raw.objective.as_deref().unwrap_or("step-time");
        let objective = Objective::parse(name, within).unwrap_or_else(|fault| {
            faults.push(fault.replace("--within", "within"));
            Objective::StepTime
        });
        let limits = raw.constraints.read(faults);
        if let Some(schedule) = &raw.batch_schedule {
            schedule.check(faults);
        }
        if raw.name.is_empty() || raw.name.chars().any(|c| !c.is_ascii_alphanumeric() && !"-_.".contains(c)) {
            faults.push(format!("name is {:?}, expected letters, digits, - _ .", raw.name));
        }
        Self {
            title: raw.title.unwrap_or_else(|| raw.name.clone()),
            name: raw.name,
            text: text.to_owned(),
            base,
            axes,
            skip,
            objective,
            limits,
            chart: raw.chart,
            batch_schedule: raw.batch_schedule,
            measured: raw.measured,
            library: Library::default(),
        }
    }

    /// Number of points of the grid, those left out included.
    #[must_use]
    pub fn grid_size(&self) -> u64 {
        self.axes.iter().fold(1, |size: u64, axis| size.saturating_mul(axis.steps.len() as u64))
    }

    /// The values of point `index` by key: those of the axes over those of the base.
    #[must_use]
    pub fn values(&self, index: u64) -> BTreeMap<&str, &Value> {
        let mut values: BTreeMap<&str, &Value> =
            self.base.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let mut rest = index;
        for axis in self.axes.iter().rev() {
            let steps = axis.steps.len() as u64;
            let step = &axis.steps[(rest % steps) as usize];
            rest /= steps;
            values.extend(axis.keys.iter().map(String::as_str).zip(step));
        }
        values
    }

    /// Whether a point is left out.
    #[must_use]
    pub fn is_skipped(&self, index: u64) -> bool {
        let values = self.values(index);
        self.skip.iter().any(|filter| filter.matches(&values))
    }

    /// Indices of the points that are planned.
    pub fn points(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.grid_size()).filter(|index| self.skip.is_empty() || !self.is_skipped(*index))
    }

    /// The keys that vary, in the order of the file.
    #[must_use]
    pub fn axis_keys(&self) -> Vec<&str> {
        self.axes.iter().flat_map(|axis| axis.keys.iter().map(String::as_str)).collect()
    }

    /// Files that its points name, by paths that start from the folder it is run in.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let named = |key: &str| ["model", "cluster", "runtime"].contains(&key);
        let base = self.base.iter().filter(|(key, _)| named(key)).map(|(_, value)| value);
        let along =
            self.axes.iter().flat_map(|axis| axis.steps.iter().flat_map(|step| axis.keys.iter().zip(step)));
        let along = along.filter(|(key, _)| named(key)).map(|(_, value)| value);
        let names: BTreeSet<String> = base.chain(along).map(ToString::to_string).collect();
        names.into_iter().filter(|name| inputs::is_path(name) && !name.starts_with('/')).collect()
    }

    /// A point put together.
    ///
    /// # Errors
    /// The key whose value makes no sense.
    pub fn draft(&self, index: u64) -> Result<Draft, String> {
        let mut draft = Draft::default();
        for (key, value) in self.values(index) {
            key::apply(&mut draft, key, value).map_err(|fault| format!("{key} {fault}"))?;
        }
        Ok(draft)
    }
}

/// Nested tables as dotted keys.
fn flatten(prefix: &str, table: &toml::Table, base: &mut BTreeMap<String, Value>, faults: &mut Vec<String>) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match (kind_of(&key), value) {
            (_, toml::Value::Table(inner)) => flatten(&format!("{key}."), inner, base, faults),
            (None, _) => faults.push(format!("[base]: there is no key `{key}`: {}", nearest(&key))),
            (Some(kind), value) => match kind.read(value) {
                Ok(value) => {
                    base.insert(key, value);
                }
                Err(fault) => faults.push(format!("[base]: {key} {fault}")),
            },
        }
    }
}

impl BatchSchedule {
    fn check(&self, faults: &mut Vec<String>) {
        let rising = self.noise_scale.windows(2).all(|pair| pair[0][0] < pair[1][0]);
        let sound = self.noise_scale.iter().flatten().all(|number| *number >= 0.0 && number.is_finite());
        if self.noise_scale.is_empty() || !rising || !sound {
            faults.push(
                "batch_schedule: noise_scale must be pairs of tokens and noise scale, tokens rising"
                    .to_owned(),
            );
        }
    }
}
