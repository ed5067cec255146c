//! 1F1B with transformer layers moved away from the stages that hold the vocabulary (arXiv:2411.05288, the baseline).
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2........B0--F3B1--..B2--..B3--|
//! rank 1 |..F0F1....B0--F2B1--F3B2--..B3--....|
//! rank 2 |....F0B0--F1B1--F2B2--F3B3--........|
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
