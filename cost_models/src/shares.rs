//! Data-parallel groups over GPUs of several kinds, whose ranks take micro batches of different sizes.
//!
//! With one micro batch for all, a group waits for its slowest GPU and fits only if its smallest does. Cephalo (Guo et al.,
//! ICS 2025, arXiv 2411.01075) and Zorse (arXiv 2507.10392) give the ranks of every kind `k` a micro batch of their own, `b_k`
//! sequences. All ranks run as many microbatches, since every one of them is a round of collectives. With `n_k` data-parallel
//! ranks of kind `k` and `m` microbatches,
//!
//! ```text
//! sum over k of n_k b_k = global batch / m
//! step = max over k of (m f_k(b_k) + e_k(b_k)) + max over k of o_k
//! ```
//!
//! `f` seconds of a microbatch through all layers on a GPU of the kind, with what the group's collectives leave exposed beside
//! its own computation (over the slowest way and the smallest domain of the whole group), `e` what is exposed once in a step,
//! `o` the optimizer. A rank of kind `k` holds the activations of `b_k` sequences.
//!
//! Apart from that, the sharded parameters, gradients and optimizer state may lie unevenly: a rank of kind `k` holds the part
//! `s_k` of them, `sum over k of n_k s_k = 1`. Every collective then takes as long as one over equal shards of the largest,
//!
//! ```text
//! all_gather, reduce_scatter of P bytes  =  the same of N P max over k of s_k,     N = sum over k of n_k
//! ```
//!
//! since in every step of a ring some link carries the largest shard and the next step waits for it (torch's `ProcessGroupNCCL`
//! makes an `all_gather` of uneven tensors of one broadcast by every rank, which is no faster). The optimizer takes a rank
//! `s_k N` of what equal shards take. No engine of the catalogue shards so: torch's `FullyShardedDataParallel` pads a flat
//! parameter and chunks it evenly, and `fully_shard` chunks every parameter by `torch.chunk(dim=0)`, so that each rank has the
//! same bytes of state whatever its micro batch. An engine that does says so in its profile (`uneven_shards`).
//!
//! FSDP averages gradients over ranks. Where ranks have different numbers of tokens that is the mean over all tokens only if
//! every rank divides its summed loss by the tokens of all ranks over the number of ranks ([`WEIGHTING`]).

use crate::parallel::ParallelConfig;
use crate::rules::Violation;
use crate::run::TrainingRun;
use crate::sites::{Site, Sites, speed};
use cluster_profiles::Cluster;
use serde::{Deserialize, Serialize};

/// What a training loop has to do where ranks have micro batches of different sizes.
pub const WEIGHTING: &str = "micro batches differ between ranks: gradients must be weighted by tokens, so sum the loss over a rank's tokens and \
     multiply it by ranks / tokens of all ranks in the step before the backward (FSDP averages gradients over ranks)";

/// What every data-parallel rank on GPUs of one kind takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KindShare {
    /// The kind, by the name of its GPU.
    pub gpu: String,
    /// Data-parallel ranks on it.
    pub ranks: u32,
    /// Sequences of a microbatch on each of them.
    pub micro_batch_size: u64,
    /// Sharded state on each of them, as a weight beside those of the other kinds.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub state: u32,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_one(weight: &u32) -> bool {
    *weight == 1
}

impl ParallelConfig {
    /// The sizes of micro batches that its ranks have.
    pub fn micro_batch_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        let equal = self.shares.is_empty().then_some(self.micro_batch_size);
        equal.into_iter().chain(self.shares.iter().map(|share| share.micro_batch_size))
    }

    /// Sequences of one microbatch on all data-parallel ranks together.
    #[must_use]
    pub fn sequences_per_microbatch(&self) -> u64 {
        if self.shares.is_empty() {
            let ranks = u64::from(self.dp_replicate).saturating_mul(u64::from(self.dp_shard));
            return self.micro_batch_size.saturating_mul(ranks);
        }
        let of_kind = |share: &KindShare| share.micro_batch_size.saturating_mul(u64::from(share.ranks));
        self.shares.iter().map(of_kind).fold(0, u64::saturating_add)
    }

    /// The layout with these shares, or with one micro batch and even state for all where they are all the same. Weights of
    /// state are written without a common divisor.
    #[must_use]
    pub fn with_shares(mut self, mut shares: Vec<KindShare>) -> Self {
        self.micro_batch_size = shares.iter().map(|share| share.micro_batch_size).max().unwrap_or(1);
        let common = shares.iter().fold(0, |common, share| gcd(common, share.state)).max(1);
        shares.iter_mut().for_each(|share| share.state /= common);
        let equal = |share: &KindShare| {
            share.micro_batch_size == self.micro_batch_size && share.state == shares[0].state
        };
        self.shares = if shares.iter().all(equal) { Vec::new() } else { shares };
        self
    }

    /// The same with the micro batch of one kind for all.
    #[must_use]
    pub fn like(&self, share: &KindShare) -> Self {
        Self { micro_batch_size: share.micro_batch_size, ..self.clone() }
    }

    /// Whether micro batches differ between the ranks of a data-parallel group.
    #[must_use]
    pub fn has_unequal_micro_batches(&self) -> bool {
        self.shares.iter().any(|share| share.micro_batch_size != self.micro_batch_size)
    }

    /// Whether sharded state differs between the ranks of a data-parallel group.
    #[must_use]
    pub fn has_uneven_state(&self) -> bool {
        self.shares.iter().any(|share| share.state != self.shares[0].state)
    }

    /// Sharded state of a rank with this weight over that of even shards: `s_k N`.
    #[must_use]
    pub fn relative_state(&self, weight: u32) -> f64 {
        if !self.has_uneven_state() {
            return 1.0;
        }
        let ranks: f64 = self.shares.iter().map(|share| f64::from(share.ranks)).sum();
        let whole = |share: &KindShare| f64::from(share.ranks) * f64::from(share.state);
        f64::from(weight) * ranks / self.shares.iter().map(whole).sum::<f64>()
    }

    /// The largest shard over an even one.
    #[must_use]
    pub fn largest_shard(&self) -> f64 {
        self.relative_state(self.shares.iter().map(|share| share.state).max().unwrap_or(1))
    }
}

