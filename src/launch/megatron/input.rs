//! The forms Megatron-LM's flags are found in: a shell line or script, a `megatron.args` file, and YAML or JSON maps,
//! with dashes (`MODEL_ARGS` of its functional tests) or as field names (`tensor_model_parallel_size`).

use crate::launch::document::{self, Document};
use crate::launch::flags::FlagSet;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Keys whose maps hold environment variables.
const VARIABLES: &[&str] = &["ENV_VARS", "env_vars", "environment", "env"];

/// Keys of a test that are no flags.
const ABOUT_THE_TEST: &[&str] =
    &["BEFORE_SCRIPT", "AFTER_SCRIPT", "TEST_TYPE", "MODE", "METRICS", "THROUGHPUT_TEST_PARAMS"];

/// The flags of a document.
#[must_use]
pub fn flags(document: &Document) -> FlagSet {
    match document {
        Document::Words { words, variables } => {
            FlagSet::from_words(words.iter().map(String::as_str)).with_variables(variables.clone())
        }
        Document::Tree(tree) => {
            let (mut flags, mut variables) = (BTreeMap::new(), BTreeMap::new());
            if let Value::Object(map) = tree {
                collect(map, &mut flags, &mut variables, 0);
            }
            FlagSet::new(flags, variables)
        }
    }
}

fn collect(
    map: &Map<String, Value>,
    flags: &mut BTreeMap<String, String>,
    variables: &mut BTreeMap<String, String>,
    depth: u32,
) {
    for (key, value) in map {
        match value {
            _ if ABOUT_THE_TEST.contains(&key.as_str()) => {}
            Value::Object(inner) if VARIABLES.contains(&key.as_str()) => {
                variables.extend(inner.iter().map(|(name, value)| (name.clone(), document::scalar(value))));
            }
            Value::Object(inner) if depth < 4 => collect(inner, flags, variables, depth + 1),
            _ => {
                flags.insert(dashed(key), text(value));
            }
        }
    }
}

/// `tensor_model_parallel_size` as `--tensor-model-parallel-size`.
fn dashed(key: &str) -> String {
    if key.starts_with("--") { key.to_owned() } else { format!("--{}", key.replace('_', "-")) }
}

/// `true` is a switch without a value.
fn text(value: &Value) -> String {
    match value {
        Value::Bool(true) => String::new(),
        other => document::scalar(other),
    }
}
