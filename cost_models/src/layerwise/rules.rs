//! What layer strategies have to keep.

use super::layered::{config_of, is_block};
use super::{LayerStrategies, Sharding, Strategy, StrategyRun};
use crate::parallel::Recompute;
use crate::rules::{Facts, Violation, engine};
use crate::run::TrainingRun;

/// Every rule that the strategies break, beyond those of the run by itself.
pub(super) fn faults(run: &TrainingRun, strategies: &LayerStrategies) -> Vec<Violation> {
    let own = engine(&run.runtime.name);
    if !own.layerwise {
        let hint = "runtime galvatron has strategies by layer".to_owned();
        return vec![violation("L1", format!("{} runs all layers alike", own.name), Some(hint))];
    }
    let mut faults = Vec::new();
    faults.extend(covered(run, strategies));
    faults.extend(cluster(run));
    faults.extend(stated_twice(run));
    faults.extend(default_sharding(run, strategies));
    let facts = Facts::new(run.model, run.cluster, run.workload);
    let known = own.broken(&facts, run.parallel);
    for of_run in &strategies.0 {
        let sizes = sizes(run, of_run);
        if sizes.is_empty() {
            let config = config_of(run.parallel, &of_run.strategy);
            let broken = own.broken(&facts, &config).into_iter().filter(|rule| !judged(&known, rule));
            faults.extend(broken.map(|rule| Violation { message: at(of_run, &rule.message), ..rule }));
        }
        faults.extend(sizes);
    }
    faults
}

/// Whether a rule is broken by the run itself; how many sequences a step has is no matter of a layer.
fn judged(known: &[Violation], rule: &Violation) -> bool {
    known.contains(rule) || (rule.id == "M12" && known.iter().any(|own| own.id == rule.id))
}

fn violation(id: &str, message: String, hint: Option<String>) -> Violation {
    Violation { id: id.to_owned(), message, hint }
}

fn at(run: &StrategyRun, message: &str) -> String {
    format!("blocks {} to {}: {message}", run.layers[0], run.layers[1])
}

/// The runs hold every block once, in order.
fn covered(run: &TrainingRun, strategies: &LayerStrategies) -> Option<Violation> {
    let blocks = run.model.layers.iter().filter(|layer| is_block(layer)).count();
    let mut next = 0;
    for of_run in &strategies.0 {
        let [first, last] = of_run.layers;
        if u64::from(first) != next || last < first || last as usize >= blocks {
            let message = format!(
                "a strategy is for blocks {first} to {last}, but {next} comes next of 0 to {}",
                blocks.saturating_sub(1)
            );
            return Some(violation("L2", message, Some("every block once, in order".to_owned())));
        }
        next = u64::from(last) + 1;
    }
    let message = format!("the strategies hold {next} blocks, the model has {blocks}");
    (next != blocks as u64).then(|| violation("L2", message, None))
}

/// Ranks of a stage have to be alike.
fn cluster(run: &TrainingRun) -> Option<Violation> {
    let even = run.cluster.is_homogeneous() && run.cluster.is_even();
    let message = "the cluster has unequal GPUs or links".to_owned();
    (!even).then(|| violation("L3", message, Some("strategies by layer need equal ones".to_owned())))
}

/// Recompute is the strategies' business, and stages have one chunk.
fn stated_twice(run: &TrainingRun) -> Vec<Violation> {
    let mut faults = Vec::new();
    let stages = run.stages.0.iter().map(|stage| stage.recompute);
    if let Some(other) =
        std::iter::once(run.parallel.recompute).chain(stages).find(|own| *own != Recompute::None)
    {
        let message = format!("recompute is {other} beside strategies by layer");
        faults.push(violation("L4", message, Some("state it in the strategies".to_owned())));
    }
    if run.parallel.vpp != 1 {
        let message = format!("{} chunks per rank with strategies by layer", run.parallel.vpp);
        faults.push(violation("L5", message, Some("vpp 1 works".to_owned())));
    }
    faults
}

/// Whatever is not fully sharded is sharded in one way.
fn default_sharding(run: &TrainingRun, strategies: &LayerStrategies) -> Option<Violation> {
    let stages = strategies.0.iter().map(|of_run| of_run.strategy.sharding.zero_stage());
    let all: Vec<u8> = stages.chain([run.parallel.zero_stage]).collect();
    let has = |sharding: Sharding| all.contains(&sharding.zero_stage());
    let message = "some layers are ddp, others zero2: there is one default, and zero3 beside it".to_owned();
    (has(Sharding::Ddp) && has(Sharding::Zero2)).then(|| violation("L6", message, None))
}

/// The degrees of one strategy by themselves.
fn sizes(run: &TrainingRun, of_run: &StrategyRun) -> Vec<Violation> {
    let Strategy { tp, recompute, .. } = of_run.strategy;
    let parallel = run.parallel;
    let ranks = u64::from(parallel.tp) * u64::from(parallel.dp());
    let mut faults = Vec::new();
    let mut add = |id, message: String, hint: String| {
        faults.push(violation(id, at(of_run, &message), Some(hint)));
    };
    if !matches!(recompute, Recompute::None | Recompute::Full { layers: None }) {
        add("L7", format!("recompute {recompute}"), "none or full works".to_owned());
    }
    if tp == 0 || !ranks.is_multiple_of(u64::from(tp)) {
        let hint = format!("a power of two that divides {ranks} works");
        add("L8", format!("tp {tp} does not divide the {ranks} ranks of a stage"), hint);
        return faults;
    }
    let dp = ranks / u64::from(tp);
    let sequences = parallel.micro_batch_size.saturating_mul(parallel.dp().into());
    if !sequences.is_multiple_of(dp) {
        let hint = "use a larger tp there, or fewer microbatches".to_owned();
        add("L9", format!("a microbatch of {sequences} sequences is no multiple of dp {dp}"), hint);
    }
    faults
}
