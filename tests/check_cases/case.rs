//! A configuration from a thread, read and checked.

use meshwright::check::{Check, check_given};
use meshwright::launch::{self, Given, Question, ReadError, document};

/// A configuration and what it runs on.
pub struct Case<'a> {
    pub launcher: &'a str,
    pub text: &'a str,
    pub gpus: u64,
    pub cluster: &'a str,
    pub model: Option<&'a str>,
    pub seq_len: Option<u64>,
    pub global_batch: Option<u64>,
    pub micro_batch: Option<u64>,
}

impl<'a> Case<'a> {
    pub fn megatron(text: &'a str, gpus: u64, cluster: &'a str) -> Self {
        Self {
            launcher: "megatron",
            text,
            gpus,
            cluster,
            model: None,
            seq_len: None,
            global_batch: None,
            micro_batch: None,
        }
    }

    pub fn with(self, launcher: &'a str, model: &'a str) -> Self {
        Self { launcher, model: Some(model), ..self }
    }

    /// What the configuration says, and the cluster it is asked about.
    pub fn read(&self) -> (Result<Given, ReadError>, cluster_profiles::Cluster) {
        let cluster = cluster_profiles::catalog::cluster(self.cluster).unwrap().resized(self.gpus).unwrap();
        let model = self.model.map(|name| cost_models::model::catalog::get(name).unwrap());
        let launcher = launch::named(self.launcher).unwrap();
        let flags = launcher.flags(&document::parse("configuration", self.text).unwrap());
        let question = Question {
            flags: &flags,
            world_size: self.gpus,
            cluster: &cluster,
            model: model.as_ref(),
            seq_len: self.seq_len,
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
        };
        (launcher.read(&question).unwrap(), cluster)
    }

    /// Memory of the fullest rank.
    pub fn memory(&self) -> cost_models::RankMemory {
        let (given, cluster) = self.read();
        let given = given.unwrap();
        let memory =
            cost_models::estimate(&given.run(&cluster, given.stages.as_ref().unwrap())).unwrap().memory;
        memory.into_iter().max_by(|a, b| a.peak_bytes.get().total_cmp(&b.peak_bytes.get())).unwrap()
    }

    /// The verdict.
    pub fn check(&self) -> Check {
        let (given, cluster) = self.read();
        let check =
            check_given(&given.unwrap(), &cluster, cluster.gpu().memory, launch::named(self.launcher));
        eprintln!(
            "peak {:.1} GiB ({} {:.1}), valid {}, fits {}: {:?}",
            check.peak_bytes.as_gib(),
            check.largest_term,
            check.largest_term_bytes.as_gib(),
            check.valid,
            check.fits,
            check.broken_rules.iter().map(|rule| &rule.id).collect::<Vec<_>>()
        );
        check
    }
}

/// Message and hint of a rule that is among the broken ones.
pub fn breaks(check: &Check, id: &str) -> String {
    let rule = check.broken_rules.iter().find(|rule| rule.id == id);
    let rule = rule.unwrap_or_else(|| panic!("{id} is not among {:?}", check.broken_rules));
    format!("{} {}", rule.message, rule.hint.clone().unwrap_or_default())
}

/// The peak is within `tolerance` of what the case says.
pub fn near(check: &Check, gigabytes: f64, tolerance: f64) {
    let found = check.peak_bytes.get() / 1e9;
    assert!((found / gigabytes - 1.0).abs() <= tolerance, "{found:.1} GB, the case says {gigabytes}");
}

/// A figure that is known to be off, and by how much: the test fails when it becomes worse, and when it becomes right.
pub fn off(check: &Check, gigabytes: f64, by: std::ops::Range<f64>) {
    let found = check.peak_bytes.get() / 1e9;
    let over = found / gigabytes - 1.0;
    assert!(by.contains(&over), "{found:.1} GB, the case says {gigabytes}: off by {over:+.2}, not {by:?}");
}

/// Llama-like sizes of 7B.
pub const SEVEN: &str = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 4096 \
    --seq-length 4096 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights --vocab-size 32000 --bf16 --attention-dropout 0 --hidden-dropout 0 \
    --use-distributed-optimizer";
