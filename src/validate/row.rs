//! A published run: one row of the table, every column typed.

use super::fields::{Fault, Fields, Header};
use super::words::{
    CommOverlap, DTYPES, FLASH, FlashAttention, KINDS, Kind, MEMORY_UNITS, MemoryQuantity, OVERLAPS,
    QUALITIES, QUANTITIES, Quality, RECOMPUTES,
};
use cluster_profiles::Precision;
use cost_models::{Dtype, Recompute};

/// Every column that is read.
pub const COLUMNS: &[&str] = &[
    "id",
    "source_key",
    "source",
    "kind",
    "quality",
    "model",
    "seq_len",
    "gpu",
    "gpu_mem_gb",
    "n_gpus",
    "gpus_per_node",
    "interconnect",
    "nvlink_domain",
    "nic_gbytes_per_second_per_gpu",
    "framework",
    "runtime",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "dp",
    "dp_shard",
    "zero_stage",
    "sp",
    "recompute",
    "recompute_detail",
    "offload",
    "mbs",
    "gbs",
    "precision",
    "grad_dtype",
    "optimizer",
    "flash_attn",
    "kernel",
    "schedule",
    "comm_overlap",
    "compile_graph",
    "tokens_s_gpu",
    "samples_s",
    "step_s",
    "mfu_pct",
    "flops_def",
    "peak_mem_gb",
    "mem_unit",
    "mem_quantity",
    "mem_def",
    "oom",
    "notes",
    "cfg_group",
    "core",
    "time_scored",
];

/// Columns that cite the source, or repeat what other columns say; they change no prediction and no score.
pub const CITATIONS: &[&str] =
    &["source_ref", "evidence", "grad_accum", "tflops_gpu", "peak_tflops_ref", "hfu_pct", "dup_of"];

/// Columns without which no row can be read.
pub const REQUIRED: &[&str] =
    &["id", "kind", "model", "seq_len", "gpu", "n_gpus", "runtime", "tp", "pp", "mbs", "gbs"];

/// A published run, as its row states it; `None` and empty texts are blanks.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the columns are described where the table is")]
pub struct RunRow {
    pub line: u64,
    pub id: String,
    pub source_key: String,
    pub source: String,
    pub kind: Kind,
    pub quality: Quality,
    pub core: bool,
    pub time_scored: bool,
    pub cfg_group: String,
    pub model: String,
    pub seq_len: u64,
    pub gpu: String,
    pub gpu_memory_gb: Option<f64>,
    pub n_gpus: u64,
    pub gpus_per_node: Option<u32>,
    pub nvlink_domain: Option<u32>,
    pub nic_gbytes_per_second: Option<f64>,
    pub interconnect: String,
    pub framework: String,
    pub runtime: String,
    /// The engine is not public: `runtime` names the one it is taken for.
    pub private_engine: bool,
    pub tp: Option<u32>,
    pub pp: Option<u32>,
    pub vpp: Option<u32>,
    pub cp: Option<u32>,
    pub ep: Option<u32>,
    pub etp: Option<u32>,
    pub dp: Option<u32>,
    pub dp_shard: Option<u32>,
    pub zero_stage: Option<u8>,
    pub sequence_parallel: Option<bool>,
    pub recompute: Option<Recompute>,
    pub recompute_detail: String,
    pub offload: String,
    pub micro_batch_size: Option<u64>,
    pub global_batch: Option<u64>,
    pub precision: Option<Precision>,
    pub gradient_dtype: Option<Dtype>,
    pub optimizer: String,
    pub flash_attention: Option<FlashAttention>,
    pub kernel: String,
    pub schedule: String,
    pub comm_overlap: Option<CommOverlap>,
    pub compile_graph: String,
    pub notes: String,
    pub step_seconds: Option<f64>,
    pub mfu_percent: Option<f64>,
    pub flops_definition: String,
    pub memory: Option<MeasuredMemory>,
    pub out_of_memory: Option<bool>,
}

/// A measured memory figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredMemory {
    /// Bytes.
    pub bytes: f64,
    /// What it counts.
    pub quantity: MemoryQuantity,
}

impl RunRow {
    /// Reads a record.
    ///
    /// # Errors
    /// Every fault of the row.
    pub fn read(header: &Header, record: &csv::StringRecord, line: u64) -> Result<Self, Vec<Fault>> {
        let mut fields = Fields::new(header, record, line);
        let mut row = Self::identity(&mut fields, line);
        row.read_cluster(&mut fields);
        row.read_layout(&mut fields);
        row.read_engine(&mut fields);
        row.read_measurements(&mut fields);
        if fields.faults.is_empty() { Ok(row) } else { Err(fields.faults) }
    }

