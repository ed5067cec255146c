//! Interleaved 1F1B (arXiv:2104.04473): v chunks a rank, microbatches in groups of g, chunk by chunk.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1f0f1F2..b0--F3b1--f2B0--f3B1--..b2--..b3--B2--B3--|
//! rank 1 |..F0F1f0b0--f1b1--F2B0--F3B1--f2b2--f3b3--B2--B3--....|
//! ```
//!
//! Bubble (p - 1)(tF + tB) in chunk times, 1/v of 1F1B's; rank r holds min(mv, 2(p - 1 - r) + (v - 1)g + 1).

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::{GroupRule, Rules, Sizes};

/// Interleaved 1F1B.
pub(super) const DEFINITION: Definition = Definition {
    name: "interleaved-1f1b",
    summary: "1F1B over v chunks a rank: 1/v of the bubble for v times the messages",
    source: "torch ScheduleInterleaved1F1B; Megatron-LM pipeline_parallel/schedules.py; arXiv:2104.04473",
    default_chunks: 2,
    rules,
    grouped: true,
    round: group_size,
    orders: Generator::PerRank(|sizes, rank| order(sizes, rank, false)),
    ..Definition::LOOPED
};

/// Megatron's or torch's rules on m and the group size.
pub(super) fn rules(sizes: &Sizes, rules: &mut Rules) {
    match sizes.group_rule {
        GroupRule::Megatron => megatron_rules(sizes, rules),
        GroupRule::Torch => torch_rules(sizes, rules),
    }
}

fn megatron_rules(sizes: &Sizes, rules: &mut Rules) {
    let (p, m, g) = (sizes.p, sizes.m, group_size(sizes));
    let rule = "Megatron-LM interleaves only over more than one pipeline rank";
    rules.require(p > 1, "ranks", p, rule, "use 2 or more ranks, or 1f1b");
    let rule = "Megatron-LM's microbatch group size lies between the ranks and the microbatches";
    let hint = format_args!("choose a group size from {p} to {m}, and at least {p} microbatches");
    rules.require(p <= g && g <= m, "group_size", g, rule, hint);
    let rest = m % g.max(1);
    let rule =
        format_args!("Megatron-LM needs a multiple of the group size {g}, or a last group of at least {p}");
    let hint = format_args!("use {} microbatches", m - rest + g);
    rules.require(rest == 0 || rest >= p, "microbatches", m, rule, hint);
}

/// torch's rule alone: equal rounds.
pub(super) fn torch_rules(sizes: &Sizes, rules: &mut Rules) {
    let rounds = (sizes.m / sizes.p).max(1);
    let rule = format_args!("torch needs a multiple of its number of rounds, max(1, m / p) = {rounds}");
    let hint = format_args!("use {} microbatches", sizes.m.div_ceil(rounds) * rounds);
    rules.require(sizes.m.is_multiple_of(rounds), "microbatches", sizes.m, rule, hint);
}

/// g: what was asked for, else p for Megatron and m / rounds for torch.
pub(super) fn group_size(sizes: &Sizes) -> u32 {
    sizes.group_rule.group(sizes.p, sizes.m, sizes.group)
}

/// (chunk, microbatch) of every virtual microbatch: groups of g, chunk-major inside a group.
pub(super) fn table(sizes: &Sizes, g: u32) -> Vec<(u32, u32)> {
    let mut table = Vec::with_capacity((sizes.m * sizes.v) as usize);
    for start in (0..sizes.m).step_by(g as usize) {
        let group = start..(start + g).min(sizes.m);
        table.extend((0..sizes.v).flat_map(|chunk| group.clone().map(move |j| (chunk, j))));
    }
    table
}

/// The `k`-th forward and backward of a rank.
pub(super) struct Steps {
    table: Vec<(u32, u32)>,
    sizes: Sizes,
    rank: u32,
}

impl Steps {
    pub(super) fn new(sizes: &Sizes, rank: u32, g: u32) -> Steps {
        Steps { table: table(sizes, g), sizes: *sizes, rank }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn forward(&self, k: usize) -> Op {
        let (chunk, j) = self.table[k];
        Op::f(chunk * self.sizes.p + self.rank, j)
    }

    /// Stage and microbatch of the `k`-th backward: the same table, last chunk first.
    pub(super) fn backward(&self, k: usize) -> (u32, u32) {
        let (chunk, j) = self.table[k];
        ((self.sizes.v - 1 - chunk) * self.sizes.p + self.rank, j)
    }

    pub(super) fn full_backward(&self, k: usize) -> Op {
        let (stage, j) = self.backward(k);
        Op::b(stage, j)
    }
}

/// The order. Combined, it has one forward more in the warm-up, so that the steady pairs are independent, and those
/// pairs are atomic.
pub(super) fn order(sizes: &Sizes, rank: u32, combined: bool) -> Vec<Op> {
    let g = group_size(sizes);
    let steps = Steps::new(sizes, rank, g);
    let warmup = 2 * (sizes.p - 1 - rank) + (sizes.v - 1) * g + u32::from(combined);
    let (total, warmup) = (steps.len(), (warmup as usize).min(steps.len()));
    let mut ops: Vec<Op> = (0..warmup).map(|k| steps.forward(k)).collect();
    for k in warmup..total {
        let forward = Op { paired: combined, ..steps.forward(k) };
        ops.extend([forward, steps.full_backward(k - warmup)]);
    }
    ops.extend((total - warmup..total).map(|k| steps.full_backward(k)));
    ops
}
