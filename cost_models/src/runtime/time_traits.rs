//! What an engine costs in time.

use serde::{Deserialize, Serialize};

/// The time switches of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeTraits {
    /// Bytes moved per token and hidden channel by norms, residuals and dropout in the forward of a layer.
    pub hidden_bytes: f64,
    /// Bytes moved per token and inner channel by the activation.
    pub ffn_bytes: f64,
    /// Share of tensor-parallel traffic that is exposed.
    pub tp_exposed: f64,
    /// Share of data-parallel traffic that can hide behind the backward.
    pub dp_overlap: f64,
    /// Fixed seconds per step.
    pub step_seconds: f64,
    /// Host seconds per layer and forward.
    pub host_seconds: f64,
}
