//! MPI: a host file, a rank file that pins every rank, and the command (Open MPI 5; older releases take the rank file
//! with `-rf`).

use super::torchrun::{PORT, task};
use super::{Layer, Start, carried};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct Mpi;

impl Layer for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn summary(&self) -> &'static str {
        "mpirun.sh with hostfile.mpi and rankfile.mpi: every rank on its planned host, whatever the map"
    }

    fn starts_every_rank(&self) -> bool {
        true
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let seats = start.seats;
        let hosts = seats.hosts.iter().map(|host| format!("{host} slots={}\n", seats.per_node)).collect();
        let mut taken = vec![0usize; seats.hosts.len()];
        let rank = |(rank, &node): (usize, &usize)| {
            taken[node] += 1;
            format!("rank {rank}={} slot={}\n", seats.hosts[node], taken[node] - 1)
        };
        let ranks = seats.nodes.iter().enumerate().map(rank).collect();
        let text = format!(
            "#!/usr/bin/env bash\n# {}. Run on the first host.\nset -euo pipefail\n\
             cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n{}\
             exec mpirun -np {} --hostfile hostfile.mpi --map-by rankfile:file=rankfile.mpi --bind-to none \\\n  \
             -x MASTER_ADDR={} -x MASTER_PORT=\"${{MASTER_PORT:-{PORT}}}\" ${{carried[@]+\"${{carried[@]}}\"}} \\\n  \
             bash -c 'RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK \
             WORLD_SIZE=$OMPI_COMM_WORLD_SIZE exec ./task.sh \"$@\"' task \"$@\"\n",
            start.title(),
            carried("carried+=(-x \"$name\")"),
            seats.nodes.len(),
            seats.hosts[0],
        );
        let mut files = task(start);
        files.extend([
            LaunchFile::data("hostfile.mpi", hosts),
            LaunchFile::data("rankfile.mpi", ranks),
            LaunchFile::script("mpirun.sh", text),
        ]);
        files
    }
}
