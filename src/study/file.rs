//! The study file: what every point has, what varies, what is left out and what is asked.

use super::axis::{Axis, RawAxis};
use super::draft::Draft;
use super::filter::Filter;
use super::key::{self, kind_of, nearest};
use super::library::Library;
use super::value::{Kind, Value};
use crate::error::AppError;
use crate::inputs;
use cluster_profiles::Seconds;
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConstraints {
    step_time: Option<toml::Value>,
    dollars: Option<f64>,
    dollars_per_hour: Option<f64>,
    power: Option<toml::Value>,
    deadline: Option<toml::Value>,
}

/// What a point has to keep to be of use; one that does not is recorded all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Limits {
    pub step_time_seconds: Option<f64>,
    pub dollars: Option<f64>,
    pub dollars_per_hour: Option<f64>,
    pub power_watts: Option<f64>,
    pub deadline_seconds: Option<f64>,
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

    /// What only shows when values are used: unknown models, clusters, launchers; sizes that are missing; an empty grid.
    fn deep_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let size = self.grid_size();
        if size > MOST_POINTS {
            return vec![format!("the grid has {size} points, at most {MOST_POINTS} are planned")];
        }
        if self.points().next().is_none() {
            return vec![
                "every point of the grid is left out by `skip`: nothing is to be planned".to_owned(),
            ];
        }
        for key in ["model", "cluster"] {
            if !self.has(key) {
                faults.push(format!("{key} is not set: set it in [base] or along an axis"));
            }
        }
        for (what, keys) in
            [("seq_len", &["seq_len"][..]), ("global_batch", &["global_batch", "batch_tokens"])]
        {
            if !keys.iter().any(|key| self.has(key)) {
                faults.push(format!("{what} is not set: set it in [base] or along an axis"));
            }
        }
        if faults.is_empty() {
            faults.extend(self.value_faults());
        }
        faults
    }

    fn has(&self, key: &str) -> bool {
        self.base.contains_key(key) || self.axis_keys().contains(&key)
    }

    /// Tries every value of every axis once, on the first point.
    fn value_faults(&self) -> Vec<String> {
        let mut faults = BTreeSet::new();
        let mut stride = self.grid_size();
        faults.extend(self.names_faults(0));
        for axis in &self.axes {
            stride /= axis.steps.len() as u64;
            for step in 0..axis.steps.len() as u64 {
                faults.extend(self.names_faults(step * stride));
            }
        }
        faults.into_iter().take(20).collect()
    }

    /// What is wrong with a point, sizes that do not fill nodes apart: those are rows of the result.
    fn names_faults(&self, index: u64) -> Option<String> {
        let draft = match self.draft(index) {
            Ok(draft) => draft,
            Err(fault) => return Some(fault),
        };
        let whole = Draft { gpus: None, dollars_per_hour: None, ..draft };
        whole.ready(&self.library, self.objective).err()
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

/// Keys set twice, keys that exclude each other, conditions on keys that nothing sets.
fn contradictions(base: &BTreeMap<String, Value>, axes: &[Axis], skip: &[Filter], faults: &mut Vec<String>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for key in axes.iter().flat_map(|axis| &axis.keys) {
        if !seen.insert(key) {
            faults.push(format!("two axes set `{key}`"));
        }
        if base.contains_key(key) {
            faults.push(format!("`{key}` is set in [base] and along an axis: remove one"));
        }
    }
    let all: BTreeSet<&str> = seen.into_iter().chain(base.keys().map(String::as_str)).collect();
    for [one, other] in [
        ["gpus", "dollars_per_hour"],
        ["global_batch", "batch_tokens"],
        ["runtime", "launcher"],
        ["cluster.nics", "cluster.inter.bandwidth"],
    ] {
        if all.contains(one) && all.contains(other) {
            faults.push(format!("`{one}` and `{other}` exclude each other"));
        }
    }
    for (index, filter) in skip.iter().enumerate() {
        for key in filter.keys().filter(|key| !all.contains(key)) {
            faults.push(format!("skip[{}] looks at `{key}`, which nothing sets", index + 1));
        }
    }
}

impl RawConstraints {
    fn read(&self, faults: &mut Vec<String>) -> Limits {
        let mut quantity = |name: &str, value: &Option<toml::Value>, kind: Kind| {
            let read = kind.read(value.as_ref()?);
            read.map_err(|fault| faults.push(format!("constraints: {name} {fault}"))).ok()?.number()
        };
        let limits = Limits {
            step_time_seconds: quantity("step_time", &self.step_time, Kind::Time),
            power_watts: quantity("power", &self.power, Kind::Power),
            deadline_seconds: quantity("deadline", &self.deadline, Kind::Time),
            dollars: self.dollars,
            dollars_per_hour: self.dollars_per_hour,
        };
        for (name, value) in [("dollars", self.dollars), ("dollars_per_hour", self.dollars_per_hour)] {
            if value.is_some_and(|value| !(value > 0.0 && value.is_finite())) {
                faults.push(format!(
                    "constraints: {name} is {}, expected a number above 0",
                    value.unwrap_or(0.0)
                ));
            }
        }
        limits
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
