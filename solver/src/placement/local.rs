//! Many hosts: swaps that lessen what is slowest, from several starts, with a fixed seed and a fixed amount of work.

use super::Placed;
use super::demand::{Demands, Group, Traffic};

/// Pairs of hosts looked at after which a thorough search ends: a few seconds.
pub const THOROUGH: u64 = 400_000_000;
/// The same of a first look.
pub const QUICK: u64 = 8_000_000;
/// Swaps at random between two descents.
const KICK: usize = 4;
/// Start of the random numbers.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The best placement found. Hosts in their own order are the first start, hosts gathered around those that are hardest to
/// place the second; then what is best is disturbed and mended again.
#[must_use]
pub fn place(demands: &Demands, limit: u64) -> Placed {
    let bound = demands.bound();
    let own: Vec<usize> = (0..demands.hosts()).collect();
    let mut work = 0;
    let mut best = State::new(demands, own);
    best.descend(&mut work, limit);
    let mut other = State::new(demands, gathered(demands));
    other.descend(&mut work, limit);
    best = best.better(other);
    let mut random = Random(SEED);
    while work < limit && best.value.0 > bound {
        let mut next = best.clone();
        for _ in 0..KICK {
            next.swap(random.below(next.order.len()), random.below(next.order.len()));
        }
        next.descend(&mut work, limit);
        best = best.better(next);
    }
    best.order.truncate(demands.slots());
    Placed { seconds: demands.seconds(&best.order), hosts: best.order, bound }
}

/// Seconds of the slowest groups, and of all groups together: among equal maxima the smaller sum is nearer to the next
/// improvement.
type Value = (f64, f64);

/// A placement, and what each group takes under it. Places beyond the slots are for spare hosts.
#[derive(Clone)]
struct State<'a> {
    demands: &'a Demands,
    order: Vec<usize>,
    parts: Vec<Part>,
    value: Value,
}

/// What the groups of a part take.
#[derive(Clone)]
struct Part {
    seconds: Vec<f64>,
    sum: f64,
    /// For every place, the groups it is in, each with the seconds it would take without that place.
    memberships: Vec<Vec<(usize, f64)>>,
}

impl<'a> State<'a> {
    fn new(demands: &'a Demands, order: Vec<usize>) -> Self {
        let parts = demands.traffic().iter().map(|kind| Part::new(demands, kind, &order)).collect();
        let mut state = Self { demands, order, parts, value: (0.0, 0.0) };
        state.value = state.total();
        state
    }

    fn total(&self) -> Value {
        let largest = |part: &Part| part.seconds.iter().copied().fold(0.0, f64::max);
        (self.parts.iter().map(largest).sum(), self.parts.iter().map(|part| part.sum).sum())
    }

    fn better(self, other: Self) -> Self {
        if other.value < self.value { other } else { self }
    }

    /// The value after exchanging two places.
    fn trial(&self, a: usize, b: usize, work: &mut u64) -> Value {
        let parts = self.demands.traffic().iter().zip(&self.parts);
        parts.fold((0.0, 0.0), |(largest, sum), (kind, part)| {
            let (part_largest, part_sum) = part.trial(self.demands, kind, &self.order, (a, b), work);
            (largest + part_largest, sum + part_sum)
        })
    }

    /// Exchanges two places and brings the groups up to date.
    fn swap(&mut self, a: usize, b: usize) {
        self.order.swap(a, b);
        for (kind, part) in self.demands.traffic().iter().zip(&mut self.parts) {
            part.update(self.demands, kind, &self.order, [a, b]);
        }
        self.value = self.total();
    }

    /// Slots of the slowest group of every part.
    fn critical(&self) -> Vec<usize> {
        let slowest = |(kind, part): (&Traffic, &Part)| {
            let seconds = &part.seconds;
            let index = (0..seconds.len()).max_by(|a, b| seconds[*a].total_cmp(&seconds[*b]))?;
            Some(kind.groups()[index].slots.clone())
        };
        let mut slots: Vec<usize> =
            self.demands.traffic().iter().zip(&self.parts).filter_map(slowest).flatten().collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Swaps a slot of the slowest groups with the place that helps most, for as long as any does.
    fn descend(&mut self, work: &mut u64, limit: u64) {
        while *work < limit {
            let mut best: Option<(Value, usize, usize)> = None;
            for slot in self.critical() {
                for other in (0..self.order.len()).filter(|other| *other != slot) {
                    let value = self.trial(slot, other, work);
                    if best.is_none_or(|(known, ..)| value < known) {
                        best = Some((value, slot, other));
                    }
                }
            }
            match best.filter(|(value, ..)| improves(*value, self.value)) {
                Some((_, slot, other)) => self.swap(slot, other),
                None => return,
            }
        }
    }
}

/// Smaller by more than rounding, which would let two swaps undo each other for ever.
fn improves(value: Value, known: Value) -> bool {
    let less = |a: f64, b: f64| a < b - 1e-9 * b.abs();
    less(value.0, known.0) || (value.0 <= known.0 && less(value.1, known.1))
}

impl Part {
    fn new(demands: &Demands, kind: &Traffic, order: &[usize]) -> Self {
        let mut memberships = vec![Vec::new(); order.len()];
        for (index, group) in kind.groups().iter().enumerate() {
            group.slots.iter().for_each(|&slot| memberships[slot].push((index, 0.0)));
        }
        let mut part = Self { seconds: vec![0.0; kind.groups().len()], sum: 0.0, memberships };
        (0..kind.groups().len()).for_each(|index| part.renew(demands, kind, order, index));
        part
    }

