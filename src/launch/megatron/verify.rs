//! A script that checks the planned memory on one GPU: Megatron-LM's fake process group stands in for the others.

use crate::plan::Plan;
use cost_models::RankMemory;

/// The script: the first, the last and the fullest pipeline rank, each in a process of its own.
#[must_use]
pub fn script(plan: &Plan) -> String {
    let memory = &plan.estimate.memory;
    let fullest = memory.iter().fold(None::<&RankMemory>, |worst, rank| match worst {
        Some(worst) if worst.allocated_bytes >= rank.allocated_bytes => Some(worst),
        _ => Some(rank),
    });
    let mut ranks: Vec<&RankMemory> =
        memory.first().into_iter().chain(memory.last()).chain(fullest).collect();
    ranks.sort_by_key(|rank| rank.rank);
    ranks.dedup_by_key(|rank| rank.rank);
    let per_stage = plan.parallel.world_size() / u64::from(plan.parallel.pp.max(1));
    let planned: String = ranks
        .iter()
        .map(|rank| {
            format!("    ({}, {:.0}),\n", u64::from(rank.rank) * per_stage, rank.allocated_bytes.get())
        })
        .collect();
    format!(
        r#""""Compares the planned memory with Megatron-LM's own on one GPU.

Needs Megatron-LM at MEGATRON_PATH and one GPU of the planned kind. Each rank runs two steps with --fake-process-group: all
its state and activations are real, its collectives do nothing, so buffers of NCCL are missing.
"""

import os
import re
import shlex
import subprocess
import sys

WORLD_SIZE = {world}
# Global rank, and the bytes the plan expects its allocator to hand out at the peak.
PLANNED = [
{planned}]
INSTEAD = {{"--moe-token-dispatcher-type": "alltoall", "--train-iters": "2"}}
DROPPED = ("--moe-flex-dispatcher-backend",)


def arguments(folder):
    with open(os.path.join(folder, "megatron.args"), encoding="utf-8") as file:
        lines = [shlex.split(line) for line in file]
    lines = [line for line in lines if line and line[0] not in DROPPED]
    return [word for line in lines for word in ([line[0], INSTEAD[line[0]]] if line[0] in INSTEAD else line)]


def peak(rank, words):
    environment = dict(os.environ, WORLD_SIZE=str(WORLD_SIZE), RANK=str(rank), LOCAL_RANK="0")
    environment.setdefault("MASTER_ADDR", "localhost")
    environment.setdefault("MASTER_PORT", "29500")
    environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "{connections}")
    script = os.path.join(os.environ.get("MEGATRON_PATH", "."), "pretrain_gpt.py")
    run = subprocess.run(
        [sys.executable, script, *words, "--fake-process-group"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = re.findall(r"max allocated: ([0-9.]+)", run.stdout)
    if not found:
        sys.exit(f"rank {{rank}}: no memory report\n{{run.stdout[-2000:]}}")
    return max(float(value) for value in found) * 1024 * 1024


def main():
    words = arguments(os.path.dirname(os.path.abspath(__file__)))
    for rank, planned in PLANNED:
        measured = peak(rank, words)
        print(f"rank {{rank}}: planned {{planned / 2**30:.1f}} GiB, measured {{measured / 2**30:.1f}} GiB ({{planned / measured - 1:+.1%}})")


if __name__ == "__main__":
    main()
"#,
        world = plan.parallel.world_size(),
        connections = if plan.parallel.zero_stage >= 2 { 8 } else { 1 },
    )
}
