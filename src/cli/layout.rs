//! The degrees of a layout as flags.

use super::kind_shares::{self, Stated};
use crate::error::AppError;
use crate::inputs::Inputs;
use clap::Args;
use cost_models::layerwise::LayerStrategies;
use cost_models::rules::engine;
use cost_models::schedule::{Schedule, ScheduleError};
use cost_models::shares::KindShare;
use cost_models::{ParallelConfig, RankOrder, Recompute, StageMap, stages};

/// How the work is split.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Layout")]
pub struct LayoutArgs {
    /// Tensor parallel degree.
    #[arg(long, value_name = "T", default_value_t = 1)]
    tp: u32,
    /// Pipeline parallel degree.
    #[arg(long, value_name = "P", default_value_t = 1)]
    pp: u32,
    /// Chunks (virtual stages) per pipeline rank.
    #[arg(long, value_name = "V")]
    vpp: Option<u32>,
    /// Context parallel degree.
    #[arg(long, value_name = "C", default_value_t = 1)]
    cp: u32,
    /// Expert parallel degree.
    #[arg(long, value_name = "E", default_value_t = 1)]
    ep: u32,
    /// Tensor parallel degree of the experts.
    #[arg(long, value_name = "X", default_value_t = 1)]
    etp: u32,
    /// Replicas of the sharded state (HSDP, distributed-optimizer instances).
    #[arg(long, value_name = "R", default_value_t = 1)]
    dp_replicate: u32,
    /// ZeRO stage: 0 to 3 (default: 1, or the next that the runtime has).
    #[arg(long, value_name = "Z")]
    zero: Option<u8>,
    /// Sequences of a microbatch.
    #[arg(long, value_name = "B", default_value_t = 1)]
    micro_batch: u64,
    /// Sequences of a microbatch by kind of GPU, such as h100-sxm-80gb=3,a100=1, on a mixed cluster.
    #[arg(long, value_name = "GPU=B,...", value_delimiter = ',', value_parser = kind_shares::parse, conflicts_with = "micro_batch")]
    micro_batches: Vec<Stated>,
    /// Sharded state of a rank by kind of GPU, as weights such as h100-sxm-80gb=1,h200=2 (runtimes with uneven shards).
    #[arg(long, value_name = "GPU=W,...", value_delimiter = ',', value_parser = kind_shares::parse)]
    state_shares: Vec<Stated>,
    /// Pipeline schedule (default: 1f1b, interleaved-1f1b with chunks).
    #[arg(long, value_name = "NAME")]
    schedule: Option<Schedule>,
    /// none, selective, full, or full:LAYERS per stage; offload:LAYERS keeps the activations of so many in host memory;
    /// selective:MODULES/offload:MODULES (either or both, joined by +) repeats and moves modules of every layer.
    #[arg(long, default_value = "none")]
    recompute: Recompute,
    /// The order ranks are numbered in, innermost axis first: tp-cp-ep-dp-pp or tp-cp-ep-pp-dp.
    #[arg(long, value_name = "AXES", default_value_t)]
    rank_order: RankOrder,
    /// Megatron's sequence parallelism (default: on with tp).
    #[arg(long, value_name = "BOOL")]
    sequence_parallel: Option<bool>,
    /// Blocks of every stage in forward order, such as 20,20,20,20.
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',')]
    stages: Vec<u64>,
    /// What blocks have of their own, for runtimes that can (galvatron), such as
    /// '0-15:tp=8,zero=3;16-79:tp=4,zero=2,recompute=full'; --tp and --zero are then those of embedding and head.
    #[arg(long, value_name = "STRATEGIES")]
    layer_strategies: Option<LayerStrategies>,
}

impl LayoutArgs {
    /// What blocks have of their own, where that is given.
    #[must_use]
    pub const fn strategies(&self) -> Option<&LayerStrategies> {
        self.layer_strategies.as_ref()
    }

    /// The layout these flags mean on the inputs' GPUs.
    ///
    /// # Errors
    /// Every broken rule of the runtime, and sizes that do not divide.
    pub fn resolve(
        &self,
        inputs: &Inputs,
        gpus: Option<u64>,
    ) -> Result<(ParallelConfig, StageMap), AppError> {
        let parallel = self.parallel(inputs, gpus)?;
        let schedule: Schedule = parallel
            .schedule
            .parse()
            .map_err(|error: ScheduleError| AppError::usage(error.to_string(), error.hint()))?;
        let placement = schedule.kind.definition().placement;
        let stages = if self.stages.is_empty() {
            stages::default_stages(&inputs.model, &parallel, inputs.runtime.memory.pipeline.split, placement)
        } else {
            stages::stages_from_blocks(&inputs.model, &parallel, &self.stages, placement)
        };
        let stages =
            stages.map_err(|error| AppError::Usage { faults: vec![error.to_string()], hint: None })?;
        Ok((parallel, stages))
    }

