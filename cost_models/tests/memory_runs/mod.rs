//! Published runs as rows of a CSV file, and how each source's rows become training runs.

use cluster_profiles::{Cluster, Precision};
use cost_models::memory::{self, RankPeak};
use cost_models::runtime::{AttentionKernel, RecomputeModule, Runtime};
use cost_models::stages::default_stages;
use cost_models::{Dtype, ModelSpec, Optimizer, ParallelConfig, Recompute, TrainingRun, Workload};
use std::collections::BTreeMap;

/// One published run.
#[derive(Debug, Clone)]
pub struct Row(BTreeMap<String, String>);

impl Row {
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    pub fn count(&self, column: &str) -> u32 {
        self.number(column).map_or(1, |n| n as u32)
    }

    /// The printed memory in bytes.
    pub fn measured(&self) -> Option<f64> {
        let unit = if self.text("mem_unit") == "GiB" { 1_073_741_824.0 } else { 1e9 };
        Some(self.number("peak_mem_gb")? * unit)
    }
}

/// Rows of a CSV text with quoted fields.
pub fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let header = fields(lines.next().unwrap_or_default());
    lines.map(|line| Row(header.iter().cloned().zip(fields(line)).collect())).collect()
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for symbol in line.chars() {
        match symbol {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().unwrap().push(other),
        }
    }
    fields
}

/// The architectures rows name.
pub struct Models(serde_json::Value);

impl Models {
    pub fn read(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    pub fn get(&self, name: &str) -> Option<ModelSpec> {
        ModelSpec::from_compact(name, self.0.get(name)?).ok()
    }
}

/// A run's memory on every pipeline rank, and its runtime's figures.
pub struct Predicted {
    pub capacity: f64,
    pub peaks: Vec<RankPeak>,
    pub runtime: Runtime,
}

impl Predicted {
    pub fn allocated(&self) -> f64 {
        self.peaks.iter().map(RankPeak::allocated).fold(0.0, f64::max)
    }

    pub fn activations(&self) -> f64 {
        self.peaks.iter().map(|peak| peak.saved).fold(0.0, f64::max)
    }

    /// Of the rank that logs.
    pub fn reserved_on_first(&self) -> f64 {
        self.runtime.memory.reserve.reserved_bytes(self.peaks.first().map_or(0.0, RankPeak::allocated))
    }

    pub fn reserved(&self) -> f64 {
        self.runtime.memory.reserve.reserved_bytes(self.allocated())
    }

    pub fn device(&self) -> f64 {
        self.runtime.memory.reserve.device_bytes(self.reserved())
    }

