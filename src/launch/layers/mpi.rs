//! MPI: a host file, a rank file that pins every rank, and the command (Open MPI 5; older releases take the rank file
//! with `-rf`).

use super::torchrun::task;
use super::{Layer, Start};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct Mpi;

impl Layer for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn summary(&self) -> &'static str {
        "mpirun.sh with hostfile.mpi and rankfile.mpi: every rank on its planned host"
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let seats = start.seats;
        let hosts = seats.hosts.iter().map(|host| format!("{host} slots={}\n", seats.per_node)).collect();
        let rank = |rank: usize| {
            let (node, local) = (rank / seats.per_node, rank % seats.per_node);
            format!("rank {rank}={} slot={local}\n", seats.hosts[node])
        };
        let world = seats.hosts.len() * seats.per_node;
        let text = format!(
            "#!/usr/bin/env bash\n# {}. Run on the first host.\nset -euo pipefail\n\
             cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n\
             exec mpirun -np {world} --hostfile hostfile.mpi --map-by rankfile:file=rankfile.mpi --bind-to none \\\n  \
             -x MASTER_ADDR={} -x MASTER_PORT=\"${{MASTER_PORT:-29500}}\" \\\n  \
             bash -c 'RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK \
             WORLD_SIZE=$OMPI_COMM_WORLD_SIZE exec ./task.sh'\n",
            start.title(),
            seats.hosts[0],
        );
        vec![
            task(start),
            LaunchFile::data("hostfile.mpi", hosts),
            LaunchFile::data("rankfile.mpi", (0..world).map(rank).collect()),
            LaunchFile::script("mpirun.sh", text),
        ]
    }
}
