//! Where every state lives: one table for ZeRO 0-3, FSDP, HSDP, distributed optimizers, TP, PP and EP.
//!
//! A rank holds parameters, gradients, master weights and moments of the weights of its stages. Per axis each of them
//! is *replicated* (every rank of the axis has it whole), *sharded* (each has a part), *gathered* (sharded, and made
//! whole while a layer runs) or *offloaded*. [`data_residence`] is the table for the data axis; tensor and expert axes
//! follow from the weight itself ([`Sharding`]); the pipeline axis is [`StageMap`](crate::StageMap).
//!
//! Sources: ZeRO (arXiv 1910.02054, section 5), Megatron-LM `docs/source/api-guide/dist_optimizer.md`, torch
//! `fully_shard`.

use crate::model::{ModelSpec, Role, Sharding, Weight};
use crate::parallel::ParallelConfig;
use crate::runtime::{MemoryTraits, Runtime};
use crate::workload::{Optimizer, Workload};
use cluster_profiles::{Bytes, Precision};

/// What is kept for a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The weight in the format of the forward.
    Parameters,
    /// Its accumulated gradient.
    Gradients,
    /// The optimizer's master copy.
    Master,
    /// The optimizer's moments.
    Moments,
}

/// How an axis holds a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residence {
    /// Whole on every rank.
    Replicated,
    /// A part on every rank.
    Sharded,
    /// A part on every rank, and the whole for as long as a layer needs it.
    Gathered,
}

/// Residence of a state over the sharded data-parallel ranks, by ZeRO stage: the table of ZeRO (figure 1).
///
/// | stage | parameters | gradients | master | moments |
/// |---|---|---|---|---|
/// | 0 | replicated | replicated | replicated | replicated |
/// | 1 | replicated | replicated | sharded | sharded |
/// | 2 | replicated | sharded | sharded | sharded |
/// | 3 | gathered | gathered | sharded | sharded |
#[must_use]
pub const fn data_residence(zero_stage: u8, state: State) -> Residence {
    use Residence::{Gathered, Replicated, Sharded};
    const TABLE: [[Residence; 4]; 4] = [
        [Replicated, Replicated, Replicated, Replicated],
        [Replicated, Replicated, Sharded, Sharded],
        [Replicated, Sharded, Sharded, Sharded],
        [Gathered, Gathered, Sharded, Sharded],
    ];
    let row = if zero_stage > 3 { 3 } else { zero_stage };
    TABLE[row as usize][state as usize]
}

/// Degrees of the axes that divide state, for one layout and engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateShards {
    tensor: f64,
    expert: f64,
    expert_tensor: f64,
    data: f64,
    expert_data: f64,
    replicas: f64,
    zero_stage: u8,
    vocab_multiple: u64,
    /// Whether sharded gradients are whole until the last microbatch.
    whole_gradients: bool,
}

/// Bytes of the states of a weight, a layer or a rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StateBytes {
    /// Resident parameters.
    pub parameters: Bytes,
    /// Gradient accumulators.
    pub gradients: Bytes,
    /// Master weights and moments.
    pub optimizer: Bytes,
    /// Gradients that exist only at the end of the backward.
    pub late: Bytes,
    /// What the optimizer step adds.
    pub step: Bytes,
}

impl StateBytes {
    /// What exists during the forward.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer
    }
}

impl StateBytes {
    /// Every part times `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            parameters: self.parameters * factor,
            gradients: self.gradients * factor,
            optimizer: self.optimizer * factor,
            late: self.late * factor,
            step: self.step * factor,
        }
    }
}

impl std::ops::SubAssign for StateBytes {
    fn sub_assign(&mut self, other: Self) {
        *self += other.scaled(-1.0);
    }
}

impl std::ops::AddAssign for StateBytes {
    fn add_assign(&mut self, other: Self) {
        self.parameters += other.parameters;
        self.gradients += other.gradients;
        self.optimizer += other.optimizer;
        self.late += other.late;
        self.step += other.step;
    }
}

