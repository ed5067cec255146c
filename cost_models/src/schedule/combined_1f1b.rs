//! Combined 1F1B (Megatron-LM `--overlap-moe-expert-parallel-comm`): each steady forward runs together with a
//! backward, so that one's expert all-to-alls travel while the other computes.
//!
//! ```text
//! p = 2, 4 microbatches, lower case: the second chunk; combined pairs show their backward
//! rank 0 |F0F1f0f1F2....b0----b1----B0----B1--..b2--b3--B2--B3--|
//! rank 1 |..F0F1f0b0----b1----B0----B1----b2----b3--B2--B3--....|
//! ```
//!
//! Bubble as interleaved 1F1B (atomic pairs do not change it), one chunk more held. The pair's gain is
//! [`StageCosts::pair_saving`](super::StageCosts::pair_saving).

use super::registry::{Definition, Generator};
use super::shape::{GroupRule, Rules, Sizes};

/// Combined 1F1B.
pub(super) const DEFINITION: Definition = Definition {
    name: "combined-1f1b",
    summary: "interleaved 1F1B with forwards and backwards combined to hide expert all-to-alls",
    source: "Megatron-LM pipeline_parallel/combined_1f1b.py",
    combines: true,
    default_chunks: 2,
    rules,
    grouped: true,
    round: super::interleaved::group_size,
    orders: Generator::PerRank(|sizes, rank| super::interleaved::order(sizes, rank, true)),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    let megatron = sizes.group_rule == GroupRule::Megatron;
    if sizes.p == 1 {
        let rule = "without pipeline ranks there is one stage";
        return rules.require(sizes.v == 1, "chunks", sizes.v, rule, "use 1 chunk");
    }
    let rule = "Megatron-LM combines over several pipeline ranks only with virtual stages";
    rules.require(!megatron || sizes.v > 1, "chunks", sizes.v, rule, "use 2 or more chunks");
    super::interleaved::rules(sizes, rules);
}
