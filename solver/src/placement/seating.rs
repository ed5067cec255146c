//! The step of one layout under a placement of its hosts, and the placement with the shortest.

use super::demand::Demands;
use super::{place, place_quickly};
use crate::problem::Problem;
use cost_models::sites::{Network, Sites};
use cost_models::step::{PreparedSchedule, StageCosts, optimizer_time, step_seconds};
use cost_models::{ParallelConfig, StageMap, TrainingRun};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hosts up to which every placement that could be shorter is looked at.
const FEW_HOSTS: usize = 8;
/// Placements looked at after which the rest is left to the local search.
const MOST_STEPS: usize = 60_000;

/// One layout on the hosts of a network.
pub struct Seating<'a> {
    run: TrainingRun<'a>,
    network: &'a Network<'a>,
    best: cost_models::comm::Way,
    schedule: PreparedSchedule,
    demands: Demands,
    known: RefCell<BTreeMap<Vec<u64>, (f64, f64)>>,
}

/// A placement and the step under it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seated {
    /// The hosts of the network in rank order.
    pub hosts: Vec<usize>,
    /// Seconds of the step.
    pub seconds: f64,
    /// Whether no placement has a shorter step.
    pub proved: bool,
}

impl<'a> Seating<'a> {
    /// The layout on the hosts of a network; none if its ranks do not fill whole hosts (or NVLink domains) of one size,
    /// or its schedule does not exist.
    #[must_use]
    pub fn new(
        problem: &'a Problem<'a>,
        network: &'a Network<'a>,
        parallel: &'a ParallelConfig,
        stages: &'a StageMap,
    ) -> Option<Self> {
        let demands = Demands::of_layout(problem, network.topology(), parallel, stages)?;
        let run = TrainingRun {
            model: problem.model,
            cluster: network.cluster(),
            workload: problem.workload,
            runtime: problem.runtime,
            parallel,
            stages,
        };
        let best = network.best();
        let open = network.sites(&vec![None; network.topology().hosts().len()], parallel, best);
        let schedule = PreparedSchedule::of(&run, &StageCosts::at(&run, Some(Arc::new(open))).ok()?).ok()?;
        Some(Self { run, network, best, schedule, demands, known: RefCell::default() })
    }

    /// What the placement is measured by while searching.
    #[must_use]
    pub const fn demands(&self) -> &Demands {
        &self.demands
    }

    /// Seconds of the step with these hosts of the network in rank order; infinite if some cannot reach each other.
    #[must_use]
    pub fn seconds(&self, hosts: &[usize]) -> f64 {
        let hosts: Vec<Option<usize>> = hosts.iter().copied().map(Some).collect();
        self.look(&hosts).0
    }

    /// The placement with the shortest step: proved for few hosts; the best that the search finds for many, with a first
    /// look only if `quick`.
    #[must_use]
    pub fn best(&self, quick: bool) -> Seated {
        let placed = if quick { place_quickly(&self.demands) } else { place(&self.demands) };
        let own: Vec<usize> = (0..self.demands.slots()).collect();
        let proposals = [own, placed.hosts].map(|slots| {
            let seconds = self.seconds(&self.demands.host_order(&slots));
            (seconds, slots)
        });
        let [first, second] = proposals;
        let (seconds, slots) = if second.0 < first.0 { second } else { first };
        let mut search = Exact { seating: self, kinds: self.kinds(), best: slots, seconds, left: MOST_STEPS };
        let few = self.demands.slots() <= FEW_HOSTS && self.demands.hosts() <= FEW_HOSTS + 1;
        if few {
            search.extend(&mut Vec::new(), &mut vec![true; self.demands.hosts()]);
        }
        let proved = few && search.left > 0;
        Seated { hosts: self.demands.host_order(&search.best), seconds: search.seconds, proved }
    }

    /// Seconds of the step, and seconds that no step has less than however the open places are filled.
    fn look(&self, hosts: &[Option<usize>]) -> (f64, f64) {
        let sites = self.network.sites(hosts, self.run.parallel, self.best);
        let key = key(&sites);
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let seconds = self.step(sites).unwrap_or((f64::INFINITY, f64::INFINITY));
        self.known.borrow_mut().insert(key, seconds);
        seconds
    }