/// The data-parallel ranks of a layout without pipeline by kind of GPU, in the order in which the kinds come; none if a rank
/// has GPUs of several kinds.
#[must_use]
pub fn ranks_by_kind(cluster: &Cluster, parallel: &ParallelConfig) -> Option<Vec<(String, u32)>> {
    let size = u64::from(parallel.tp) * u64::from(parallel.cp);
    let mut kinds: Vec<(String, u32)> = Vec::new();
    let mut begun: Option<(&str, u64)> = None;
    for group in &cluster.groups {
        let name = group.gpu.name.as_str();
        let own = match begun.take() {
            Some((before, gpus)) if before == name => gpus,
            Some(_) => return None,
            None => 0,
        };
        let gpus = own + u64::from(group.nodes) * u64::from(group.node.gpus);
        let ranks = u32::try_from(gpus / size.max(1)).ok()?;
        match kinds.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += ranks,
            None => kinds.push((name.to_owned(), ranks)),
        }
        begun = Some((name, gpus % size.max(1))).filter(|(_, left)| *left > 0);
    }
    begun.is_none().then_some(kinds)
}

impl Sites {
    /// The same where all GPUs of every pipeline rank are of one kind, with the ways of the whole groups.
    #[must_use]
    pub fn on_kind(&self, cluster: &Cluster, gpu: &str) -> Option<Self> {
        let group = slowest_group(cluster, gpu)?;
        let list = self.list.iter().map(|site| Site { group, smallest: group, ..site.clone() });
        Some(Self { list: list.collect(), hops: self.hops.clone(), broken: self.broken.clone() })
    }
}

/// The group of nodes with the slowest GPUs of a kind.
#[must_use]
pub fn slowest_group(cluster: &Cluster, gpu: &str) -> Option<usize> {
    let own = (0..cluster.groups.len()).filter(|&index| cluster.groups[index].gpu.name == gpu);
    own.min_by(|a, b| speed(&cluster.groups[*a].gpu).total_cmp(&speed(&cluster.groups[*b].gpu)))
}

/// What is wrong with the shares of a run.
#[must_use]
pub fn faults(run: &TrainingRun) -> Vec<Violation> {
    let parallel = run.parallel;
    if parallel.shares.is_empty() {
        return Vec::new();
    }
    let violation = |message: String, hint: &str| {
        vec![Violation { id: "S1".to_owned(), message, hint: Some(hint.to_owned()) }]
    };
    if parallel.pp != 1 || parallel.ep != 1 {
        let message = format!(
            "micro batches of different sizes with pp {} and ep {}: such ranks would exchange tensors of different sizes",
            parallel.pp, parallel.ep
        );
        return violation(message, "pp 1 and ep 1 work");
    }
    let Some(kinds) = ranks_by_kind(run.cluster, parallel) else {
        let message = format!(
            "a data-parallel rank of tp {} x cp {} has GPUs of several kinds",
            parallel.tp, parallel.cp
        );
        return violation(message, "choose tp x cp so that the GPUs of every kind are whole ranks");
    };
    let stated: Vec<(String, u32)> =
        parallel.shares.iter().map(|share| (share.gpu.clone(), share.ranks)).collect();
    if stated != kinds {
        let message = format!("shares are for {}, the ranks are {}", listed(&stated), listed(&kinds));
        return violation(message, "state one share for every kind of GPU, in rank order");
    }
    let sizes = || parallel.micro_batch_sizes();
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let states = parallel.shares.iter().map(|share| share.state);
    let equal = least == most && !parallel.has_uneven_state();
    if least == 0 || equal || most != parallel.micro_batch_size || states.min() == Some(0) {
        let message = format!(
            "the micro batches of the kinds go from {least} to {most}, and micro_batch_size is {}",
            parallel.micro_batch_size
        );
        let hint = "sizes and states are at least 1, not all are equal, micro_batch_size is the largest";
        return violation(message, hint);
    }
    uneven_fault(run).into_iter().collect()
}

/// What speaks against uneven shards of state.
fn uneven_fault(run: &TrainingRun) -> Option<Violation> {
    let parallel = run.parallel;
    if !parallel.has_uneven_state() {
        return None;
    }
    let violation = |message: String, hint: &str| {
        Some(Violation { id: "S2".to_owned(), message, hint: Some(hint.to_owned()) })
    };
    if !run.runtime.uneven_shards {
        let message = format!("{} shards state evenly over its ranks", run.runtime.name);
        return violation(message, "a profile of an engine that does otherwise says uneven_shards = true");
    }
    if parallel.zero_stage < 2 || parallel.dp_replicate != 1 {
        let message =
            format!("uneven shards with ZeRO-{} and {} replicas", parallel.zero_stage, parallel.dp_replicate);
        return violation(message, "zero_stage 2 or 3 and dp_replicate 1 work");
    }
    None
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn listed(kinds: &[(String, u32)]) -> String {
    let kinds = kinds.iter().map(|(gpu, ranks)| format!("{ranks} x {gpu}"));
    kinds.collect::<Vec<_>>().join(" + ")
}