    fn identity(fields: &mut Fields, line: u64) -> Self {
        let id = fields.required_text("id");
        let key = fields.text("source_key");
        let source_key = if key.is_empty() { id.split('-').next().unwrap_or_default() } else { key };
        Self {
            line,
            source_key: source_key.to_owned(),
            kind: fields.word("kind", KINDS).unwrap_or_default(),
            quality: fields.word("quality", QUALITIES).unwrap_or_default(),
            core: fields.flag("core").unwrap_or(false),
            time_scored: fields.flag("time_scored").unwrap_or(false),
            cfg_group: fields.text("cfg_group").to_owned(),
            model: fields.required_text("model"),
            seq_len: fields.required_count("seq_len", 1 << 30),
            gpu: fields.required_text("gpu"),
            n_gpus: fields.required_count("n_gpus", 1 << 24),
            id,
            ..Self::default()
        }
        .with_engine(fields.required_text("runtime"))
    }

    /// An engine that is not public (`private`) is taken for Megatron-Core, which those of the large labs resemble most.
    fn with_engine(self, name: String) -> Self {
        let private_engine = name == "private";
        let runtime = if private_engine { "megatron-core".to_owned() } else { name };
        Self { runtime, private_engine, ..self }
    }

    fn read_cluster(&mut self, fields: &mut Fields) {
        self.gpu_memory_gb = fields.positive("gpu_mem_gb", 1e5);
        self.gpus_per_node = fields.count("gpus_per_node", 1024).map(|n| n as u32);
        self.nvlink_domain = fields.count("nvlink_domain", 1 << 16).map(|n| n as u32);
        self.nic_gbytes_per_second = fields.positive("nic_gbytes_per_second_per_gpu", 1e5);
        self.interconnect = fields.text("interconnect").to_owned();
        self.source = fields.text("source").to_owned();
        self.framework = fields.text("framework").to_owned();
    }

    fn read_layout(&mut self, fields: &mut Fields) {
        let mut degree = |column| fields.count(column, 1 << 20).map(|n| n as u32);
        self.tp = degree("tp");
        self.pp = degree("pp");
        self.vpp = degree("vpp");
        self.cp = degree("cp");
        self.ep = degree("ep");
        self.etp = degree("etp");
        self.dp = degree("dp");
        self.dp_shard = degree("dp_shard");
        self.zero_stage = fields.integer("zero_stage", 0, 3).map(|n| n as u8);
        self.sequence_parallel = fields.flag("sp");
        self.recompute = fields.word("recompute", RECOMPUTES);
        self.recompute_detail = fields.text("recompute_detail").to_owned();
        self.offload = fields.text("offload").to_owned();
        self.micro_batch_size = fields.count("mbs", 1 << 24);
        self.global_batch = fields.count("gbs", 1 << 32);
        self.schedule = fields.text("schedule").to_owned();
    }

    fn read_engine(&mut self, fields: &mut Fields) {
        let precisions = Precision::ALL.map(|p| (p.name(), p));
        self.precision = fields.word("precision", &precisions);
        self.gradient_dtype = fields.word("grad_dtype", DTYPES);
        self.optimizer = fields.text("optimizer").to_owned();
        self.flash_attention = fields.word("flash_attn", FLASH);
        self.kernel = fields.text("kernel").to_owned();
        self.comm_overlap = fields.word("comm_overlap", OVERLAPS);
        self.compile_graph = fields.text("compile_graph").to_owned();
        self.notes = fields.text("notes").to_owned();
    }

    fn read_measurements(&mut self, fields: &mut Fields) {
        self.step_seconds = self.read_step_seconds(fields);
        if self.time_scored && self.step_seconds.is_none() && fields.faults.is_empty() {
            fields.fault("time_scored", "but neither step_s, tokens_s_gpu nor samples_s (with gbs) is given");
        }
        self.mfu_percent = fields.positive("mfu_pct", 1e3);
        self.flops_definition = fields.text("flops_def").to_owned();
        self.out_of_memory = fields.flag("oom");
        let unit = fields.word("mem_unit", MEMORY_UNITS);
        let quantity = fields.word("mem_quantity", QUANTITIES);
        let Some(amount) = fields.positive("peak_mem_gb", 1e6) else { return };
        match (unit, quantity) {
            (Some(unit), Some(quantity)) => {
                let device = fields.text("mem_def").contains("nvidia-smi");
                let quantity = if device { MemoryQuantity::Device } else { quantity };
                self.memory = Some(MeasuredMemory { bytes: amount * unit, quantity });
            }
            _ => fields.fault("peak_mem_gb", "needs mem_unit and mem_quantity to mean anything"),
        }
    }

    /// `step_s`, else tokens over the rate per GPU, else samples over the rate.
    fn read_step_seconds(&self, fields: &mut Fields) -> Option<f64> {
        let stated = fields.positive("step_s", 1e7);
        let tokens_rate = fields.positive("tokens_s_gpu", 1e12);
        let samples_rate = match fields.text("samples_s").parse::<f64>() {
            Ok(0.0) => None,
            _ => fields.positive("samples_s", 1e12),
        };
        let batch = self.global_batch.map(|b| b as f64);
        let by_tokens =
            tokens_rate.zip(batch).map(|(r, b)| b * self.seq_len as f64 / (self.n_gpus as f64 * r));
        let by_samples = samples_rate.zip(batch).map(|(r, b)| b / r);
        stated.or(by_tokens).or(by_samples)
    }

    /// Whether its quality allows a score: A or B.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        matches!(self.quality, Quality::A | Quality::B)
    }
}
