//! Resolving what the user named: a catalogue entry or a file.

use crate::error::AppError;
use crate::files;
use crate::launch;
use crate::plan::InputSource;
use cluster_profiles::{Bytes, Cluster, Precision, catalog};
use cost_models::{ModelSpec, Runtime, Workload, model};
use serde::{Deserialize, Serialize};
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
    /// Hosts that are gone.
    pub lost: &'a [String],
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Where the model came from, and its digest.
    pub model_source: InputSource,
    /// The model, layer by layer.
    pub model: ModelSpec,
    /// Where the cluster came from, and its digest.
    pub cluster_source: InputSource,
    /// The cluster, at the size used; in a plan its hosts are in rank order.
    pub cluster: Cluster,
    /// The cluster with the hosts to choose from, where there are more than are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Cluster>,
    /// The cluster with whole nodes, where a part of one is used.
    #[serde(skip)]
    pub whole: Option<Cluster>,
    /// One optimizer step.
    pub workload: Workload,
    /// The engine's profile.
    pub runtime: Runtime,
    /// The launcher whose rules were kept, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// Bytes a GPU may use.
    pub memory_limit_bytes: Bytes,
}

/// Reads everything the user named.
///
/// # Errors
/// A name that the catalogue does not have, a file that cannot be read, or a file whose content is wrong.
pub fn load(source: &Source) -> Result<Inputs, AppError> {
    let (model, model_source) = load_model(source.model)?;
    let (cluster, cluster_source) = load_cluster(source.cluster)?;
    let whole = match source.lost {
        [] => cluster,
        lost => cluster.without(lost)?,
    };
    let cluster = match source.gpus {
        Some(gpus) => whole.resized(gpus)?,
        None => whole.clone(),
    };
    if let Some((fault, able)) = unsupported(&cluster, source.workload.precision) {
        return Err(AppError::usage(format!("--precision is {fault}"), able));
    }
    let part = (cluster.main().node.gpus < whole.main().node.gpus).then(|| whole.clone());
    let available = hosts_to_choose_from(whole, &cluster);
    let runtime = load_runtime(source.runtime, source.launcher)?;
    check_launcher(source.launcher, &model, &source.workload)?;
    let memory_limit = memory_limit(&cluster, &runtime, source.memory_limit);
    Ok(Inputs {
        model,
        model_source,
        cluster_source,
        whole: part,
        cluster,
        available,
        workload: source.workload.clone(),
        runtime,
        launcher: source.launcher.map(str::to_owned),
        memory_limit_bytes: memory_limit,
    })
}

/// What is wrong with a precision that a GPU of the cluster does not compute in, and what to use: a launcher would fail, or
/// silently train in another one.
pub(crate) fn unsupported(cluster: &Cluster, precision: Precision) -> Option<(String, String)> {
    let group = cluster.groups.iter().find(|group| !group.gpu.supports(precision))?;
    let has: Vec<&str> =
        Precision::ALL.into_iter().filter(|p| group.gpu.supports(*p)).map(Precision::name).collect();
    let fault = format!("{}, which {} does not compute in", precision.name(), group.gpu.title);
    Some((fault, format!("use {}", has.join(", "))))
}

/// The whole cluster, where there are more hosts than are used and it matters which.
pub(crate) fn hosts_to_choose_from(whole: Cluster, used: &Cluster) -> Option<Cluster> {
    (whole.gpu_count() > used.gpu_count() && !whole.is_even()).then_some(whole)
}

/// A launcher must run the model and the workload in some layout: otherwise nothing that is planned could be started.
fn check_launcher(name: Option<&str>, model: &ModelSpec, workload: &Workload) -> Result<(), AppError> {
    let Some((faults, hint)) = refused(name, model, workload) else { return Ok(()) };
    let faults = faults.into_iter().map(|fault| format!("--launcher {fault}")).collect();
    Err(AppError::Usage { faults, hint: Some(hint) })
}

