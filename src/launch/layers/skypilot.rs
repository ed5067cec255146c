//! SkyPilot: a task of several nodes; node ranks are SkyPilot's own.

use super::{Layer, Seats, Start};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct SkyPilot;

impl Layer for SkyPilot {
    fn name(&self) -> &'static str {
        "skypilot"
    }

    fn summary(&self) -> &'static str {
        "skypilot.yaml: consecutive ranks fill nodes; which machine is which node is SkyPilot's choice"
    }

    fn loses(&self, seats: &Seats) -> Option<&'static str> {
        (seats.hosts.len() > 1).then_some("which host takes which ranks: SkyPilot numbers its machines")
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let accelerator = accelerator(&start.plan.inputs.cluster.gpu().name);
        let text = format!(
            "# {}. The planned hosts are lost: SkyPilot numbers the machines it gets.\n\
             name: meshwright\nnum_nodes: {}\nresources:\n  accelerators: {accelerator}:{}\nworkdir: .\nrun: |\n  \
             export NODE_RANK=$SKYPILOT_NODE_RANK\n  \
             export MASTER_ADDR=$(head -n1 <<< \"$SKYPILOT_NODE_IPS\")\n  \
             bash launch.sh\n",
            start.title(),
            start.seats.hosts.len(),
            start.seats.per_node,
        );
        vec![LaunchFile::data("skypilot.yaml", text)]
    }
}

/// SkyPilot's name of a GPU: the kind, and the memory where a kind has two sizes.
fn accelerator(gpu: &str) -> String {
    let known = [
        ("a100-sxm-80gb", "A100-80GB"),
        ("a100-pcie-80gb", "A100-80GB"),
        ("a100-sxm-40gb", "A100"),
        ("a100-pcie-40gb", "A100"),
        ("v100-sxm2-32gb", "V100-32GB"),
        ("v100-sxm2-16gb", "V100"),
        ("rtx-4090", "RTX4090"),
        ("mi300x", "MI300X"),
    ];
    let named = known.into_iter().find(|(name, _)| *name == gpu).map(|(_, sky)| sky.to_owned());
    named.unwrap_or_else(|| gpu.split('-').next().unwrap_or(gpu).to_ascii_uppercase())
}
