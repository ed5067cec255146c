//! Pairwise measurements to facts: islands, slow interfaces, hosts and switches, dead links.
//!
//! A rate between two hosts is the least of what their interfaces and the switches between them give, times noise.
//! What explains the most measurements is looked for first and its measurements are set aside: switches, then
//! interfaces and hosts, then single links. Thresholds follow from the noise of the data itself.

use crate::fit::median;
use std::collections::{BTreeMap, BTreeSet};

/// Least loss that is reported, whatever the noise.
const LEAST_LOSS: f64 = 0.05;
/// Least loss of a single link, which only one or two measurements speak for.
const LEAST_LINK_LOSS: f64 = 0.25;
/// Deviations of noise that a median, or a single measurement, must be below its peers.
const DEVIATIONS: f64 = 7.0;
/// Below this share of its peers nothing passes.
const DEAD: f64 = 0.01;
/// Share of the usual rate that hosts of one island reach between each other.
const ISLAND: f64 = 0.93;

/// A measured rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairRate {
    /// Index of the sending host.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// Network interface, where it was measured on one alone.
    pub rail: Option<u32>,
    /// Rate in any unit.
    pub rate: f64,
}

/// What is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// The uplinks of an island: slow to and from outside only.
    Uplink(usize),
    /// The switch of an island: slow inside as well.
    Switch(usize),
    /// A host on all its interfaces.
    Host(usize),
    /// An interface of a host.
    Interface(usize, u32),
    /// The way between two hosts.
    Link(usize, usize, Option<u32>),
}

/// A culprit with its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anomaly {
    /// What it is.
    pub culprit: Culprit,
    /// Its rate; zero where nothing passes.
    pub rate: f64,
    /// Rates that its peers lie between.
    pub peers: (f64, f64),
}

impl Anomaly {
    /// Whether nothing passes.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.rate <= self.peers.1 * DEAD
    }
}

/// What a matrix says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Survey {
    /// Usual rate of a healthy pair.
    pub usual: f64,
    /// Relative standard deviation of the noise.
    pub noise: f64,
    /// Island of each host, as given or as found; empty where all hosts are alike.
    pub islands: Vec<usize>,
    /// Usual rate between healthy islands, where there are several.
    pub across: Option<f64>,
    /// Everything found.
    pub anomalies: Vec<Anomaly>,
}

/// Surveys rates between `hosts` hosts. `islands` is the leaf switch of each host, where it is known.
#[must_use]
pub fn survey(hosts: usize, rates: &[PairRate], islands: Option<&[usize]>) -> Survey {
    let rates: Vec<PairRate> =
        rates.iter().copied().filter(|r| r.from != r.to && r.from < hosts && r.to < hosts).collect();
    let Some(usual) = usual_rate(rates.iter().map(|r| r.rate)) else { return Survey::default() };
    let islands = islands.map_or_else(|| find_islands(hosts, &rates, usual), <[usize]>::to_vec);
    let mut state = State { hosts, islands, rates, usual, across: None, noise: 0.0, anomalies: Vec::new() };
    state.normalise();
    state.level_islands();
    state.switches();
    state.interfaces();
    state.links();
    state.anomalies.sort_by_key(|anomaly| anomaly.culprit);
    let State { usual, noise, islands, across, anomalies, .. } = state;
    Survey { usual, noise, islands, across, anomalies }
}

/// The centre of the fastest large group: most of a cluster is healthy, and nothing is faster than healthy.
fn usual_rate(rates: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = rates.collect();
    sorted.sort_by(f64::total_cmp);
    let high = *sorted.get(sorted.len() * 9 / 10)?;
    let fast: Vec<f64> = sorted.into_iter().filter(|rate| *rate >= high * 0.85).collect();
    median(&fast).filter(|rate| *rate > 0.0)
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = ((values.len().saturating_sub(1)) as f64 * q).round() as usize;
    values.get(index).copied().unwrap_or(0.0)
}

/// Groups of hosts that are near each other: connected by pairs of the usual rate. Hosts that are near nobody go with
/// the first group. Nothing where there is one group.
fn find_islands(hosts: usize, rates: &[PairRate], usual: f64) -> Vec<usize> {
    let mut pairs: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for r in rates {
        pairs.entry((r.from.min(r.to), r.from.max(r.to))).or_default().push(r.rate);
    }
    let mut parent: Vec<usize> = (0..hosts).collect();
    let root = |parent: &[usize], mut i: usize| {
        while parent[i] != i {
            i = parent[i];
        }
        i
    };
    for ((a, b), values) in &pairs {
        if median(values).is_some_and(|rate| rate >= usual * ISLAND) {
            let (a, b) = (root(&parent, *a), root(&parent, *b));
            parent[a.max(b)] = a.min(b);
        }
    }
    let roots: Vec<usize> = (0..hosts).map(|host| root(&parent, host)).collect();
    let size = |r: usize| roots.iter().filter(|other| **other == r).count();
    let groups: Vec<usize> =
        roots.iter().copied().collect::<BTreeSet<_>>().into_iter().filter(|r| size(*r) > 1).collect();
    if groups.len() < 2 {
        return Vec::new();
    }
    roots.iter().map(|r| groups.iter().position(|g| g == r).unwrap_or(0)).collect()
}