    /// Traffic of gradients hides behind a microbatch. Where that one has traffic between hosts itself, a slower way
    /// gives more to hide behind, so that the bound counts no exposed gradients at all.
    fn step(&self, sites: Sites) -> Option<(f64, f64)> {
        let inside = |sites: &Sites| {
            sites.list.iter().all(|site| {
                let ways = site.ways;
                [ways.tp, ways.cp, ways.ep, ways.etp].iter().all(Option::is_none)
            })
        };
        let alike = self.run.cluster.is_homogeneous() && inside(&sites);
        let costs = StageCosts::at(&self.run, Some(Arc::new(sites))).ok()?;
        let step = step_seconds(&self.run, &costs, &self.schedule).ok()?.get();
        if alike && self.run.parallel.zero_stage < 2 {
            return Some((step, step));
        }
        let pipeline = self.schedule.makespan(&self.run, &costs).ok()?;
        let rest = optimizer_time(&self.run, &costs) + self.run.runtime.time.step;
        let optimizer = if self.run.cluster.is_homogeneous() { rest } else { self.run.runtime.time.step };
        Some((step, (pipeline + optimizer).get()))
    }

    /// The kind of every host of the demands: hosts of one kind may take each other's place.
    fn kinds(&self) -> Vec<usize> {
        let count = self.demands.hosts();
        let members: Vec<Vec<usize>> = (0..count).map(|host| self.demands.host_order(&[host])).collect();
        let group = |host: usize| self.network.topology().hosts()[members[host][0]].group;
        let way = |a: usize, b: usize| {
            let pairs = members[a].iter().flat_map(|x| members[b].iter().map(move |y| (*x, *y)));
            pairs
                .map(|(x, y)| self.network.path(x, y))
                .map(|path| (path.bandwidth, path.latency))
                .collect::<Vec<_>>()
        };
        let alike = |a: usize, b: usize| {
            let others = (0..count).filter(|other| *other != a && *other != b);
            group(a) == group(b)
                && way(a, a) == way(b, b)
                && way(a, b) == way(b, a)
                && others
                    .into_iter()
                    .all(|other| way(a, other) == way(b, other) && way(other, a) == way(other, b))
        };
        let mut kinds: Vec<usize> = Vec::with_capacity(count);
        for host in 0..count {
            let known =
                if count > FEW_HOSTS + 1 { None } else { (0..host).find(|other| alike(*other, host)) };
            kinds.push(known.map_or(host, |other| kinds[other]));
        }
        kinds
    }
}

/// What the step depends on.
fn key(sites: &Sites) -> Vec<u64> {
    let mut key = Vec::new();
    let mut push = |way: Option<cost_models::comm::Way>| {
        let bits = way.map_or((0, 0), |way| (way.bandwidth.get().to_bits(), way.latency.get().to_bits()));
        key.extend([bits.0, bits.1]);
    };
    for site in &sites.list {
        let ways = site.ways;
        [ways.tp, ways.cp, ways.ep, ways.etp, ways.dense, ways.expert, ways.replicate]
            .into_iter()
            .for_each(&mut push);
    }
    sites.hops.iter().for_each(|hop| push(hop.way));
    for site in &sites.list {
        key.extend([site.group as u64, site.smallest as u64, site.domain.into(), site.intra.get().to_bits()]);
    }
    key.push(u64::from(sites.broken.is_some()));
    key
}

/// Depth first over the slots: the first of them are given hosts, the others count as the best.
struct Exact<'s, 'a> {
    seating: &'s Seating<'a>,
    kinds: Vec<usize>,
    best: Vec<usize>,
    seconds: f64,
    left: usize,
}

impl Exact<'_, '_> {
    fn extend(&mut self, chosen: &mut Vec<usize>, free: &mut Vec<bool>) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let demands = &self.seating.demands;
        let (seconds, bound) = self.seating.look(&places(demands, chosen));
        if chosen.len() == demands.slots() {
            if seconds < self.seconds {
                self.seconds = seconds;
                self.best.clone_from(chosen);
            }
            return;
        }
        if bound >= self.seconds {
            return;
        }
        let mut tried = Vec::new();
        for host in 0..demands.hosts() {
            if free[host] && !tried.contains(&self.kinds[host]) {
                tried.push(self.kinds[host]);
                free[host] = false;
                chosen.push(host);
                self.extend(chosen, free);
                chosen.pop();
                free[host] = true;
            }
        }
    }
}

/// The hosts in rank order, with those of open slots open.
fn places(demands: &Demands, chosen: &[usize]) -> Vec<Option<usize>> {
    let mut hosts: Vec<Option<usize>> = demands.host_order(chosen).into_iter().map(Some).collect();
    let each = demands.host_order(&[0]).len();
    hosts.resize(demands.slots() * each, None);
    hosts
}
