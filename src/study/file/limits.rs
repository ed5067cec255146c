//! `[constraints]`: what a point has to keep.

use crate::study::value::Kind;
use serde::Deserialize;

/// The constraints as they stand in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConstraints {
    step_time: Option<toml::Value>,
    dollars: Option<f64>,
    dollars_per_hour: Option<f64>,
    power: Option<toml::Value>,
    deadline: Option<toml::Value>,
}

/// What a point has to keep to be of use; one that does not is recorded all the same. Nothing is asked where there is no number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Seconds of a step, at most.
    pub step_time_seconds: Option<f64>,
    /// Dollars of the whole training, at most.
    pub dollars: Option<f64>,
    /// Dollars an hour of all GPUs, at most.
    pub dollars_per_hour: Option<f64>,
    /// Watts of all GPUs, at most.
    pub power_watts: Option<f64>,
    /// Seconds of the whole training, failures included, at most.
    pub deadline_seconds: Option<f64>,
}

impl RawConstraints {
    /// Quantities in their units; adds what is wrong with them.
    pub(super) fn read(&self, faults: &mut Vec<String>) -> Limits {
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
