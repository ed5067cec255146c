//! Why nothing fits, and what would.

use crate::divisors::divisors;
use crate::families::even_ends;
use crate::mesh::Mesh;
use crate::observer::Patience;
use crate::problem::Problem;
use crate::relaxed;
use crate::solve::{best_of, space_of};
use crate::space::{Pruned, SearchSpace};
use crate::splits::stage_map;
use crate::times::run_of;
use crate::units::Units;
use cluster_profiles::Bytes;
use cost_models::memory::rank_memory;
use cost_models::rules::ENGINES;
use cost_models::sites::rank_limits;
use cost_models::{Optimizer, ParallelConfig, RankMemory, Recompute, Runtime, Workload};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Why no layout will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Infeasible {
    /// The memory term that is largest on the fullest rank of the leanest layout; or, where no layout is legal, the rule
    /// that excludes most of them, `constraint` for what was fixed and forbidden.
    pub binding_term: String,
    /// Bytes by which the leanest layout exceeds the limit; 0 where no layout is legal.
    pub shortfall_bytes: Bytes,
    /// The reason in words.
    pub reason: String,
    /// The leanest layout, if any is legal.
    pub leanest: Option<Leanest>,
    /// Changes that would give a plan, each tried.
    pub nearest: Vec<Change>,
}

/// A change to the problem that gives a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What to change.
    pub change: String,
    /// The layout that then is best.
    pub parallel: ParallelConfig,
}

/// The layout that lacks least memory, and the rank that lacks most of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leanest {
    /// Its degrees.
    pub parallel: ParallelConfig,
    /// The memory of that rank.
    pub memory: RankMemory,
    /// The most its GPUs may hold.
    pub limit_bytes: Bytes,
}

impl Leanest {
    /// Bytes above the limit; negative where it fits.
    fn lacks(&self) -> Bytes {
        self.memory.peak_bytes - self.limit_bytes
    }
}

/// Smaller numbers of GPUs that are tried.
const MOST_SMALLER: usize = 4;
/// Other batches that are tried.
const MOST_BATCHES: usize = 24;

/// Explains a problem without a plan.
#[must_use]
pub fn explain(problem: &Problem, pruned: &Pruned, patience: Patience) -> Infeasible {
    match leanest(problem) {
        Some(leanest) => too_large(problem, leanest, nearest(problem, patience)),
        None => {
            let fewer = problem.nearest.then(|| fewer_gpus(problem, patience)).flatten();
            illegal(problem, pruned, fewer.into_iter().chain(nearest(problem, patience)).collect())
        }
    }
}

/// Explains wishes that exclude each other.
#[must_use]
pub fn contradicted(problem: &Problem, contradictions: &[String], patience: Patience) -> Infeasible {
    Infeasible {
        binding_term: "constraint".to_owned(),
        shortfall_bytes: Bytes::ZERO,
        reason: contradictions.join("; "),
        leanest: None,
        nearest: if problem.nearest { relaxed::changes(problem, patience) } else { Vec::new() },
    }
}

/// Explains a problem on GPUs of several kinds without a plan: `parts` are the sets of kinds, all together first.
#[must_use]
pub(crate) fn explain_mixed(problem: &Problem, parts: &[Problem], patience: Patience) -> Option<Infeasible> {
    let lean = parts.iter().filter_map(|part| Some((part, leanest(part)?)));
    let mut lean: Vec<(&Problem, Leanest)> = lean.collect();
    lean.sort_by(|(_, a), (_, b)| a.lacks().get().total_cmp(&b.lacks().get()));
    let kind = lean.iter().find(|(part, _)| part.cluster.is_homogeneous());
    let changes = kind.map_or_else(Vec::new, |(part, _)| {
        let alone = Problem { nearest: problem.nearest, ..(*part).clone() };
        let changes = nearest(&alone, patience).into_iter();
        let gpu = &part.cluster.gpu().title;
        changes.map(|one| Change { change: format!("{}, on {gpu} alone", one.change), ..one }).collect()
    });
    let (part, leanest) = lean.into_iter().next()?;
    Some(too_large(part, leanest, changes))
}

fn too_large(problem: &Problem, leanest: Leanest, nearest: Vec<Change>) -> Infeasible {
    let memory = &leanest.memory;
    let (term, bytes) = memory
        .terms()
        .into_iter()
        .max_by(|a, b| a.1.get().total_cmp(&b.1.get()))
        .unwrap_or(("parameters", Bytes::ZERO));
    let offloaded = problem.runtime.memory.state.optimizer_offload >= 1.0;
    let reason = format!(
        "the leanest layout on {} GPUs{} needs {:.1} GiB on pipeline rank {}, {:.1} GiB of it {term}; the limit is {:.1} GiB",
        problem.cluster.gpu_count(),
        if offloaded { ", the optimizer's state in host memory," } else { "" },
        memory.peak_bytes.as_gib(),
        memory.rank,
        bytes.as_gib(),
        leanest.limit_bytes.as_gib()
    );
    let shortfall = leanest.lacks().max(Bytes::ZERO);
    Infeasible {
        binding_term: term.to_owned(),
        shortfall_bytes: shortfall,
        reason,
        leanest: Some(leanest),
        nearest,
    }
}

