//! Profiles of a real cluster: what measurement tools print, read into a cluster profile; and the probe script.
//!
//! An importer reads one file and adds to the [`Findings`]; [`assemble`](assemble::assemble) fits curves, looks for odd
//! links and makes the profile. Adding a tool is one file and a line in [`Kind`].

pub mod assemble;
mod base;
mod curves;
mod findings;
mod galvatron;
mod hostlist;
mod infiniband;
mod layers;
mod links;
mod nccl_json;
mod nccl_names;
mod nccl_tests;
mod nccl_xml;
mod nvidia_smi;
mod osu;
mod pairs;
mod pairs_header;
mod perftest;
pub mod probe;
mod probe_gpu;
mod probe_report;
mod samples;
mod slurm;
mod source;
mod survey;
mod torch_trace;
mod training_log;

pub use assemble::Imported;
pub use curves::CurveReport;
pub use findings::{Findings, LinkPlace, MeasuredRun};

use crate::error::AppError;
use clap::ValueEnum;
use cluster_profiles::Cluster;
use cost_models::ModelSpec;
use source::Input;
use std::path::Path;

/// A tool whose output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// nccl-tests: all_reduce_perf and its siblings, text or JSON.
    NcclTests,
    /// rccl-tests.
    RcclTests,
    /// OSU micro-benchmarks: collectives, osu_bw, osu_latency.
    Osu,
    /// perftest: ib_write_bw -a and its siblings.
    Perftest,
    /// nvidia-smi topo -m.
    NvidiaSmi,
    /// The topology XML of NCCL_TOPO_DUMP_FILE.
    NcclTopology,
    /// ibnetdiscover, or the net_dump of ibdiagnet.
    #[value(alias = "ibdiagnet")]
    Ibnetdiscover,
    /// Slurm's topology.conf or topology.yaml.
    Slurm,
    /// CSV of bandwidths between hosts.
    Pairs,
    /// Log of a Megatron-LM run.
    MegatronLog,
    /// Log of a torchtitan run.
    TorchtitanLog,
    /// Chrome trace of the PyTorch profiler.
    TorchTrace,
    /// Galvatron's profile JSON.
    Galvatron,
    /// JSON of the script that `profile script` writes.
    Probe,
}

/// What the files do not say and the user may.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// Gives what was not measured.
    pub base: Option<Cluster>,
    /// Name of the profile.
    pub name: Option<String>,
    /// Members of the measured group, where the tool does not print it.
    pub ranks: Option<u32>,
    /// Members on one host, likewise.
    pub per_node: Option<u32>,
    /// The model whose layers were measured.
    pub model: Option<ModelSpec>,
}

impl Kind {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn import(self, input: &Input, hints: &Hints, found: &mut Findings) -> Result<(), AppError> {
        match self {
            Self::NcclTests => nccl_tests::import("nccl-tests", input, found),
            Self::RcclTests => nccl_tests::import("rccl-tests", input, found),
            Self::Osu => osu::import(input, hints, found),
            Self::Perftest => perftest::import(input, found),
            Self::NvidiaSmi => nvidia_smi::import(input, found),
            Self::NcclTopology => nccl_xml::import(input, found),
            Self::Ibnetdiscover => infiniband::import(input, found),
            Self::Slurm => slurm::import(input, found),
            Self::Pairs => pairs::import(input, found),
            Self::MegatronLog => training_log::megatron(input, found),
            Self::TorchtitanLog => training_log::torchtitan(input, found),
            Self::TorchTrace => torch_trace::import(input, hints, found),
            Self::Galvatron => galvatron::import(input, hints, found),
            Self::Probe => probe_report::import(input, found),
        }
    }
}

/// Words that only the output of one tool has.
const SIGNATURES: [(&str, Kind); 15] = [
    ("out-of-place", Kind::NcclTests),
    ("# OSU", Kind::Osu),
    ("#bytes", Kind::Perftest),
    ("CPU Affinity", Kind::NvidiaSmi),
    ("<system version", Kind::NcclTopology),
    ("Topology file: generated", Kind::Ibnetdiscover),
    ("SwitchName=", Kind::Slurm),
    ("BlockName=", Kind::Slurm),
    ("bandwidth_gb_per_second", Kind::Pairs),
    ("elapsed time per iteration", Kind::MegatronLog),
    ("tflops:", Kind::TorchtitanLog),
    ("traceEvents", Kind::TorchTrace),
    ("layertype_0_bsz", Kind::Galvatron),
    ("_consec_", Kind::Galvatron),
    ("meshwright-probe", Kind::Probe),
];
/// Lines in which a signature is looked for.
const SIGNED_WITHIN: usize = 400;

/// What to do about a file of another tool: the kind it looks like, or all kinds.
fn other_tool(input: &Input, tool: &str) -> String {
    let looks_like = || {
        let mut lines = input.lines().ok()?;
        for _ in 0..SIGNED_WITHIN {
            let line = lines.next_line().ok()??;
            if let Some((_, kind)) =
                SIGNATURES.iter().find(|(sign, kind)| line.contains(sign) && kind.name() != tool)
            {
                return Some(kind.name());
            }
        }
        None
    };
    match looks_like() {
        Some(kind) => format!("it looks like output of {kind}: `profile import {kind}`"),
        None => {
            let names: Vec<String> = Kind::value_variants().iter().map(|kind| kind.name()).collect();
            format!("kinds: {}", names.join(", "))
        }
    }
}

/// Reads files of one kind and makes a profile.
///
/// # Errors
/// A file cannot be read or is not what its kind says: line and what to change.
pub fn import(kind: Kind, files: &[&Path], hints: Hints) -> Result<Imported, AppError> {
    let mut found = Findings::default();
    for path in files {
        let input = Input::new(path);
        let mut own = std::mem::take(&mut found);
        kind.import(&input, &hints, &mut own)?;
        own.files.push(input.name());
        found = own;
    }
    if found.is_empty() {
        return Err(AppError::Other {
            message: "the files hold nothing that a profile could use".to_owned(),
            hint: (!found.notes.is_empty()).then(|| found.notes.join("; ")),
        });
    }
    let name = hints.name.unwrap_or_else(|| "imported".to_owned());
    assemble::assemble(found, hints.base, &name)
}
