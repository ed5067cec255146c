//! Numbers for people.

use cluster_profiles::{Bytes, Seconds};

/// `1234567` as `1,234,567`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration with three significant digits and a fitting unit.
#[must_use]
pub fn seconds(time: Seconds) -> String {
    let value = time.get();
    match value.abs() {
        v if v >= 1e5 => format!("{} s", grouped(v.round() as u64)),
        v if v >= 1.0 => format!("{} s", significant(value)),
        v if v >= 1e-3 => format!("{} ms", significant(value * 1e3)),
        _ => format!("{} us", significant(value * 1e6)),
    }
}

/// Three significant digits, without an exponent.
#[must_use]
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Three significant digits behind the sign.
#[must_use]
pub fn signed(value: f64) -> String {
    let sign = if value < 0.0 { '-' } else { '+' };
    format!("{sign}{}", significant(value.abs()))
}

/// GiB with one decimal.
#[must_use]
pub fn gib(bytes: Bytes) -> String {
    format!("{:.1}", bytes.as_gib())
}

/// `70,553,706,496` as `70.6 B`.
#[must_use]
pub fn parameters(count: u64) -> String {
    match count as f64 {
        n if n >= 1e12 => format!("{} T", significant(n / 1e12)),
        n if n >= 1e9 => format!("{} B", significant(n / 1e9)),
        n => format!("{} M", significant(n / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(seconds(Seconds(15.63)), "15.6 s");
        assert_eq!(seconds(Seconds(0.0321)), "32.1 ms");
        assert_eq!(significant(99.96), "100");
        assert_eq!(parameters(70_553_706_496), "70.6 B");
    }
}
