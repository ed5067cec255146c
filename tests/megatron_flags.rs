//! Megatron-LM's published memory figures (Apache-2.0, `tests/functional_tests/test_cases`) against the flags of the same
//! tests: always on the committed ones, and on all where the collection is at hand.

use cost_models::memory::{RankPeak, rank_peaks};
use cost_models::{ModelSpec, Recompute};
use meshwright::launch::megatron::read::{FlagSet, MegatronRun, ReadError, read};
use serde_json::Value;
use std::collections::BTreeMap;

fn texts(value: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::Bool(true) => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn run_of(line: &Value) -> (MegatronRun, Vec<RankPeak>) {
    let mut cluster = cluster_profiles::catalog::cluster("dgx-h100").unwrap();
    cluster.groups[0].gpu = cluster_profiles::catalog::gpu(line["gpu"].as_str().unwrap()).unwrap();
    let flags = FlagSet::new(texts(&line["args"]), texts(&line["env_vars"]));
    let run = read(&flags, line["n_gpus"].as_u64().unwrap(), cluster.gpu()).unwrap();
    let peaks = rank_peaks(&run.training_run(&cluster)).unwrap();
    (run, peaks)
}

/// Relative errors of what the last rank logs: after a step, at the peak, and of the peak less that and the loss.
#[derive(Default)]
struct Errors {
    after_step: Vec<f64>,
    peak: Vec<f64>,
    activations: Vec<f64>,
}

impl Errors {
    fn of(text: &str) -> Self {
        let mut errors = Self::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let (run, ranks) = run_of(&line);
            assert!(run.unknown.is_empty(), "{}: {:?} not understood", line["id"], run.unknown);
            errors.add(&line, ranks.last().unwrap());
        }
        errors
    }

    fn add(&mut self, line: &Value, rank: &RankPeak) {
        let measured = |key: &str| line[key].as_f64().unwrap();
        let (peak, fixed) = (measured("mem_max_allocated_bytes"), measured("mem_allocated_bytes"));
        let activations = rank.allocated() - rank.allocated_after_step() - rank.head;
        self.after_step.push((rank.allocated_after_step() / fixed - 1.0).abs());
        self.peak.push((rank.allocated() / peak - 1.0).abs());
        self.activations.push((activations / (peak - fixed - rank.head).max(1.0) - 1.0).abs());
    }

    fn medians(mut self) -> [f64; 3] {
        [&mut self.after_step, &mut self.peak, &mut self.activations].map(|errors| {
            errors.sort_by(f64::total_cmp);
            errors[errors.len() / 2]
        })
    }
}

#[test]
fn committed_tests_are_met() {
    let [after_step, peak, activations] = Errors::of(include_str!("data/megatron_ci.jsonl")).medians();
    assert!(after_step <= 0.02, "after the step: {after_step}");
    assert!(peak <= 0.015, "peak: {peak}");
    assert!(activations <= 0.04, "activations: {activations}");
}

#[test]
fn the_collection_is_met() {
    let root = std::env::var("MESHWRIGHT_SHARED")
        .unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let Ok(text) = std::fs::read_to_string(format!("{root}/data/validation/megatron_ci_runs.jsonl")) else {
        eprintln!("skipped: the collection of published runs is not at hand");
        return;
    };
    let [after_step, peak, activations] = Errors::of(&text).medians();
    println!("medians: after the step {after_step:.4}, peak {peak:.4}, activations {activations:.4}");
    assert!(after_step <= 0.02 && peak <= 0.015 && activations <= 0.04);
}

fn read_words(words: &str) -> Result<MegatronRun, ReadError> {
    let gpu = cluster_profiles::catalog::gpu("h100-sxm-80gb").unwrap();
    read(&FlagSet::from_words(words.split_whitespace()), 64, &gpu)
}

const LLAMA: &str = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear \
    --position-embedding-type rope --max-position-embeddings 8192 --vocab-size 128256 \
    --untie-embeddings-and-output-weights --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --bf16";

#[test]
fn a_command_line_becomes_the_run_it_describes() {
    let layout = "--tensor-model-parallel-size=4 --pipeline-model-parallel-size 4 --sequence-parallel \
        --num-layers-per-virtual-pipeline-stage 5 --use-distributed-optimizer --recompute-granularity full \
        --recompute-method block --recompute-num-layers 2 --lr -1e-4 --no-such-flag 3";
    let run = read_words(&format!("{LLAMA} {layout}")).unwrap();
    assert_eq!(run.model.parameters_total(), 70_553_706_496);
    let parallel = &run.parallel;
    assert_eq!((parallel.tp, parallel.pp, parallel.vpp, parallel.dp(), parallel.etp), (4, 4, 4, 4, 4));
    assert_eq!((parallel.zero_stage, parallel.num_microbatches, parallel.sequence_parallel), (1, 32, true));
    assert_eq!(parallel.recompute, Recompute::Full { layers: Some(2) });
    assert_eq!((run.stages.0.len(), run.unknown), (16, vec!["--no-such-flag".to_owned()]));
}

#[test]
fn every_fault_is_named_at_once() {
    let flags = "--num-layers none --hidden-size 0 --num-attention-heads 8 --seq-length 1 --micro-batch-size 1 \
        --moe-layer-freq [1]*3 --num-experts 8 --recompute-granularity half";
    let message = read_words(flags).unwrap_err().to_string();
    for flag in [
        "--num-layers is `none`",
        "--hidden-size is `0`",
        "--moe-layer-freq",
        "--recompute-granularity is `half`",
    ] {
        assert!(message.contains(flag), "{flag}: {message}");
    }
    assert!(read_words("").is_err());
    assert_eq!(ModelSpec::default().layers.len(), 0);
}
