//! The degrees and the batch of a row, blanks inferred by stated rules.

use super::engine::gradient_dtype;
use super::fields::Fault;
use super::hardware::assumed;
use super::inherit::Inherited;
use super::row::RunRow;
use cluster_profiles::Precision;
use cost_models::model::Mlp;
use cost_models::{Assumption, ModelSpec, Optimizer, ParallelConfig, Recompute, Workload};

/// What a row says of its layout, with what was inferred.
#[derive(Debug)]
pub struct Layout {
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The step.
    pub workload: Workload,
    /// Whether the row (or an earlier release) says what is recomputed.
    pub recompute_stated: bool,
}

/// Infers the layout of a row.
///
/// # Errors
/// Every fault: degrees that are not stated, or do not multiply to the number of GPUs.
pub fn layout(
    row: &RunRow,
    model: &ModelSpec,
    inherited: &Inherited,
    assumptions: &mut Vec<Assumption>,
) -> Result<Layout, Vec<Fault>> {
    let mut rules = Rules { row, assumptions };
    let (tp, pp) = rules.stated_degrees()?;
    let cp = rules.or_assume(row.cp, 1, "cp");
    let dp = rules.data_parallel(tp, pp, cp)?;
    let ep = rules.expert_parallel(model, dp);
    let zero_stage = rules.zero_stage();
    let (dp_replicate, dp_shard) = rules.shards(dp, zero_stage);
    let vpp = rules.chunks();
    let micro_batch_size = row.micro_batch_size.unwrap_or_else(|| rules.assume(1, "micro batch size"));
    let (global_batch, num_microbatches) = rules.batch(micro_batch_size, u64::from(dp), pp);
    let recompute = row.recompute.or(inherited.recompute);
    let mut parallel = ParallelConfig {
        tp,
        pp,
        vpp,
        cp,
        ep,
        etp: 1,
        dp_replicate,
        dp_shard,
        zero_stage,
        sequence_parallel: rules.sequence_parallel(tp),
        micro_batch_size,
        num_microbatches,
        schedule: schedule(&row.schedule, pp, vpp),
        recompute: recompute.unwrap_or(Recompute::None),
        ..ParallelConfig::default()
    };
    parallel.etp = rules.expert_tensor_parallel(model, &parallel);
    Ok(Layout { workload: rules.workload(global_batch), parallel, recompute_stated: recompute.is_some() })
}

struct Rules<'a> {
    row: &'a RunRow,
    assumptions: &'a mut Vec<Assumption>,
}