/// A host with one of its interfaces, where they were measured alone.
type End = (usize, Option<u32>);

struct State {
    hosts: usize,
    islands: Vec<usize>,
    rates: Vec<PairRate>,
    usual: f64,
    across: Option<f64>,
    noise: f64,
    anomalies: Vec<Anomaly>,
}

impl State {
    fn island(&self, host: usize) -> usize {
        self.islands.get(host).copied().unwrap_or(0)
    }

    fn crosses(&self, r: &PairRate) -> bool {
        self.island(r.from) != self.island(r.to)
    }

    /// Usual rate and noise of what is left.
    fn normalise(&mut self) {
        if let Some(usual) = usual_rate(self.rates.iter().map(|r| r.rate)) {
            self.usual = usual;
        }
        let near: Vec<f64> =
            self.rates.iter().map(|r| r.rate / self.usual - 1.0).filter(|d| d.abs() < 0.3).collect();
        let centre = median(&near).unwrap_or(0.0);
        let distances: Vec<f64> = near.iter().map(|d| (d - centre).abs()).collect();
        self.noise = (1.4826 * median(&distances).unwrap_or(0.0)).clamp(1e-3, 0.15);
    }

    /// Scales what passes between islands to the rate inside, where islands are farther from each other by design: all
    /// of them, or two of similar size. A single island that is farther from all others has slow uplinks instead.
    fn level_islands(&mut self) {
        let count = self.islands.iter().max().map_or(0, |last| last + 1);
        let sizes: Vec<usize> = (0..count).map(|island| self.size(island)).collect();
        let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) else { return };
        let crossing = self.rates.iter().filter(|r| self.crosses(r)).map(|r| r.rate);
        let Some(across) = usual_rate(crossing) else { return };
        if count < 2 || (count == 2 && 2 * least <= *most) {
            return;
        }
        self.across = Some(across);
        if across < self.usual * ISLAND {
            let (factor, islands) = (self.usual / across, self.islands.clone());
            for r in self.rates.iter_mut().filter(|r| islands[r.from] != islands[r.to]) {
                r.rate *= factor;
            }
        }
    }

    fn size(&self, island: usize) -> usize {
        self.islands.iter().filter(|own| **own == island).count()
    }

    /// A rate between islands as it was measured: what was scaled is scaled back.
    fn measured_across(&self, rate: f64) -> f64 {
        match self.across {
            Some(across) if across < self.usual * ISLAND => rate * across / self.usual,
            _ => rate,
        }
    }

    /// Share of the usual rate below which a median of `n` measurements is no noise.
    fn threshold(&self, n: usize) -> f64 {
        1.0 - LEAST_LOSS.max(DEVIATIONS * 1.2533 * self.noise / (n as f64).sqrt())
    }

    /// Slow islands, the worst first; what crosses (or is inside of) one found is set aside.
    fn switches(&mut self) {
        let count = self.islands.iter().max().map_or(0, |last| last + 1);
        let mut open: BTreeSet<usize> = (0..count).collect();
        while open.len() > 1 || count > 1 {
            let across = |island: usize| -> Vec<f64> {
                let own = |r: &&PairRate| {
                    self.crosses(r) && (self.island(r.from) == island || self.island(r.to) == island)
                };
                self.rates.iter().filter(own).map(|r| r.rate).collect()
            };
            let medians = open.iter().filter_map(|i| {
                let values = across(*i);
                median(&values).map(|rate| (*i, rate, values.len()))
            });
            let all: Vec<(usize, f64, usize)> = medians.collect();
            // What lies between two islands does not tell which is to blame: the smaller one.
            let order = |a: &&(usize, f64, usize), b: &&(usize, f64, usize)| {
                a.1.total_cmp(&b.1).then(self.size(a.0).cmp(&self.size(b.0)))
            };
            let Some(&(worst, rate, n)) = all.iter().min_by(order) else { break };
            if rate >= self.usual * self.threshold(n) {
                break;
            }
            let inside: Vec<f64> = self
                .rates
                .iter()
                .filter(|r| !self.crosses(r) && self.island(r.from) == worst)
                .map(|r| r.rate)
                .collect();
            let slow_inside =
                median(&inside).is_some_and(|rate| rate < self.usual * self.threshold(inside.len()));
            let culprit = if slow_inside { Culprit::Switch(worst) } else { Culprit::Uplink(worst) };
            let usual = self.measured_across(self.usual);
            let rate = self.measured_across(rate);
            self.anomalies.push(Anomaly { culprit, rate, peers: (usual, usual) });
            let islands = self.islands.clone();
            self.rates.retain(|r| {
                let (a, b) = (islands[r.from], islands[r.to]);
                (a != worst && b != worst) || (a == b && !slow_inside)
            });
            open.remove(&worst);
            self.normalise();
        }
    }

    /// Slow interfaces with their rates, and the rates of the others. An interface counts by what the share `q` of its ways
    /// in one direction stays below.
    fn slow_ends(&self, by_end: &BTreeMap<End, [Vec<f64>; 2]>, q: f64) -> (BTreeMap<End, f64>, Vec<f64>) {
        let (mut slow, mut healthy) = (BTreeMap::new(), Vec::new());
        for (end, directions) in by_end {
            let rates = directions.iter().filter_map(|values| {
                let middle = median(values)?;
                let rate = if q > 0.5 { quantile(&mut values.clone(), q) } else { middle };
                let bad = rate < self.usual * self.threshold(values.len());
                Some((if bad { middle } else { rate }, bad))
            });
            let rates: Vec<(f64, bool)> = rates.collect();
            let bad: Vec<f64> = rates.iter().filter(|(_, bad)| *bad).map(|(rate, _)| *rate).collect();
            match median(&bad) {
                // With two hosts nobody knows which of them it is: that is a link.
                Some(rate) if self.hosts > 2 => drop(slow.insert(*end, rate)),
                _ => healthy.extend(rates.iter().map(|(rate, _)| *rate)),
            }
        }
        (slow, healthy)
    }

    /// Slow or dead interfaces, by direction; a host whose interfaces are all slow counts as one.
    fn interfaces(&mut self) {
        let mut by_end: BTreeMap<End, [Vec<f64>; 2]> = BTreeMap::new();
        for r in &self.rates {
            by_end.entry((r.from, r.rail)).or_default()[0].push(r.rate);
            by_end.entry((r.to, r.rail)).or_default()[1].push(r.rate);
        }
        let (mut slow, mut healthy) = self.slow_ends(&by_end, 0.5);
        // Where many are slow, most ways of a healthy one end at a slow one: what its best ways give is its own rate.
        if slow.len() * 3 > by_end.len() {
            (slow, healthy) = self.slow_ends(&by_end, 0.9);
        }
        let peers = match healthy.is_empty() {
            true => (self.usual, self.usual),
            false => (quantile(&mut healthy, 0.1), quantile(&mut healthy, 0.9)),
        };
        for host in 0..self.hosts {
            let rails = by_end.keys().filter(|(h, _)| *h == host).count();
            let own: Vec<(Option<u32>, f64)> = slow
                .iter()
                .filter(|((h, _), _)| *h == host)
                .map(|((_, rail), rate)| (*rail, *rate))
                .collect();
            if !own.is_empty() && own.len() == rails {
                let rate = own.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
                self.anomalies.push(Anomaly { culprit: Culprit::Host(host), rate, peers });
                continue;
            }
            self.anomalies.extend(own.into_iter().map(|(rail, rate)| Anomaly {
                culprit: Culprit::Interface(host, rail.unwrap_or(0)),
                rate,
                peers,
            }));
        }
        self.rates.retain(|r| !slow.contains_key(&(r.from, r.rail)) && !slow.contains_key(&(r.to, r.rail)));
    }

    /// Single ways that are far below everything else.
    fn links(&mut self) {
        let mut ways: BTreeMap<(usize, usize, Option<u32>), Vec<f64>> = BTreeMap::new();
        for r in &self.rates {
            ways.entry((r.from.min(r.to), r.from.max(r.to), r.rail)).or_default().push(r.rate);
        }
        let least = 1.0 - LEAST_LINK_LOSS.max(DEVIATIONS * self.noise);
        let peers = (self.usual * (1.0 - self.noise), self.usual * (1.0 + self.noise));
        for ((a, b, rail), values) in ways {
            let rate = values.iter().copied().fold(f64::INFINITY, f64::min);
            if rate < self.usual * least.max(DEAD) {
                self.anomalies.push(Anomaly { culprit: Culprit::Link(a, b, rail), rate, peers });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers that look random (Steele et al., `SplitMix64`).
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    fn matrix(seed: u64, faults: bool) -> Vec<PairRate> {
        let (mut random, mut rates) = (Random(seed), Vec::new());
        for from in 0..64 {
            for to in (0..64).filter(|to| *to != from) {
                for rail in 0..8 {
                    let slow = |host, r| faults && matches!((host, r), (17, 3) | (40, 6));
                    let nic = |host, r| if slow(host, r) { 41.0_f64 } else { 48.5 };
                    let crosses = (from / 16 == 2) != (to / 16 == 2);
                    let up: f64 = if faults && crosses { 36.0 } else { 48.5 };
                    let dead = faults && rail == 1 && matches!((from, to), (5, 9) | (9, 5));
                    let rate = if dead { 0.0 } else { nic(from, rail).min(nic(to, rail)).min(up) };
                    let noise = 1.0 + 0.05 * random.normal();
                    rates.push(PairRate { from, to, rail: Some(rail), rate: rate * noise });
                }
            }
        }
        rates
    }

    #[test]
    fn planted_faults_are_found_and_nothing_else_in_a_hundred_seeds() {
        let leaves: Vec<usize> = (0..64).map(|host| host / 16).collect();
        let planted = [
            Culprit::Uplink(2),
            Culprit::Interface(17, 3),
            Culprit::Interface(40, 6),
            Culprit::Link(5, 9, Some(1)),
        ];
        for seed in 0..100 {
            let found = survey(64, &matrix(seed, true), Some(&leaves));
            let culprits: Vec<Culprit> = found.anomalies.iter().map(|a| a.culprit).collect();
            assert_eq!(culprits, planted, "seed {seed}");
            assert!(found.anomalies[3].is_dead() && !found.anomalies[1].is_dead());
            assert!((found.anomalies[1].rate / 41.0 - 1.0).abs() < 0.04, "{found:?}");
            if seed % 4 != 0 {
                continue;
            }
            let healthy = survey(64, &matrix(seed, false), Some(&leaves));
            assert!(healthy.anomalies.is_empty(), "seed {seed}: {:?}", healthy.anomalies);
        }
    }

    #[test]
    fn an_island_that_nobody_named_is_found() {
        let found = survey(64, &matrix(7, true), None);
        assert_eq!(found.islands[..16], [0; 16]);
        assert_eq!(found.islands[32..48], [1; 16]);
        assert!(
            found.anomalies.iter().any(|a| matches!(a.culprit, Culprit::Uplink(1))),
            "{:?}",
            found.anomalies
        );
        assert_eq!(found.anomalies.len(), 4, "{:?}", found.anomalies);
    }

    #[test]
    fn a_network_that_is_slower_between_all_islands_has_no_culprit() {
        let mut random = Random(3);
        let mut rates = Vec::new();
        for from in 0..16 {
            for to in (0..16).filter(|to| *to != from) {
                let rate = if from / 4 == to / 4 { 48.0 } else { 24.0 };
                let rate = if from == 6 || to == 6 { rate / 2.0 } else { rate };
                rates.push(PairRate { from, to, rail: None, rate: rate * (1.0 + 0.02 * random.normal()) });
            }
        }
        let islands: Vec<usize> = (0..16).map(|host| host / 4).collect();
        let found = survey(16, &rates, Some(&islands));
        assert!(found.across.is_some_and(|rate| (rate / 24.0 - 1.0).abs() < 0.05), "{found:?}");
        let culprits: Vec<Culprit> = found.anomalies.iter().map(|a| a.culprit).collect();
        assert_eq!(culprits, [Culprit::Host(6)]);
    }

    #[test]
    fn a_dead_cable_and_a_slow_host_are_told_apart() {
        let rate = |from: usize, to: usize, rail: u32| match (from, to, rail) {
            (3, _, _) | (_, 3, _) => 20.0,
            (5, _, 1) | (_, 5, 1) => 0.0,
            _ => 48.0,
        };
        let mut rates = Vec::new();
        for from in 0..8 {
            for to in (0..8).filter(|to| *to != from) {
                rates.extend((0..2).map(|rail| PairRate {
                    from,
                    to,
                    rail: Some(rail),
                    rate: rate(from, to, rail),
                }));
            }
        }
        let culprits: Vec<Culprit> = survey(8, &rates, None).anomalies.iter().map(|a| a.culprit).collect();
        assert_eq!(culprits, [Culprit::Host(3), Culprit::Interface(5, 1)]);
    }
}
