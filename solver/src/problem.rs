//! What is to be planned.

use crate::constraint::Constraints;
use crate::objective::Objective;
use cluster_profiles::{Bytes, Cluster};
use cost_models::rules::{Facts, RecomputeFreedom, engine};
use cost_models::step::Makespans;
use cost_models::{ModelSpec, Runtime, Workload};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// A model, hardware and a workload, and what a plan is to be best at.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    /// The model.
    pub model: &'a ModelSpec,
    /// The cluster, with exactly the GPUs to use (or, where the objective may leave some idle, the most).
    pub cluster: &'a Cluster,
    /// The hosts to choose from, where there are more than are used.
    pub available: Option<&'a Cluster>,
    /// The cluster with whole nodes, where `cluster` is a part of one: other numbers of GPUs are cut from it.
    pub whole: Option<&'a Cluster>,
    /// One optimizer step.
    pub workload: &'a Workload,
    /// The engine.
    pub runtime: &'a Runtime,
    /// What is fixed and forbidden.
    pub constraints: Constraints,
    /// The most the largest GPU may hold; what the engine's reserve leaves of it if none.
    pub memory_limit: Option<Bytes>,
    /// What is minimised.
    pub objective: Objective,
    /// When to answer with the best so far.
    pub time_limit: Option<Duration>,
    /// How much better than the answer, relative to it, a layout may be that was not looked at: 0 to prove the best. Layouts
    /// on mixed or uneven clusters are looked at all the same.
    pub gap: f64,
    /// How many different layouts to rank, the plan included.
    pub top: usize,
    /// Whether changes are looked for that would help, where nothing fits.
    pub nearest: bool,
    /// How freely the launcher lets recompute be chosen; as the engine does if none.
    pub recompute: Option<RecomputeFreedom>,
    /// Whether optimizer state in host memory is proposed where nothing fits.
    pub offloads: bool,
    /// Whether activations of some layers may wait in host memory, where the engine can.
    pub moves_activations: bool,
    /// Whether all layers are to be alike, even where the engine can do otherwise.
    pub layers_alike: bool,
    /// What was simulated before, for problems that have pipelines in common.
    pub makespans: Option<Arc<Makespans>>,
}

/// A problem that has no answer, whatever the layouts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .faults.join("; "))]
pub struct ProblemError {
    /// Every fault.
    pub faults: Vec<String>,
}

impl<'a> Problem<'a> {
    /// The problem without wishes: shortest step, one plan and two alternatives.
    #[must_use]
    pub fn new(
        model: &'a ModelSpec,
        cluster: &'a Cluster,
        workload: &'a Workload,
        runtime: &'a Runtime,
    ) -> Self {
        Self {
            model,
            cluster,
            available: None,
            whole: None,
            workload,
            runtime,
            constraints: Constraints::default(),
            memory_limit: None,
            objective: Objective::default(),
            time_limit: None,
            gap: 0.0,
            top: 3,
            nearest: true,
            recompute: None,
            offloads: false,
            moves_activations: false,
            layers_alike: false,
            makespans: None,
        }
    }

    /// The most the largest GPU may hold; smaller ones keep their own margin.
    #[must_use]
    pub fn limit(&self) -> Bytes {
        let capacities = self.cluster.groups.iter().map(|group| group.gpu.memory.get());
        let capacity = capacities.fold(0.0, f64::max);
        let default = self.runtime.memory.reserve.default_limit(capacity);
        self.memory_limit.map_or(Bytes(default), |limit| limit.min(Bytes(capacity)))
    }

    /// Whether the limit lets a rank come so near to its GPU's capacity that an estimate adds a penalty for it.
    #[must_use]
    pub fn is_near_edge(&self) -> bool {
        self.limit() > Problem { memory_limit: None, ..self.clone() }.limit()
    }

    /// What the rules know about it.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts::new(self.model, self.cluster, self.workload)
    }

    /// Checks what no layout can mend.
    ///
    /// # Errors
    /// Sizes of 0, a schedule the engine does not run, an objective in dollars without prices.
    pub fn check(&self) -> Result<(), ProblemError> {
        let mut faults = Vec::new();
        let sizes = [
            ("global batch", self.workload.global_batch),
            ("sequence length", self.workload.seq_len),
            ("number of GPUs", self.cluster.gpu_count()),
            ("number of layers", self.model.layers.len() as u64),
        ];
        faults
            .extend(sizes.iter().filter(|(_, size)| *size == 0).map(|(what, _)| format!("the {what} is 0")));
        let engine = engine(&self.runtime.name);
        let schedules = self.constraints.fixed_names(crate::term::Field::Schedule);
        if !schedules.is_empty() && !schedules.iter().any(|name| engine.runs(name)) {
            faults.push(format!(
                "{} does not run {}; it runs {}",
                engine.name,
                schedules.join(", "),
                engine.schedules.join(", ")
            ));
        }
        let orders = self.constraints.fixed_names(crate::term::Field::RankOrder);
        let able = |name: &&str| engine.rank_orders.iter().any(|order| order.name() == *name);
        if !orders.is_empty() && !orders.iter().any(able) {
            let own: Vec<&str> = engine.rank_orders.iter().map(|order| order.name()).collect();
            faults.push(format!(
                "{} does not number its ranks {}, but {}",
                engine.name,
                orders.join(" or "),
                own.join(" or ")
            ));
        }
        faults.extend(self.objective.fault(self.cluster));
        if faults.is_empty() { Ok(()) } else { Err(ProblemError { faults }) }
    }
}
