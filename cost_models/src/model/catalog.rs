//! The models that come with meshwright: every TOML file of `models/`, embedded.

use super::{ModelError, ModelSpec, file, load};
use include_dir::{Dir, include_dir};
use serde::Serialize;
use serde_json::Value;

static MODELS: Dir = include_dir!("$CARGO_MANIFEST_DIR/models");

/// Endings of published names that say nothing about sizes.
const ENDINGS: [&str; 8] = ["instruct", "base", "hf", "chat", "it", "v0-1", "v0-3", "pt"];

/// Every model's name, sorted.
#[must_use]
pub fn names() -> Vec<&'static str> {
    entries().into_iter().map(|(name, _)| name).collect()
}

/// The model called `name`: a catalogue name or one of its aliases. Case, underscores, the owner before a slash and
/// endings such as `-Instruct` do not matter.
///
/// ```
/// let model = cost_models::model::catalog::get("meta-llama/Meta-Llama-3.1-70B-Instruct")?;
/// assert_eq!(model.name, "llama-3.1-70b");
/// assert_eq!(model.parameters_total(), 70_553_706_496);
/// # Ok::<(), cost_models::model::ModelError>(())
/// ```
///
/// # Errors
/// [`ModelError::Unknown`] with the nearest names.
pub fn get(name: &str) -> Result<ModelSpec, ModelError> {
    let (stem, text) = text(name)?;
    let origin = format!("models/{stem}.toml");
    file::read(&origin, stem, &load::toml_map(&origin, text)?)
}

/// The catalogue name and the file of the model called `name`, found as [`get`] finds it.
///
/// # Errors
/// [`ModelError::Unknown`] with the nearest names.
pub fn text(name: &str) -> Result<(&'static str, &'static str), ModelError> {
    let entries = entries();
    for wanted in candidates(name) {
        let same = |stem: &str| canonical(stem) == wanted;
        let found = entries.iter().find(|(stem, _)| same(stem));
        let found =
            found.or_else(|| entries.iter().find(|(stem, text)| aliases(stem, text).iter().any(|a| same(a))));
        if let Some(entry) = found {
            return Ok(*entry);
        }
    }
    Err(unknown(name, &entries))
}

/// What the catalogue says of a model besides its sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its name here.
    pub name: String,
    /// Its name in prose.
    pub title: String,
    /// Where its sizes were read.
    pub source: String,
    /// Other names it is found under.
    pub aliases: Vec<String>,
}

/// Every entry, sorted by name.
#[must_use]
pub fn list() -> Vec<Entry> {
    let describe = |(name, text): (&str, &str)| {
        let map = load::toml_map(name, text).unwrap_or_default();
        let field = |key| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Entry {
            name: name.to_owned(),
            title: field("title"),
            source: field("source"),
            aliases: aliases(name, text),
        }
    };
    entries().into_iter().map(describe).collect()
}

fn aliases(stem: &str, text: &str) -> Vec<String> {
    let map = load::toml_map(stem, text).unwrap_or_default();
    let list = map.get("aliases").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Names and texts, sorted by name.
fn entries() -> Vec<(&'static str, &'static str)> {
    let mut entries: Vec<(&str, &str)> = MODELS
        .files()
        .filter_map(|file| Some((file.path().file_stem()?.to_str()?, file.contents_utf8()?)))
        .collect();
    entries.sort_unstable();
    entries
}

/// Lower case, and a hyphen for every run of other characters: `Llama-3.1_70B` is `llama-3-1-70b`.
fn canonical(name: &str) -> String {
    let parts: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    parts.join("-")
}

/// The name without owner, then also without the endings and the maker's prefix.
fn candidates(name: &str) -> Vec<String> {
    let short: String = name.chars().take(200).collect();
    let full = canonical(short.rsplit(['/']).next().unwrap_or(&short));
    let mut stripped = full.as_str();
    while let Some(rest) = ENDINGS.iter().find_map(|ending| stripped.strip_suffix(ending)?.strip_suffix('-'))
    {
        stripped = rest;
    }
    let bare = stripped.strip_prefix("meta-").unwrap_or(stripped);
    vec![full.clone(), stripped.to_owned(), bare.to_owned()]
}

fn unknown(name: &str, entries: &[(&'static str, &'static str)]) -> ModelError {
    let candidates = candidates(name);
    let wanted = candidates.last().map_or("", String::as_str);
    let mut ranked: Vec<(usize, &str)> =
        entries.iter().map(|(stem, _)| (strsim::levenshtein(wanted, &canonical(stem)), *stem)).collect();
    ranked.sort_unstable();
    let close = 2 + wanted.len() / 4;
    let nearest = ranked
        .iter()
        .filter(|(distance, _)| *distance <= close)
        .take(3)
        .map(|(_, stem)| (*stem).to_owned())
        .collect();
    ModelError::Unknown { name: name.chars().take(200).collect(), nearest }
}
