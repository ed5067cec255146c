//! A set of flags, their values, and what is wrong with them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A flag whose value makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagFault {
    /// The flag.
    pub flag: String,
    /// Its value.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl fmt::Display for FlagFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is `{}`, expected {}", self.flag, self.value, self.expected)
    }
}

/// Flags with their values as text (empty for a switch), and the environment variables of the run.
#[derive(Debug, Clone, Default)]
pub struct FlagSet {
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    read: RefCell<BTreeSet<&'static str>>,
    faults: RefCell<Vec<FlagFault>>,
}

impl FlagSet {
    /// Flags with their values, dashes included.
    #[must_use]
    pub fn new(flags: BTreeMap<String, String>, variables: BTreeMap<String, String>) -> Self {
        Self { flags, variables, ..Self::default() }
    }

    /// The words of a command line: a flag takes the words that follow it up to the next flag.
    #[must_use]
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut flags: BTreeMap<String, String> = BTreeMap::new();
        let mut last: Option<String> = None;
        for word in words {
            let number = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit() || c == '.');
            if word.starts_with("--") && !number {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                flags.insert(name.to_owned(), value.to_owned());
                last = Some(name.to_owned());
            } else if let Some(values) = last.as_ref().and_then(|name| flags.get_mut(name)) {
                let gap = if values.is_empty() { "" } else { " " };
                values.push_str(gap);
                values.push_str(word);
            }
        }
        Self::new(flags, BTreeMap::new())
    }

    /// Whether a switch is set.
    pub(super) fn has(&self, flag: &'static str) -> bool {
        self.text(flag).is_some_and(|value| !matches!(value, "false" | "False" | "0"))
    }

    /// The value of a flag.
    pub(super) fn text(&self, flag: &'static str) -> Option<&str> {
        self.read.borrow_mut().insert(flag);
        self.flags.get(flag).map(String::as_str)
    }

    /// A number that is at least 1.
    pub(super) fn count(&self, flag: &'static str) -> Option<u64> {
        let text = self.text(flag)?;
        let number = text.parse().ok().filter(|n| (1..=1u64 << 40).contains(n));
        if number.is_none() {
            self.fault(flag, text, "a number from 1");
        }
        number
    }

    /// A degree of parallelism.
    pub(super) fn degree(&self, flag: &'static str) -> u32 {
        self.count(flag).and_then(|n| u32::try_from(n).ok()).unwrap_or(1)
    }

    /// A number that has to be there.
    pub(super) fn required(&self, flag: &'static str) -> u64 {
        if self.text(flag).is_none() {
            self.fault(flag, "", "a number: it is missing");
        }
        self.count(flag).unwrap_or(1)
    }

    /// A finite number.
    pub(super) fn real(&self, flag: &'static str) -> Option<f64> {
        let text = self.text(flag)?;
        let number = text.parse().ok().filter(|n: &f64| n.is_finite());
        if number.is_none() {
            self.fault(flag, text, "a number");
        }
        number
    }

    /// The words of a list flag, with or without brackets and commas.
    pub(super) fn words(&self, flag: &'static str) -> Vec<&str> {
        let text = self.text(flag).unwrap_or_default();
        text.split(|c: char| c.is_whitespace() || "[],'\"".contains(c))
            .filter(|word| !word.is_empty())
            .collect()
    }

    /// An environment variable.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(super) fn fault(&self, flag: &str, value: &str, expected: &str) {
        let value: String = value.chars().take(40).collect();
        let fault = FlagFault { flag: flag.to_owned(), value, expected: expected.to_owned() };
        let mut faults = self.faults.borrow_mut();
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }

    pub(super) fn faults(&self) -> Vec<FlagFault> {
        self.faults.borrow().clone()
    }

    /// Flags that were neither read nor are known to change nothing here.
    pub(super) fn unknown(&self) -> Vec<String> {
        let read = self.read.borrow();
        let known = |flag: &&String| read.contains(flag.as_str()) || passed_over(flag);
        self.flags.keys().filter(|flag| !known(flag)).cloned().collect()
    }
}

/// Flags about data, logging, checkpoints, learning rate, randomness and kernels that change neither sizes nor state.
fn passed_over(flag: &str) -> bool {
    const STARTS: &[&str] = &[
        "--adam-",
        "--async-",
        "--attention-softmax-in-fp32",
        "--auto-detect-ckpt-format",
        "--calculate-per-token-loss",
        "--check-",
        "--ckpt-",
        "--clip-grad",
        "--cuda-graph-",
        "--data-",
        "--ddp-",
        "--decoupled-",
        "--delay-wgrad-compute",
        "--disable-gloo-process-groups",
        "--dist-ckpt-",
        "--distributed-",
        "--enable-cuda-graph",
        "--eod-mask-loss",
        "--eval-",
        "--exit-",
        "--export-",
        "--fim-",
        "--finetune",
        "--first-last-layers-bf16",
        "--fp8-amax-",
        "--fp8-margin",
        "--init-method-std",
        "--load",
        "--log-",
        "--logging-level",
        "--lr",
        "--manual-gc",
        "--megatron-fsdp-",
        "--merge-file",
        "--min-lr",
        "--mock-data",
        "--moe-aux-loss-coeff",
        "--moe-router-bias-update-rate",
        "--moe-router-num-groups",
        "--moe-router-group-topk",
        "--moe-router-pre-softmax",
        "--moe-router-topk-scaling-factor",
        "--moe-router-fusion",
        "--moe-router-force-load-balancing",
        "--moe-z-loss-coeff",
        "--mscale",
        "--muon-",
        "--no-async-",
        "--no-bias-dropout-fusion",
        "--no-bias-gelu-fusion",
        "--no-check-for-nan",
        "--no-ckpt-",
        "--no-load-",
        "--no-persist-layer-norm",
        "--no-save-",
        "--no-mmap-bin-files",
        "--no-overlap-p2p-communication",
        "--no-rope-fusion",
        "--no-use-layer-wise-param-layout",
        "--norm-epsilon",
        "--num-dataset-builder-threads",
        "--num-workers",
        "--optimizer-cpu-offload-",
        "--outer-dp-sharding-strategy",
        "--overlap-",
        "--override-opt",
        "--profile",
        "--per-split-data-args-path",
        "--record-memory-history",
        "--rerun-mode",
        "--rotary-",
        "--save",
        "--seed",
        "--sgd-momentum",
        "--split",
        "--straggler",
        "--tensorboard-",
        "--test-mode",
        "--timing-log-",
        "--tiktoken-",
        "--tokenizer-",
        "--tp-comm-",
        "--train-",
        "--trust-remote-code",
        "--use-checkpoint-",
        "--use-mcore-models",
        "--use-persistent-ckpt-worker",
        "--use-flash-attn",
        "--use-legacy-models",
        "--use-precision-aware-optimizer-",
        "--use-pytorch-profiler",
        "--verify-integrity",
        "--vocab-file",
        "--wandb-",
        "--weight-decay",
        "--apply-query-key-layer-scaling",
        "--cross-entropy-fusion-impl",
        "--kv-channels",
        "--yarn-",
        "--rope-",
        "--no-position-embedding",
    ];
    STARTS.iter().any(|start| flag.starts_with(start))
}
