//! What people hand in: a shell script or line, the assignments of a Python file, or a JSON, YAML or TOML document. Read strictly: too large, too deep and
//! doubled keys are refused; nothing is run.

use super::{python, words};
use crate::error::AppError;
use cost_models::model::Strict;
use serde_json::Value;
use std::collections::BTreeMap;

/// Largest configuration that is read, in bytes. Real ones have some kilobytes.
pub const MOST_BYTES: usize = 4 << 20;

/// Deepest nesting of a configuration; parsers take long over more, or stop.
const MOST_NESTED: usize = 100;

/// Most keys of a configuration.
const MOST_KEYS: usize = 100_000;

/// A configuration, by its form.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// The words of a command line or script, and the variables it sets.
    Words {
        /// In order.
        words: Vec<String>,
        /// Assignments before or between them.
        variables: BTreeMap<String, String>,
    },
    /// A tree of keys.
    Tree(Value),
}

/// Reads a configuration; its form is seen from the file's ending or its first character.
///
/// # Errors
/// [`AppError::Content`] for text that is too large, or wrong in its form (with line and column).
pub fn parse(origin: &str, text: &str) -> Result<Document, AppError> {
    if text.len() > MOST_BYTES {
        let message =
            format!("has {} MiB, a launcher's configuration at most {}", text.len() >> 20, MOST_BYTES >> 20);
        return Err(AppError::content(origin, message));
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| origin.ends_with(ending));
    let start = text.trim_start();
    if start.is_empty() {
        return Err(AppError::content(origin, "is empty"));
    }
    if python::is_python(origin, text) {
        return Ok(Document::Tree(Value::Object(python::assignments(text))));
    }
    let json = ends(&[".json"]) || start.starts_with('{');
    let toml = !json && (ends(&[".toml"]) || is_toml(text));
    let yaml = ends(&[".yaml", ".yml"]) || !(has_flags(text) || has_assignments(text));
    if !json && !toml && !yaml {
        return Ok(script(text));
    }
    if nesting(text) > MOST_NESTED {
        return Err(AppError::content(origin, format!("is nested deeper than {MOST_NESTED} levels")));
    }
    let tree = if json {
        from_json(text)
    } else if toml {
        toml::from_str::<Strict>(text).map_err(|error| error.to_string())
    } else {
        serde_norway::from_str::<Strict>(text).map_err(|error| error.to_string())
    };
    let tree = tree.map_err(|message| AppError::content(origin, message.trim_end().to_owned()))?;
    Ok(Document::Tree(tree.0))
}

/// How deep brackets and list items stand in each other, at most.
fn nesting(text: &str) -> usize {
    let (mut depth, mut most) = (0usize, 0usize);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    let items =
        |line: &str| line.split_whitespace().take_while(|word| matches!(*word, "-" | "?" | ":")).count();
    most.max(text.lines().map(items).max().unwrap_or(0))
}

fn from_json(text: &str) -> Result<Strict, String> {
    serde_json::from_str::<Strict>(text).map_err(|error| error.to_string())
}

fn script(text: &str) -> Document {
    let (words, variables) = words::split(text);
    Document::Words { words, variables }
}

/// Lines that say something.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Whether a text starts with the header of a TOML table.
fn is_toml(text: &str) -> bool {
    let header = |line: &str| line.starts_with('[') && line.ends_with(']') && !line.contains(',');
    lines(text).next().is_some_and(header) && lines(text).any(|line| line.contains('='))
}

/// Whether a text starts with an assignment, as overrides and Python do.
fn has_assignments(text: &str) -> bool {
    lines(text).next().is_some_and(|line| line.contains('=') && !line.contains(": "))
}

/// Whether a text has a flag at the start of a word: then it is a command line.
fn has_flags(text: &str) -> bool {
    text.split_whitespace().any(|word| {
        let name = word.trim_start_matches(['(', '"', '\'']);
        name.starts_with("--") && name[2..].starts_with(|c: char| c.is_ascii_alphabetic())
    }) && !text.lines().any(|line| line.trim_start().starts_with("--") && line.contains(": "))
}

/// The values of a tree under dotted keys: a list of scalars is its words, anything else in a list its JSON.
#[must_use]
pub fn flatten(tree: &Value) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    walk(tree, String::new(), &mut flat);
    flat
}

fn walk(value: &Value, path: String, flat: &mut BTreeMap<String, String>) {
    if flat.len() >= MOST_KEYS {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(value, inner, flat);
            }
        }
        other => {
            flat.insert(path, scalar(other));
        }
    }
}

/// A value as a flag's text.
#[must_use]
pub fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "null".to_owned(),
        Value::Array(items) if !items.iter().any(|item| item.is_array() || item.is_object()) => {
            items.iter().map(scalar).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(origin: &str, text: &str) -> Result<Value, String> {
        match parse(origin, text).map_err(|error| error.to_string())? {
            Document::Tree(tree) => Ok(tree),
            Document::Words { words, .. } => Err(words.join(" ")),
        }
    }

    #[test]
    fn the_three_tree_formats_say_the_same() {
        let json = tree("a.json", r#"{"a": {"b": 1, "c": [1, 2], "d": true}}"#);
        assert_eq!(json, tree("a.yaml", "a:\n  b: 1\n  c: [1, 2]\n  d: true\n"));
        assert_eq!(json, tree("a.toml", "[a]\nb = 1\nc = [1, 2]\nd = true\n"));
        assert_eq!(json, tree("no ending", "# comment\n[a]\nb = 1\nc = [1, 2]\nd = true\n"));
        let flat = flatten(&json.expect("a tree"));
        assert_eq!(flat.get("a.c").map(String::as_str), Some("1 2"));
        assert_eq!(flat.get("a.d").map(String::as_str), Some("true"));
    }

    #[test]
    fn doubled_keys_depth_and_size_are_refused() {
        for (origin, text) in
            [("a.json", r#"{"a": 1, "a": 2}"#), ("a.yaml", "a: 1\na: 2\n"), ("a.toml", "a = 1\na = 2\n")]
        {
            assert!(parse(origin, text).is_err(), "{origin}");
        }
        assert!(parse("a.json", &("[".repeat(100_000) + &"]".repeat(100_000))).is_err());
        assert!(parse("a.yaml", &"[".repeat(100_000)).is_err());
        assert!(parse("a.toml", &("a = ".to_owned() + &"[".repeat(100_000))).is_err());
        assert!(parse("a.json", &" ".repeat(MOST_BYTES + 1)).is_err());
        assert!(parse("a.json", "").is_err());
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, before) in
            ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
        {
            let list = vec![format!("*{before}"); 9].join(", ");
            text += &format!("{name}: &{name} [{list}]\n");
        }
        assert!(parse("bomb.yaml", &text).is_err());
    }
}
