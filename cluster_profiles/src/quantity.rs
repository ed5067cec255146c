//! Quantities with a unit, as profiles write them: `"80 GiB"`, `"450 GB/s"`, `"5 us"`, `"989 TFLOP/s"`.
//!
//! Every figure of a profile names its unit. A bare number is refused, so that a GB limit is never read as bytes. The
//! `deserialize_with` functions are used on the fields of profile structs.

use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use serde::Serializer;
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;

// Units in the order in which equally short texts are preferred when a quantity is written.
const BYTES: &[(&str, f64)] = &[
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("KB", 1e3),
    ("B", 1.0),
    ("TiB", 1_099_511_627_776.0),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1024.0),
];
const SECONDS: &[(&str, f64)] =
    &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3600.0)];
const BYTES_PER_SECOND: &[(&str, f64)] = &[
    ("TB/s", 1e12),
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("B/s", 1.0),
    ("GiB/s", 1_073_741_824.0),
    ("Tb/s", 0.125e12),
    ("Gb/s", 0.125e9),
    ("Gbit/s", 0.125e9),
];
const FLOPS_PER_SECOND: &[(&str, f64)] =
    &[("TFLOP/s", 1e12), ("PFLOP/s", 1e15), ("GFLOP/s", 1e9), ("FLOP/s", 1.0)];

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

/// The text that [`parse`] reads back as exactly `value` and that reads best: a number from 1 to 9999, short, no bits.
/// The unit of scale 1 always reads back.
fn write(value: f64, units: &[(&str, f64)]) -> String {
    let candidates = units.iter().filter(|(unit, _)| !unit.contains('b')).flat_map(|(unit, scale)| {
        let exact = value / scale;
        let rounded: f64 = format!("{exact:.11e}").parse().unwrap_or(exact);
        [exact, rounded].map(|number| (number, format!("{number} {unit}")))
    });
    candidates
        .filter(|(_, text)| parse(text, units) == Ok(value))
        .min_by_key(|(number, text)| text.len() + if (1.0..1e4).contains(number) { 0 } else { 4 })
        .map_or_else(|| format!("{value}"), |(_, text)| text)
}

macro_rules! quantity {
    ($parse:ident, $write:ident, $field:ident, $text:ident, $type:ident, $units:expr, $what:literal) => {
        #[doc = concat!("Parses ", $what, " with a unit.\n\n# Errors\nA message naming the text and the known units.")]
        pub fn $parse(text: &str) -> Result<$type, String> {
            parse(text, $units).map($type)
        }

        #[doc = concat!("Writes ", $what, " with the unit that makes it shortest; reading it gives the same bits.")]
        #[must_use]
        pub fn $write(value: $type) -> String {
            write(value.get(), $units)
        }

        #[doc = concat!("Deserializes ", $what, " from a string with a unit.\n\n# Errors\nA bare number, or an unknown unit.")]
        pub fn $field<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
            let text = deserializer.deserialize_any(QuantityText($what))?;
            $parse(&text).map_err(D::Error::custom)
        }

        #[doc = concat!("Serializes ", $what, " as a string with a unit.\n\n# Errors\nThose of the serializer.")]
        pub fn $text<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(&$write(*value))
        }
    };
}

quantity!(bytes, write_bytes, bytes_field, bytes_text, Bytes, BYTES, "an amount of memory");
quantity!(seconds, write_seconds, seconds_field, seconds_text, Seconds, SECONDS, "a duration");
quantity!(
    bytes_per_second,
    write_bytes_per_second,
    bytes_per_second_field,
    bytes_per_second_text,
    BytesPerSecond,
    BYTES_PER_SECOND,
    "a transfer rate"
);
quantity!(
    flops_per_second,
    write_flops_per_second,
    flops_per_second_field,
    flops_per_second_text,
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
    use proptest::prelude::*;

    #[test]
    fn quantities_are_written_with_the_unit_that_reads_best() {
        assert_eq!(write_bytes(Bytes::gib(79.1)), "79.1 GiB");
        assert_eq!(write_bytes(Bytes(80e9)), "80 GB");
        assert_eq!(write_seconds(Seconds::micros(5.4)), "5.4 us");
        assert_eq!(write_seconds(Seconds::micros(0.7)), "0.7 us");
        assert_eq!(write_bytes_per_second(BytesPerSecond(900e9)), "900 GB/s");
        assert_eq!(write_flops_per_second(FlopsPerSecond(989e12)), "989 TFLOP/s");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_to_the_bit(value in 0.0..1e300_f64, small in 0.0..1.0_f64) {
            prop_assert_eq!(bytes(&write_bytes(Bytes(value))), Ok(Bytes(value)));
            prop_assert_eq!(seconds(&write_seconds(Seconds(small))), Ok(Seconds(small)));
            let rate = BytesPerSecond(value);
            prop_assert_eq!(bytes_per_second(&write_bytes_per_second(rate)), Ok(rate));
            let rate = FlopsPerSecond(value);
            prop_assert_eq!(flops_per_second(&write_flops_per_second(rate)), Ok(rate));
        }
    }

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
