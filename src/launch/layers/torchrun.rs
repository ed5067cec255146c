//! `torchrun` with static rendezvous: global rank = node rank x GPUs per node + local rank, so that every rank runs on
//! the host and GPU the plan gives it. (With the c10d rendezvous node ranks follow the order of arrival.)

use super::{Layer, Start};
use crate::launch::LaunchFile;
use std::fmt::Write;

/// Name of the script of a node.
pub const SCRIPT: &str = "launch.sh";
/// Name of the list of hosts, in node-rank order.
pub const HOSTS: &str = "hosts.txt";
/// Name of the list of nodes, by their lines in the list of hosts (from 0), in rank order.
pub const NODES: &str = "nodes.txt";
/// Port of the rendezvous unless `MASTER_PORT` is set.
pub const PORT: u32 = 29500;

/// The layer.
#[derive(Debug)]
pub struct Torchrun;

impl Layer for Torchrun {
    fn name(&self) -> &'static str {
        "torchrun"
    }

    fn summary(&self) -> &'static str {
        "launch.sh, run once per node with its node rank; hosts.txt lists them in order"
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        vec![hosts(start), LaunchFile::script(SCRIPT, script(start))]
    }
}

/// The hosts, in node-rank order.
pub fn hosts(start: &Start) -> LaunchFile {
    let lines = start.seats.hosts.iter().map(|host| host.clone() + "\n").collect();
    LaunchFile::data(HOSTS, lines)
}

fn script(start: &Start) -> String {
    let nodes = start.seats.hosts.len();
    let mut text = format!(
        "#!/usr/bin/env bash\n\
         # {}. Run once per node, with NODE_RANK the host's line in {HOSTS} (from 0)\n\
         # and MASTER_ADDR the first host. Node ranks are fixed: they decide which rank runs where.\n\
         set -euo pipefail\n\
         cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n\
         : \"${{NODE_RANK:?set NODE_RANK to the number of this host in {HOSTS}, from 0 to {}}}\"\n\
         : \"${{MASTER_ADDR:?set MASTER_ADDR to the first host of {HOSTS}}}\"\n\
         export MASTER_PORT=\"${{MASTER_PORT:-{PORT}}}\"\n",
        start.title(),
        nodes.saturating_sub(1),
    );
    text.push_str(&devices(start, "NODE_RANK"));
    text.push_str(&environment(start));
    let _ = write!(
        text,
        "{}\nexec torchrun --nnodes {nodes} --nproc-per-node {} --node-rank \"$NODE_RANK\" \\\n  \
         --rdzv-backend static --rdzv-endpoint \"$MASTER_ADDR:$MASTER_PORT\" --rdzv-id meshwright \\\n  {}\n",
        start.job.prepare, start.seats.per_node, start.job.command,
    );
    text
}

/// Exports of the engine's variables; a value that is already set wins.
pub fn environment(start: &Start) -> String {
    let line = |(name, value): &(&str, String)| format!("export {name}=\"${{{name}:-{value}}}\"\n");
    start.job.environment.iter().map(line).collect()
}

/// The order of GPUs on each node, where it is not their own.
pub fn devices(start: &Start, node: &str) -> String {
    if start.seats.in_order() {
        return String::new();
    }
    let lists: String =
        (0..start.seats.devices.len()).map(|node| format!("  {}\n", start.seats.visible(node))).collect();
    format!(
        "devices=(\n{lists})\nexport CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=\"${{devices[{node}]}}\"\n"
    )
}

/// What runs once per GPU, without torchrun, for layers that start every rank themselves; and the node of every rank,
/// where ranks are not numbered node by node.
pub fn task(start: &Start) -> Vec<LaunchFile> {
    let scattered = start.seats.scattered().is_some();
    let node = if scattered { "nodes[RANK]".to_owned() } else { format!("RANK / {}", start.seats.per_node) };
    let devices = devices(start, &node);
    let read = if scattered && !devices.is_empty() {
        format!("mapfile -t nodes < {NODES}\n")
    } else {
        String::new()
    };
    let text = format!(
        "#!/usr/bin/env bash\n\
         # {}. One rank: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set by what starts it.\n\
         set -euo pipefail\n\
         cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n\
         : \"${{RANK:?}}\" \"${{LOCAL_RANK:?}}\" \"${{WORLD_SIZE:?}}\" \"${{MASTER_ADDR:?}}\"\n\
         export RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT=\"${{MASTER_PORT:-{PORT}}}\"\n\
         {read}{devices}{}{}\nexec python {}\n",
        start.title(),
        environment(start),
        start.job.prepare,
        start.job.command,
    );
    let mut files = vec![LaunchFile::script("task.sh", text)];
    if scattered {
        files.push(LaunchFile::data(NODES, start.seats.node_lines()));
    }
    files
}
