//! 1F1B with transformer layers moved away from the stages that hold the vocabulary (arXiv:2411.05288, the baseline).
//!
//! ```text
//! rank 0  F0 F1 F2 .. .. .. .. B0 B0 F3 B1 B1 ...     the order of 1F1B; what differs is how many layers each
//! rank 1  .. F0 F1 .. .. B0 B0 F2 B1 B1 F3 ...        stage holds, and so the costs
//! ```

use super::registry::Definition;

/// 1F1B over other stages.
pub(super) const DEFINITION: Definition = Definition {
    name: "1f1b-redistributed-layers",
    summary: "1F1B with fewer layers on the stages that hold the vocabulary",
    source: "sail-sg/VocabularyParallelism; arXiv:2411.05288",
    vocabulary_orders: None,
    ..super::one_f_one_b::DEFINITION
};
