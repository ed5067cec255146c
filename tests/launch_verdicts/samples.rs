//! Random layouts that keep their runtime's rules and fit, the same on every machine.

use crate::launching;
use cluster_profiles::Precision;
use cost_models::{Optimizer, ParallelConfig, Recompute};
use meshwright::plan::Plan;
use serde::{Deserialize, Serialize};

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What makes a plan again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    pub model: String,
    pub runtime: String,
    pub parallel: ParallelConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Vec<u64>>,
    pub precision: Precision,
    pub optimizer: Optimizer,
}

impl Recipe {
    /// The plan, where the layout keeps the rules of its runtime.
    pub fn plan(&self) -> Option<Plan> {
        let mut plan = launching::plan(&self.model, &self.runtime, &self.parallel, self.blocks.as_deref())?;
        plan.inputs.workload.precision = self.precision;
        plan.inputs.workload.optimizer = self.optimizer;
        Some(plan)
    }
}

/// What is drawn for a runtime.
pub struct Kind {
    pub runtime: &'static str,
    pub launchers: &'static [&'static str],
    models: &'static [&'static str],
    zero_stages: &'static [u8],
    precisions: &'static [Precision],
    optimizers: &'static [Optimizer],
}

pub const MEGATRON: Kind = Kind {
    runtime: "megatron-core",
    launchers: &["megatron"],
    models: &[
        "llama-3.1-8b",
        "llama-3.1-70b",
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "deepseek-v2-lite",
        "deepseek-v3",
        "gpt-oss-20b",
        "mixtral-8x7b",
        "gpt-3-6.7b",
        "mistral-7b",
        "nemotron-4-15b",
        "qwen2.5-7b",
        "gemma-2-9b",
        "starcoder2-15b",
        "glm-4.5-air",
    ],
    zero_stages: &[0, 1, 1, 1, 2, 3],
    precisions: &[Precision::Bf16, Precision::Bf16, Precision::Fp8, Precision::Mxfp8, Precision::Fp16],
    optimizers: &[Optimizer::Adamw, Optimizer::Adamw, Optimizer::AdamwBf16, Optimizer::Sgd, Optimizer::Muon],
};

pub const FSDP: Kind = Kind {
    runtime: "fsdp2",
    launchers: &["torchtitan", "accelerate"],
    models: &[
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.2-1b",
        "llama-3.1-405b",
        "qwen3-0.6b",
        "qwen3-1.7b",
        "qwen3-8b",
        "qwen3-14b",
        "qwen3-32b",
        "qwen3-30b-a3b",
        "deepseek-v2-lite",
        "deepseek-v3",
        "gpt-oss-20b",
    ],
    zero_stages: &[2, 3, 3],
    precisions: &[Precision::Bf16],
    optimizers: &[Optimizer::Adamw],
};

pub const DEEPSPEED: Kind = Kind {
    runtime: "megatron-deepspeed",
    launchers: &["deepspeed"],
    models: &["llama-3.1-8b", "gpt-3-6.7b", "qwen2.5-7b", "mistral-7b", "llama-3.2-1b"],
    zero_stages: &[0, 1, 2, 3],
    precisions: &[Precision::Bf16, Precision::Bf16, Precision::Fp16, Precision::Fp32],
    optimizers: &[Optimizer::Adamw, Optimizer::Sgd],
};

impl Kind {
    /// A layout that keeps the rules, fits, and that one of the launchers can start.
    pub fn draw(&self, random: &mut Random) -> (Recipe, Plan) {
        loop {
            let recipe = self.recipe(random);
            let Some(plan) = recipe.plan() else { continue };
            let peak = plan.estimate.memory.iter().map(|rank| rank.peak_bytes.get()).fold(0.0, f64::max);
            let started = |name: &&str| crate::files(&plan, name).is_some();
            if peak <= plan.inputs.memory_limit_bytes.get() && self.launchers.iter().any(started) {
                return (recipe, plan);
            }
        }
    }

    fn recipe(&self, random: &mut Random) -> Recipe {
        let (tp, cp) = (random.pick(&[1, 1, 2, 4, 8]), random.pick(&[1, 1, 1, 2, 4]));
        let pp = if self.runtime == "megatron-core" {
            random.pick(&[1, 2, 3, 4, 8])
        } else {
            random.pick(&[1, 1, 1, 2, 4])
        };
        let vpp = if pp > 1 { random.pick(&[1, 1, 2, 3, 4]) } else { 1 };
        let zero_stage = random.pick(self.zero_stages);
        let dp = random.pick(&[1, 2, 4, 8, 16]);
        let replicas = random.pick(&[1, 1, 1, 2]);
        let dp_replicate = if zero_stage == 0 { dp } else { replicas };
        let dp_shard = if zero_stage == 0 { 1 } else { (dp / replicas).max(1) };
        let schedules: &[&str] = match (self.runtime, vpp) {
            ("fsdp2", 1) => &["1f1b", "gpipe"],
            ("fsdp2", 2) => &["interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "dualpipev"],
            (_, 1) => &["1f1b"],
            _ => &["interleaved-1f1b"],
        };
        let recompute = match random.below(5) {
            0 | 1 => Recompute::None,
            2 => Recompute::Selective,
            3 => Recompute::Full { layers: None },
            _ => Recompute::Full { layers: Some(1 + random.below(3) as u32) },
        };
        let parallel = ParallelConfig {
            tp,
            pp,
            vpp,
            cp,
            ep: random.pick(&[1, 1, 2, 4, 8, 16]),
            etp: if random.chance(70) { 1 } else { tp },
            dp_replicate,
            dp_shard,
            zero_stage,
            sequence_parallel: tp > 1 && self.runtime != "megatron-deepspeed" && random.chance(90),
            micro_batch_size: random.pick(&[1, 1, 2, 4]),
            num_microbatches: u64::from(pp) * random.pick(&[1, 2, 4]),
            schedule: random.pick(schedules).to_owned(),
            recompute,
            ..ParallelConfig::default()
        };
        let model = random.pick(self.models).to_owned();
        let blocks = random.chance(30).then(|| uneven(random, &model, pp * vpp)).flatten();
        let (precision, optimizer) = (random.pick(self.precisions), random.pick(self.optimizers));
        Recipe { model, runtime: self.runtime.to_owned(), parallel, blocks, precision, optimizer }
    }
}

/// Blocks of every stage, some of them moved from one stage to another.
fn uneven(random: &mut Random, model: &str, stages: u32) -> Option<Vec<u64>> {
    let blocks = cost_models::model::catalog::get(model).ok()?.blocks().count() as u64;
    let stages = u64::from(stages);
    if stages < 2 || blocks < 2 * stages {
        return None;
    }
    let mut counts: Vec<u64> =
        (0..stages).map(|stage| blocks / stages + u64::from(stage < blocks % stages)).collect();
    for _ in 0..=random.below(3) {
        let (from, to) = (random.below(stages) as usize, random.below(stages) as usize);
        if counts[from] > 1 {
            counts[from] -= 1;
            counts[to] += 1;
        }
    }
    Some(counts)
}
