//! What launchers other than Megatron-LM demand, and configurations that nobody would write.

use crate::case::{Case, SEVEN, breaks};
use meshwright::check::check_given;

/// Overrides of a Megatron-Bridge recipe, as words and as Python, are checked by Megatron-LM's rules.
#[test]
fn bridge_overrides() {
    let words = "model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=3 model.sequence_parallel=True \
        train.micro_batch_size=1 train.global_batch_size=32 model.seq_length=4096 ddp.use_distributed_optimizer=True";
    let python = "cfg.model.tensor_model_parallel_size = 4\ncfg.model.pipeline_model_parallel_size = 3\n\
        cfg.model.sequence_parallel = True\ncfg.train.micro_batch_size = 1\ncfg.train.global_batch_size = 32\n\
        cfg.model.seq_length = 4096\ncfg.ddp.use_distributed_optimizer = True\n";
    for text in [words, python] {
        let check = Case::megatron(text, 24, "dgx-h100").with("megatron-bridge", "llama-3.1-8b").check();
        breaks(&check, "P2");
        assert_eq!(check.broken_rules.len(), 1, "{:?}", check.broken_rules);
    }
}

/// Facts that are missing are asked for by name, all at once.
#[test]
fn missing_facts_are_named() {
    let mut case = Case::megatron("--tensor-model-parallel-size 8", 8, "dgx-h100");
    let missing = case.read().0.unwrap_err().missing.join("; ");
    for fact in ["the model: --num-layers", "the sequence length", "--micro-batch-size"] {
        assert!(missing.contains(fact), "{missing}");
    }
    case.launcher = "deepspeed";
    case.text = "{\"zero_optimization\": {\"stage\": 3}}";
    let missing = case.read().0.unwrap_err().missing.join("; ");
    assert!(missing.contains("--model") && missing.contains("--seq-len"), "{missing}");
}

/// DeepSpeed's own demands on a configuration.
#[test]
fn deepspeed_rules() {
    let text = r#"{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
        "bf16": {"enabled": true}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 4}, "sequence_parallel_size": 3}"#;
    let mut case = Case::megatron(text, 24, "dgx-h100").with("deepspeed", "llama-3.1-8b");
    case.seq_len = Some(4096);
    let check = case.check();
    for id in ["D1", "D2", "D2a", "D5"] {
        breaks(&check, id);
    }
    let text = r#"{"bf16": {"enabled": true}, "zero_optimization": {"stages": 3, "overlap_comm": "yes", "reduce_bucket_size": 0}}"#;
    let mut case = Case::megatron(text, 24, "dgx-h100").with("deepspeed", "llama-3.1-8b");
    case.seq_len = Some(4096);
    let check = case.check();
    assert!(breaks(&check, "D2b").contains("`stage` is the nearest"));
    assert_eq!(check.broken_rules.iter().filter(|rule| rule.id == "D2c").count(), 2);
    breaks(&check, "D1a");
}

/// Accelerate's demands, several broken at once.
#[test]
fn accelerate_rules() {
    let yaml = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 1\n\
        parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 1\n  \
        parallelism_config_tp_size: 4\n  parallelism_config_cp_size: 1\n";
    let mut case = Case::megatron(yaml, 16, "dgx-h100").with("accelerate", "llama-3.1-8b");
    (case.seq_len, case.micro_batch) = (Some(4096), Some(1));
    let check = case.check();
    for id in ["A1", "A1a", "A3", "A4", "A5"] {
        breaks(&check, id);
    }
    let negative = yaml.replace("tp_size: 4", "tp_size: -4");
    let mut case = Case::megatron(&negative, 16, "dgx-h100").with("accelerate", "llama-3.1-8b");
    (case.seq_len, case.micro_batch) = (Some(4096), Some(1));
    assert!(case.read().0.is_err());
}