    /// Computes a group again.
    fn renew(&mut self, demands: &Demands, kind: &Traffic, order: &[usize], index: usize) {
        let group = &kind.groups()[index];
        self.sum -= self.seconds[index];
        self.seconds[index] = demands.group(kind, group, order);
        self.sum += self.seconds[index];
        if matches!(kind, Traffic::Ways(_)) {
            return;
        }
        for &slot in &group.slots {
            let slots = group.slots.iter().copied().filter(|other| *other != slot).collect();
            let without = demands.group(kind, &Group { slots, table: group.table }, order);
            self.memberships[slot]
                .iter_mut()
                .filter(|(own, _)| *own == index)
                .for_each(|(_, own)| *own = without);
        }
    }

    fn update(&mut self, demands: &Demands, kind: &Traffic, order: &[usize], places: [usize; 2]) {
        let groups = places.iter().flat_map(|&place| self.memberships[place].iter().map(|(index, _)| *index));
        let mut groups: Vec<usize> = groups.collect();
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().for_each(|index| self.renew(demands, kind, order, index));
    }

    /// The largest and the sum of the groups' seconds after exchanging two places.
    fn trial(
        &self,
        demands: &Demands,
        kind: &Traffic,
        order: &[usize],
        swap: (usize, usize),
        work: &mut u64,
    ) -> Value {
        let mut changed: [(usize, f64); MOST_CHANGED] = [(usize::MAX, 0.0); MOST_CHANGED];
        let mut count = 0;
        for (place, other) in [swap, (swap.1, swap.0)] {
            for &(index, without) in &self.memberships[place] {
                if changed[..count].iter().any(|(known, _)| *known == index) || count == MOST_CHANGED {
                    continue;
                }
                let group = &kind.groups()[index];
                *work += group.slots.len() as u64;
                // Two places of one group: the same hosts as before.
                let same = matches!(kind, Traffic::Collective(_)) && group.slots.contains(&other);
                let seconds = if same {
                    self.seconds[index]
                } else {
                    seconds_after(demands, kind, group, order, (place, other), without)
                };
                changed[count] = (index, seconds);
                count += 1;
            }
        }
        let changed = &changed[..count];
        let sum = changed.iter().fold(self.sum, |sum, (index, seconds)| sum - self.seconds[*index] + seconds);
        let after = |(index, own): (usize, &f64)| {
            changed.iter().find(|(known, _)| *known == index).map_or(*own, |c| c.1)
        };
        *work += self.seconds.len() as u64;
        (self.seconds.iter().enumerate().map(after).fold(0.0, f64::max), sum)
    }
}

/// Groups of a part that one swap may touch; beyond it they are estimated by what they took before.
const MOST_CHANGED: usize = 16;

/// Seconds of a group that `place` is in after it has exchanged hosts with `other`.
fn seconds_after(
    demands: &Demands,
    kind: &Traffic,
    group: &Group,
    order: &[usize],
    (place, other): (usize, usize),
    without: f64,
) -> f64 {
    let host = |slot: usize| match slot {
        _ if slot == place => order[other],
        _ if slot == other => order[place],
        _ => order[slot],
    };
    match kind {
        Traffic::Ways(_) => {
            let hops = group.slots.windows(2);
            hops.map(|hop| demands.pair(group.table, host(hop[0]), host(hop[1]))).sum()
        }
        Traffic::Collective(_) => {
            let new = order[other];
            let rest = group.slots.iter().filter(|slot| **slot != place);
            rest.map(|&slot| demands.pair(group.table, new, order[slot])).fold(without, f64::max)
        }
    }
}

/// Hosts gathered into groups of the first collective part: each begins with the host that has fewest fast neighbours left
/// and takes in those that slow it least.
fn gathered(demands: &Demands) -> Vec<usize> {
    let hosts = demands.hosts();
    let collective = demands.traffic().iter().find(|kind| matches!(kind, Traffic::Collective(_)));
    let mut free: Vec<usize> = (0..hosts).collect();
    let mut order = vec![usize::MAX; hosts];
    for group in collective.map_or(&[][..], Traffic::groups) {
        let open: Vec<usize> =
            group.slots.iter().copied().filter(|&slot| order[slot] == usize::MAX).collect();
        let chosen = gather(demands, group, open.len(), &mut free);
        open.into_iter().zip(chosen).for_each(|(slot, host)| order[slot] = host);
    }
    let mut rest = free.into_iter();
    order.iter_mut().filter(|host| **host == usize::MAX).for_each(|host| *host = rest.next().unwrap_or(0));
    order
}

/// Takes `count` hosts out of the free ones.
fn gather(demands: &Demands, group: &Group, count: usize, free: &mut Vec<usize>) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::with_capacity(count);
    while chosen.len() < count && !free.is_empty() {
        let cost = |host: usize| -> (f64, f64) {
            let pair = |other: &usize| demands.pair(group.table, host, *other);
            if chosen.is_empty() {
                let all: f64 = free.iter().filter(|&&other| other != host).map(pair).sum();
                return (-all, 0.0);
            }
            let worst = chosen.iter().map(pair).fold(0.0, f64::max);
            (worst, chosen.iter().map(pair).sum())
        };
        let costs: Vec<(f64, f64)> = free.iter().map(|&host| cost(host)).collect();
        let least = (0..free.len())
            .min_by(|&a, &b| costs[a].0.total_cmp(&costs[b].0).then(costs[a].1.total_cmp(&costs[b].1)));
        let Some(index) = least else { break };
        chosen.push(free.remove(index));
    }
    chosen
}

/// SplitMix64 (Steele et al., OOPSLA 2014): the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, high: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % high.max(1) as u64) as usize
    }
}
