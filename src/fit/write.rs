//! Writes fitted numbers into the profiles: values are replaced where they stand, everything else keeps its bytes.

use super::kernels::FittedCurve;
use super::parameters::{Parameter, Slot, Unit};
use super::step::StepFit;
use std::collections::BTreeMap;

/// Files with fitted numbers, by path from the repository's root, with new text.
pub type Files = BTreeMap<String, String>;

/// The profile a number stands in, from the repository's root.
#[must_use]
pub fn path(parameter: &Parameter) -> String {
    match parameter.slot {
        Slot::Shared(_) => "cost_models/shared.toml".to_owned(),
        Slot::Engine(_) => format!("cost_models/runtimes/{}.toml", parameter.owner),
        Slot::Gpu(_) => format!("cluster_profiles/gpus/{}.toml", parameter.owner),
    }
}

/// The value as a profile writes it: four significant digits and the unit.
#[must_use]
pub fn literal(parameter: &Parameter) -> String {
    let (scale, unit) = parameter.unit.scale();
    let number = super::parameters::rounded(parameter.value / scale);
    if parameter.unit == Unit::None { number.to_string() } else { format!("\"{number} {unit}\"") }
}

/// The texts of all profiles with the fitted numbers in them. `read` gives the present text of a path.
///
/// # Errors
/// What `read` says, or a profile that lacks a table.
pub fn written(
    curves: &[FittedCurve],
    step: &StepFit,
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Files, String> {
    let mut files = Files::new();
    let mut change = |path: &str, section: &str, key: &str, value: &str| -> Result<(), String> {
        if !files.contains_key(path) {
            files.insert(path.to_owned(), read(path)?);
        }
        let text = files.get_mut(path).ok_or_else(|| format!("{path} was not read"))?;
        *text =
            replaced(text, section, key, value).ok_or_else(|| format!("{path} has no table [{section}]"))?;
        Ok(())
    };
    for curve in curves {
        for parameter in &curve.parameters {
            change(&path(parameter), parameter.section, parameter.key, &literal(parameter))?;
        }
        if curve.section != "kernels" {
            let gpu = curve.parameters.first().map(path).unwrap_or_default();
            let error = format!("{:.3}", curve.median_error.0);
            change(&gpu, curve.section, "provenance.median_error", &error)?;
        }
    }
    for (parameter, _, error) in step.with_runs() {
        change(&path(parameter), parameter.section, parameter.key, &literal(parameter))?;
        let section = if parameter.section.is_empty() { "provenance" } else { parameter.section };
        let key = if parameter.section.is_empty() { "median_error" } else { "provenance.median_error" };
        change(&path(parameter), section, key, &format!("{error:.3}"))?;
    }
    Ok(files)
}

/// `text` with `key = value` in table `section` (the top where that is empty); a key that is missing is added. A key
/// `table.key` reaches into an inline table, and is left out where that has no such key.
fn replaced(text: &str, section: &str, key: &str, value: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let start = if section.is_empty() {
        0
    } else {
        lines.iter().position(|line| line.trim() == format!("[{section}]"))? + 1
    };
    let length = lines[start..]
        .iter()
        .position(|line| line.trim_start().starts_with('['))
        .unwrap_or(lines.len() - start);
    let (outer, inner) = key.split_once('.').map_or((key, None), |(outer, inner)| (outer, Some(inner)));
    let named = |line: &String| line.split_once('=').is_some_and(|(name, _)| name.trim() == outer);
    let found = lines[start..start + length].iter().position(named).map(|offset| start + offset);
    match (found, inner) {
        (Some(at), None) => lines[at] = format!("{key} = {value}"),
        (Some(at), Some(inner)) => lines[at] = with_inner(&lines[at], inner, value),
        (None, None) => lines.insert(start, format!("{key} = {value}")),
        (None, Some(_)) => {}
    }
    Some(lines.join("\n") + "\n")
}

/// An inline table's line with the number after `key = ` replaced.
fn with_inner(line: &str, key: &str, value: &str) -> String {
    let marker = format!("{key} = ");
    let Some(at) = line.find(&marker).map(|at| at + marker.len()) else { return line.to_owned() };
    let rest = &line[at..];
    let end = rest.find([',', ' ', '}']).unwrap_or(rest.len());
    format!("{}{value}{}", &line[..at], &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::replaced;

    const TEXT: &str = "a = 1\n\n[time]\nb = \"2 ms\"\nprovenance = { basis = \"fitted\", median_error = 0.1 }\n\n[x]\nb = 3\n";

    #[test]
    fn only_the_named_value_changes() {
        assert_eq!(replaced(TEXT, "time", "b", "\"5 ms\""), Some(TEXT.replace("\"2 ms\"", "\"5 ms\"")));
        assert_eq!(replaced(TEXT, "", "a", "7"), Some(TEXT.replace("a = 1", "a = 7")));
        assert_eq!(replaced(TEXT, "x", "b", "4"), Some(TEXT.replace("b = 3", "b = 4")));
        let error = replaced(TEXT, "time", "provenance.median_error", "0.025");
        assert_eq!(error, Some(TEXT.replace("0.1 }", "0.025 }")));
    }

    #[test]
    fn a_missing_key_is_added_and_a_missing_table_refused() {
        assert_eq!(replaced(TEXT, "x", "c", "1"), Some(TEXT.replace("[x]\n", "[x]\nc = 1\n")));
        assert_eq!(replaced(TEXT, "y", "c", "1"), None);
    }
}
