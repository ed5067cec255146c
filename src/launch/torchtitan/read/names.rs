//! The fields of torchtitan's configuration under one name each, whether they are flags, TOML or Python.

use super::models;
use crate::launch::document::Document;
use crate::launch::flags::FlagSet;
use crate::launch::keys;
use std::collections::BTreeMap;

/// The keys; the choice of activation checkpointing is a word of its own on the command line.
pub fn flags(document: &Document) -> FlagSet {
    let Document::Words { words, variables } = document else { return tree(document) };
    let mut plain: Vec<&str> = Vec::new();
    for word in words {
        match word.split_once(':').filter(|(name, _)| name.replace('-', "_") == "activation_checkpoint") {
            Some((_, mode)) => plain.extend(["--activation_checkpoint.mode", mode]),
            None => plain.push(word),
        }
    }
    let flags = FlagSet::from_words(plain);
    let bare = flags.iter().map(|(name, value)| (dotted(name), value.to_owned()));
    FlagSet::new(bare.collect::<BTreeMap<_, _>>(), variables.clone())
}

/// The keys of a TOML file, or what a Python configuration sets on `config`.
fn tree(document: &Document) -> FlagSet {
    let flags = keys(document);
    let python = flags.iter().any(|(key, _)| key.starts_with("config."));
    if !python {
        return flags;
    }
    let mut set: BTreeMap<String, String> = flags.iter().filter_map(python_field).collect();
    let function = set.get("config").cloned().unwrap_or_default();
    if let Some(model) = models::MODELS.iter().find(|model| model.config == function) {
        set.insert("module".to_owned(), model.module.to_owned());
    }
    FlagSet::new(set, BTreeMap::new())
}

/// A field of `config`; objects are named by what makes them.
fn python_field((key, value): (&str, &str)) -> Option<(String, String)> {
    if key == "config" {
        return Some((key.to_owned(), value.trim_end_matches("()").to_owned()));
    }
    let key = key.strip_prefix("config.")?;
    match key {
        "loss" => None,
        "model_spec" => {
            let flavor = value.split(['"', '\'']).nth(1).unwrap_or_default();
            Some(("model.flavor".to_owned(), flavor.to_owned()))
        }
        "activation_checkpoint" => {
            let mode = match value.split('.').next().unwrap_or_default() {
                "FullAC" => "full",
                "SelectiveAC" => "selective",
                other => other,
            };
            let mode = if mode == "None" { "none" } else { mode };
            Some(("activation_checkpoint.mode".to_owned(), mode.to_owned()))
        }
        other => Some((other.to_owned(), value.to_owned())),
    }
}

/// Fields are written with dashes or underscores.
fn dotted(name: &str) -> String {
    let name = name.trim_start_matches('-');
    if name.contains('.') { name.replace('-', "_") } else { name.to_owned() }
}
