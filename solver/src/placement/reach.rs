//! Hosts that the others cannot reach.

use crate::problem::Problem;
use cluster_profiles::{Cluster, ProfileError};
use cost_models::sites::Network;

/// Hosts up to which every pair is looked at.
const MOST_HOSTS: usize = 4096;

/// Hosts that reach each other, and those they do not reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Reach {
    /// The most hosts that all reach each other, directly or through others; their own order.
    pub together: Cluster,
    /// The names of the rest.
    pub apart: Vec<String>,
}

impl Reach {
    /// The hosts of a problem that reach each other, where some do not.
    ///
    /// # Errors
    /// [`ProfileError::Size`] if the cluster is too large for a topology.
    pub fn of(problem: &Problem) -> Result<Option<Self>, ProfileError> {
        let cluster = problem.available.unwrap_or(problem.cluster);
        if cluster.links.is_empty() && cluster.matrix.is_none() {
            return Ok(None);
        }
        let network = Network::new(cluster)?;
        let count = network.topology().hosts().len();
        if count > MOST_HOSTS {
            return Ok(None);
        }
        let parts = parts(count, |a, b| {
            let passes = |from, to| network.path(from, to).bandwidth.get() > 0.0;
            passes(a, b) && passes(b, a)
        });
        let Some(largest) = parts.iter().rev().max_by_key(|part| part.len()) else { return Ok(None) };
        let names = cluster.host_names();
        let apart = (0..count).filter(|host| !largest.contains(host)).map(|host| names[host].clone());
        let apart: Vec<String> = apart.collect();
        if apart.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { together: cluster.without(&apart)?, apart }))
    }

    /// The hosts to use: as many GPUs as the problem has, as far as there are.
    #[must_use]
    pub fn used(&self, problem: &Problem) -> Cluster {
        let gpus = problem.cluster.gpu_count().min(self.together.gpu_count());
        self.together.resized(gpus).unwrap_or_else(|_| self.together.clone())
    }

    /// What a plan says of the rest.
    #[must_use]
    pub fn warning(&self) -> String {
        let (count, names) = (self.apart.len(), self.apart.join(", "));
        let (host, verb) = if count == 1 { ("host", "is") } else { ("hosts", "are") };
        format!(
            "{host} {names} {verb} left out: no link to the other hosts works (broken, or measured as 0); mend the links, or \
             plan with --lost {}",
            self.apart.join(",")
        )
    }
}

/// Sets of hosts that are linked, in the order of their first host.
fn parts(count: usize, linked: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut open: Vec<usize> = (0..count).collect();
    let mut parts = Vec::new();
    while let Some(&first) = open.first() {
        let mut part = vec![first];
        open.remove(0);
        let mut next = 0;
        while next < part.len() {
            let from = part[next];
            let (near, far): (Vec<usize>, Vec<usize>) = open.iter().partition(|host| linked(from, **host));
            part.extend(near);
            open = far;
            next += 1;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn hosts_fall_into_the_parts_that_links_leave() {
        let links = [(0, 3), (3, 5), (1, 4)];
        let linked = |a, b| links.contains(&(a, b)) || links.contains(&(b, a));
        assert_eq!(parts(6, linked), [vec![0, 3, 5], vec![1, 4], vec![2]]);
    }
}