/// The rule that excludes most layouts, if any does.
fn strictest(pruned: &Pruned) -> Option<String> {
    let rules = pruned.iter().filter(|(rule, _)| !["memory", "bound"].contains(&rule.as_str()));
    rules.max_by_key(|(_, layouts)| **layouts).map(|(rule, _)| rule.clone())
}

fn illegal(problem: &Problem, pruned: &Pruned, nearest: Vec<Change>) -> Infeasible {
    // A search over several kinds of GPU counts no rules of its own.
    let rule = strictest(pruned).or_else(|| strictest(&space_of(problem).meshes().pruned));
    let rule = rule.unwrap_or_else(|| "constraint".to_owned());
    let reason = if rule == "constraint" {
        let texts: Vec<String> =
            problem.constraints.as_slice().iter().map(crate::constraint::Constraint::describe).collect();
        format!("no legal layout keeps {}", texts.join(" "))
    } else {
        let rules = ENGINES.iter().flat_map(|engine| engine.rules);
        let statement = rules.into_iter().find(|known| known.id == rule).map_or("", |known| known.statement);
        format!("no layout on {} GPUs is legal: {statement}", problem.cluster.gpu_count())
    };
    Infeasible { binding_term: rule, shortfall_bytes: Bytes::ZERO, reason, leanest: None, nearest }
}

/// The legal layout that lacks least memory, or has most to spare, among those with even stages, the smallest micro batch,
/// everything recomputed and all state sharded as far as may be.
#[must_use]
pub fn leanest(problem: &Problem) -> Option<Leanest> {
    let units = Units::new(problem.model);
    let space = space_of(problem);
    let meshes = space.meshes().list;
    let same = |a: &Mesh, b: &Mesh| {
        Mesh { micro_batch_size: 0, num_microbatches: 0, ..*a }
            == Mesh { micro_batch_size: 0, num_microbatches: 0, ..*b }
    };
    let smallest: Vec<&Mesh> = meshes.chunk_by(|a, b| same(a, b)).filter_map(|group| group.first()).collect();
    let peaks: Vec<Option<Leanest>> =
        smallest.par_iter().map(|mesh| leanest_of(problem, &units, &space, mesh)).collect();
    let lean = peaks.into_iter().flatten();
    lean.min_by(|a, b| a.lacks().get().total_cmp(&b.lacks().get()))
}

fn leanest_of(problem: &Problem, units: &Units, space: &SearchSpace, mesh: &Mesh) -> Option<Leanest> {
    let list = || space.recomputes().iter().copied();
    let repeats = |recompute: &Recompute| !recompute.is_moving();
    let modules = |recompute: &Recompute| matches!(recompute, Recompute::Modules(_));
    let recompute = list().filter(repeats).max().or_else(|| list().filter(modules).max())?;
    let sharding = space
        .shardings(mesh)
        .into_iter()
        .max_by_key(|s| (s.zero_stage, Reverse((s.dp_replicate, s.rank_order))))?;
    let layouts = space.layouts(mesh, &mut Pruned::new());
    if !layouts.shardings.contains(&sharding) {
        return None;
    }
    let able = layouts.pipelines.into_iter().filter(|pipeline| pipeline.recompute == recompute);
    let pipeline = able.min_by_key(|pipeline| pipeline.vpp)?;
    let parallel = mesh.with(&pipeline, sharding);
    let placement = pipeline.schedule.kind.definition().placement;
    let ends = even_ends(units, (mesh.pp * pipeline.vpp) as usize);
    let stages = stage_map(units, &parallel, placement, &ends);
    let run = run_of(problem, &parallel, &stages);
    let ranks = rank_memory(&run).ok()?.into_iter().zip(rank_limits(&run, problem.limit()));
    let ranks =
        ranks.map(|(memory, limit_bytes)| Leanest { parallel: parallel.clone(), memory, limit_bytes });
    ranks.max_by(|a, b| a.lacks().get().total_cmp(&b.lacks().get()))
}

/// Changes of one input, each the smallest of its kind that gives a plan.
fn nearest(problem: &Problem, patience: Patience) -> Vec<Change> {
    let mut changes = Vec::new();
    if !problem.nearest {
        return changes;
    }
    changes.extend(more_gpus(problem, patience));
    changes.extend(shorter_sequence(problem, patience));
    changes.extend(other_batch(problem, patience));
    changes.extend(smaller_optimizer(problem, patience));
    changes.extend(offloaded_optimizer(problem, patience));
    changes.extend(larger_limit(problem, patience));
    changes.extend(relaxed::changes(problem, patience));
    changes
}

/// The change, if the changed problem has a plan.
pub(crate) fn tried(problem: &Problem, change: String, patience: Patience) -> Option<Change> {
    if patience.is_over() {
        return None;
    }
    let fits = leanest(problem).is_some_and(|lean| lean.lacks() <= Bytes::ZERO);
    let best = fits.then(|| best_of(problem, patience))??;
    Some(Change { change, parallel: best.parallel })
}

