//! What an axis or the base of a study sets: a value, and how quantities are read and written.

use crate::inputs;
use cluster_profiles::quantity;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value of a point. Quantities are SI numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A count.
    Integer(i64),
    /// A number, or a quantity in its SI unit.
    Number(f64),
    /// A name.
    Text(String),
}

/// What kind of value a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A name.
    Text,
    /// Yes or no.
    Flag,
    /// A whole number from 1.
    Count,
    /// A number from 0.
    Number,
    /// A share of something, such as `"1%"` or `0.01`.
    Share,
    /// An amount of memory, such as `"80 GiB"`.
    Bytes,
    /// A transfer rate, such as `"400 Gb/s"`.
    Rate,
    /// A duration, such as `"5 us"` or `"30 days"`.
    Time,
    /// Power, such as `"2 MW"`.
    Power,
    /// Whatever the model file takes.
    Free,
}

const LONG_TIMES: [(&str, f64); 8] = [
    ("days", 86_400.0),
    ("day", 86_400.0),
    ("weeks", 604_800.0),
    ("week", 604_800.0),
    ("years", 31_557_600.0),
    ("year", 31_557_600.0),
    ("hours", 3600.0),
    ("hour", 3600.0),
];
const POWERS: [(&str, f64); 4] = [("MW", 1e6), ("kW", 1e3), ("GW", 1e9), ("W", 1.0)];

impl Kind {
    /// What stands behind the key in a column's name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Bytes => "_bytes",
            Self::Rate => "_bytes_per_second",
            Self::Time => "_seconds",
            Self::Power => "_watts",
            _ => "",
        }
    }

    /// Reads a value as it stands in a study file.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn read(self, value: &toml::Value) -> Result<Value, String> {
        match (self, value) {
            (Self::Text | Self::Free, toml::Value::String(text)) => Ok(Value::Text(text.clone())),
            (Self::Flag | Self::Free, toml::Value::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Self::Count, toml::Value::Integer(count)) if (1..=1 << 40).contains(count) => {
                Ok(Value::Integer(*count))
            }
            (Self::Free, toml::Value::Integer(count)) => Ok(Value::Integer(*count)),
            (Self::Number, toml::Value::Integer(count)) if *count >= 0 => Ok(Value::Number(*count as f64)),
            (Self::Number, toml::Value::Float(number)) if *number >= 0.0 && number.is_finite() => {
                Ok(Value::Number(*number))
            }
            (Self::Share, toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::String(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let share = inputs::share(&text, inputs::MOST_GAP);
                share.map(Value::Number).map_err(|expected| format!("is {}, {expected}", shown(value)))
            }
            (Self::Free, toml::Value::Float(number)) if number.is_finite() => Ok(Value::Number(*number)),
            (Self::Bytes | Self::Rate | Self::Time | Self::Power, toml::Value::String(text)) => {
                self.quantity(text).map(Value::Number)
            }
            (kind, other) => Err(format!("is {}, expected {}", shown(other), kind.expected())),
        }
    }

    fn quantity(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Bytes => quantity::bytes(text).map(|bytes| bytes.get()),
            Self::Rate => quantity::bytes_per_second(text).map(|rate| rate.get()),
            Self::Time => {
                scaled(text, &LONG_TIMES).map_or_else(|| quantity::seconds(text).map(|time| time.get()), Ok)
            }
            _ => scaled(text, &POWERS).ok_or_else(|| format!("`{text}` is no power such as \"2 MW\"")),
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            Self::Text => "a name in quotes",
            Self::Flag => "true or false",
            Self::Count => "a whole number from 1",
            Self::Number => "a finite number from 0",
            Self::Share => "a share such as \"1%\" or 0.01",
            Self::Bytes => "an amount with a unit such as \"80 GiB\"",
            Self::Rate => "a rate with a unit such as \"400 Gb/s\"",
            Self::Time => "a time with a unit such as \"5 us\" or \"30 days\"",
            Self::Power => "a power with a unit such as \"2 MW\"",
            Self::Free => "a name, number or flag",
        }
    }
}

/// A number in front of one of these units.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (unit, scale) = units.iter().find(|(unit, _)| text.trim_end().ends_with(unit))?;
    let number = text.trim().strip_suffix(unit)?.trim().replace('_', "");
    let value = number.parse::<f64>().ok()? * scale;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// A value of a file in a message: short.
pub fn shown(value: &toml::Value) -> String {
    let text: String = value.to_string().chars().take(60).collect();
    if text.is_empty() { "empty".to_owned() } else { text }
}

impl Value {
    /// The number it is, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(out, "{flag}"),
            Self::Integer(count) => write!(out, "{count}"),
            Self::Number(number) => write!(out, "{number}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_si_units_and_bare_numbers_refused() {
        let read = |kind: Kind, text: &str| kind.read(&toml::Value::String(text.to_owned()));
        assert_eq!(read(Kind::Time, "2 days"), Ok(Value::Number(172_800.0)));
        assert_eq!(read(Kind::Time, "500 ms"), Ok(Value::Number(0.5)));
        assert_eq!(read(Kind::Power, "2 MW"), Ok(Value::Number(2e6)));
        assert_eq!(read(Kind::Rate, "400 Gb/s"), Ok(Value::Number(50e9)));
        assert!(read(Kind::Bytes, "80").is_err());
        assert!(Kind::Bytes.read(&toml::Value::Integer(80)).is_err());
        assert!(Kind::Count.read(&toml::Value::Integer(0)).is_err());
        assert!(Kind::Number.read(&toml::Value::Float(f64::NAN)).is_err());
        for one_percent in ["1%", "1 %", "0.01", " 1e-2 "] {
            assert_eq!(read(Kind::Share, one_percent), Ok(Value::Number(0.01)), "{one_percent}");
        }
        assert_eq!(Kind::Share.read(&toml::Value::Float(0.25)), Ok(Value::Number(0.25)));
        for absurd in ["", "%", "1", "51%", "-1%", "nan%", "inf", "1%%", "1 percent"] {
            let fault = read(Kind::Share, absurd).expect_err(absurd);
            assert!(fault.contains("expected 0 to 50%, such as 1% or 0.01"), "{fault}");
        }
        assert!(Kind::Share.read(&toml::Value::Integer(3)).is_err());
    }
}