/// Configurations that are huge, senseless or hostile give an error or a verdict, never a panic or a hang.
#[test]
fn hostile_configurations() {
    let most = u64::MAX;
    let texts = [
        format!(
            "--num-layers {most} --hidden-size {most} --num-attention-heads 0 --seq-length -1 --micro-batch-size {most}"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 11008 --micro-batch-size 1048576 --global-batch-size 1 --tensor-model-parallel-size 1048576 --pipeline-model-parallel-size 1048576"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 1 --micro-batch-size 1 --moe-layer-freq ([1]*9999999999) --num-experts 65536"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 16 --micro-batch-size 1 --pipeline-model-parallel-layout '{}'",
            "((((((((t*9999)*9999)*9999)*9999)*9999)*9999)*9999)*9999)"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 16 --micro-batch-size 1 --decoder-first-pipeline-num-layers 1099511627776 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1099511627776"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 16 --micro-batch-size 1 --num-distributed-optimizer-instances 1048576 --recompute-num-layers 99999999999"
        ),
    ];
    for text in &texts {
        let (given, cluster) = Case::megatron(text, 64, "dgx-h100").read();
        match given {
            Ok(given) => assert!(!check_given(&given, &cluster, cluster.gpu().memory, None).passes()),
            Err(error) => assert!(!error.is_empty()),
        }
    }
    for launcher in ["torchtitan", "deepspeed", "nanotron", "accelerate", "megatron-bridge"] {
        for key in [
            "parallelism.tp",
            "parallelism.tensor_parallel_degree",
            "parallelism.pipeline_parallel_degree",
            "sequence_parallel_size",
            "parallelism.dp",
            "model.pipeline_model_parallel_size",
        ] {
            for value in ["1048576", "0", "-7", "1e300", "[[[]]]", "\"$(reboot)\"", "18446744073709551616"] {
                let (section, name) = key.split_once('.').unwrap_or(("x", key));
                let text = if key.contains('.') {
                    format!("{{\"{section}\": {{\"{name}\": {value}}}}}")
                } else {
                    format!("{{\"{name}\": {value}}}")
                };
                let mut case = Case::megatron(&text, 64, "dgx-h100").with(launcher, "llama-3.1-8b");
                (case.seq_len, case.global_batch, case.micro_batch) = (Some(4096), Some(64), Some(1));
                if let (Ok(given), cluster) = case.read() {
                    let _ = check_given(&given, &cluster, cluster.gpu().memory, None);
                }
            }
        }
    }
}

/// Sizes that no Llama has are told as such, and the model is not asked for.
#[test]
fn nanotron_sizes_that_do_not_fit() {
    let yaml = "parallelism:\n  tp: 1\n  pp: 1\n  dp: 8\ntokens:\n  sequence_length: 4096\n  micro_batch_size: 1\nmodel:\n  \
        model_config:\n    hidden_size: 4096\n    intermediate_size: 14336\n    num_attention_heads: 33\n    num_hidden_layers: 32\n    \
        num_key_value_heads: 8\n    vocab_size: 128256\n    is_llama_config: true\n";
    let mut case = Case::megatron(yaml, 8, "dgx-h100");
    case.launcher = "nanotron";
    let error = case.read().0.unwrap_err();
    assert!(error.missing.is_empty(), "{error:?}");
    assert!(error.faults[0].to_string().contains("num_attention_heads 33"), "{error:?}");
}

/// A batch that does not divide is one broken rule, not two.
#[test]
fn torchtitan_tells_a_batch_once() {
    let flags = "--module llama3 --config llama3_8b --training.local_batch_size 8 --training.global_batch_size 36 \
        --training.seq_len 4096 --parallelism.pipeline_parallel_degree 4 --training.disable_cuda_graphs";
    let mut case = Case::megatron(flags, 8, "dgx-h100");
    case.launcher = "torchtitan";
    let check = case.check();
    assert_eq!(
        check.broken_rules.iter().filter(|rule| rule.id == "T4").count(),
        1,
        "{:?}",
        check.broken_rules
    );
}

/// Changes are such as the launcher's files can state, each once, on the global batch that was asked about.
#[test]
fn changes_are_the_launchers_own() {
    let json = r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,
        "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}"#;
    let yaml = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n\
        parallelism_config:\n  parallelism_config_dp_shard_size: 8\n";
    let titan = "--module llama3 --config llama3_8b --training.local_batch_size 2 --training.global_batch_size 64 \
        --training.seq_len 4096";
    for (launcher, text) in [("deepspeed", json), ("accelerate", yaml), ("torchtitan", titan)] {
        let mut case = Case::megatron(text, 8, "dgx-h100").with(launcher, "llama-3.1-8b");
        (case.seq_len, case.micro_batch, case.global_batch) = (Some(4096), Some(1), Some(64));
        let check = case.check();
        assert!(check.valid && !check.remedies.is_empty(), "{launcher}: {:?}", check.broken_rules);
        let changes: Vec<_> = check.remedies.iter().map(|change| &change.flags).collect();
        for (index, flags) in changes.iter().enumerate() {
            assert!(!flags.is_empty() && !changes[..index].contains(flags), "{launcher}: {flags:?}");
        }
        for change in check.remedies.iter().chain(&check.faster) {
            assert_eq!(change.parallel.global_batch(), 64, "{launcher}: {}", change.change);
            assert!(launcher == "torchtitan" || change.parallel.pp == 1, "{launcher}: {}", change.change);
        }
        if launcher == "torchtitan" {
            let halved: Vec<_> =
                check.remedies.iter().filter(|change| change.parallel.micro_batch_size == 1).collect();
            assert_eq!(
                halved[0].flags,
                ["- --training.local_batch_size 2", "+ --training.local_batch_size 1"]
            );
        }
    }
}
