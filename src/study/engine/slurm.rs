//! Slurm: an array job with one task per shard, and a job that merges when all are done. A task that is preempted or killed is
//! queued again and goes on where it was.

use super::Sharded;
use crate::launch::LaunchFile;

/// The array, the merge and the script that submits both.
pub fn files(sharded: &Sharded) -> Vec<LaunchFile> {
    let (name, shards) = (&sharded.name, sharded.shards);
    let header = |job: &str| {
        format!("#!/usr/bin/env bash\n#SBATCH --job-name={job}\n#SBATCH --output={job}-%A_%a.log\n")
    };
    let array = format!(
        "{}#SBATCH --array=1-{shards}\n#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=2\n#SBATCH --mem=2G\n#SBATCH --requeue\n\
         set -euo pipefail\n{}{}\n",
        header(name),
        sharded.enter(),
        sharded.shard_command(&sharded.study, "\"$SLURM_ARRAY_TASK_ID\"")
    );
    let merge = format!(
        "{}#SBATCH --ntasks=1\n#SBATCH --mem=2G\nset -euo pipefail\n{}{}\n",
        header(&format!("{name}-merge")),
        sharded.enter(),
        sharded.merge_command()
    );
    let submit = "#!/usr/bin/env bash\nset -euo pipefail\ncd \"$(dirname \"${BASH_SOURCE[0]}\")\"\n\
                  job=$(sbatch --parsable shards.sbatch)\n\
                  sbatch --dependency=\"afterok:${job%%;*}\" --kill-on-invalid-dep=yes merge.sbatch\n";
    vec![
        LaunchFile::script("shards.sbatch", array),
        LaunchFile::script("merge.sbatch", merge),
        LaunchFile::script("submit.sh", submit.to_owned()),
    ]
}
