//! Runs given by the flags of their launcher: one JSON object per line, as `megatron_ci_runs.jsonl` has them.
//!
//! Keys: `id`, `gpu`, `env` (container), `n_gpus`, `args` (flag to value), `env_vars`, and what was measured on the last
//! rank: `mem_max_allocated_bytes`, `mem_allocated_bytes`, `iteration_time_s`.

use super::fields::{Fault, shortened};
use super::table::{Unread, plain};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A run, by its launcher's flags.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagRun {
    /// Line of the file, from 1.
    pub line: u64,
    /// Name of the test.
    pub id: String,
    /// GPU kind.
    pub gpu: String,
    /// Container: `lts` or `dev`.
    pub environment: String,
    /// GPUs of the run.
    pub n_gpus: u64,
    /// Flags with their values as text; a flag without value has an empty one.
    pub flags: BTreeMap<String, String>,
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// Peak of what the allocator handed out, last rank.
    pub peak_bytes: f64,
    /// What was allocated after a step, last rank.
    pub static_bytes: f64,
    /// Seconds of an iteration.
    pub iteration_seconds: Option<f64>,
}

/// The runs of a file, and the lines that could not be read.
#[derive(Debug, Default, PartialEq)]
pub struct FlagRuns {
    /// Runs.
    pub runs: Vec<FlagRun>,
    /// Lines that could not be read.
    pub unread: Vec<Unread>,
}

/// Reads one run per line; blank lines do not count.
#[must_use]
pub fn read_jsonl(bytes: &[u8]) -> FlagRuns {
    let mut runs = FlagRuns::default();
    for (line, text) in plain(bytes).split(|&byte| byte == b'\n').zip(1..).map(|(text, line)| (line, text)) {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match read_line(line, text) {
            Ok(run) => runs.runs.push(run),
            Err((id, faults)) => runs.unread.push(Unread { line, id, faults }),
        }
    }
    runs
}

/// Whether a file is one of flags rather than a table: its first character opens an object.
#[must_use]
pub fn is_jsonl(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn read_line(line: u64, text: &[u8]) -> Result<FlagRun, (String, Vec<Fault>)> {
    let broken = |reason: String| (String::new(), vec![Fault::new(line, "(all)", "", reason)]);
    let value: Value =
        serde_json::from_slice(text).map_err(|error| broken(format!("is not JSON: {error}")))?;
    let Value::Object(object) = value else { return Err(broken("is not a JSON object".to_owned())) };
    let mut reader = Reader { line, object: &object, faults: Vec::new() };
    let run = reader.run();
    if reader.faults.is_empty() { Ok(run) } else { Err((run.id, reader.faults)) }
}

struct Reader<'a> {
    line: u64,
    object: &'a Map<String, Value>,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn run(&mut self) -> FlagRun {
        FlagRun {
            line: self.line,
            id: self.text("id"),
            gpu: self.text("gpu"),
            environment: self.object.get("env").and_then(Value::as_str).unwrap_or_default().to_owned(),
            n_gpus: self.number("n_gpus", 1.0, 16_777_216.0) as u64,
            flags: self.texts("args"),
            variables: self.texts("env_vars"),
            peak_bytes: self.number("mem_max_allocated_bytes", 1.0, 1e15),
            static_bytes: self.number("mem_allocated_bytes", 1.0, 1e15),
            iteration_seconds: self.object.get("iteration_time_s").and_then(Value::as_f64),
        }
    }

    fn fault(&mut self, key: &str, message: &str) {
        let value = self.object.get(key).map(Value::to_string).unwrap_or_default();
        self.faults.push(Fault::new(self.line, key, &value, message));
    }

    fn text(&mut self, key: &str) -> String {
        match self.object.get(key).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => shortened(text),
            _ => {
                self.fault(key, "is not a text");
                String::new()
            }
        }
    }

    fn number(&mut self, key: &str, low: f64, high: f64) -> f64 {
        match self.object.get(key).and_then(Value::as_f64) {
            Some(number) if (low..=high).contains(&number) => number,
            _ => {
                self.fault(key, &format!("is not a number from {low} to {high:e}"));
                low
            }
        }
    }

    /// An object of scalars as texts; `true` is a flag without value.
    fn texts(&mut self, key: &str) -> BTreeMap<String, String> {
        let Some(Value::Object(entries)) = self.object.get(key) else {
            self.fault(key, "is not an object");
            return BTreeMap::new();
        };
        let text = |value: &Value| match value {
            Value::Bool(true) | Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        entries.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"{"id":"a","gpu":"h100","env":"dev","n_gpus":8,"mem_max_allocated_bytes":2e9,
        "mem_allocated_bytes":1e9,"iteration_time_s":1,"env_vars":{},"args":{"--bf16":true,"--num-layers":4}}"#;

    #[test]
    fn flags_are_texts_and_lines_are_counted() {
        let line = LINE.replace('\n', " ");
        let runs = read_jsonl(format!("\u{feff}{line}\r\n\r\n{line}\r\n[]\r\n{{\"id\":\"b\"}}\n").as_bytes());
        assert_eq!(runs.runs.iter().map(|run| run.line).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(runs.runs[0].flags.get("--num-layers").map(String::as_str), Some("4"));
        assert_eq!(runs.runs[0].flags.get("--bf16").map(String::as_str), Some(""));
        assert_eq!(runs.unread.iter().map(|row| row.line).collect::<Vec<_>>(), [4, 5]);
        assert_eq!((runs.unread[1].id.as_str(), runs.unread[1].faults.len()), ("b", 6));
    }

    #[test]
    fn the_kind_of_a_file_is_seen_from_its_first_character() {
        assert!(is_jsonl(b"\xef\xbb\xbf\n {\"id\""));
        assert!(!is_jsonl(b"id,model\n"));
        assert!(!is_jsonl(b""));
    }

    proptest! {
        #[test]
        fn no_line_panics(text in ".{0,80}") {
            let _ = read_jsonl(text.as_bytes());
        }
    }
}
