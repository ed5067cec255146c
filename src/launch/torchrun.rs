//! `torchrun` with static rendezvous: global rank = node rank x GPUs per node + local rank, so that every rank runs on
//! the host and GPU the plan gives it. (With the c10d rendezvous node ranks follow the order of arrival.)

use super::LaunchFile;
use super::shell::comment;
use crate::plan::Plan;
use std::fmt::Write;

/// Name of the script.
pub const SCRIPT: &str = "launch.sh";
/// Name of the list of hosts, in node-rank order.
pub const HOSTS: &str = "hosts.txt";

/// What runs on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job<'a> {
    /// Variables the engine needs; a value that is already set wins.
    pub environment: Vec<(&'a str, &'a str)>,
    /// Shell lines before the start, each with its line break.
    pub prepare: &'a str,
    /// What torchrun starts, as shell words.
    pub command: &'a str,
}

/// `hosts.txt`, and `launch.sh` that starts the job on one node.
#[must_use]
pub fn files(plan: &Plan, job: &Job) -> Vec<LaunchFile> {
    let hosts = plan.placement.hosts.iter().map(|host| comment(host) + "\n").collect();
    vec![LaunchFile::data(HOSTS, hosts), LaunchFile::script(SCRIPT, script(plan, job))]
}

fn script(plan: &Plan, job: &Job) -> String {
    let node = &plan.inputs.cluster.main().node;
    let nodes = plan.placement.hosts.len();
    let mut text = format!(
        "#!/usr/bin/env bash\n\
         # {} on {} GPUs. Run once per node, with NODE_RANK the host's line in {HOSTS} (from 0)\n\
         # and MASTER_ADDR the first host. Node ranks are fixed: they decide which rank runs where.\n\
         set -euo pipefail\n\
         cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n\
         : \"${{NODE_RANK:?set NODE_RANK to the number of this host in {HOSTS}, from 0 to {}}}\"\n\
         : \"${{MASTER_ADDR:?set MASTER_ADDR to the first host of {HOSTS}}}\"\n\
         export MASTER_PORT=\"${{MASTER_PORT:-29500}}\"\n",
        comment(&plan.inputs.model.name),
        plan.parallel.world_size(),
        nodes.saturating_sub(1),
    );
    for (name, value) in &job.environment {
        let _ = writeln!(text, "export {name}=\"${{{name}:-{value}}}\"");
    }
    let _ = write!(
        text,
        "{}\nexec torchrun --nnodes {nodes} --nproc-per-node {} --node-rank \"$NODE_RANK\" \\\n  \
         --rdzv-backend static --rdzv-endpoint \"$MASTER_ADDR:$MASTER_PORT\" --rdzv-id meshwright \\\n  {}\n",
        job.prepare, node.gpus, job.command,
    );
    text
}
