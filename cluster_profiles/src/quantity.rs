//! Quantities with a unit, as profiles write them: `"80 GiB"`, `"450 GB/s"`, `"5 us"`, `"989 TFLOP/s"`.
//!
//! Every figure of a profile names its unit. A bare number is refused, so that a GB limit is never read as bytes. The
//! `deserialize_with` functions are used on the fields of profile structs.

use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;

const BYTES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
const SECONDS: &[(&str, f64)] =
    &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3600.0)];
const BYTES_PER_SECOND: &[(&str, f64)] = &[
    ("B/s", 1.0),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("GiB/s", 1_073_741_824.0),
    ("Gb/s", 0.125e9),
    ("Gbit/s", 0.125e9),
    ("Tb/s", 0.125e12),
];
const FLOPS_PER_SECOND: &[(&str, f64)] = &[("GFLOP/s", 1e9), ("TFLOP/s", 1e12), ("PFLOP/s", 1e15)];

/// Parses `text` as a finite, non-negative number followed by one of `units`.
fn parse(text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let text = text.trim();
    let split = text.rfind(|c: char| c.is_ascii_digit() || c == '.').map_or(0, |last| last + 1);
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    let known = || {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    };
    let value: f64 = number
        .trim()
        .replace('_', "")
        .parse()
        .map_err(|_| format!("`{text}` is not a number with a unit (one of {})", known()))?;
    let scale = units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, scale)| scale)
        .ok_or_else(|| format!("`{text}` has no known unit: use one of {}", known()))?;
    let value = value * scale;
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("`{text}` is not a finite, non-negative quantity"))
    }
}

macro_rules! quantity {
    ($parse:ident, $field:ident, $optional:ident, $type:ident, $units:expr, $what:literal) => {
        #[doc = concat!("Parses ", $what, " with a unit.\n\n# Errors\nA message naming the text and the known units.")]
        pub fn $parse(text: &str) -> Result<$type, String> {
            parse(text, $units).map($type)
        }

        #[doc = concat!("Deserializes ", $what, " from a string with a unit.\n\n# Errors\nA bare number, or an unknown unit.")]
        pub fn $field<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
            let text = deserializer.deserialize_any(QuantityText($what))?;
            $parse(&text).map_err(D::Error::custom)
        }

        #[doc = concat!("Deserializes ", $what, " that may be absent.\n\n# Errors\nA bare number, or an unknown unit.")]
        pub fn $optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<$type>, D::Error> {
            $field(deserializer).map(Some)
        }
    };
}

quantity!(bytes, bytes_field, bytes_option, Bytes, BYTES, "an amount of memory");
quantity!(seconds, seconds_field, seconds_option, Seconds, SECONDS, "a duration");
quantity!(
    bytes_per_second,
    bytes_per_second_field,
    bytes_per_second_option,
    BytesPerSecond,
    BYTES_PER_SECOND,
    "a transfer rate"
);
quantity!(
    flops_per_second,
    flops_per_second_field,
    flops_per_second_option,
    FlopsPerSecond,
    FLOPS_PER_SECOND,
    "a rate of arithmetic"
);

struct QuantityText(&'static str);

impl Visitor<'_> for QuantityText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} as a string with its unit, such as \"80 GiB\"", self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!(bytes("80 GB"), Ok(Bytes(80e9)));
        assert_eq!(bytes("80 GiB"), Ok(Bytes(80.0 * Bytes::GIB)));
        assert_eq!(bytes_per_second("400 Gb/s"), Ok(BytesPerSecond(50e9)));
        assert_eq!(seconds("1e1us"), Ok(Seconds(1e1 * 1e-6)));
    }

    #[test]
    fn a_bare_number_a_wrong_unit_and_a_negative_one_are_refused() {
        for text in ["80", "80 GB/s", "-1 GB", "GB", "", "1e999 GB", "NaN GB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
