//! The plan: the versioned JSON document that `plan` and `estimate` write and every other verb reads.
//!
//! It holds the resolved inputs (so that a later `estimate plan.json` gives the same numbers to the bit whatever the
//! catalogue says by then), the layout, where every rank sits, the prediction by term, the proof, and what lost.

use crate::error::AppError;
use crate::inputs::Inputs;
use crate::limits::LauncherLimits;
use crate::link_warnings;
use crate::replan::Replan;
use cluster_profiles::Cluster;
use cost_models::grid::{self, Coordinates};
use cost_models::layerwise::LayerStrategies;
use cost_models::{Estimate, ParallelConfig, RankOrder, Stage, StageMap, TrainingRun};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Version of the document.
pub const SCHEMA: &str = "meshwright.plan/1";

/// Most ranks a plan may have.
const MOST_RANKS: u64 = 1 << 24;

/// A layout with its inputs and its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was asked.
    pub inputs: Inputs,
    /// Every weight once, MTP weights apart.
    pub parameters_total: u64,
    /// Multi-token-prediction weights.
    pub parameters_mtp: u64,
    /// Total less the experts a token does not visit.
    pub parameters_active: u64,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// Layers of every stage, in forward order.
    pub stages: StageMap,
    /// What every block has of its own, where blocks differ; `parallel` is then the layout of embedding, final norm and head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_strategies: Option<LayerStrategies>,
    /// Host and GPU of every rank.
    pub placement: Placement,
    /// Step time and memory.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// How close to optimal the layout is; absent where it was given, not searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<solver::Certificate>,
    /// What the plan replaces, where it was made for the rest of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replan: Option<Replan>,
    /// The best other layouts.
    #[serde(default)]
    pub alternatives: Vec<solver::Alternative>,
    /// What the launcher's limits cost; absent where no launcher was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_limits: Option<LauncherLimits>,
}

/// Where an input came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSource {
    /// `catalogue` or the file's name.
    pub origin: String,
    /// SHA-256 of the text that was read, in hexadecimal.
    pub sha256: String,
}

impl InputSource {
    /// The source of an input that was read as `text`.
    #[must_use]
    pub fn new(origin: impl Into<String>, text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { origin: origin.into(), sha256 }
    }
}

/// Where every rank sits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Axes from the one that varies fastest to the slowest: as in the layout.
    pub rank_order: RankOrder,
    /// Hosts, in node-rank order.
    pub hosts: Vec<String>,
    /// Hosts of the cluster that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare: Vec<String>,
    /// Every global rank.
    pub ranks: Vec<RankPlacement>,
}

/// One global rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlacement {
    /// Global rank.
    pub rank: u64,
    /// Index into [`Placement::hosts`].
    pub host: u32,
    /// GPU index on that host.
    pub gpu: u32,
    /// Position on every axis.
    #[serde(flatten)]
    pub coordinates: Coordinates,
    /// Sequences of its microbatches, where they differ between ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch_size: Option<u64>,
}

impl Placement {
    /// Ranks in order over the hosts in order: consecutive ranks fill a node.
    #[must_use]
    pub fn consecutive(cluster: &Cluster, parallel: &ParallelConfig) -> Self {
        let mut ranks = Vec::new();
        let mut host = 0;
        for group in &cluster.groups {
            let share = parallel.shares.iter().find(|share| share.gpu == group.gpu.name);
            let micro_batch_size =
                share.filter(|_| parallel.has_unequal_micro_batches()).map(|share| share.micro_batch_size);
            for _ in 0..group.nodes {
                for gpu in 0..group.node.gpus {
                    let rank = ranks.len() as u64;
                    let coordinates = grid::coordinates(parallel, rank);
                    ranks.push(RankPlacement { rank, host, gpu, coordinates, micro_batch_size });
                }
                host += 1;
            }
        }
        let hosts = cluster.host_names();
        Self { rank_order: parallel.rank_order, hosts, spare: Vec::new(), ranks }
    }
}

/// What says that a document is a plan.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

impl Plan {
    /// The plan of a given layout, without a certificate.
    #[must_use]
    pub fn new(
        mut inputs: Inputs,
        parallel: ParallelConfig,
        stages: StageMap,
        mut estimate: Estimate,
    ) -> Self {
        estimate.warnings.extend(link_warnings::of(&inputs.cluster));
        inputs.available = None;
        inputs.whole = None;
        let model = &inputs.model;
        Self {
            schema: SCHEMA.to_owned(),
            parameters_total: model.parameters_total(),
            parameters_mtp: model.parameters_mtp(),
            parameters_active: model.parameters_active(),
            placement: Placement::consecutive(&inputs.cluster, &parallel),
            parallel,
            stages,
            layer_strategies: None,
            estimate,
            certificate: None,
            replan: None,
            alternatives: Vec::new(),
            inputs,
            launcher_limits: None,
        }
    }