    fn parallel(&self, inputs: &Inputs, gpus: Option<u64>) -> Result<ParallelConfig, AppError> {
        let faults = self.faults();
        if !faults.is_empty() {
            return Err(AppError::Usage { faults, hint: None });
        }
        let fixed =
            u64::from(self.tp) * u64::from(self.pp) * u64::from(self.cp) * u64::from(self.dp_replicate);
        let world = gpus.unwrap_or_else(|| inputs.cluster.gpu_count());
        let batch = inputs.workload.global_batch;
        let shards = world / fixed;
        let mut faults = Vec::new();
        if shards == 0 || !world.is_multiple_of(fixed) {
            faults.push(format!(
                "{world} GPUs do not divide by tp {} x pp {} x cp {} x dp-replicate {} = {fixed}",
                self.tp, self.pp, self.cp, self.dp_replicate
            ));
        }
        let replicas = shards.max(1) * u64::from(self.dp_replicate);
        let degrees = ParallelConfig {
            tp: self.tp,
            cp: self.cp,
            dp_replicate: self.dp_replicate,
            dp_shard: u32::try_from(shards).unwrap_or(u32::MAX),
            micro_batch_size: self.micro_batch,
            ..ParallelConfig::default()
        };
        let degrees = match self.shares(inputs, &degrees) {
            Ok(shares) if shares.is_empty() => degrees,
            Ok(shares) => degrees.with_shares(shares),
            Err(wrong) => {
                faults.extend(wrong);
                degrees
            }
        };
        let per_round = degrees.sequences_per_microbatch();
        if faults.is_empty() && !batch.is_multiple_of(per_round) {
            let each = if degrees.shares.is_empty() {
                format!("micro batch {} x dp {replicas} = {per_round}", degrees.micro_batch_size)
            } else {
                format!("the {per_round} sequences of --micro-batches on all ranks")
            };
            faults.push(format!("--global-batch {batch} is no multiple of {each}"));
        }
        if !faults.is_empty() {
            return Err(AppError::Usage {
                faults,
                hint: Some("the degrees multiply to the GPUs".to_owned()),
            });
        }
        let vpp = self.vpp.unwrap_or_else(|| self.schedule.map_or(1, |s| s.kind.definition().default_chunks));
        let schedule = self.schedule.map_or_else(|| default_schedule(vpp).to_owned(), |s| s.to_string());
        Ok(ParallelConfig {
            pp: self.pp,
            vpp,
            ep: self.ep,
            etp: self.etp,
            zero_stage: self.zero.unwrap_or_else(|| default_zero(&inputs.runtime.name)),
            sequence_parallel: self.sequence_parallel.unwrap_or(self.tp > 1),
            num_microbatches: batch / per_round,
            schedule,
            recompute: self.recompute,
            rank_order: self.rank_order,
            ..degrees
        })
    }

    /// Micro batches and state by kind, if any are stated.
    fn shares(&self, inputs: &Inputs, degrees: &ParallelConfig) -> Result<Vec<KindShare>, Vec<String>> {
        if self.micro_batches.is_empty() && self.state_shares.is_empty() {
            return Ok(Vec::new());
        }
        if self.pp > 1 {
            return Err(vec!["--micro-batches and --state-shares need --pp 1".to_owned()]);
        }
        kind_shares::shares(&self.micro_batches, &self.state_shares, &inputs.cluster, degrees)
    }

    fn faults(&self) -> Vec<String> {
        let degrees = [
            ("--tp", self.tp),
            ("--pp", self.pp),
            ("--vpp", self.vpp.unwrap_or(1)),
            ("--cp", self.cp),
            ("--ep", self.ep),
            ("--etp", self.etp),
            ("--dp-replicate", self.dp_replicate),
        ];
        let mut faults: Vec<String> = degrees
            .into_iter()
            .filter(|(_, degree)| *degree == 0 || *degree > 1 << 20)
            .map(|(flag, degree)| format!("{flag} is {degree}, expected 1 to 1048576"))
            .collect();
        if self.zero.is_some_and(|stage| stage > 3) {
            faults.push("--zero is 0, 1, 2 or 3".to_owned());
        }
        if self.micro_batch == 0 || self.micro_batch > 1 << 20 {
            faults.push(format!("--micro-batch is {}, expected 1 to 1048576", self.micro_batch));
        }
        faults
    }
}

/// ZeRO-1; the least that shards anything where the runtime has none.
fn default_zero(runtime: &str) -> u8 {
    let stages = engine(runtime).zero_stages;
    if stages.contains(&1) { 1 } else { stages.iter().copied().find(|stage| *stage > 0).unwrap_or(1) }
}

const fn default_schedule(vpp: u32) -> &'static str {
    if vpp > 1 { "interleaved-1f1b" } else { "1f1b" }
}
