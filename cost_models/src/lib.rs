//! How long a training step takes, and how many bytes it needs.
//!
//! A [`TrainingRun`] bundles a model, a cluster, a workload, a runtime, a [`ParallelConfig`] and the layers of every
//! stage. From it come an [`Estimate`]: step time by kind, memory by term and pipeline rank, each with its basis.

pub mod comm;
pub mod compute;
pub mod estimate;
pub mod grid;
pub mod layer_cost;
pub mod layerwise;
pub mod memory;
pub mod model;
pub mod module_offload;
pub mod modules;
pub mod offload;
pub mod order;
mod parallel;
pub mod rules;
mod run;
pub mod runtime;
pub mod schedule;
pub mod sharding;
pub mod shares;
pub mod sites;
pub mod stages;
pub mod step;
mod workload;

pub use estimate::{Assumption, Estimate, EstimateError, RankMemory, TimeBreakdown, estimate};
pub use model::ModelSpec;
pub use order::RankOrder;
pub use parallel::{ParallelConfig, Recompute};
pub use run::TrainingRun;
pub use runtime::{Runtime, RuntimeError, RuntimeFacts};
pub use stages::{Stage, StageMap};
pub use step::{StepError, StepTime, step_time, step_time_bound};
pub use workload::{Dtype, Optimizer, Workload};
