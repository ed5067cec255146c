//! What keeps a memory estimate from being made.

use crate::model::ModelSpec;
use crate::parallel::ParallelConfig;
use crate::schedule::ScheduleError;
use crate::workload::Workload;
use cluster_profiles::Cluster;
use thiserror::Error;

/// A run whose memory cannot be estimated.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// Degrees or sizes that make no sense.
    #[error("the layout cannot be estimated: {}", faults.join("; "))]
    Faults {
        /// Every faulty field with its value.
        faults: Vec<String>,
    },
    /// The schedule does not exist or does not fit the layout.
    #[error("the pipeline schedule `{name}` cannot run this layout")]
    Schedule {
        /// Its name.
        name: String,
        /// Why.
        source: ScheduleError,
    },
    /// The stages do not belong to the model.
    #[error("stage {stage} ends at layer {layer}, the model has {layers} layers")]
    Stage {
        /// The stage.
        stage: usize,
        /// Its last layer.
        layer: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// No schedule of this name.
    #[error("unknown schedule `{name}`")]
    UnknownSchedule {
        /// The name.
        name: String,
    },
}

impl MemoryError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Faults { .. } => "every degree and size is at least 1".to_owned(),
            Self::Schedule { source, .. } => source.hint(),
            Self::Stage { .. } => "make the stages from this model".to_owned(),
            Self::UnknownSchedule { .. } => "`meshwright catalog schedules` lists them".to_owned(),
        }
    }

    pub(super) fn check(
        model: &ModelSpec,
        cluster: &Cluster,
        workload: &Workload,
        parallel: &ParallelConfig,
    ) -> Result<(), Self> {
        let sizes = [
            ("hidden", model.hidden),
            ("vocab", model.vocab),
            ("layers", model.layers.len() as u64),
            ("seq_len", workload.seq_len),
            ("tp", u64::from(parallel.tp)),
            ("pp", u64::from(parallel.pp)),
            ("vpp", u64::from(parallel.vpp)),
            ("cp", u64::from(parallel.cp)),
            ("ep", u64::from(parallel.ep)),
            ("etp", u64::from(parallel.etp)),
            ("dp_replicate", u64::from(parallel.dp_replicate)),
            ("dp_shard", u64::from(parallel.dp_shard)),
            ("micro_batch_size", parallel.micro_batch_size),
            ("num_microbatches", parallel.num_microbatches),
            ("groups of the cluster", cluster.groups.len() as u64),
        ];
        let zero = sizes.into_iter().filter(|(_, value)| *value == 0);
        let faults: Vec<String> = zero.map(|(field, _)| format!("{field} is 0")).collect();
        if faults.is_empty() { Ok(()) } else { Err(Self::Faults { faults }) }
    }
}