impl Rules<'_> {
    fn assume<T: std::fmt::Display>(&mut self, value: T, what: &str) -> T {
        self.assumptions.push(assumed(format!("{what} {value}, not stated")));
        value
    }

    fn or_assume(&mut self, stated: Option<u32>, value: u32, what: &str) -> u32 {
        stated.unwrap_or_else(|| self.assume(value, what))
    }

    fn stated_degrees(&self) -> Result<(u32, u32), Vec<Fault>> {
        let missing = |column| Fault::new(self.row.line, column, "", "is blank: the layout is not stated");
        match (self.row.tp, self.row.pp) {
            (Some(tp), Some(pp)) => Ok((tp, pp)),
            (tp, pp) => Err([(tp, "tp"), (pp, "pp")]
                .into_iter()
                .filter(|(degree, _)| degree.is_none())
                .map(|(_, column)| missing(column))
                .collect()),
        }
    }

    /// Stated, or what is left of the GPUs.
    fn data_parallel(&self, tp: u32, pp: u32, cp: u32) -> Result<u32, Vec<Fault>> {
        let model_parallel = u64::from(tp) * u64::from(pp) * u64::from(cp);
        let gpus = self.row.n_gpus;
        let dp = self.row.dp.map_or(gpus / model_parallel, u64::from);
        if dp >= 1 && model_parallel.checked_mul(dp) == Some(gpus) {
            return Ok(dp as u32);
        }
        let message = format!("GPUs do not match tp {tp} x pp {pp} x cp {cp} x dp {dp}");
        Err(vec![Fault::new(self.row.line, "n_gpus", &gpus.to_string(), message)])
    }

    /// Stated, else 1. A row that names a library for sending tokens to other ranks' experts has them on other ranks, whatever
    /// its column says: then they are spread as far as experts and data-parallel ranks divide.
    fn expert_parallel(&mut self, model: &ModelSpec, dp: u32) -> u32 {
        let stated = self.or_assume(self.row.ep, 1, "ep");
        let sends = ["DeepEP", "HybridEP"].iter().any(|library| self.row.notes.contains(library));
        let experts = model.blocks().find_map(|(_, block)| match block.mlp {
            Mlp::Moe { experts, .. } => Some(experts),
            Mlp::Dense { .. } => None,
        });
        match experts {
            Some(experts) if stated == 1 && sends && dp > 1 => {
                let spread = (1..=dp)
                    .rev()
                    .find(|ep| dp.is_multiple_of(*ep) && experts.is_multiple_of(u64::from(*ep)));
                self.assume(spread.unwrap_or(1), "tokens are sent to experts of other ranks: ep")
            }
            _ => stated,
        }
    }

    /// FSDP engines shard everything; Megatron's and its kin the optimizer; the older ones nothing.
    fn zero_stage(&mut self) -> u8 {
        if let Some(stage) = self.row.zero_stage {
            return stage;
        }
        let stage = match self.row.runtime.as_str() {
            "fsdp1" | "fsdp2" | "jax" => 3,
            "megatron-core" | "megatron-deepspeed" | "nanotron" | "aleph-alpha" | "internevo"
            | "megascale" => 1,
            _ => 0,
        };
        self.assume(stage, "ZeRO stage")
    }

    /// Replicas and shards: the stated shard group where it divides dp (one that spans cp too covers all of dp).
    fn shards(&mut self, dp: u32, zero_stage: u8) -> (u32, u32) {
        if zero_stage == 0 {
            return (dp, 1);
        }
        match self.row.dp_shard {
            Some(shard) if shard < dp && dp.is_multiple_of(shard) => (dp / shard, shard),
            Some(shard) if shard < dp => {
                self.assumptions
                    .push(assumed(format!("state sharded over all of dp: {shard} does not divide {dp}")));
                (1, dp)
            }
            _ => (1, dp),
        }
    }

    /// Blank is 1, but the V-shaped schedules have two chunks.
    fn chunks(&mut self) -> u32 {
        let v_shaped = ["zb-v", "v-half", "v-min", "v-zb", "dualpipev"];
        match self.row.vpp {
            Some(vpp) => vpp,
            None if v_shaped.iter().any(|name| self.row.schedule.starts_with(name)) => {
                self.assume(2, "chunks per rank")
            }
            None => 1,
        }
    }

    /// The global batch and the microbatches of a rank; a batch that is not stated fills the pipeline four times.
    fn batch(&mut self, micro_batch_size: u64, dp: u64, pp: u32) -> (u64, u64) {
        let sequences = micro_batch_size.saturating_mul(dp).max(1);
        let Some(global_batch) = self.row.global_batch else {
            let microbatches = if pp > 1 { 4 * u64::from(pp) } else { 1 };
            let batch = self.assume(sequences.saturating_mul(microbatches), "global batch");
            return (batch, microbatches);
        };
        let microbatches = ((global_batch + sequences / 2) / sequences).max(1);
        if microbatches.saturating_mul(sequences) != global_batch {
            let what = format!(
                "{microbatches} microbatches, though {global_batch} sequences do not divide by {sequences}"
            );
            self.assumptions.push(assumed(what));
        }
        (global_batch, microbatches)
    }

    fn sequence_parallel(&mut self, tp: u32) -> bool {
        if let Some(stated) = self.row.sequence_parallel {
            return stated && tp > 1;
        }
        let usual = matches!(self.row.runtime.as_str(), "megatron-core" | "fsdp2" | "nanotron" | "megascale");
        if tp > 1 { self.assume(usual, "sequence parallelism") } else { false }
    }

    /// Blank means tp in NeMo 24 and 25 (and where a note says so), 1 elsewhere.
    fn expert_tensor_parallel(&mut self, model: &ModelSpec, parallel: &ParallelConfig) -> u32 {
        if let Some(etp) = self.row.etp {
            return etp;
        }
        if !model.is_moe() {
            return 1;
        }
        let row = self.row;
        let nemo = row.framework.starts_with("NeMo") && !row.framework.contains("AutoModel");
        let unfolded =
            row.notes.contains("ETP=TP when folding not used") && !row.notes.contains("w/ Folding");
        let experts = u64::from(parallel.tp) * u64::from(parallel.ep) * u64::from(parallel.pp);
        let fits = experts <= row.n_gpus && row.n_gpus.is_multiple_of(experts.max(1));
        let etp = if (nemo || unfolded) && fits { parallel.tp } else { 1 };
        self.assume(etp, "expert tensor parallelism")
    }

    fn workload(&mut self, global_batch: u64) -> Workload {
        let row = self.row;
        Workload {
            global_batch,
            seq_len: row.seq_len,
            precision: row.precision.unwrap_or_else(|| self.assume(Precision::Bf16, "precision")),
            optimizer: if row.optimizer.contains("muon") { Optimizer::Muon } else { Optimizer::Adamw },
            gradient_dtype: gradient_dtype(row),
            expert_imbalance: 1.0,
        }
    }
}

/// The stated schedule; `none` and blank are 1F1B, interleaved where there are chunks.
fn schedule(stated: &str, pp: u32, vpp: u32) -> String {
    match stated {
        "" | "none" if pp > 1 && vpp > 1 => "interleaved-1f1b",
        "" | "none" => "1f1b",
        "interleaved-1f1b" if vpp == 1 => "1f1b",
        other => other,
    }
    .to_owned()
}
