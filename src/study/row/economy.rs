//! What a point costs: power, money, and time with failures taken off.

use super::Filling;
use crate::plan::Plan;
use crate::study::draft::Draft;
use crate::study::file::Limits;
use crate::study::goodput::Job;
use cluster_profiles::Cluster;
use cost_models::Optimizer;

/// What a point costs.
#[derive(Debug, Clone, Default)]
pub(super) struct Economy {
    step: f64,
    watts: f64,
    dollars_per_hour: Option<f64>,
    training_seconds: Option<f64>,
    training_dollars: Option<f64>,
    /// Why failures leave no progress.
    pub(super) never_finishes: Option<String>,
}

/// Fills in what a point costs on `cluster`, whose prices and power count.
pub(super) fn economy(row: &mut Filling, draft: &Draft, plan: &Plan, cluster: &Cluster) -> Economy {
    let estimate = &plan.estimate;
    let step = estimate.step_time_seconds.get();
    let rate = plan.inputs.workload.tokens() / step;
    let busy = step * (1.0 - estimate.bubble_fraction.clamp(0.0, 1.0));
    let joules =
        solver::Objective::Energy.value(cluster, estimate.step_time_seconds, cluster_profiles::Seconds(busy));
    let watts = joules / step;
    let dollars = cluster.groups.iter().map(|group| {
        let gpus = f64::from(group.nodes) * f64::from(group.node.gpus);
        group.dollars_per_gpu_hour.map(|price| price * gpus)
    });
    let dollars_per_hour: Option<f64> = dollars.sum();
    let failures = draft.failures.of_job(&job(plan));
    let goodput = failures.map(|failures| failures.goodput(draft.failures.interval));
    let fraction = goodput.map_or(1.0, |goodput| goodput.fraction);
    let seconds = draft.tokens.filter(|_| fraction > 0.0).map(|tokens| tokens / rate / fraction);
    row.number("power_watts", watts);
    row.number("joules_per_token", watts / rate);
    if let Some(goodput) = goodput {
        row.number("goodput_fraction", goodput.fraction);
        row.number("checkpoint_interval_seconds", goodput.interval);
    }
    if let Some(dollars) = dollars_per_hour {
        row.number("cluster_dollars_per_hour", dollars);
        row.number("dollars_per_billion_tokens", dollars / 3600.0 / rate / fraction * 1e9);
    }
    let training_dollars = seconds.zip(dollars_per_hour).map(|(seconds, dollars)| seconds / 3600.0 * dollars);
    if let Some(seconds) = seconds {
        row.number("training_seconds", seconds);
        row.number("training_joules", seconds * watts);
    }
    if let Some(dollars) = training_dollars {
        row.number("training_dollars", dollars);
    }
    let never_finishes = failures.zip(goodput).filter(|(_, goodput)| goodput.fraction <= 0.0);
    let never_finishes = never_finishes.map(|(failures, goodput)| failures.why_never(goodput.interval));
    Economy { step, watts, dollars_per_hour, training_seconds: seconds, training_dollars, never_finishes }
}

/// Bytes that a checkpoint holds of a parameter: 16-bit weights and the optimizer's state.
const fn checkpoint_bytes(optimizer: Optimizer) -> f64 {
    match optimizer {
        Optimizer::Adamw => 2.0 + 12.0,
        Optimizer::AdamwBf16 | Optimizer::Sgd | Optimizer::Muon => 2.0 + 8.0,
    }
}

fn job(plan: &Plan) -> Job {
    let cluster = &plan.inputs.cluster;
    let node = &cluster.main().node;
    Job {
        gpus: cluster.gpu_count() as f64,
        node_gpus: f64::from(node.gpus),
        parameters: (plan.parameters_total + plan.parameters_mtp) as f64,
        bytes_per_parameter: checkpoint_bytes(plan.inputs.workload.optimizer),
        host_bandwidth: node.host.bandwidth.get(),
    }
}

impl Limits {
    /// The limits a point does not keep.
    pub(super) fn broken(&self, economy: &Economy) -> Vec<&'static str> {
        let over = |limit: Option<f64>, value: Option<f64>| {
            limit.zip(value).is_some_and(|(most, value)| value > most)
        };
        let priced = self.dollars.or(self.dollars_per_hour).is_none() || economy.dollars_per_hour.is_some();
        [
            ("price", !priced),
            ("goodput", economy.never_finishes.is_some()),
            ("step_time", over(self.step_time_seconds, Some(economy.step))),
            ("power", over(self.power_watts, Some(economy.watts))),
            ("dollars_per_hour", over(self.dollars_per_hour, economy.dollars_per_hour)),
            ("dollars", over(self.dollars, economy.training_dollars)),
            ("deadline", over(self.deadline_seconds, economy.training_seconds)),
        ]
        .into_iter()
        .filter_map(|(name, broken)| broken.then_some(name))
        .collect()
    }
}
