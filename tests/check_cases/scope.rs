//! Reports about something else than full training of a language model: a clear word, not a guess.

use crate::case::Case;
use std::process::Command;

/// modelscope/ms-swift#9403: adapters are not planned.
#[test]
fn c29_low_rank_adapters_are_not_planned() {
    let flags = "--num-layers 94 --lora-rank 8 --micro-batch-size 1 --seq-length 2048";
    let (read, _) = Case::megatron(flags, 32, "dgx-h100").with("megatron", "qwen3-235b-a22b").read();
    assert!(read.unwrap_err().not_planned.unwrap().contains("LoRA"));
}

/// vllm#36861, #14120 and the like: serving is another matter, and is said to be.
#[test]
fn c31_serving_is_not_planned() {
    let text = "--tensor-parallel-size 2 --pipeline-parallel-size 16 --gpu-memory-utilization 0.9";
    let (read, _) = Case::megatron(text, 32, "dgx-h100").with("megatron", "llama-3.1-70b").read();
    assert!(read.unwrap_err().not_planned.unwrap().contains("serving"));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["check", "--launcher", "vllm", "--args", "x", "--world-size", "8", "--cluster", "dgx-h100"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not planned here: it serves models"));
}

/// `check` of a configuration that asks for something else: exit code 1, and one clear sentence.
fn refused(launcher: &str, text: &str, what: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("configuration");
    std::fs::write(&path, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["check", "--launcher", launcher, "--world-size", "8", "--cluster", "dgx-h100", "--args"])
        .arg(&path)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("not planned here") && told.contains(what), "{told}");
    assert!(told.contains("hint: meshwright plans full training of language models"), "{told}");
    assert!(output.stdout.is_empty());
}

/// deepspeedai/DeepSpeed#4281 and modelscope/ms-swift#9403 train adapters.
#[test]
fn c59_c29_adapters() {
    refused("megatron", "pretrain.py --num-layers 80 --lora-rank 8 --micro-batch-size 1", "LoRA");
    let json = r#"{"zero_optimization": {"stage": 3}, "train_batch_size": 24, "peft_type": "LORA"}"#;
    refused("deepspeed", json, "adapters (PEFT)");
    refused("accelerate", "distributed_type: FSDP\nlora_r: 16\n", "LoRA");
}

/// vllm#36861, PR#6455, #14120, #2652 and the like serve models, whichever launcher the flags are given for.
#[test]
fn c31_c43_c73_serving() {
    refused("megatron", "serve --tensor-parallel-size 8 --max-num-seqs 256", "serving");
    refused("nanotron", "gpu_memory_utilization: 0.9\ntensor_parallel_size: 3\n", "serving");
}

/// modelscope/ms-swift#9403: the block that could not be had, 26.44 GiB, is one copy of a rank's experts.
#[test]
fn c29_the_experts_of_a_rank() {
    use cost_models::model::{Mlp, catalog};
    let model = catalog::get("qwen3-235b-a22b").unwrap();
    let experts: f64 = model
        .blocks()
        .map(|(_, block)| match block.mlp {
            Mlp::Moe { experts, ffn, .. } => 3.0 * (experts * ffn * model.hidden) as f64,
            Mlp::Dense { .. } => 0.0,
        })
        .sum();
    let (ep, pp, bytes) = (8.0, 2.0, 2.0);
    let block = experts / (ep * pp) * bytes / 1_073_741_824.0;
    assert!((block - 26.44).abs() < 0.005, "{block}");
}

/// kohya sd-scripts#1434 trains a diffusion model over two PCIe cards.
#[test]
fn c65_diffusion() {
    refused("accelerate", "num_processes: 2\nunet_lr: 0.0001\nvae_batch_size: 4\n", "diffusion models");
}

/// NVIDIA-NeMo/RL#883 and verl#901 ask about reinforcement learning; the training flags of such a run are said to be part
/// of it.
#[test]
fn c25_c67_reinforcement_learning() {
    refused("megatron", "--num-layers 32 --perform-rl-step --micro-batch-size 1", "reinforcement learning");
}
