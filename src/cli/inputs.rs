//! The inputs that `plan`, `estimate` and others share: model, cluster, workload, runtime.

use super::output;
use crate::error::AppError;
use crate::inputs::{self, Inputs};
use crate::launch::{self, Launcher};
use crate::offload::Offload;
use clap::Args;
use cluster_profiles::{Bytes, Precision, quantity};
use cost_models::{Dtype, Optimizer, Workload};

/// What to train, on what, and how much of it per step.
#[derive(Debug, Clone, Args)]
pub struct InputArgs {
    /// Catalogue name, Hugging Face config.json, or a model file of meshwright's own (TOML or JSON).
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Catalogue name or a cluster profile (TOML).
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// GPUs to use; nodes of the cluster are added or cut. All of the profile's if absent.
    #[arg(long, value_name = "N")]
    pub gpus: Option<u64>,
    /// Tokens of a sequence.
    #[arg(long, value_name = "TOKENS")]
    pub seq_len: Option<u64>,
    /// Sequences of one optimizer step, over all GPUs.
    #[arg(long, value_name = "SEQUENCES")]
    pub global_batch: Option<u64>,
    /// Format of the linear layers: bf16, fp16, fp8, mxfp8, nvfp4, fp32.
    #[arg(long, default_value = "bf16")]
    pub precision: Precision,
    /// adamw, adamw-bf16 (16-bit moments), sgd, muon.
    #[arg(long, default_value = "adamw")]
    pub optimizer: Optimizer,
    /// Format gradients are accumulated and reduced in: fp32 or bf16 (default: the runtime's own).
    #[arg(long, value_name = "DTYPE", value_parser = parse_gradient_dtype)]
    pub gradient_dtype: Option<Dtype>,
    /// Tokens of the busiest expert rank over the mean.
    #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
    pub expert_imbalance: f64,
    /// Engine that will run it (see `catalog runtimes`), or a profile of one (TOML, as in cost_models/runtimes).
    #[arg(long, value_name = "NAME", conflicts_with = "launcher")]
    pub runtime: Option<String>,
    /// Launcher that will start it; implies the runtime and its rules. See `catalog launchers`.
    #[arg(long, value_name = "NAME")]
    pub launcher: Option<String>,
    /// What is kept in host memory: never; optimizer, whose step then runs on the host; activations of some layers or modules,
    /// where that is fastest; any of both. If absent, `plan` does so only where nothing fits without.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub offload: Option<Offload>,
    /// Memory a GPU may use, such as 74GiB (default: its capacity less a safety margin).
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory_limit: Option<Bytes>,
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    quantity::bytes(text)
}

/// The format of gradients that a word means.
///
/// # Errors
/// What it may be instead.
pub fn parse_gradient_dtype(text: &str) -> Result<Dtype, String> {
    match text {
        "fp32" => Ok(Dtype::Fp32),
        "bf16" => Ok(Dtype::Bf16),
        "fp16" => Ok(Dtype::Fp16),
        _ => Err(format!("unknown gradient dtype `{text}`: use fp32, bf16 or fp16")),
    }
}

impl InputArgs {
    /// Whether nothing was asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.model.is_none()
            && self.cluster.is_none()
            && self.seq_len.is_none()
            && self.global_batch.is_none()
    }

    /// Reads and checks everything. All faults of the flags are reported together.
    ///
    /// # Errors
    /// [`AppError::Usage`] with every fault, or a file that cannot be read.
    pub fn load(&self) -> Result<Inputs, AppError> {
        self.load_without(&[])
    }

    /// The same on what is left of the cluster without some hosts.
    ///
    /// # Errors
    /// As [`Self::load`]; a host that the cluster does not have.
    pub fn load_without(&self, lost: &[String]) -> Result<Inputs, AppError> {
        let faults = self.faults();
        let (Some(model), Some(cluster), Some(seq_len), Some(global_batch), true) =
            (&self.model, &self.cluster, self.seq_len, self.global_batch, faults.is_empty())
        else {
            return Err(AppError::Usage { faults, hint: Some(EXAMPLE.to_owned()) });
        };
        let workload = Workload {
            global_batch,
            seq_len,
            precision: self.precision,
            optimizer: self.optimizer,
            gradient_dtype: self.gradient_dtype,
            expert_imbalance: self.expert_imbalance,
        };
        let inputs = inputs::load(&inputs::Source {
            model,
            cluster,
            gpus: self.gpus,
            lost,
            workload,
            runtime: self.runtime.as_deref(),
            launcher: self.launcher.as_deref(),
            memory_limit: self.memory_limit,
        })?;
        note_capped(self.memory_limit, &inputs);
        Ok(inputs)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (flag, absent) in [("--model", self.model.is_none()), ("--cluster", self.cluster.is_none())] {
            if absent {
                faults.push(format!("{flag} is missing"));
            }
        }
        let required = [("--seq-len", self.seq_len), ("--global-batch", self.global_batch)];
        for (flag, value) in required {
            match value {
                None => faults.push(format!("{flag} is missing")),
                Some(value) => push_range(&mut faults, flag, value, 1 << 30),
            }
        }
        if let Some(gpus) = self.gpus {
            push_range(&mut faults, "--gpus", gpus, 1 << 20);
        }
        if !(1.0..=1024.0).contains(&self.expert_imbalance) {
            faults.push(format!("--expert-imbalance is {}, expected 1 to 1024", self.expert_imbalance));
        }
        if self.memory_limit.is_some_and(|limit| limit.get() < 1e8) {
            faults.push("--memory-limit is below 100 MB: no model fits".to_owned());
        }
        faults
    }
}

/// Says so where less memory is planned with than was asked for.
pub fn note_capped(asked: Option<Bytes>, inputs: &Inputs) {
    let Some(asked) = asked.filter(|asked| *asked > inputs.memory_limit_bytes) else { return };
    output::complain(&format!(
        "note: --memory-limit is {:.1} GiB, more than any GPU of {} has: planning with {:.1} GiB\n",
        asked.as_gib(),
        inputs.cluster.name,
        inputs.memory_limit_bytes.as_gib()
    ));
}

/// The launcher called `name`.
///
/// # Errors
/// [`AppError::Usage`] listing those that exist.
pub fn launcher(name: &str) -> Result<&'static dyn Launcher, AppError> {
    launch::named(name).ok_or_else(|| {
        if let Some((_, what)) = ELSEWHERE.iter().find(|(other, _)| *other == name) {
            return AppError::usage(
                format!("{name} is not planned here: it {what}"),
                "meshwright plans full training of language models",
            );
        }
        let names: Vec<&str> = launch::ALL.iter().map(|launcher| launcher.name()).collect();
        AppError::usage(format!("unknown launcher `{name}`"), format!("use one of {}", names.join(", ")))
    })
}

/// Programs that people ask about and that do something else.
const ELSEWHERE: &[(&str, &str)] = &[
    ("vllm", "serves models"),
    ("sglang", "serves models"),
    ("tensorrt-llm", "serves models"),
    ("diffusers", "trains diffusion models"),
    ("peft", "trains adapters"),
];

const EXAMPLE: &str =
    "for example: --model llama-3.1-70b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128";

fn push_range(faults: &mut Vec<String>, flag: &str, value: u64, high: u64) {
    if value == 0 || value > high {
        faults.push(format!("{flag} is {value}, expected 1 to {high}"));
    }
}
