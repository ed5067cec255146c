//! Axes: lists, ranges and keys that vary together.

use super::key::{kind_of, nearest};
use super::value::{Kind, Value, shown};
use serde::Deserialize;
use std::collections::BTreeSet;

/// An axis as a study file writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAxis {
    key: Option<String>,
    values: Option<Vec<toml::Value>>,
    range: Option<RawRange>,
    zip: Option<toml::Table>,
}

/// A range: `count` values from `from` to `to`, evenly spaced, or by equal factors with `log`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    from: toml::Value,
    to: toml::Value,
    count: u32,
    #[serde(default)]
    log: bool,
}

/// An axis: for every step the values of its keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// One key, or several that vary together.
    pub keys: Vec<String>,
    /// Steps; each has one value for every key.
    pub steps: Vec<Vec<Value>>,
}

/// Most values of a range.
const MOST_VALUES: u32 = 100_000;

impl RawAxis {
    /// The axis, `number` counted from 1; what is wrong is added to `faults`.
    pub fn read(&self, number: usize, faults: &mut Vec<String>) -> Option<Axis> {
        let name = self.key.as_ref().map_or_else(|| format!("axes[{number}]"), |key| format!("axis `{key}`"));
        match (&self.key, &self.values, &self.range, &self.zip) {
            (Some(key), Some(values), None, None) => list(&name, &[(key, values)], faults),
            (Some(key), None, Some(range), None) => {
                let kind = known(&name, key, faults)?;
                match range.values(kind) {
                    Ok(values) => Some(Axis {
                        keys: vec![key.clone()],
                        steps: values.into_iter().map(|value| vec![value]).collect(),
                    }),
                    Err(fault) => {
                        faults.push(format!("{name}: {fault}"));
                        None
                    }
                }
            }
            (None, None, None, Some(zip)) => self::zip(&name, zip, faults),
            _ => {
                faults.push(format!("{name}: give key and values, key and range, or zip alone"));
                None
            }
        }
    }
}

fn zip(name: &str, zip: &toml::Table, faults: &mut Vec<String>) -> Option<Axis> {
    let mut columns: Vec<(&str, &Vec<toml::Value>)> = Vec::new();
    for (key, values) in zip {
        match values {
            toml::Value::Array(values) => columns.push((key, values)),
            other => faults.push(format!("{name}: zip.{key} is {}, expected a list", shown(other))),
        }
    }
    let lengths: BTreeSet<usize> = columns.iter().map(|(_, values)| values.len()).collect();
    if lengths.len() > 1 {
        let each: Vec<String> =
            columns.iter().map(|(key, values)| format!("{key} {}", values.len())).collect();
        faults.push(format!("{name}: zipped lists have different lengths: {}", each.join(", ")));
        return None;
    }
    list(name, &columns, faults)
}

fn known(name: &str, key: &str, faults: &mut Vec<String>) -> Option<Kind> {
    let kind = kind_of(key);
    if kind.is_none() {
        faults.push(format!("{name}: there is no key `{key}`: {}", nearest(key)));
    }
    kind
}

fn list<K: AsRef<str>>(
    name: &str,
    columns: &[(K, &Vec<toml::Value>)],
    faults: &mut Vec<String>,
) -> Option<Axis> {
    let before = faults.len();
    let length = columns.first().map_or(0, |(_, values)| values.len());
    if length == 0 {
        faults.push(format!("{name} has no values: the grid would be empty"));
    }
    let mut steps = vec![Vec::new(); length];
    for (key, values) in columns {
        let Some(kind) = known(name, key.as_ref(), faults) else { continue };
        for (step, value) in steps.iter_mut().zip(*values) {
            match kind.read(value) {
                Ok(value) => step.push(value),
                Err(fault) => faults.push(format!("{name}: {}: {fault}", key.as_ref())),
            }
        }
    }
    for (index, step) in steps.iter().enumerate() {
        if steps[..index].contains(step) && faults.len() == before {
            let values: Vec<String> = step.iter().map(ToString::to_string).collect();
            faults.push(format!("{name} has {} twice", values.join(", ")));
        }
    }
    let keys = columns.iter().map(|(key, _)| key.as_ref().to_owned()).collect();
    (faults.len() == before).then_some(Axis { keys, steps })
}

impl RawRange {
    fn values(&self, kind: Kind) -> Result<Vec<Value>, String> {
        if matches!(kind, Kind::Text | Kind::Flag) {
            return Err("a range needs a key with numbers".to_owned());
        }
        let end = |value: &toml::Value| {
            kind.read(value)?.number().ok_or_else(|| format!("{} is no number", shown(value)))
        };
        let (from, to) = (end(&self.from)?, end(&self.to)?);
        if self.count == 0 || self.count > MOST_VALUES {
            return Err(format!("count is {}, expected 1 to {MOST_VALUES}", self.count));
        }
        if self.log && (from <= 0.0 || to <= 0.0) {
            return Err("a log range needs ends above 0".to_owned());
        }
        let whole = matches!(kind, Kind::Count)
            || (kind == Kind::Free && self.from.is_integer() && self.to.is_integer());
        let place = |step: u32| {
            let share = if self.count == 1 { 0.0 } else { f64::from(step) / f64::from(self.count - 1) };
            match self.log {
                _ if step == 0 => from,
                _ if step + 1 == self.count => to,
                true => from * (to / from).powf(share),
                false => from + (to - from) * share,
            }
        };
        let mut values: Vec<Value> = (0..self.count)
            .map(place)
            .map(|number| if whole { Value::Integer(number.round() as i64) } else { Value::Number(number) })
            .collect();
        values.dedup();
        Ok(values)
    }
}