/// What of a model and a workload a launcher cannot run in any layout, and what to use in its place; none if all.
pub(crate) fn refused(
    name: Option<&str>,
    model: &ModelSpec,
    workload: &Workload,
) -> Option<(Vec<String>, String)> {
    let launcher = name.and_then(launch::named)?;
    let refused = launcher.refuses(model, workload);
    if refused.is_empty() {
        return None;
    }
    let faults = refused.into_iter().map(|what| format!("{} cannot run {what}", launcher.name()));
    let others = launch::ALL.iter().filter(|other| other.refuses(model, workload).is_empty());
    let others: Vec<&str> = others.map(|other| other.name()).collect();
    let hint = if others.is_empty() {
        "no launcher runs it: plan for an engine with --runtime".to_owned()
    } else {
        format!("{} can", others.join(", "))
    };
    Some((faults.collect(), hint))
}

impl Inputs {
    /// The same inputs on what is left of the cluster, hosts that were left out included: as many GPUs as before where
    /// enough are left, or `gpus`.
    ///
    /// # Errors
    /// A host that the cluster does not have, no host left, or a number of GPUs that does not fill nodes.
    pub fn remaining(
        self,
        lost: &[String],
        gpus: Option<u64>,
        limit: Option<Bytes>,
    ) -> Result<Self, AppError> {
        let known = self.available.as_ref().unwrap_or(&self.cluster);
        let whole = if lost.is_empty() { known.clone() } else { known.without(lost)? };
        let gpus = gpus.unwrap_or_else(|| self.cluster.gpu_count().min(whole.gpu_count()));
        let cluster = if gpus == whole.gpu_count() { whole.clone() } else { whole.resized(gpus)? };
        let part = cluster.main().node.gpus < whole.main().node.gpus;
        let spare = whole.gpu_count() > cluster.gpu_count();
        let memory_limit_bytes = match limit {
            Some(_) => memory_limit(&cluster, &self.runtime, limit),
            None => self.memory_limit_bytes,
        };
        // Hosts that are used in part are no choice of whole hosts.
        let (available, whole) = if part {
            (hosts_to_choose_from(whole.clone(), &cluster), Some(whole))
        } else {
            (spare.then_some(whole), None)
        };
        Ok(Self { cluster, available, whole, memory_limit_bytes, ..self })
    }
}

/// The limit asked for, or what the runtime's reserve leaves of the largest GPU; never more than its capacity. Smaller
/// GPUs of a mixed cluster keep their own ([`cost_models::sites::limit_on`]).
#[must_use]
pub fn memory_limit(cluster: &Cluster, runtime: &Runtime, asked: Option<Bytes>) -> Bytes {
    let capacity = cluster.groups.iter().map(|group| group.gpu.memory.get()).fold(0.0, f64::max);
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
pub(crate) fn is_path(name: &str) -> bool {
    let endings = [".json", ".toml"];
    endings.iter().any(|ending| name.ends_with(ending))
        || name.starts_with(['.', '/'])
        || Path::new(name).is_file()
}

/// The engine that is named, or that of a launcher; the usual one if neither is.
///
/// # Errors
/// It is unknown, or its file is wrong.
pub fn load_runtime(runtime: Option<&str>, launcher: Option<&str>) -> Result<Runtime, AppError> {
    let name = match (runtime, launcher) {
        (Some(path), _) if is_path(path) => {
            return Ok(Runtime::from_toml(path, &files::read_text(Path::new(path))?)?);
        }
        (Some(name), _) => name,
        (None, Some(name)) => return Ok(crate::cli::inputs::launcher(name)?.engine()?),
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

/// Reads a share of something, at most `most`: `1%` or `0.01`.
///
/// # Errors
/// What is expected instead.
pub fn share(text: &str, most: f64) -> Result<f64, String> {
    let (number, of) = text.trim().strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / of);
    share
        .filter(|share| (0.0..=most).contains(share))
        .ok_or_else(|| format!("expected 0 to {}%, such as 1% or 0.01", most * 100.0))
}

/// The largest gap that a search may leave.
pub const MOST_GAP: f64 = 0.5;