    /// What the row's source prints.
    pub fn printed(&self, row: &Row) -> f64 {
        match (row.text("mem_quantity"), row.text("source_key")) {
            (_, "BLP") => self.device(),
            (_, "NT") => self.reserved_on_first(),
            ("allocated", _) => self.allocated(),
            ("activations", _) => self.activations(),
            ("device", _) => self.device(),
            _ => self.reserved(),
        }
    }
}

/// Predicts a row; what a source states beyond its columns is in [`adapt`].
pub fn predict(row: &Row, models: &Models) -> Option<Predicted> {
    let model = models.get(row.text("model"))?;
    let cluster = cluster_of(row)?;
    let parallel = parallel_of(row);
    let workload = workload_of(row, &parallel);
    let runtime = runtime_of(row)?;
    let placement = cost_models::memory::schedule_placement(&parallel.schedule);
    let stages = default_stages(&model, &parallel, runtime.memory.pipeline.split, placement).ok()?;
    let run = TrainingRun {
        model: &model,
        cluster: &cluster,
        workload: &workload,
        runtime: &runtime,
        parallel: &parallel,
        stages: &stages,
    };
    let peaks = memory::rank_peaks(&run).map_err(|error| eprintln!("{}: {error:?}", row.text("id"))).ok()?;
    Some(Predicted { capacity: cluster.gpu().memory.get(), peaks, runtime })
}

fn cluster_of(row: &Row) -> Option<Cluster> {
    let mut cluster = cluster_profiles::catalog::cluster("dgx-h100").ok()?;
    cluster.groups[0].gpu = cluster_profiles::catalog::gpu(row.text("gpu")).ok()?;
    Some(cluster)
}

fn parallel_of(row: &Row) -> ParallelConfig {
    let (tp, pp, cp) = (row.count("tp"), row.count("pp"), row.count("cp"));
    let world = row.count("n_gpus");
    let dp = row.number("dp").map_or(world / (tp * pp * cp), |n| n as u32).max(1);
    let mbs = row.number("mbs").unwrap_or(1.0) as u64;
    let gbs = row.number("gbs").unwrap_or(1.0) as u64;
    let schedule = match row.text("schedule") {
        "" | "none" => "1f1b",
        name => name,
    };
    ParallelConfig {
        tp,
        pp,
        vpp: row.count("vpp"),
        cp,
        ep: row.count("ep"),
        etp: row.count("etp"),
        dp_replicate: 1,
        dp_shard: dp,
        zero_stage: row.number("zero_stage").unwrap_or(1.0) as u8,
        sequence_parallel: row.text("sp") == "1" && tp > 1,
        micro_batch_size: mbs,
        num_microbatches: (gbs / (mbs * u64::from(dp))).max(1),
        schedule: schedule.to_owned(),
        recompute: match row.text("recompute") {
            "full" => Recompute::Full { layers: None },
            "selective" => Recompute::Selective,
            _ => Recompute::None,
        },
        ..ParallelConfig::default()
    }
}

fn workload_of(row: &Row, parallel: &ParallelConfig) -> Workload {
    Workload {
        global_batch: parallel.global_batch(),
        seq_len: row.number("seq_len").unwrap_or(2048.0) as u64,
        precision: row.text("precision").parse().unwrap_or(Precision::Bf16),
        optimizer: Optimizer::Adamw,
        gradient_dtype: (row.text("grad_dtype") == "fp32").then_some(Dtype::Fp32),
        expert_imbalance: 1.0,
    }
}

fn runtime_of(row: &Row) -> Option<Runtime> {
    let mut runtime = Runtime::named(row.text("runtime")).ok()?;
    runtime.attention = match row.text("flash_attn") {
        "no" => AttentionKernel::FusedSoftmax,
        "flash1" => AttentionKernel::Flash1,
        "flash2" => AttentionKernel::Flash2,
        "fused" => AttentionKernel::Cudnn,
        "yes" if runtime.attention.stores_scores() => AttentionKernel::Flash2,
        _ => runtime.attention,
    };
    runtime.facts.compiled = Some(!row.text("compile_graph").is_empty());
    adapt(&mut runtime, row);
    Some(runtime)
}

/// What the documentation of a source states in words.
fn adapt(runtime: &mut Runtime, row: &Row) {
    let memory = &mut runtime.memory;
    let notes = row.text("notes");
    if notes.contains("fused cross-entropy") {
        memory.loss.bytes_per_logit = 2.0;
    }
    if notes.contains("capacity factor 1") {
        runtime.facts.capacity_factor = Some(1.0);
    }
    match row.text("source_key") {
        "PO" => {
            memory.activations.selective =
                vec![RecomputeModule::Layernorm, RecomputeModule::Activation, RecomputeModule::Dropout];
            memory.pipeline.split = cost_models::runtime::SplitPolicy::CountEnds;
        }
        "TT" | "AO" => {
            let late = ["h200", "mi300x", "b200", "b200-power-limited"].contains(&row.text("gpu"));
            runtime.release = Some(if late { (2025, 8) } else { (2024, 12) });
        }
        "AA" if row.text("kernel").starts_with("torch") => {
            runtime.attention = AttentionKernel::Unfused;
            runtime.fused_norm = false;
        }
        "AA" => runtime.fused_norm = row.text("kernel").contains("RMS"),
        _ => {}
    }
}
