//! Ray: a placement group with a bundle per node; the index of a bundle is the node rank.

use super::{CARRIED, Layer, Start};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct Ray;

impl Layer for Ray {
    fn name(&self) -> &'static str {
        "ray"
    }

    fn summary(&self) -> &'static str {
        "ray_launch.py: a bundle per node, pinned to the planned hosts where the cluster has nodes of that name"
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let hosts: String = start.seats.hosts.iter().map(|host| format!("    \"{host}\",\n")).collect();
        let carried = format!("{CARRIED:?}");
        let text = format!(
            r#""""{title}. Run on a node of the Ray cluster, with this folder at the same path on every node.

Node ranks follow HOSTS where the cluster has nodes of these names; otherwise Ray's own choice of nodes is kept.
"""

import os
import socket
import subprocess

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

HOSTS = [
{hosts}]
GPUS = {gpus}
FOLDER = os.path.dirname(os.path.abspath(__file__))


def address():
    return socket.gethostbyname(socket.gethostname())


CARRIED = {{name: os.environ[name] for name in {carried} if name in os.environ}}


def run(node_rank, master, carried):
    environment = dict(os.environ, **carried, NODE_RANK=str(node_rank), MASTER_ADDR=master)
    return subprocess.run(["bash", os.path.join(FOLDER, "launch.sh")], env=environment).returncode


def bundles():
    nodes = {{node["NodeName"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}}
    planned = [nodes.get(host) for host in HOSTS]
    if all(planned) and len(set(planned)) == len(HOSTS):
        return [{{"GPU": GPUS, f"node:{{ip}}": 0.001}} for ip in planned]
    return [{{"GPU": GPUS}} for _ in HOSTS]


def main():
    ray.init(address="auto")
    group = placement_group(bundles(), strategy="STRICT_SPREAD" if len(HOSTS) > 1 else "PACK")
    ray.get(group.ready())

    def on(index):
        return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)

    master = ray.get(ray.remote(address).options(num_gpus=0, scheduling_strategy=on(0)).remote())
    jobs = [
        ray.remote(run).options(num_gpus=GPUS, scheduling_strategy=on(rank)).remote(rank, master, CARRIED)
        for rank in range(len(HOSTS))
    ]
    raise SystemExit(max(ray.get(jobs)))


if __name__ == "__main__":
    main()
"#,
            title = start.title().replace(['"', '\\'], " "),
            gpus = start.seats.per_node,
            carried = carried,
        );
        vec![LaunchFile::data("ray_launch.py", text)]
    }
}
