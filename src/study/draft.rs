//! A point being put together: what its keys say, and the inputs of a plan that come of it.

use super::goodput::FailureKeys;
use super::library::Library;
use super::value::Value;
use crate::Wishes;
use crate::inputs::{self, Inputs};
use crate::offload::Offload;
use crate::require::Require;
use cluster_profiles::{Bytes, Cluster, Precision, catalog};
use cost_models::{Dtype, Optimizer, Workload};
use solver::{Constraints, Objective};
use std::collections::BTreeMap;

/// Sets a number of a cluster.
pub type Edit = fn(&mut Cluster, f64);

/// What the keys of a point say.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Catalogue name or path of the model.
    pub model: String,
    /// Keys of the model file that are replaced (`model.KEY`).
    pub model_keys: BTreeMap<String, Value>,
    /// Catalogue name or path of the cluster.
    pub cluster: String,
    /// Kind of GPU in place of the cluster's.
    pub gpu: Option<String>,
    /// GPUs in use.
    pub gpus: Option<u64>,
    /// Dollars an hour that pay for the GPUs in use.
    pub dollars_per_hour: Option<f64>,
    /// GPUs of an NVLink domain.
    pub domain: Option<u64>,
    /// Network interfaces of a node.
    pub nics: Option<u64>,
    /// Tokens of a sequence.
    pub seq_len: Option<u64>,
    /// Sequences of a step.
    pub global_batch: Option<u64>,
    /// Tokens of a step, in place of the sequences.
    pub batch_tokens: Option<u64>,
    /// Format of matrix products.
    pub precision: Precision,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Format gradients are accumulated in; the engine's if none.
    pub gradient_dtype: Option<Dtype>,
    /// Tokens of the busiest expert rank over the mean.
    pub expert_imbalance: f64,
    /// The engine, by name or path.
    pub runtime: Option<String>,
    /// The launcher, which implies an engine.
    pub launcher: Option<String>,
    /// Bytes a GPU may use; what its kind has, less a margin, if none.
    pub memory_limit: Option<f64>,
    /// What may be kept in host memory.
    pub offload: Option<Offload>,
    /// What the numbers have to rest on.
    pub require: Option<Require>,
    /// How much better another layout may be, as a share of the step.
    pub gap: f64,
    /// Terms as those of `--fix`.
    pub fix: Vec<String>,
    /// Terms as those of `--forbid`.
    pub forbid: Vec<String>,
    /// Changes of the cluster, in the order of the keys.
    pub edits: Vec<(Edit, f64)>,
    /// Tokens to train on.
    pub tokens: Option<f64>,
    /// What is said about failures.
    pub failures: FailureKeys,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            model: String::new(),
            model_keys: BTreeMap::new(),
            cluster: String::new(),
            gpu: None,
            gpus: None,
            dollars_per_hour: None,
            domain: None,
            nics: None,
            seq_len: None,
            global_batch: None,
            batch_tokens: None,
            precision: Precision::Bf16,
            optimizer: Optimizer::Adamw,
            gradient_dtype: None,
            expert_imbalance: 1.0,
            runtime: None,
            launcher: None,
            memory_limit: None,
            offload: None,
            require: None,
            gap: 0.0,
            fix: Vec::new(),
            forbid: Vec::new(),
            edits: Vec::new(),
            tokens: None,
            failures: FailureKeys::default(),
        }
    }
}

/// A point, ready to be planned.
#[derive(Debug, Clone)]
pub struct Ready {
    /// What `plan` reads.
    pub inputs: Inputs,
    /// What `plan` is asked for.
    pub wishes: Wishes,
}

impl Draft {
    /// The inputs of the plan.
    ///
    /// # Errors
    /// Why there are none: an unknown name, a size that does not fill nodes, a missing price.
    pub fn ready(&self, library: &Library, objective: Objective) -> Result<Ready, String> {
        let (model, model_source) = library.model(&self.model, &self.model_keys)?;
        let (cluster, cluster_source) = library.cluster(&self.cluster)?;
        let whole = self.edited(cluster)?;
        let cluster = self.sized(&whole)?;
        let part = (cluster.main().node.gpus < whole.main().node.gpus).then(|| whole.clone());
        let available = inputs::hosts_to_choose_from(whole, &cluster);
        let runtime = library.runtime(self.runtime.as_deref(), self.launcher.as_deref())?;
        let memory_limit = inputs::memory_limit(&cluster, &runtime, self.memory_limit.map(Bytes));
        let inputs = Inputs {
            model,
            model_source,
            cluster,
            cluster_source,
            workload: self.workload()?,
            runtime,
            launcher: self.launcher.clone(),
            memory_limit_bytes: memory_limit,
            available,
            whole: part,
        };
        Ok(Ready { inputs, wishes: self.wishes(objective)? })
    }

