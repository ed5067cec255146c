//! A Slurm batch script with one task per GPU: Slurm's process number is the rank.

use super::slurm::{header, order};
use super::torchrun::{hosts, task};
use super::{Layer, Start};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct SlurmTasks;

impl Layer for SlurmTasks {
    fn name(&self) -> &'static str {
        "slurm-tasks"
    }

    fn summary(&self) -> &'static str {
        "job_tasks.sbatch: one task per GPU, without torchrun; every rank on its planned host where hosts.txt names the allocated ones"
    }

    fn starts_every_rank(&self) -> bool {
        true
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let (nodes, each) = (start.seats.hosts.len(), start.seats.per_node);
        let text = format!(
            "{}{}srun --distribution=arbitrary --nodes={nodes} --ntasks={} --gpu-bind=none \\\n  \
             bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec ./task.sh \"$@\"' \
             task \"$@\"\n",
            header(start, each, "task.sh"),
            order(start.seats, each),
            nodes * each,
        );
        let mut files = task(start);
        files.extend([hosts(start), LaunchFile::script("job_tasks.sbatch", text)]);
        files
    }
}
