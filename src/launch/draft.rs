//! From the degrees that a configuration states to a run: what most launchers' readers share.

use super::flags::FlagFault;
use super::given::{Given, Question, ReadError, nearest_values, not_planned, violation};
use cluster_profiles::Precision;
use cost_models::model::ModelSpec;
use cost_models::rules::Violation;
use cost_models::runtime::RuntimeFacts;
use cost_models::schedule::{Placement, Schedule};
use cost_models::stages::{default_stages, stages_from_blocks};
use cost_models::{Dtype, Optimizer, ParallelConfig, Runtime, StageMap, Workload};

/// What a configuration says of state in host memory and of gathered parameters; none leaves the engine's own.
#[derive(Debug, Default)]
pub struct StatedMemory {
    /// Share of the optimizer state in host memory.
    pub optimizer_offload: Option<f64>,
    /// Share of the gradients there.
    pub gradient_offload: Option<f64>,
    /// Share of the parameters there.
    pub parameter_offload: Option<f64>,
    /// Parameters that stay gathered for their next use.
    pub live_parameters: Option<f64>,
}

impl StatedMemory {
    fn set(&self, runtime: &mut Runtime) {
        let state = &mut runtime.memory.state;
        for (stated, kept) in [
            (self.optimizer_offload, &mut state.optimizer_offload),
            (self.gradient_offload, &mut state.gradient_offload),
            (self.parameter_offload, &mut state.parameter_offload),
            (self.live_parameters, &mut state.live_parameters),
        ] {
            *kept = stated.unwrap_or(*kept);
        }
    }
}

/// What a reader found.
#[derive(Debug)]
pub struct Draft<'a> {
    /// What is read.
    pub question: Question<'a>,
    /// The launcher's runtime.
    pub runtime: &'static str,
    /// The degrees; the number of microbatches is worked out here.
    pub parallel: ParallelConfig,
    /// The model that the configuration describes itself.
    pub model: Option<ModelSpec>,
    /// Tokens of a sequence.
    pub seq_len: Option<u64>,
    /// Sequences of a step.
    pub global_batch: Option<u64>,
    /// Format of the linear layers.
    pub precision: Precision,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Format gradients are reduced in, where it is stated.
    pub gradient_dtype: Option<Dtype>,
    /// What the configuration states about the engine.
    pub facts: RuntimeFacts,
    /// What the configuration states about the state of the model.
    pub memory: StatedMemory,
    /// Blocks per stage, where they are stated.
    pub blocks: Option<Vec<u64>>,
    /// Id of the launcher's rule that the degrees multiply to the GPUs.
    pub world_rule: &'static str,
    /// Id of its rule that the batch is whole.
    pub batch_rule: &'static str,
    /// Rules found broken so far.
    pub broken: Vec<Violation>,
    /// Rules of the engine that the launcher does not have.
    pub waived: Vec<&'static str>,
    /// Values that make no sense, beside those of the flags.
    pub faults: Vec<FlagFault>,
    /// Facts that were missed so far, each with the option that gives it.
    pub missing: Vec<String>,
    /// What was assumed so far.
    pub assumed: Vec<String>,
    /// Keys that start with these are known and change nothing here.
    pub passed_over: &'static [&'static str],
}