    fn workload(&self) -> Result<Workload, String> {
        let seq_len = self.seq_len.ok_or("seq_len is not set")?;
        let of_tokens = self.batch_tokens.map(|tokens| (tokens / seq_len).max(1));
        Ok(Workload {
            global_batch: self.global_batch.or(of_tokens).ok_or("global_batch is not set")?,
            seq_len,
            precision: self.precision,
            optimizer: self.optimizer,
            gradient_dtype: self.gradient_dtype,
            expert_imbalance: self.expert_imbalance,
        })
    }

    fn wishes(&self, objective: Objective) -> Result<Wishes, String> {
        let launcher = self.launcher.as_deref().and_then(crate::launch::named);
        let unable = launcher.map_or(&[][..], |launcher| launcher.forbids());
        let forbid: Vec<&str> = terms(&self.forbid).chain(unable.iter().copied()).collect();
        let fix: Vec<&str> = terms(&self.fix).collect();
        let constraints = Constraints::parse(&fix, &forbid).map_err(|error| error.faults.join("; "))?;
        let (offload, require) = (self.offload, self.require);
        let wishes = Wishes { objective, constraints, offload, require, gap: self.gap, ..Wishes::default() };
        Ok(Wishes { top: 1, nearest: false, ..wishes })
    }

    /// The cluster with another GPU, domain and figures.
    fn edited(&self, mut cluster: Cluster) -> Result<Cluster, String> {
        if let Some(name) = &self.gpu {
            let gpu = catalog::gpu(name).map_err(|error| error.to_string())?;
            cluster.groups.iter_mut().for_each(|group| group.gpu = gpu.clone());
        }
        for group in &mut cluster.groups {
            if let Some(domain) = self.domain {
                let domain = domain as u32;
                let gpus = greatest_common_divisor(group.node.gpus, domain);
                group.node.nics = (group.node.nics * gpus / group.node.gpus).max(1);
                group.node.gpus = gpus;
                group.node.domain = domain;
            }
            if let Some(nics) = self.nics {
                let factor = nics as f64 / f64::from(group.node.nics.max(1));
                group.node.nics = nics as u32;
                group.node.inter.bandwidth = group.node.inter.bandwidth * factor;
            }
        }
        for (change, value) in &self.edits {
            change(&mut cluster, *value);
        }
        Ok(cluster)
    }

    fn sized(&self, cluster: &Cluster) -> Result<Cluster, String> {
        let gpus = match (self.gpus, self.dollars_per_hour) {
            (Some(gpus), _) => gpus,
            (None, Some(dollars)) => affordable(cluster, dollars)?,
            (None, None) => return Ok(cluster.clone()),
        };
        cluster.resized(gpus).map_err(|error| error.to_string())
    }
}

/// The most GPUs that so many dollars an hour pay for, in whole nodes or domains whose number has no factor above 3, so that
/// batches and degrees divide.
fn affordable(cluster: &Cluster, dollars: f64) -> Result<u64, String> {
    let group = cluster.main();
    let price = group
        .dollars_per_gpu_hour
        .ok_or_else(|| format!("{} has no public price: set cluster.dollars_per_gpu_hour", cluster.name))?;
    let unit = u64::from(group.node.gpus.max(group.node.domain));
    let most = (dollars / price / unit as f64) as u64;
    let units = (1..=most.min(1 << 18)).rev().find(|units| is_smooth(*units));
    units.map(|units| units * unit).ok_or_else(|| {
        format!("{dollars} dollars an hour do not pay for {unit} GPUs of {price} dollars each")
    })
}

/// Terms that say something: an axis sets none by an empty one.
fn terms(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn is_smooth(mut number: u64) -> bool {
    for factor in [2, 3] {
        while number.is_multiple_of(factor) {
            number /= factor;
        }
    }
    number == 1
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_buys_whole_nodes_and_never_more_than_it_pays_for() {
        let cluster = catalog::cluster("dgx-h100").expect("in the catalogue");
        let price = cluster.main().dollars_per_gpu_hour.expect("has a price");
        for dollars in [100.0, 1000.0, 5000.0] {
            let gpus = affordable(&cluster, dollars).expect("pays for a node");
            assert!(gpus as f64 * price <= dollars && gpus.is_multiple_of(8) && is_smooth(gpus / 8));
        }
        assert!(affordable(&cluster, 1.0).is_err());
    }
}
