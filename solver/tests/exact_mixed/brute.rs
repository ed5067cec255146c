//! Every arrangement of hosts, every degree and every split through the estimate.

use crate::support::kinds::sequences;
use crate::support::runs::{all_splits, chain};
use cluster_profiles::Cluster;
use cost_models::rules::{Facts, engine};
use cost_models::sites::{limit_of_part, rank_limits};
use cost_models::{ParallelConfig, Recompute, TrainingRun, estimate};
use rayon::prelude::*;
use solver::Problem;
use solver::times::run_of;
use solver::units::Units;

/// Every order of the hosts of a cluster that differs in its kinds.
pub fn arrangements(cluster: &Cluster) -> Vec<Cluster> {
    let counts: Vec<usize> = cluster.groups.iter().map(|group| group.nodes as usize).collect();
    let firsts: Vec<usize> = (0..counts.len()).map(|kind| counts[..kind].iter().sum()).collect();
    let names = cluster.host_names();
    sequences(&counts)
        .into_iter()
        .map(|kinds| {
            let mut next = firsts.clone();
            let mut take = |kind: &usize| {
                next[*kind] += 1;
                names[next[*kind] - 1].clone()
            };
            let hosts: Vec<String> = kinds.iter().map(&mut take).collect();
            cluster.arranged(&hosts).expect("its own hosts")
        })
        .collect()
}

/// Every set of kinds.
pub fn parts(cluster: &Cluster) -> Vec<Cluster> {
    let sets = 1..1usize << cluster.groups.len();
    let part = |set: usize| {
        let chosen = |(index, group): (usize, _)| (set & (1 << index) != 0).then_some(group);
        let groups: Vec<_> = cluster.groups.iter().cloned().enumerate().filter_map(chosen).collect();
        let links = if groups.len() == cluster.groups.len() { cluster.links.clone() } else { Vec::new() };
        Cluster { groups, links, ..cluster.clone() }
    };
    sets.map(part).collect()
}

pub fn divisors(number: u64) -> Vec<u64> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect()
}

/// Every legal set of degrees of a part of the cluster.
pub fn degrees(problem: &Problem) -> Vec<ParallelConfig> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let engine = engine(&problem.runtime.name);
    // GPUs of several kinds form no tensor-parallel group; those of one kind may, over nodes too.
    let node = problem.cluster.groups.iter().map(|group| u64::from(group.node.gpus)).min().unwrap_or(1);
    let most_tp = if problem.cluster.is_homogeneous() { facts.world } else { node };
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }];
    let mut list = Vec::new();
    for tp in divisors(facts.world).into_iter().filter(|tp| *tp <= most_tp) {
        for pp in divisors(facts.world / tp) {
            let dp = facts.world / tp / pp;
            for (micro, replicas, zero) in data_parallel(dp, facts.global_batch) {
                for (recompute, sequence_parallel) in
                    recomputes.iter().flat_map(|own| [(*own, false), (*own, true)])
                {
                    let parallel = ParallelConfig {
                        tp: tp as u32,
                        pp: pp as u32,
                        dp_replicate: replicas as u32,
                        dp_shard: (dp / replicas) as u32,
                        zero_stage: zero,
                        micro_batch_size: micro,
                        num_microbatches: facts.global_batch / (micro * dp),
                        sequence_parallel,
                        schedule: "1f1b".to_owned(),
                        recompute,
                        ..ParallelConfig::default()
                    };
                    let legal = engine.allows(&facts, &parallel);
                    if legal && problem.constraints.first_broken(&parallel, problem.cluster).is_none() {
                        list.push(parallel);
                    }
                }
            }
        }
    }
    list
}

/// Micro batch, replicas and stage of ZeRO.
pub fn data_parallel(dp: u64, batch: u64) -> Vec<(u64, u64, u8)> {
    let micros = divisors(batch).into_iter().filter(|micro| batch.is_multiple_of(micro * dp));
    micros
        .flat_map(|micro| {
            let sharded = divisors(dp).into_iter().map(move |replicas| (micro, replicas, 1));
            std::iter::once((micro, 1, 0)).chain(sharded)
        })
        .collect()
}

/// Seconds of a step, if the layout is legal and every GPU has room.
pub fn judged(
    problem: &Problem,
    cluster: &Cluster,
    parallel: &ParallelConfig,
    ends: &[usize],
) -> Option<f64> {
    let units = Units::new(problem.model);
    let stages = chain(ends, |range| units.layers(range), parallel.recompute);
    let run = TrainingRun { cluster, ..run_of(problem, parallel, &stages) };
    if !cost_models::rules::broken(&run).is_empty() {
        return None;
    }
    let prediction = estimate(&run).ok()?;
    let limits = rank_limits(&run, problem.limit());
    let fits = prediction.memory.iter().zip(limits).all(|(rank, limit)| rank.peak_bytes <= limit);
    fits.then(|| prediction.step_time_seconds.get())
}

/// The shortest step on any set of the kinds, with the hosts in any order.
pub fn brute_force(problem: &Problem) -> Option<f64> {
    let units = Units::new(problem.model).len();
    let best_of = |part: &Cluster| {
        let limit = limit_of_part(part, problem.cluster, problem.runtime, problem.limit());
        let own = Problem { cluster: part, memory_limit: Some(limit), ..problem.clone() };
        let degrees = degrees(&own);
        let orders = arrangements(part);
        let steps = degrees.par_iter().filter_map(|parallel| {
            let splits = all_splits(units, parallel.pp as usize);
            let orders = if parallel.pp == 1 { &orders[..1] } else { &orders[..] };
            let steps = orders
                .iter()
                .flat_map(|order| splits.iter().filter_map(|ends| judged(&own, order, parallel, ends)));
            steps.reduce(f64::min)
        });
        steps.reduce_with(f64::min)
    };
    parts(problem.cluster).iter().filter_map(best_of).reduce(f64::min)
}
