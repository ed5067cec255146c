//! Kubernetes: Kubeflow's `PyTorchJob` (v1) and `TrainJob` (v2). The rank of a pod is its index; which node a pod runs on
//! is the scheduler's choice.

use super::torchrun::PORT;
use super::{Layer, Seats, Start};
use crate::launch::LaunchFile;

/// What both files say at their top.
const LOST: &str = "# The scheduler chooses the nodes: consecutive pods are near each other only with a topology-aware\n\
     # scheduler (Kueue, Volcano) or a podAffinity of your own. The order of GPUs inside a node is kept.\n";

/// Kubeflow's training operator v1.
#[derive(Debug)]
pub struct PyTorchJob;

impl Layer for PyTorchJob {
    fn name(&self) -> &'static str {
        "pytorchjob"
    }

    fn summary(&self) -> &'static str {
        "pytorchjob.yaml (Kubeflow v1): the rank of a pod is its index; the scheduler chooses the nodes"
    }

    fn loses(&self, seats: &Seats) -> Option<&'static str> {
        (seats.hosts.len() > 1).then_some("which host takes which ranks: the scheduler chooses")
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let nodes = start.seats.hosts.len();
        let mut text = format!(
            "# {}.\n{LOST}apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: meshwright\nspec:\n  \
             nprocPerNode: \"{}\"\n  pytorchReplicaSpecs:\n    Master:\n      replicas: 1\n{}",
            start.title(),
            start.seats.per_node,
            template(start),
        );
        if nodes > 1 {
            text.push_str(&format!("    Worker:\n      replicas: {}\n{}", nodes - 1, template(start)));
        }
        vec![LaunchFile::data("pytorchjob.yaml", text)]
    }
}

/// A pod: the operator sets `RANK` to the pod's index and `MASTER_ADDR`.
fn template(start: &Start) -> String {
    format!(
        "      restartPolicy: OnFailure\n      template:\n        spec:\n          containers:\n            - name: pytorch\n              \
         image: IMAGE  # with the engine installed and this folder at /launch\n              \
         command: [\"bash\", \"-c\", \"NODE_RANK=$RANK exec /launch/launch.sh\"]\n              \
         resources:\n                limits:\n                  nvidia.com/gpu: {}\n",
        start.seats.per_node
    )
}

/// Kubeflow trainer v2.
#[derive(Debug)]
pub struct TrainJob;

impl Layer for TrainJob {
    fn name(&self) -> &'static str {
        "trainjob"
    }

    fn summary(&self) -> &'static str {
        "trainjob.yaml (Kubeflow v2): the rank of a pod is its index; the scheduler chooses the nodes"
    }

    fn loses(&self, seats: &Seats) -> Option<&'static str> {
        (seats.hosts.len() > 1).then_some("which host takes which ranks: the scheduler chooses")
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let text = format!(
            "# {}.\n{LOST}apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n  name: meshwright\nspec:\n  \
             runtimeRef:\n    name: torch-distributed\n  trainer:\n    numNodes: {}\n    numProcPerNode: {}\n    \
             image: IMAGE  # with the engine installed and this folder at /launch\n    command:\n      - bash\n      - -c\n      \
             - NODE_RANK=$PET_NODE_RANK MASTER_ADDR=$PET_MASTER_ADDR MASTER_PORT=${{PET_MASTER_PORT:-{PORT}}} exec /launch/launch.sh\n    \
             resourcesPerNode:\n      limits:\n        nvidia.com/gpu: {}\n",
            start.title(),
            start.seats.hosts.len(),
            start.seats.per_node,
            start.seats.per_node,
        );
        vec![LaunchFile::data("trainjob.yaml", text)]
    }
}