/// A larger number of GPUs that the cluster's nodes can be cut to.
pub(crate) fn more_gpus(problem: &Problem, patience: Patience) -> Option<Change> {
    let gpus = problem.cluster.gpu_count();
    let node = u64::from(problem.whole.unwrap_or(problem.cluster).main().node.gpus).max(1);
    let within = (gpus + 1..node).filter(|size| node.is_multiple_of(*size));
    let whole = gpus.div_ceil(node).max(1);
    let next = (whole..2 * whole).map(|nodes| nodes * node).filter(|size| *size > gpus).take(3);
    let multiples = [2, 3, 4, 6, 8, 12, 16, 32, 64].map(|factor| whole * factor * node);
    within.chain(next).chain(multiples).find_map(|size| with_gpus(problem, size, patience))
}

/// A smaller number of GPUs: what divides a node, whole nodes above.
fn fewer_gpus(problem: &Problem, patience: Patience) -> Option<Change> {
    let gpus = problem.cluster.gpu_count();
    let node = u64::from(problem.whole.unwrap_or(problem.cluster).main().node.gpus).max(1);
    let nodes = (1..=gpus / node).rev().map(|nodes| nodes * node).filter(|size| *size < gpus).take(3);
    let parts = (1..gpus.min(node)).rev().filter(|size| node.is_multiple_of(*size));
    nodes.chain(parts).take(MOST_SMALLER).find_map(|size| with_gpus(problem, size, patience))
}

fn with_gpus(problem: &Problem, size: u64, patience: Patience) -> Option<Change> {
    let cluster = problem.whole.unwrap_or(problem.cluster).resized(size).ok()?;
    tried(&Problem { cluster: &cluster, ..problem.clone() }, format!("use {size} GPUs"), patience)
}

fn shorter_sequence(problem: &Problem, patience: Patience) -> Option<Change> {
    let lengths =
        (1..=6).map(|halvings| problem.workload.seq_len >> halvings).filter(|length| *length >= 128);
    lengths.into_iter().find_map(|seq_len| {
        let workload = Workload { seq_len, ..problem.workload.clone() };
        tried(
            &Problem { workload: &workload, ..problem.clone() },
            format!("train on sequences of {seq_len} tokens"),
            patience,
        )
    })
}

/// The nearest batches that are a multiple of the GPUs or of a part of them, what is left for model parallelism; and halves.
fn other_batch(problem: &Problem, patience: Patience) -> Option<Change> {
    let batch = problem.workload.global_batch;
    let parts = divisors(problem.cluster.gpu_count().max(1));
    let multiples = parts.iter().flat_map(|part| [batch / part * part, batch.div_ceil(*part) * part]);
    let halves = (1..=3).map(|halvings| batch >> halvings);
    let far = |size: u64| size.max(1) * 4 < batch || size / 4 > batch;
    let mut sizes: Vec<u64> = multiples.chain(halves).filter(|size| *size != batch && !far(*size)).collect();
    let distance = |size: &u64| size.abs_diff(batch);
    sizes.sort_by_key(|size| (distance(size), *size));
    sizes.dedup();
    sizes.into_iter().take(MOST_BATCHES).find_map(|global_batch| {
        let workload = Workload { global_batch, ..problem.workload.clone() };
        tried(
            &Problem { workload: &workload, ..problem.clone() },
            format!("use a global batch of {global_batch}"),
            patience,
        )
    })
}

fn smaller_optimizer(problem: &Problem, patience: Patience) -> Option<Change> {
    if problem.workload.optimizer != Optimizer::Adamw {
        return None;
    }
    let workload = Workload { optimizer: Optimizer::AdamwBf16, ..problem.workload.clone() };
    tried(
        &Problem { workload: &workload, ..problem.clone() },
        "keep Adam's moments in bf16 (adamw-bf16)".to_owned(),
        patience,
    )
}

fn offloaded_optimizer(problem: &Problem, patience: Patience) -> Option<Change> {
    if !problem.offloads || problem.runtime.memory.state.optimizer_offload >= 1.0 {
        return None;
    }
    let mut runtime: Runtime = problem.runtime.clone();
    runtime.memory.state.optimizer_offload = 1.0;
    tried(
        &Problem { runtime: &runtime, ..problem.clone() },
        "keep the optimizer's state in host memory (--offload optimizer)".to_owned(),
        patience,
    )
}

fn larger_limit(problem: &Problem, patience: Patience) -> Option<Change> {
    let capacities = problem.cluster.groups.iter().map(|group| group.gpu.memory.get());
    let capacity = Bytes(capacities.fold(f64::INFINITY, f64::min));
    let needed = leanest(problem)?.memory.peak_bytes;
    if needed > capacity || needed <= problem.limit() {
        return None;
    }
    let limit = Bytes((needed.as_gib() * 10.0).ceil() / 10.0 * Bytes::GIB).min(capacity);
    let change = format!("allow {:.1} GiB per GPU (--memory-limit)", limit.as_gib());
    tried(&Problem { memory_limit: Some(limit), ..problem.clone() }, change, patience)
}
