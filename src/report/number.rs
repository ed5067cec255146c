//! Numbers for people.

use cluster_profiles::{Bytes, Seconds};

/// Seconds of a year.
const YEAR: f64 = 365.25 * 86_400.0;

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

/// Three significant digits, of an amount below one as well; without an exponent down to a millionth of a millionth.
#[must_use]
pub fn amount(value: f64) -> String {
    match value.abs() {
        small if small >= 0.9995 || small == 0.0 => significant(value),
        small if small < 1e-12 => format!("{value:.2e}"),
        small => {
            let decimals = (2 - small.log10().floor() as i32).max(0) as usize;
            trimmed(&format!("{value:.decimals$}")).to_owned()
        }
    }
}

/// Without zeros at the end of its decimals.
fn trimmed(text: &str) -> &str {
    text.trim_end_matches('0').trim_end_matches('.')
}

/// Dollars with a fitting unit, to the cent or better.
#[must_use]
pub fn dollars(amount: f64) -> String {
    match amount {
        amount if amount >= 1e10 => format!("${} M", grouped((amount / 1e6).round() as u64)),
        amount if amount >= 999_999.5 => format!("${} M", significant(amount / 1e6)),
        amount if amount >= 999.5 => format!("${}", grouped(amount.round() as u64)),
        amount => format!("${}", self::amount(amount)),
    }
}

/// A duration for people who wait for days.
#[must_use]
pub fn long_time(time: f64) -> String {
    match time {
        time if time >= 1e7 * 86_400.0 => format!("{} years", grouped((time / YEAR).round() as u64)),
        time if time >= 1000.0 * 86_400.0 => format!("{} years", significant(time / YEAR)),
        time if time >= 2.0 * 86_400.0 => format!("{} days", significant(time / 86_400.0)),
        time if time >= 2.0 * 3600.0 => format!("{} h", significant(time / 3600.0)),
        time => seconds(Seconds(time)),
    }
}

/// A number somebody wrote: whole ones in full, others with four significant digits.
#[must_use]
pub fn written(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let digits = grouped(value.abs() as u64);
        return if value < 0.0 { format!("-{digits}") } else { digits };
    }
    if value.abs() < 1e-12 || value.abs() >= 1e15 {
        return format!("{value:.3e}");
    }
    let decimals = (3 - value.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { trimmed(&text).to_owned() }
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
        assert_eq!(dollars(77_923.0), "$77,923");
        assert_eq!(dollars(999_999.9), "$1.00 M");
        assert_eq!(parameters(70_553_706_496), "70.6 B");
        assert_eq!(written(50_000.0), "50,000");
        assert_eq!(written(0.000_4), "0.0004");
        assert_eq!(written(-2.5), "-2.5");
        assert_eq!(written(12_345.678), "12346");
        assert_eq!(written(49.999_999_999_99), "50");
    }

    #[test]
    fn no_amount_that_is_something_shows_as_nothing_and_digits_are_right() {
        assert_eq!(amount(0.0), "0.00");
        assert_eq!(amount(0.001_234), "0.00123");
        assert_eq!(amount(0.5), "0.5");
        assert_eq!(dollars(0.000_4), "$0.0004");
        for exponent in -15..=6 {
            for digits in [1.0, 1.004_9, 2.345, 9.994, 9.996, 9.999_9] {
                let value: f64 = digits * 10f64.powi(exponent);
                for signed in [value, -value] {
                    let shown: f64 = amount(signed).parse().expect("a number");
                    assert!((shown / signed - 1.0).abs() < 5.1e-3, "{signed}: {shown}");
                }
            }
        }
    }
}
