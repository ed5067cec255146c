//! Scripts that compare the planned memory with the engine's own on one GPU: a fake process group stands in for the
//! other ranks, so that all state and activations of a rank are real and its collectives do nothing.

use crate::plan::Plan;
use cluster_profiles::Bytes;
use cost_models::RankMemory;
use cost_models::grid::RankGrid;

/// Name of the script.
pub const NAME: &str = "verify_memory.py";

/// What differs between engines.
pub struct Verify<'a> {
    /// What has to be at hand, for the script's own text.
    pub needs: &'a str,
    /// Python that defines `command(rank)`, the words that run two steps of a rank.
    pub command: String,
    /// Variables of the run as Python: the dictionary is updated with them.
    pub environment: String,
    /// Regular expression of the peak in the engine's output.
    pub pattern: &'a str,
    /// The planned figure that the engine's output is compared with.
    pub planned: fn(&RankMemory) -> Bytes,
    /// Bytes of the unit in which the engine tells it, as Python.
    pub unit: &'a str,
}

/// The script: the first, the last and the fullest pipeline rank, each in a process of its own.
#[must_use]
pub fn script(plan: &Plan, verify: &Verify) -> String {
    let planned: String = ranks(plan)
        .iter()
        .map(|(rank, memory)| format!("    ({rank}, {:.0}),\n", (verify.planned)(memory).get()))
        .collect();
    format!(
        r#""""Compares the planned memory with the engine's own on one GPU of the planned kind.

Needs {needs}. Each rank runs two steps with a fake process group: its state and activations are real, its collectives do
nothing, so buffers of NCCL are missing.
"""

import os
import re
import shlex
import subprocess
import sys

WORLD_SIZE = {world}
# Global rank, and the bytes the plan expects at the peak.
PLANNED = [
{planned}]
FOLDER = os.path.dirname(os.path.abspath(__file__))


{command}

def peak(rank):
    environment = dict(os.environ, WORLD_SIZE=str(WORLD_SIZE), RANK=str(rank), LOCAL_RANK="0")
    environment.setdefault("MASTER_ADDR", "localhost")
    environment.setdefault("MASTER_PORT", "29500")
    {environment}
    run = subprocess.run(
        command(rank), env=environment, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    found = re.findall(r"{pattern}", run.stdout)
    if not found:
        sys.exit(f"rank {{rank}}: no memory report\n{{run.stdout[-2000:]}}")
    return max(float(value) for value in found) * {unit}


def main():
    for rank, planned in PLANNED:
        measured = peak(rank)
        print(f"rank {{rank}}: planned {{planned / 2**30:.1f}} GiB, measured {{measured / 2**30:.1f}} GiB ({{planned / measured - 1:+.1%}})")


if __name__ == "__main__":
    main()
"#,
        needs = verify.needs,
        world = plan.parallel.world_size(),
        command = verify.command,
        environment = verify.environment,
        pattern = verify.pattern,
        unit = verify.unit,
    )
}

/// The first, the last and the fullest pipeline rank, each with the first of its global ranks.
fn ranks(plan: &Plan) -> Vec<(u64, &RankMemory)> {
    let memory = &plan.estimate.memory;
    let fullest = memory.iter().fold(None::<&RankMemory>, |worst, rank| match worst {
        Some(worst) if worst.allocated_bytes >= rank.allocated_bytes => Some(worst),
        _ => Some(rank),
    });
    let mut ranks: Vec<&RankMemory> =
        memory.first().into_iter().chain(memory.last()).chain(fullest).collect();
    ranks.sort_by_key(|rank| rank.rank);
    ranks.dedup_by_key(|rank| rank.rank);
    let grid = RankGrid::of(&plan.parallel);
    ranks.into_iter().map(|rank| (grid.rank(rank.rank.into(), 0), rank)).collect()
}
