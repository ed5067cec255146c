//! Resolving what the user named: a catalogue entry or a file.

use crate::error::AppError;
use crate::files;
use crate::plan::{InputSource, PlanInputs};
use cluster_profiles::{Bytes, Cluster, catalog};
use cost_models::{ModelSpec, Runtime, Workload, model};
use std::path::Path;

/// What the user named.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Catalogue name or path.
    pub model: &'a str,
    /// Catalogue name or path.
    pub cluster: &'a str,
    /// GPUs to use; all of the profile's if none.
    pub gpus: Option<u64>,
    /// One optimizer step.
    pub workload: Workload,
    /// Engine.
    pub runtime: Option<&'a str>,
    /// Launcher.
    pub launcher: Option<&'a str>,
    /// Bytes a GPU may use; the default margin below its capacity if none.
    pub memory_limit: Option<Bytes>,
}

/// The resolved inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// The model.
    pub model: ModelSpec,
    /// Where it came from.
    pub model_source: InputSource,
    /// The cluster, at the size used.
    pub cluster: Cluster,
    /// Where it came from.
    pub cluster_source: InputSource,
    /// One optimizer step.
    pub workload: Workload,
    /// The engine.
    pub runtime: Runtime,
    /// The launcher, if one was named.
    pub launcher: Option<String>,
    /// Bytes a GPU may use.
    pub memory_limit: Bytes,
}

impl From<Inputs> for PlanInputs {
    fn from(inputs: Inputs) -> Self {
        Self {
            model_source: inputs.model_source,
            model: inputs.model,
            cluster_source: inputs.cluster_source,
            cluster: inputs.cluster,
            workload: inputs.workload,
            runtime: inputs.runtime,
            launcher: inputs.launcher,
            memory_limit_bytes: inputs.memory_limit,
        }
    }
}

impl From<PlanInputs> for Inputs {
    fn from(inputs: PlanInputs) -> Self {
        Self {
            model_source: inputs.model_source,
            model: inputs.model,
            cluster_source: inputs.cluster_source,
            cluster: inputs.cluster,
            workload: inputs.workload,
            runtime: inputs.runtime,
            launcher: inputs.launcher,
            memory_limit: inputs.memory_limit_bytes,
        }
    }
}

/// Reads everything the user named.
///
/// # Errors
/// A name that the catalogue does not have, a file that cannot be read, or a file whose content is wrong.
pub fn load(source: &Source) -> Result<Inputs, AppError> {
    let (model, model_source) = load_model(source.model)?;
    let (cluster, cluster_source) = load_cluster(source.cluster)?;
    let cluster = match source.gpus {
        Some(gpus) => cluster.resized(gpus)?,
        None => cluster,
    };
    let runtime = load_runtime(source.runtime, source.launcher)?;
    let memory_limit = memory_limit(&cluster, &runtime, source.memory_limit);
    Ok(Inputs {
        model,
        model_source,
        cluster,
        cluster_source,
        workload: source.workload.clone(),
        runtime,
        launcher: source.launcher.map(str::to_owned),
        memory_limit,
    })
}

/// The limit asked for, or what the runtime's reserve leaves of the smallest GPU; never more than its capacity.
#[must_use]
pub fn memory_limit(cluster: &Cluster, runtime: &Runtime, asked: Option<Bytes>) -> Bytes {
    let capacity = cluster.groups.iter().map(|group| group.gpu.memory.get()).fold(f64::INFINITY, f64::min);
    let default = runtime.memory.reserve.default_limit(capacity);
    asked.map_or(Bytes(default), |limit| limit.min(Bytes(capacity)))
}

/// The model that `name` means: a catalogue entry or a file.
///
/// # Errors
/// It is unknown, or its file is wrong.
pub fn load_model(name: &str) -> Result<(ModelSpec, InputSource), AppError> {
    if !is_path(name) {
        let model = model::catalog::get(name)?;
        let text = serde_json::to_string(&model).unwrap_or_default();
        return Ok((model, InputSource::new("catalogue", &text)));
    }
    let text = files::read_text(Path::new(name))?;
    Ok((model::load(name, &text)?, InputSource::new(name, &text)))
}

/// The cluster that `name` means: a catalogue entry or a profile.
///
/// # Errors
/// It is unknown, or its file is wrong.
pub fn load_cluster(name: &str) -> Result<(Cluster, InputSource), AppError> {
    if !is_path(name) {
        let cluster = catalog::cluster(name)?;
        let text = cluster.to_toml()?;
        return Ok((cluster, InputSource::new("catalogue", &text)));
    }
    let text = files::read_text(Path::new(name))?;
    let beside = |relative: &str| read_beside(Path::new(name), relative);
    Ok((Cluster::from_toml(name, &text, &beside)?, InputSource::new(name, &text)))
}

/// Whether the user means a file: it has a folder or an ending, or it exists.
fn is_path(name: &str) -> bool {
    let endings = [".json", ".toml"];
    endings.iter().any(|ending| name.ends_with(ending))
        || name.starts_with(['.', '/'])
        || Path::new(name).is_file()
}

fn load_runtime(runtime: Option<&str>, launcher: Option<&str>) -> Result<Runtime, AppError> {
    let name = match (runtime, launcher) {
        (Some(path), _) if is_path(path) => {
            return Ok(Runtime::from_toml(path, &files::read_text(Path::new(path))?)?);
        }
        (Some(name), _) => name,
        (None, Some(name)) => crate::cli::inputs::launcher(name)?.runtime(),
        (None, None) => DEFAULT_RUNTIME,
    };
    Ok(Runtime::named(name)?)
}

/// The engine planned for when none is named.
pub const DEFAULT_RUNTIME: &str = "megatron-core";

/// The text of a file that a profile names, relative to the profile's folder.
fn read_beside(profile: &Path, relative: &str) -> Result<String, String> {
    let folder = profile.parent().unwrap_or(Path::new("."));
    files::read_text(&folder.join(relative)).map_err(|error| error.to_string())
}