impl<'a> Draft<'a> {
    /// Nothing but what is read and the launcher's runtime: bf16, Adam, one GPU.
    #[must_use]
    pub fn new(question: &Question<'a>, runtime: &'static str, rules: [&'static str; 2]) -> Self {
        Self {
            question: *question,
            runtime,
            parallel: ParallelConfig { zero_stage: 0, ..ParallelConfig::default() },
            model: None,
            seq_len: None,
            global_batch: None,
            precision: Precision::Bf16,
            optimizer: Optimizer::Adamw,
            gradient_dtype: None,
            facts: RuntimeFacts::default(),
            memory: StatedMemory::default(),
            blocks: None,
            world_rule: rules[0],
            batch_rule: rules[1],
            broken: Vec::new(),
            waived: vec!["M1", "M12", "M0"],
            faults: Vec::new(),
            missing: Vec::new(),
            assumed: Vec::new(),
            passed_over: &[],
        }
    }

    /// A broken rule.
    pub fn break_rule(&mut self, id: &str, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.broken.push(violation(id, message, hint));
    }

    /// Sequences of a microbatch where the training script decides: the user's word, or it is missing.
    pub fn micro_batch(&mut self) -> u64 {
        self.question.micro_batch.unwrap_or_else(|| {
            self.missing
                .push("--micro-batch (sequences of a microbatch: the training script decides)".to_owned());
            1
        })
    }

    /// The run.
    ///
    /// # Errors
    /// Facts that neither the configuration nor the user gives, and values that make no sense.
    pub fn finish(mut self) -> Result<Given, ReadError> {
        let mut error = ReadError {
            faults: self.question.flags.faults(),
            not_planned: not_planned(self.question.flags, |_| false),
            missing: std::mem::take(&mut self.missing),
        };
        let model = self.model.take().or_else(|| self.question.model.cloned());
        let seq_len = self.seq_len.or(self.question.seq_len);
        error.faults.append(&mut self.faults);
        if model.is_none() && error.faults.is_empty() {
            error.missing.push("--model (the configuration does not describe it)".to_owned());
        }
        if seq_len.is_none() {
            error.missing.push("--seq-len (tokens of a sequence)".to_owned());
        }
        let runtime = Runtime::for_run(self.runtime, &self.facts);
        let (Some(model), Some(seq_len), Ok(mut runtime), true) = (model, seq_len, runtime, error.is_empty())
        else {
            return Err(error);
        };
        self.memory.set(&mut runtime);
        self.world();
        let global_batch = self.batch();
        let stages = self.stages(&model, &runtime);
        let known = |key: &str| self.passed_over.iter().any(|start| key.starts_with(start));
        let unknown = self.question.flags.unknown(known);
        Ok(Given {
            workload: Workload {
                global_batch,
                seq_len,
                precision: self.precision,
                optimizer: self.optimizer,
                gradient_dtype: self.gradient_dtype,
                expert_imbalance: 1.0,
            },
            model,
            parallel: self.parallel,
            runtime,
            stages,
            layer_strategies: None,
            broken: self.broken,
            waived: self.waived,
            assumed: self.assumed,
            unknown,
        })
    }

    fn world(&mut self) {
        let p = &self.parallel;
        let degrees = [p.tp, p.pp, p.cp, p.dp_replicate, p.dp_shard];
        let ranks = degrees.iter().fold(1u64, |all, &degree| all.saturating_mul(u64::from(degree)));
        let world = self.question.world_size;
        if ranks != world {
            let others = ranks / u64::from(p.dp_shard.max(1));
            let hint = (world.is_multiple_of(others.max(1)))
                .then(|| format!("a data-parallel degree of {} works", world / others.max(1)));
            let message = format!(
                "tp {} x pp {} x cp {} x dp {} x {} is {ranks}, there are {world} GPUs",
                p.tp, p.pp, p.cp, p.dp_replicate, p.dp_shard
            );
            self.break_rule(self.world_rule, message, hint);
        }
    }

    /// The global batch: stated, or one microbatch per rank (as many as the pipeline is deep).
    fn batch(&mut self) -> u64 {
        let dp = u64::from(self.parallel.dp_replicate).saturating_mul(u64::from(self.parallel.dp_shard));
        let round = self.parallel.micro_batch_size.saturating_mul(dp).max(1);
        let batch = self.global_batch.or(self.question.global_batch).unwrap_or_else(|| {
            let batch = round.saturating_mul(u64::from(self.parallel.pp));
            self.assumed.push(format!("a global batch of {batch} sequences: it is not stated"));
            batch
        });
        self.parallel.num_microbatches = (batch / round).max(1);
        let judged = self.broken.iter().any(|rule| rule.id == self.batch_rule);
        if !judged && !batch.is_multiple_of(round) {
            let message = format!(
                "a global batch of {batch} is no multiple of micro batch {} x dp {dp}",
                self.parallel.micro_batch_size
            );
            let hint = nearest_values("a global batch of", batch, |batch| batch.is_multiple_of(round));
            self.break_rule(self.batch_rule, message, hint);
        }
        batch
    }

    fn stages(&self, model: &ModelSpec, runtime: &Runtime) -> Option<StageMap> {
        let stages = u64::from(self.parallel.pp).saturating_mul(u64::from(self.parallel.vpp));
        if stages > model.layers.len() as u64 {
            return None;
        }
        let schedule = self.parallel.schedule.parse::<Schedule>();
        let placement = schedule.map_or(Placement::Loop, |schedule| schedule.kind.definition().placement);
        match &self.blocks {
            Some(blocks) => stages_from_blocks(model, &self.parallel, blocks, placement).ok(),
            None => default_stages(model, &self.parallel, runtime.memory.pipeline.split, placement).ok(),
        }
    }
}

/// What is left of the GPUs for data parallelism, at least 1.
#[must_use]
pub fn left(world: u64, degrees: &[u32]) -> u32 {
    let others = degrees.iter().fold(1u64, |all, &degree| all.saturating_mul(u64::from(degree.max(1))));
    u32::try_from((world / others.max(1)).max(1)).unwrap_or(u32::MAX)
}
