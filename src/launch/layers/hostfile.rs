//! DeepSpeed's host file: the order of its lines is the order of the nodes.

use super::{Layer, Seats, Start};
use crate::launch::LaunchFile;

/// The layer.
#[derive(Debug)]
pub struct Hostfile;

impl Layer for Hostfile {
    fn name(&self) -> &'static str {
        "hostfile"
    }

    fn summary(&self) -> &'static str {
        "hostfile for `deepspeed --hostfile hostfile --no_local_rank`: nodes in order; GPUs in their own order"
    }

    fn loses(&self, seats: &Seats) -> Option<&'static str> {
        (!seats.in_order()).then_some("the order of GPUs inside nodes")
    }

    fn files(&self, start: &Start) -> Vec<LaunchFile> {
        let seats = start.seats;
        let mut text: String =
            seats.hosts.iter().map(|host| format!("{host} slots={}\n", seats.per_node)).collect();
        if !seats.in_order() {
            text.insert_str(
                0,
                "# The planned order of GPUs inside nodes is lost: DeepSpeed numbers them in their own.\n",
            );
        }
        vec![LaunchFile::data("hostfile", text)]
    }
}
