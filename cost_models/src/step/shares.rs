//! Stages of a group whose ranks take micro batches of different sizes: those of the kind that the others wait for.

use super::data_parallel::exposed;
use super::error::StepError;
use super::stages::StageCosts;
use crate::run::TrainingRun;
use crate::shares::KindShare;
use crate::sites::Sites;
use cluster_profiles::Seconds;
use std::sync::Arc;

/// The stages on one kind of GPU with its own micro batch.
#[derive(Debug, Clone, PartialEq)]
pub struct KindStages {
    /// The stages.
    pub stages: StageCosts,
    /// Seconds of all microbatches, and of what data parallelism leaves exposed after them.
    pub seconds: Seconds,
}

/// The stages of a run on every kind of its shares.
///
/// # Errors
/// [`StepError::Shape`] for a kind that the cluster does not have, or a cluster of which no sites are known; as
/// [`StageCosts::at`].
pub fn kind_stages(run: &TrainingRun, sites: Option<&Sites>) -> Result<Vec<KindStages>, StepError> {
    let of_kind = |share: &KindShare| {
        let own = sites.and_then(|sites| sites.on_kind(run.cluster, &share.gpu));
        let own = own.ok_or_else(|| StepError::Shape {
            what: "shares",
            value: share.gpu.clone(),
            rule: "micro batches are stated by the kinds of GPU of a mixed cluster".to_owned(),
        })?;
        stages_on(run, share, Arc::new(own))
    };
    run.parallel.shares.iter().map(of_kind).collect()
}

/// The stages of a run on sites of one kind, with its share.
///
/// # Errors
/// As [`StageCosts::at`].
pub fn stages_on(run: &TrainingRun, share: &KindShare, sites: Arc<Sites>) -> Result<KindStages, StepError> {
    let parallel = run.parallel.like(share);
    let own = TrainingRun { parallel: &parallel, ..*run };
    let stages = StageCosts::at(&own, Some(sites))?;
    let microbatches = stages.rank_total(stages.busiest_rank()) * parallel.num_microbatches as f64;
    Ok(KindStages { seconds: microbatches + exposed(&own, &stages), stages })
}

/// The stages of the kind that the others wait for; the first of equal ones.
pub(super) fn slowest(run: &TrainingRun, sites: Option<&Sites>) -> Result<StageCosts, StepError> {
    let kinds = kind_stages(run, sites)?.into_iter();
    let slowest = kinds.reduce(|a, b| if b.seconds > a.seconds { b } else { a });
    let slowest = slowest.ok_or_else(|| StepError::Shape {
        what: "shares",
        value: "empty".to_owned(),
        rule: "there is one for every kind".to_owned(),
    });
    slowest.map(|kind| kind.stages)
}