    /// Notes which hosts of `whole` are not used, and keeps them for a later plan to choose from.
    pub fn leave_out(&mut self, whole: &Cluster) {
        let used: BTreeSet<&String> = self.placement.hosts.iter().collect();
        self.placement.spare = whole.host_names().into_iter().filter(|host| !used.contains(host)).collect();
        self.inputs.available = (!self.placement.spare.is_empty()).then(|| whole.clone());
    }

    /// Reads a plan and checks that it is one.
    ///
    /// # Errors
    /// [`AppError::Content`] naming the position in the file, or the schema it has.
    pub fn from_json(origin: &str, text: &str) -> Result<Self, AppError> {
        let not_a_plan = |error: serde_json::Error| AppError::Content {
            origin: origin.to_owned(),
            message: format!("not a plan: {error}"),
            hint: Some("write one with `meshwright plan ... --out plan.json`".to_owned()),
        };
        // A look at the schema alone first: whatever else a large file holds is passed over, not kept.
        let Head { schema } = serde_json::from_str(text).map_err(not_a_plan)?;
        if schema != SCHEMA {
            let shown: String = schema.chars().take(60).collect();
            return Err(AppError::Content {
                origin: origin.to_owned(),
                message: format!("schema is `{shown}`, this version reads `{SCHEMA}`"),
                hint: Some("plan again with this version".to_owned()),
            });
        }
        let plan: Self = serde_json::from_str(text).map_err(not_a_plan)?;
        let faults = plan.faults();
        if faults.is_empty() {
            return Ok(plan);
        }
        Err(AppError::Content {
            origin: origin.to_owned(),
            message: faults.join("; "),
            hint: Some("plan again with this version".to_owned()),
        })
    }

    /// Values that no plan can have. What breaks a rule of a runtime is left to `check`.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let inputs = &self.inputs;
        faults.extend(inputs.model.faults().into_iter().map(|fault| format!("inputs.model: {fault}")));
        let clusters =
            [("inputs.cluster", Some(&inputs.cluster)), ("inputs.available", inputs.available.as_ref())];
        for (field, cluster) in clusters {
            if let Some(Err(error)) = cluster.map(Cluster::to_toml) {
                faults.push(format!("{field}: {error}"));
            }
        }
        let parallel = &self.parallel;
        let sizes = [
            ("parallel.tp", u64::from(parallel.tp)),
            ("parallel.pp", u64::from(parallel.pp)),
            ("parallel.vpp", u64::from(parallel.vpp)),
            ("parallel.cp", u64::from(parallel.cp)),
            ("parallel.ep", u64::from(parallel.ep)),
            ("parallel.etp", u64::from(parallel.etp)),
            ("parallel.dp_replicate", u64::from(parallel.dp_replicate)),
            ("parallel.dp_shard", u64::from(parallel.dp_shard)),
            ("parallel.micro_batch_size", parallel.micro_batch_size),
            ("parallel.num_microbatches", parallel.num_microbatches),
            ("inputs.workload.global_batch", inputs.workload.global_batch),
            ("inputs.workload.seq_len", inputs.workload.seq_len),
        ];
        let shares = parallel.shares.iter().flat_map(|share| {
            [
                ("parallel.shares.ranks", u64::from(share.ranks)),
                ("parallel.shares.micro_batch_size", share.micro_batch_size),
                ("parallel.shares.state", u64::from(share.state)),
            ]
        });
        for (field, value) in sizes.into_iter().chain(shares) {
            if value == 0 || value > 1 << 30 {
                faults.push(format!("{field} is {value}, expected 1 to {}", 1 << 30));
            }
        }
        let ranks = parallel.tp as f64
            * parallel.pp as f64
            * parallel.cp as f64
            * parallel.dp_replicate as f64
            * parallel.dp_shard as f64;
        if ranks > MOST_RANKS as f64 {
            faults
                .push(format!("the degrees multiply to {ranks:.0} ranks, at most {MOST_RANKS} are planned"));
        }
        faults
    }

    /// Number of blocks of every stage, in forward order.
    #[must_use]
    pub fn blocks_by_stage(&self) -> Vec<usize> {
        let blocks: Vec<usize> = self.inputs.model.blocks().map(|(index, _)| index).collect();
        let count = |stage: &Stage| blocks.iter().filter(|index| stage.layer_range().contains(index)).count();
        self.stages.0.iter().map(count).collect()
    }

    /// What the prediction depends on.
    #[must_use]
    pub fn run(&self) -> TrainingRun<'_> {
        TrainingRun {
            model: &self.inputs.model,
            cluster: &self.inputs.cluster,
            workload: &self.inputs.workload,
            runtime: &self.inputs.runtime,
            parallel: &self.parallel,
            stages: &self.stages,
        }
    }
}
