//! What an engine keeps in memory.

use serde::{Deserialize, Serialize};

/// The memory switches of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryTraits {
    /// Bytes per logit at the loss's peak.
    pub loss_bytes_per_logit: f64,
    /// Reserved over allocated memory.
    pub reserved_ratio: f64,
}
