//! The planned ranks as node ranks and GPU lists, as launch layers can express them.

use crate::plan::Plan;
use std::collections::BTreeSet;

/// Hosts in node-rank order, and the GPUs of each in local-rank order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seats {
    /// Hosts, by node rank.
    pub hosts: Vec<String>,
    /// Ranks of a node.
    pub per_node: usize,
    /// GPU indices by local rank, per node.
    pub devices: Vec<Vec<u32>>,
}

impl Seats {
    /// The seats of a plan.
    ///
    /// # Errors
    /// What no launch layer can express: ranks of one node that are not consecutive, nodes with different numbers of
    /// ranks, a host whose name is none.
    pub fn of(plan: &Plan) -> Result<Self, Vec<String>> {
        let placement = &plan.placement;
        let mut ranks = placement.ranks.clone();
        ranks.sort_by_key(|seat| seat.rank);
        let Some(first) = ranks.first() else { return Err(vec!["a placement without ranks".to_owned()]) };
        let per_node = ranks.iter().take_while(|seat| seat.host == first.host).count();
        let mut reasons = Vec::new();
        let mut used = BTreeSet::new();
        let mut seats = Self { hosts: Vec::new(), per_node, devices: Vec::new() };
        for block in ranks.chunks(per_node) {
            let host = block[0].host;
            if block.len() != per_node || block.iter().any(|seat| seat.host != host) {
                reasons.push(format!(
                    "ranks {} to {} on more than one host: launch layers number the ranks node by node, {per_node} each",
                    block[0].rank,
                    block[0].rank + block.len() as u64 - 1
                ));
                break;
            }
            if !used.insert(host) {
                reasons.push(format!("ranks of host {host} that are not consecutive: launch layers number the ranks node by node, so they are on more than one host"));
                break;
            }
            seats.hosts.push(placement.hosts.get(host as usize).cloned().unwrap_or_default());
            seats.devices.push(block.iter().map(|seat| seat.gpu).collect());
        }
        reasons.extend(seats.hosts.iter().filter(|host| !is_host(host)).map(|host| {
            let shown: String = host.chars().filter(|c| !c.is_control()).take(60).collect();
            format!("a host called `{shown}`: letters, digits, dots and dashes make a host name")
        }));
        if reasons.is_empty() { Ok(seats) } else { Err(reasons) }
    }

    /// Whether every node uses its GPUs in their own order.
    #[must_use]
    pub fn in_order(&self) -> bool {
        self.devices.iter().all(|gpus| gpus.iter().copied().eq(0..gpus.len() as u32))
    }

    /// The GPUs of a node, as `CUDA_VISIBLE_DEVICES` takes them.
    #[must_use]
    pub fn visible(&self, node: usize) -> String {
        let list = self.devices.get(node).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

fn is_host(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 253 && name.chars().all(plain) && !name.starts_with('-')
}
