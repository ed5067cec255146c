//! Release dates in the names of frameworks: `NeMo 24.07`, `torchtitan 2024-12`, `Megatron-LM 2021`.

/// Year, month and patch of the first release a framework's name states: a date before a version, a version before a
/// bare year. The month is 1 where only the year is given.
#[must_use]
pub fn release(framework: &str) -> Option<(u16, u8, u8)> {
    let words: Vec<&str> =
        framework.split(|c: char| c.is_whitespace() || "(),".contains(c)).filter(|w| !w.is_empty()).collect();
    let first = |read: fn(&str) -> Option<(u16, u8, u8)>| words.iter().find_map(|word| read(word));
    first(date).or_else(|| first(version)).or_else(|| first(year))
}

/// Year and month of a page's name: `llama3-8b_h200_202506_provider.md`.
#[must_use]
pub fn page_date(reference: &str) -> Option<(u16, u8)> {
    reference.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 6).find_map(|word| {
        let (year, rest) = word.split_at_checked(4)?;
        Some((plausible_year(year.parse().ok()?)?, month(rest.parse().ok()?)?))
    })
}

/// `2024-12`, `2024-04..08`.
fn date(word: &str) -> Option<(u16, u8, u8)> {
    let (year, rest) = word.split_once('-')?;
    let digits = rest.get(..2)?;
    Some((plausible_year(year.parse().ok()?)?, month(digits.parse().ok()?)?, 0))
}

/// `24.07`, `v24.11.1`, `25.02-04`, `25.x`.
fn version(word: &str) -> Option<(u16, u8, u8)> {
    let mut parts = word.trim_start_matches('v').split(['.', '-']);
    let year = parts.next().filter(|y| y.len() == 2)?.parse::<u16>().ok()?;
    let year = plausible_year(2000 + year)?;
    let second = parts.next()?;
    let month = if second == "x" { 1 } else { month(second.parse().ok()?)? };
    Some((year, month, parts.next().and_then(|patch| patch.parse().ok()).unwrap_or(0)))
}

/// `2021`.
fn year(word: &str) -> Option<(u16, u8, u8)> {
    Some((plausible_year(word.parse().ok()?)?, 1, 0))
}

fn plausible_year(year: u16) -> Option<u16> {
    (2017..2100).contains(&year).then_some(year)
}

fn month(month: u8) -> Option<u8> {
    (1..=12).contains(&month).then_some(month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_may_carry_a_date() {
        assert_eq!(page_date("pytorch/torchtitan:benchmarks/llama3-8b_h200_202506_x.md"), Some((2025, 6)));
        for plain in ["pytorch/ao@b79503772^:README.md", "run 204013", "20250601", ""] {
            assert_eq!(page_date(plain), None, "{plain}");
        }
    }

    #[test]
    fn releases_are_read_from_the_names_that_sources_use() {
        for (framework, expected) in [
            ("NeMo (DGX Cloud Benchmarking v24.11.1)", Some((2024, 11, 1))),
            ("Megatron-Bridge (Megatron-Core) 26.04.01", Some((2026, 4, 1))),
            ("torchtitan 2024-04..08", Some((2024, 4, 0))),
            ("Megatron-LM 23e00ed0 + TE 2.11, torch 2.10 (2026-04)", Some((2026, 4, 0))),
            ("Megatron-LM/NeMo 25.02-04 recipes", Some((2025, 2, 4))),
            ("NeMo 25.x", Some((2025, 1, 0))),
            ("Megatron-LM 2021", Some((2021, 1, 0))),
            ("Megatron-Core r0.8.0", None),
            ("Composer+FSDP1", None),
            ("", None),
        ] {
            assert_eq!(release(framework), expected, "{framework}");
        }
    }
}
