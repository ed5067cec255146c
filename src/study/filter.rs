//! Which points of the grid are left out: `[[skip]]` tables, each a set of conditions that all have to hold.

use super::key::{kind_of, nearest};
use super::value::{Kind, Value, shown};
use std::collections::BTreeMap;

/// A set of conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter(Vec<(String, Condition)>);

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    OneOf(Vec<Value>),
    Compared(Comparison, f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
    Not,
}

const SIGNS: [(&str, Comparison); 5] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("!=", Comparison::Not),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

impl Filter {
    /// Reads a table such as `{ cluster = "dgx-h100", seq_len = ">= 131072" }`.
    pub fn read(table: &toml::Table, number: usize, faults: &mut Vec<String>) -> Option<Self> {
        let before = faults.len();
        let mut conditions = Vec::new();
        if table.is_empty() {
            faults.push(format!("skip[{number}] has no condition and would leave out every point"));
        }
        for (key, value) in table {
            let Some(kind) = kind_of(key) else {
                faults.push(format!("skip[{number}]: there is no key `{key}`: {}", nearest(key)));
                continue;
            };
            match condition(kind, value) {
                Ok(condition) => conditions.push((key.clone(), condition)),
                Err(fault) => faults.push(format!("skip[{number}]: {key} {fault}")),
            }
        }
        (faults.len() == before).then_some(Self(conditions))
    }

    /// The keys it looks at.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// Whether a point is left out.
    #[must_use]
    pub fn matches(&self, point: &BTreeMap<&str, &Value>) -> bool {
        self.0
            .iter()
            .all(|(key, condition)| point.get(key.as_str()).is_some_and(|value| condition.holds(value)))
    }
}

fn condition(kind: Kind, value: &toml::Value) -> Result<Condition, String> {
    if let toml::Value::Array(values) = value {
        return values.iter().map(|value| kind.read(value)).collect::<Result<_, _>>().map(Condition::OneOf);
    }
    if let toml::Value::String(text) = value
        && let Some((sign, comparison)) = SIGNS.iter().find(|(sign, _)| text.trim_start().starts_with(sign))
    {
        let rest = text.trim_start().trim_start_matches(sign).trim();
        let number = rest.replace('_', "").parse::<f64>().ok().filter(|number| number.is_finite());
        let quantity = || kind.read(&toml::Value::String(rest.to_owned())).ok()?.number();
        let number = number.or_else(quantity);
        return number
            .map(|number| Condition::Compared(*comparison, number))
            .ok_or_else(|| format!("is {}, expected a number after {sign}", shown(value)));
    }
    kind.read(value).map(|value| Condition::OneOf(vec![value]))
}

impl Condition {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::OneOf(values) => values.contains(value),
            Self::Compared(comparison, than) => value.number().is_some_and(|number| match comparison {
                Comparison::Below => number < *than,
                Comparison::AtMost => number <= *than,
                Comparison::Above => number > *than,
                Comparison::AtLeast => number >= *than,
                Comparison::Not => number != *than,
            }),
        }
    }
}
