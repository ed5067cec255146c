//! A Slurm batch script that keeps the planned order of hosts: one task per node runs the torchrun script with the
//! node rank that the host list gives it. (Slurm sorts its own node list by name.)

use super::LaunchFile;
use super::torchrun::{HOSTS, SCRIPT};
use crate::plan::Plan;

/// The batch script.
#[must_use]
pub fn file(plan: &Plan) -> LaunchFile {
    let node = &plan.inputs.cluster.main().node;
    let nodes = plan.placement.hosts.len();
    let text = format!(
        "#!/usr/bin/env bash\n\
         #SBATCH --job-name=meshwright\n\
         #SBATCH --nodes={nodes}\n\
         #SBATCH --ntasks-per-node=1\n\
         #SBATCH --gpus-per-node={}\n\
         #SBATCH --exclusive\n\
         # Node ranks: the order of {HOSTS} where it names the allocated hosts, else Slurm's own order.\n\
         set -euo pipefail\n\
         cd \"${{SLURM_SUBMIT_DIR:-$(dirname \"${{BASH_SOURCE[0]}}\")}}\"\n\
         mapfile -t allocated < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n\
         mapfile -t planned < {HOSTS}\n\
         order=(\"${{allocated[@]}}\")\n\
         if [[ \"$(printf '%s\\n' \"${{allocated[@]}}\" | sort)\" == \"$(printf '%s\\n' \"${{planned[@]}}\" | sort)\" ]]; then\n  \
           order=(\"${{planned[@]}}\")\n\
         fi\n\
         hostfile=$(mktemp -p . hosts.XXXXXX)\n\
         trap 'rm -f \"$hostfile\"' EXIT\n\
         printf '%s\\n' \"${{order[@]}}\" > \"$hostfile\"\n\
         export SLURM_HOSTFILE=$hostfile MASTER_ADDR=${{order[0]}} MASTER_PORT=${{MASTER_PORT:-29500}}\n\
         srun --distribution=arbitrary --nodes={nodes} --ntasks={nodes} --gpu-bind=none \\\n  \
           bash -c 'NODE_RANK=$SLURM_PROCID exec ./{SCRIPT}'\n",
        node.gpus,
    );
    LaunchFile::script("job.sbatch", text)
}
