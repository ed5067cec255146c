//! Launch layers: what starts a job on every node. One file each, one line in [`ALL`].
//!
//! All of them run the same script, `launch.sh`, once per node (or `task.sh` once per GPU) with the node rank the plan
//! gives the host, so that every rank runs on the GPU it was planned for. A layer that cannot promise this says so at the
//! top of its file.

mod hostfile;
mod kubernetes;
mod mpi;
mod ray;
mod seats;
mod skypilot;
mod slurm;
mod slurm_tasks;
mod torchrun;

pub use seats::Seats;

use super::LaunchFile;
use super::shell::comment;
use crate::plan::Plan;

/// What runs on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Variables the engine needs; a value that is already set wins.
    pub environment: Vec<(&'static str, String)>,
    /// Shell lines before the start, each with its line break.
    pub prepare: String,
    /// What torchrun starts, as shell words.
    pub command: String,
}

/// Everything a layer may use.
#[derive(Debug)]
pub struct Start<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its hosts and GPUs in node-rank order.
    pub seats: &'a Seats,
    /// What runs.
    pub job: &'a Job,
}

impl Start<'_> {
    /// The model's name and the number of GPUs, for comments.
    fn title(&self) -> String {
        format!("{} on {} GPUs", comment(&self.plan.inputs.model.name), self.plan.parallel.world_size())
    }
}

/// A launch layer.
pub trait Layer: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// One line for people: what it writes, and what of the planned placement it cannot keep.
    fn summary(&self) -> &'static str;
    /// Whether it starts every rank by itself, and so keeps ranks that are not numbered node by node.
    fn starts_every_rank(&self) -> bool {
        false
    }
    /// What of the planned placement it cannot keep.
    fn loses(&self, _seats: &Seats) -> Option<&'static str> {
        None
    }
    /// Its files.
    fn files(&self, start: &Start) -> Vec<LaunchFile>;
}

/// Variables of the user that the scripts ask for.
pub const CARRIED: &[&str] =
    &["TRAIN_SCRIPT", "BRIDGE_SCRIPT", "MEGATRON_PATH", "NANOTRON_PATH", "MAXTEXT_CONFIG"];

/// Shell lines that gather the variables of the user that are set, each by `add`, for starters that do not hand them on.
fn carried(add: &str) -> String {
    let names = CARRIED.join(" ");
    format!("carried=()\nfor name in {names}; do\n  if [[ -v $name ]]; then {add}; fi\ndone\n")
}

/// Every layer. The first two are written unless others are asked for.
pub static ALL: &[&dyn Layer] = &[
    &torchrun::Torchrun,
    &slurm::Slurm,
    &slurm_tasks::SlurmTasks,
    &mpi::Mpi,
    &hostfile::Hostfile,
    &kubernetes::PyTorchJob,
    &kubernetes::TrainJob,
    &skypilot::SkyPilot,
    &ray::Ray,
];

/// Why some of `layers` cannot keep the planned ranks, and which can.
#[must_use]
pub fn unable(seats: &Seats, layers: &[&'static dyn Layer]) -> Option<String> {
    let rank = seats.scattered()?;
    let names = |any: bool, list: &[&'static dyn Layer]| {
        let names = list.iter().filter(|layer| layer.starts_every_rank() == any).map(|layer| layer.name());
        names.collect::<Vec<_>>().join(", ")
    };
    let lacking = names(false, layers);
    (!lacking.is_empty()).then(|| {
        format!(
            "rank {rank} on host {}, away from the rank before it: the ranks of a node are on more than one host, and {lacking} \
             would number them node by node, {} each (--layer {} keeps any order)",
            seats.nodes[rank],
            seats.per_node,
            names(true, ALL),
        )
    })
}

/// Layers that are written unless others are asked for.
pub const USUAL: &[&str] = &["torchrun", "slurm"];

/// The layer called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static dyn Layer> {
    ALL.iter().copied().find(|layer| layer.name() == name)
}
