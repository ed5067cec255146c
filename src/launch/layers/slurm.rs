//! A Slurm batch script that keeps the planned order of hosts: one task per node runs the torchrun script with the
//! node rank that the host list gives it. (Slurm sorts its own node list by name.)

use super::torchrun::{HOSTS, NODES, PORT, SCRIPT};
use super::{Layer, Seats, Start};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct Slurm;

impl Layer for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn summary(&self) -> &'static str {
        "job.sbatch: one task per node runs torchrun; keeps the order of hosts.txt where it names the allocated hosts"
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let nodes = start.seats.hosts.len();
        let text = format!(
            "{}{}srun --distribution=arbitrary --nodes={nodes} --ntasks={nodes} --gpu-bind=none \\\n  \
             bash -c 'NODE_RANK=$SLURM_PROCID exec ./{SCRIPT} \"$@\"' node \"$@\"\n",
            header(start, 1, SCRIPT),
            order(start.seats, 1),
        );
        vec![LaunchFile::script("job.sbatch", text)]
    }
}

/// The directives, and the folder of the job, which holds `script`. Slurm runs a copy of a batch script: the folder is that
/// of the command it was given, or the one it was called from.
pub fn header(start: &Start, tasks_per_node: usize, script: &str) -> String {
    format!(
        "#!/usr/bin/env bash\n\
         #SBATCH --job-name=meshwright\n\
         #SBATCH --nodes={}\n\
         #SBATCH --ntasks-per-node={tasks_per_node}\n\
         #SBATCH --gpus-per-node={}\n\
         #SBATCH --exclusive\n\
         {}\
         # {}.\n\
         # Node ranks: the order of {HOSTS} where it names the allocated hosts, else Slurm's own order.\n\
         set -euo pipefail\n\
         command=$(scontrol show job \"${{SLURM_JOB_ID:-}}\" 2>/dev/null | sed -n 's/^ *Command=//p' || true)\n\
         for folder in \"${{command%/*}}\" \"$(dirname \"${{command%% *}}\")\" \"${{SLURM_SUBMIT_DIR:-}}\" \"$(dirname \"${{BASH_SOURCE[0]}}\")\"; do\n  \
           [[ -x $folder/{script} && -f $folder/{HOSTS} ]] && break\n\
         done\n\
         cd \"$folder\"\n",
        start.seats.hosts.len(),
        start.seats.per_node,
        node_list(start),
        start.title(),
    )
}

/// Asks for the planned hosts where the plan leaves others out.
fn node_list(start: &Start) -> String {
    if start.plan.placement.spare.is_empty() {
        return String::new();
    }
    format!("#SBATCH --nodelist={}\n", start.seats.hosts.join(","))
}

/// Writes the host file that `--distribution=arbitrary` follows, a line per task, and sets the rendezvous.
pub fn order(seats: &Seats, tasks: usize) -> String {
    let lines = if tasks > 1 && seats.scattered().is_some() {
        format!(
            "mapfile -t nodes < {NODES}\n\
             for node in \"${{nodes[@]}}\"; do printf '%s\\n' \"${{order[node]}}\"; done > \"$hostfile\"\n"
        )
    } else {
        format!(
            "for host in \"${{order[@]}}\"; do\n  \
               for ((task = 0; task < {tasks}; task++)); do printf '%s\\n' \"$host\"; done\n\
             done > \"$hostfile\"\n"
        )
    };
    format!(
        "mapfile -t allocated < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n\
         mapfile -t planned < {HOSTS}\n\
         order=(\"${{allocated[@]}}\")\n\
         if [[ \"$(printf '%s\\n' \"${{allocated[@]}}\" | sort)\" == \"$(printf '%s\\n' \"${{planned[@]}}\" | sort)\" ]]; then\n  \
           order=(\"${{planned[@]}}\")\n\
         else\n  \
           echo 'job: the allocated hosts are not those of {HOSTS}: ranks follow the order of Slurm' >&2\n\
         fi\n\
         hostfile=$(mktemp -p . hosts.XXXXXX)\n\
         trap 'rm -f \"$hostfile\"' EXIT\n\
         {lines}\
         export SLURM_HOSTFILE=$hostfile MASTER_ADDR=${{order[0]}} MASTER_PORT=${{MASTER_PORT:-{PORT}}}\n"
    )
}
