//! DeepSpeed's launcher with its host file: the order of the lines is the order of the nodes.

use super::torchrun::{PORT, task};
use super::{Layer, Start, carried};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct Hostfile;

impl Layer for Hostfile {
    fn name(&self) -> &'static str {
        "hostfile"
    }

    fn summary(&self) -> &'static str {
        "deepspeed.sh with hostfile: DeepSpeed's launcher starts every node over ssh, in the planned order"
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let seats = start.seats;
        let text: String =
            seats.hosts.iter().map(|host| format!("{host} slots={}\n", seats.per_node)).collect();
        let script = format!(
            "#!/usr/bin/env bash\n# {}. Run on the first host.\nset -euo pipefail\n\
             cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n{}\
             exec deepspeed --hostfile hostfile --master_addr {} --master_port \"${{MASTER_PORT:-{PORT}}}\" \\\n  \
             --no_local_rank --no_python env ${{carried[@]+\"${{carried[@]}}\"}} ./task.sh \"$@\"\n",
            start.title(),
            carried("carried+=(\"$name=${!name}\")"),
            seats.hosts[0],
        );
        let mut files = task(start);
        files.extend([LaunchFile::data("hostfile", text), LaunchFile::script("deepspeed.sh", script)]);
        files
    }
}