impl StateShards {
    /// The axes of a layout. Dense state is sharded over `dp_shard` (times cp where the engine does so), experts over
    /// `world / (etp ep pp)` less the replicas: FORMULAS of Megatron `num-distributed-optimizer-instances`, and
    /// torchtitan's `efsdp`.
    #[must_use]
    pub fn new(parallel: &ParallelConfig, traits: &MemoryTraits) -> Self {
        let context = if traits.state.shard_over_context { f64::from(parallel.cp) } else { 1.0 };
        let replicas = f64::from(parallel.dp_replicate);
        Self {
            tensor: f64::from(parallel.tp),
            expert: f64::from(parallel.ep),
            expert_tensor: f64::from(parallel.etp),
            data: f64::from(parallel.dp_shard) * context,
            expert_data: (f64::from(parallel.expert_dp()) / replicas).max(1.0),
            replicas,
            zero_stage: parallel.zero_stage,
            vocab_multiple: traits.state.vocab_multiple.max(1),
            whole_gradients: traits.state.whole_gradients && parallel.num_microbatches > 1,
        }
    }

    /// The same on a rank whose shards are so many times as large as even ones.
    #[must_use]
    pub fn with_share(self, relative: f64) -> Self {
        Self { data: self.data / relative, expert_data: self.expert_data / relative, ..self }
    }

    /// Parameters of `weight` on one rank of its stage, before data parallelism divides anything.
    #[must_use]
    pub fn held(&self, weight: &Weight, model: &ModelSpec) -> f64 {
        let whole = weight.parameters() as f64;
        match weight.sharding {
            Sharding::Replicated | Sharding::Positions => whole,
            Sharding::Tensor => whole / self.tensor,
            Sharding::TensorKv { kv_heads } => whole / self.tensor.min(kv_heads.max(1) as f64),
            Sharding::Expert => whole / (self.expert * self.expert_tensor),
            Sharding::ExpertReplicated => whole / self.expert,
            Sharding::Vocabulary => whole * self.padding(model) / self.tensor,
        }
    }

    /// Parts the state of `weight` is divided into over data parallelism.
    #[must_use]
    pub fn parts(&self, state: State, weight: &Weight) -> f64 {
        if state == State::Gradients && self.whole_gradients {
            return 1.0;
        }
        match data_residence(self.zero_stage, state) {
            Residence::Replicated => 1.0,
            Residence::Sharded | Residence::Gathered if weight.is_expert() => self.expert_data,
            Residence::Sharded | Residence::Gathered => self.data,
        }
    }

    /// Whether parameters have to be gathered before use.
    #[must_use]
    pub fn gathers_parameters(&self) -> bool {
        data_residence(self.zero_stage, State::Parameters) == Residence::Gathered
    }

    /// Vocabulary entries after padding.
    #[must_use]
    pub fn padded_vocab(&self, model: &ModelSpec) -> f64 {
        let multiple = self.vocab_multiple.saturating_mul(self.tensor as u64).max(1);
        model.vocab.checked_next_multiple_of(multiple).unwrap_or(model.vocab) as f64
    }

    /// Padded over real vocabulary.
    fn padding(&self, model: &ModelSpec) -> f64 {
        self.padded_vocab(model) / (model.vocab.max(1)) as f64
    }

    /// Ranks that reduce a gradient.
    fn reducers(&self, weight: &Weight) -> f64 {
        self.replicas * if weight.is_expert() { self.expert_data } else { self.data }
    }
}

/// Bytes per parameter of an engine, precision and optimizer, before any axis divides them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateFormats {
    parameters: f64,
    fp8_copies: f64,
    gradients: f64,
    reduction_copy: f64,
    master: f64,
    moments: [f64; 2],
    optimizer: Optimizer,
    late: f64,
    step: f64,
    step_sharded: f64,
    fp16_step: f64,
}

