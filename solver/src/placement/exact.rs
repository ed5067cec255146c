//! Few hosts: every placement that could be better is looked at.

use super::Placed;
use super::demand::{Demands, Traffic};

/// Depth first over the slots; a placement of the first slots is given up when what it already costs is no less than the
/// best.
#[must_use]
pub fn place(demands: &Demands) -> Placed {
    let own: Vec<usize> = (0..demands.slots()).collect();
    let seconds = demands.seconds(&own);
    let mut search = Search { demands, best: own, seconds, free: vec![true; demands.hosts()] };
    search.extend(&mut Vec::with_capacity(demands.slots()));
    Placed { hosts: search.best, seconds: search.seconds, bound: search.seconds }
}

struct Search<'a> {
    demands: &'a Demands,
    best: Vec<usize>,
    seconds: f64,
    free: Vec<bool>,
}

impl Search<'_> {
    fn extend(&mut self, chosen: &mut Vec<usize>) {
        let seconds = partial(self.demands, chosen);
        if seconds >= self.seconds {
            return;
        }
        if chosen.len() == self.demands.slots() {
            self.seconds = seconds;
            self.best.clone_from(chosen);
            return;
        }
        for host in 0..self.demands.hosts() {
            if self.free[host] {
                self.free[host] = false;
                chosen.push(host);
                self.extend(chosen);
                chosen.pop();
                self.free[host] = true;
            }
        }
    }
}

/// Seconds among the slots that are filled.
fn partial(demands: &Demands, hosts: &[usize]) -> f64 {
    let part = |kind: &Traffic| {
        let groups = kind.groups().iter().map(|group| {
            let filled = group.slots.iter().copied().filter(|&slot| slot < hosts.len()).collect();
            demands.group(kind, &super::Group { slots: filled, table: group.table }, hosts)
        });
        groups.fold(0.0, f64::max)
    };
    demands.traffic().iter().map(part).sum()
}
