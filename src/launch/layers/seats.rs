//! The planned ranks as node ranks and GPU lists, as launch layers can express them.

use crate::plan::{Plan, RankPlacement};
use std::collections::BTreeMap;

/// Hosts in node-rank order, the GPUs of each in local-rank order, and the node of every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seats {
    /// Hosts, by node rank: in the order of their first ranks.
    pub hosts: Vec<String>,
    /// Ranks of a node.
    pub per_node: usize,
    /// GPU indices by local rank, per node.
    pub devices: Vec<Vec<u32>>,
    /// Node rank of every rank.
    pub nodes: Vec<usize>,
}

impl Seats {
    /// The seats of a plan.
    ///
    /// # Errors
    /// What no launch layer can express: nodes with different numbers of ranks, a host whose name is none.
    pub fn of(plan: &Plan) -> Result<Self, Vec<String>> {
        let placement = &plan.placement;
        let mut ranks: Vec<&RankPlacement> = placement.ranks.iter().collect();
        ranks.sort_by_key(|seat| seat.rank);
        let mut seats = Self { hosts: Vec::new(), per_node: 0, devices: Vec::new(), nodes: Vec::new() };
        let mut known: BTreeMap<u32, usize> = BTreeMap::new();
        for seat in ranks {
            let node = *known.entry(seat.host).or_insert_with(|| {
                seats.hosts.push(placement.hosts.get(seat.host as usize).cloned().unwrap_or_default());
                seats.devices.push(Vec::new());
                seats.devices.len() - 1
            });
            seats.devices[node].push(seat.gpu);
            seats.nodes.push(node);
        }
        let reasons = seats.faults();
        seats.per_node = seats.devices.first().map_or(0, Vec::len);
        if reasons.is_empty() { Ok(seats) } else { Err(reasons) }
    }

    fn faults(&self) -> Vec<String> {
        let Some(first) = self.devices.first() else { return vec!["a placement without ranks".to_owned()] };
        let mut reasons = Vec::new();
        if let Some(node) = self.devices.iter().position(|gpus| gpus.len() != first.len()) {
            reasons.push(format!(
                "{} ranks on host {node} and {} on host 0: launch layers start equally many on every node",
                self.devices[node].len(),
                first.len()
            ));
        }
        reasons.extend(self.hosts.iter().filter(|host| !is_host(host)).map(|host| {
            let shown: String = host.chars().filter(|c| !c.is_control()).take(60).collect();
            format!("a host called `{shown}`: letters, digits, dots and dashes make a host name")
        }));
        reasons
    }

    /// The first rank that is not beside the rank before it although its node has room: launchers that start a node at a
    /// time number the ranks node by node.
    #[must_use]
    pub fn scattered(&self) -> Option<usize> {
        self.nodes.iter().enumerate().position(|(rank, &node)| node != rank / self.per_node.max(1))
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

    /// The node of every rank, a line each.
    #[must_use]
    pub fn node_lines(&self) -> String {
        self.nodes.iter().map(|node| format!("{node}\n")).collect()
    }
}

fn is_host(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 253 && name.chars().all(plain) && !name.starts_with('-')
}