impl StateFormats {
    /// The formats `runtime` uses for `workload`.
    #[must_use]
    pub fn new(workload: &Workload, runtime: &Runtime) -> Self {
        let state = &runtime.memory.state;
        let fp16_step = if workload.precision == Precision::Fp16 { state.fp16_step_bytes } else { 0.0 };
        let parameters = if has_fp32_parameters(workload, runtime) { 4.0 } else { 2.0 };
        let moment = |own: crate::Dtype| match workload.optimizer {
            Optimizer::AdamwBf16 => 2.0,
            _ if state.state_as_parameters => parameters,
            _ => own.bytes(),
        };
        Self {
            parameters,
            fp8_copies: if workload.precision.is_low() { state.fp8_weight_copies } else { 0.0 },
            gradients: gradient_bytes(workload, runtime),
            reduction_copy: state.reduction_copy.map_or(0.0, crate::Dtype::bytes),
            master: master_bytes(workload, runtime),
            moments: [moment(state.first_moment), moment(state.second_moment)],
            optimizer: workload.optimizer,
            late: state.late_gradient_bytes,
            step: state.step_bytes,
            step_sharded: state.step_sharded_bytes,
            fp16_step,
        }
    }

    /// States of one weight on a rank.
    #[must_use]
    pub fn bytes(
        &self,
        weight: &Weight,
        model: &ModelSpec,
        shards: &StateShards,
        offload: f64,
    ) -> StateBytes {
        let held = shards.held(weight, model);
        let divided = |state| held / shards.parts(state, weight);
        let wider = self.gradients > self.reduction_copy;
        let reduced = if wider && shards.reducers(weight) > 1.0 { self.reduction_copy } else { 0.0 };
        let copies = if weight.role == Role::Matrix { self.fp8_copies } else { 0.0 };
        let optimizer = self.master * divided(State::Master) + self.moments(weight) * divided(State::Moments);
        StateBytes {
            parameters: Bytes(self.parameters * divided(State::Parameters) + copies * held),
            gradients: Bytes((self.gradients + reduced) * divided(State::Gradients)),
            optimizer: Bytes(optimizer * (1.0 - offload)),
            late: Bytes(self.late * held),
            step: Bytes(self.step_bytes(held, divided(State::Master))),
        }
    }

    /// fp16 copies always; gathering copies only where the optimizer is sharded.
    fn step_bytes(&self, held: f64, divided: f64) -> f64 {
        let gathering = if divided < held { self.step * held + self.step_sharded * divided } else { 0.0 };
        gathering + self.fp16_step * divided
    }

    /// Muon and SGD keep one moment; Muon leaves tables and vectors to Adam.
    fn moments(&self, weight: &Weight) -> f64 {
        let single = match self.optimizer {
            Optimizer::Sgd => true,
            Optimizer::Muon => weight.role == Role::Matrix && weight.sharding != Sharding::Vocabulary,
            Optimizer::Adamw | Optimizer::AdamwBf16 => false,
        };
        self.moments[0] + if single { 0.0 } else { self.moments[1] }
    }

    /// Bytes of one gathered parameter.
    #[must_use]
    pub fn gathered_parameter(&self) -> f64 {
        self.parameters.min(2.0)
    }

    /// Bytes of one full gradient before it is reduced.
    #[must_use]
    pub fn full_gradient(&self) -> f64 {
        self.gradients
    }
}

/// Gradients: the workload's format, else the runtime's; an fp16 run without that accumulates in fp16.
fn gradient_bytes(workload: &Workload, runtime: &Runtime) -> f64 {
    let resident = runtime.memory.state.gradients.unwrap_or(runtime.gradient_accumulation);
    match (workload.gradient_dtype, workload.precision) {
        (Some(dtype), _) => dtype.bytes(),
        (None, Precision::Fp16) if !runtime.memory.state.fp32_parameters => 2.0,
        (None, Precision::Fp32) => 4.0,
        (None, _) => resident.bytes(),
    }
}

fn has_fp32_parameters(workload: &Workload, runtime: &Runtime) -> bool {
    workload.precision == Precision::Fp32 || runtime.memory.state.fp32_parameters
}

/// The master copy; fp32 parameters are their own.
fn master_bytes(workload: &Workload, runtime: &Runtime) -> f64 {
    let state = &runtime.memory.state;
    if has_fp32_parameters(workload, runtime) || state.state_as_parameters {
        0.0
    } else {
        state.master.bytes()
    }
}
