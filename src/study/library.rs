//! Models, clusters and engines that points name: read once, shared by all points.

use super::value::Value;
use crate::files;
use crate::inputs;
use crate::plan::InputSource;
use cluster_profiles::Cluster;
use cost_models::{ModelSpec, Runtime, model};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

type Known<T> = Mutex<BTreeMap<String, Result<(T, InputSource), String>>>;

/// What was read so far. An answer, once given, stays.
#[derive(Debug, Default)]
pub struct Library {
    models: Known<ModelSpec>,
    clusters: Known<Cluster>,
    runtimes: Known<Runtime>,
}

impl Library {
    /// The model called `name` with some of its keys set anew.
    ///
    /// # Errors
    /// It is unknown, or the keys make no sense.
    pub fn model(
        &self,
        name: &str,
        keys: &BTreeMap<String, Value>,
    ) -> Result<(ModelSpec, InputSource), String> {
        let label = keys.iter().fold(name.to_owned(), |text, (key, value)| format!("{text} {key}={value}"));
        remembered(&self.models, label, || {
            if keys.is_empty() {
                inputs::load_model(name).map_err(|error| error.to_string())
            } else {
                changed(name, keys)
            }
        })
    }

    /// The cluster called `name`, at its catalogue size.
    ///
    /// # Errors
    /// It is unknown, or its file is wrong.
    pub fn cluster(&self, name: &str) -> Result<(Cluster, InputSource), String> {
        remembered(&self.clusters, name.to_owned(), || {
            inputs::load_cluster(name).map_err(|error| error.to_string())
        })
    }

    /// The engine called `runtime`, or that of a launcher; the usual one if neither is named.
    ///
    /// # Errors
    /// It is unknown, or its file is wrong.
    pub fn runtime(&self, runtime: Option<&str>, launcher: Option<&str>) -> Result<Runtime, String> {
        let name = runtime.or(launcher).unwrap_or(inputs::DEFAULT_RUNTIME);
        let read = || {
            let found = inputs::load_runtime(runtime, launcher).map_err(|error| error.to_string())?;
            let text = serde_json::to_string(&found).unwrap_or_default();
            Ok((found, InputSource::new(name, &text)))
        };
        remembered(&self.runtimes, format!("{runtime:?} {launcher:?}"), read).map(|(runtime, _)| runtime)
    }

    /// Digests of everything read, by name.
    #[must_use]
    pub fn digests(&self) -> Vec<(String, String)> {
        [digests_of(&self.models), digests_of(&self.clusters), digests_of(&self.runtimes)].concat()
    }
}

fn digests_of<T>(known: &Known<T>) -> Vec<(String, String)> {
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let digest = |found: &Result<(T, InputSource), String>| {
        found.as_ref().map_or_else(|_| String::new(), |(_, source)| source.sha256.clone())
    };
    known.iter().map(|(name, found)| (name.clone(), digest(found))).collect()
}

fn remembered<T: Clone>(
    known: &Known<T>,
    label: String,
    read: impl FnOnce() -> Result<(T, InputSource), String>,
) -> Result<(T, InputSource), String> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(label).or_insert_with(read).clone()
}

/// A model whose description is read again with other keys.
fn changed(name: &str, keys: &BTreeMap<String, Value>) -> Result<(ModelSpec, InputSource), String> {
    let (origin, text) = match model::catalog::text(name) {
        Ok((stem, text)) => (format!("{stem}.json"), text.to_owned()),
        Err(_) => (name.to_owned(), files::read_text(Path::new(name)).map_err(|error| error.to_string())?),
    };
    let mut map: serde_json::Map<String, serde_json::Value> = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?
    } else {
        toml::from_str(&text).map_err(|error| format!("{name}: {error}"))?
    };
    for (key, value) in keys {
        let value = serde_json::to_value(value).map_err(|error| format!("model.{key}: {error}"))?;
        map.insert(key.clone(), value);
    }
    let text = serde_json::Value::Object(map).to_string();
    let model = model::load(&origin, &text).map_err(|error| error.to_string())?;
    Ok((model, InputSource::new(name, &text)))
}
