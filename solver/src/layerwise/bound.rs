//! What no choice of strategies and stages in a node can beat.
//!
//! With F, B the forward and backward of a microbatch on rank i of p, w = F + B, and o what is outside the microbatches there, a
//! step of m microbatches takes at least `m w_i + sum_{j < i} w_j + o_i` for every i: rank i waits for the first forward of those
//! before it, and they for its last backward. Of a stage with layers a to b that may hold A bytes of state and saved
//! activations, with k microbatches in flight, for any price l of a byte (Lagrange):
//!
//! ```text
//! w(a, b) >= sum over layers of min over strategies (w_s + l (state_s + k saved_s)) - l A
//! ```
//!
//! The least over all splits of the largest `m w_i + o_i + sum of w before` follows from the last stage to the first:
//! `V_i(a) = min over b of max(M_i(a, b), w_i(a, b) + V_{i+1}(b))`.

use super::node::Node;

/// Prices of a byte that are tried.
const PRICES: usize = 24;

/// Running sums of the least price of layers, for one number of microbatches in flight.
struct Priced {
    /// By price: sums of the work, and of what a step takes of it (m w + o), with memory at that price.
    sums: Vec<[Vec<f64>; 2]>,
    prices: Vec<f64>,
    microbatches: f64,
}

/// Bounds of all suffixes of the layers on all suffixes of the ranks.
pub struct Bounds {
    priced: Vec<Priced>,
    spare: Vec<f64>,
    /// By rank and first layer: what the suffix takes at least, seconds of a step without what comes before it.
    suffix: Vec<Vec<f64>>,
    /// By rank and first layer: work of a microbatch on all ranks of the suffix, at least.
    work: Vec<Vec<f64>>,
    /// By rank and first layer: work of a microbatch on all ranks before, at least.
    before: Vec<Vec<f64>>,
}

impl Bounds {
    /// The bounds of a node; stages that take `cutoff` or more are passed over.
    #[must_use]
    pub fn new(node: &Node, cutoff: f64) -> Self {
        let ranks = node.grid.pp as usize;
        let priced = (0..ranks).map(|rank| Priced::new(node, node.in_flight[rank]));
        let spare = (0..ranks).map(|rank| node.spare(rank + 1 == ranks)).collect();
        let layers = node.layers();
        let never = || vec![vec![f64::INFINITY; layers + 1]; ranks + 1];
        let mut bounds =
            Self { priced: priced.collect(), spare, suffix: never(), work: never(), before: never() };
        bounds.fill(node, cutoff);
        bounds
    }

    fn fill(&mut self, node: &Node, cutoff: f64) {
        let (ranks, layers) = (self.spare.len(), node.layers());
        self.suffix[ranks][layers] = 0.0;
        self.work[ranks][layers] = 0.0;
        self.before[0][0] = 0.0;
        let starts: Vec<usize> = starts(node);
        for rank in (0..ranks).rev() {
            for &start in &starts {
                for end in ends(node, rank, start) {
                    let [work, step] = self.stage(rank, start, end);
                    if step >= cutoff {
                        break;
                    }
                    let through = step.max(work + self.suffix[rank + 1][end]);
                    self.suffix[rank][start] = self.suffix[rank][start].min(through);
                    self.work[rank][start] = self.work[rank][start].min(work + self.work[rank + 1][end]);
                }
            }
        }
        for rank in 0..ranks {
            for &start in &starts {
                let before = self.before[rank][start];
                if before.is_infinite() {
                    continue;
                }
                for end in ends(node, rank, start) {
                    let [work, step] = self.stage(rank, start, end);
                    if step >= cutoff {
                        break;
                    }
                    self.before[rank + 1][end] = self.before[rank + 1][end].min(before + work);
                }
            }
        }
    }

    /// Work of a microbatch, and what a step takes of it, of a rank with layers `start..end`, at least.
    #[must_use]
    pub fn stage(&self, rank: usize, start: usize, end: usize) -> [f64; 2] {
        let priced = &self.priced[rank];
        let spare = self.spare[rank];
        let mut most = [0.0_f64; 2];
        for (price, sums) in priced.prices.iter().zip(&priced.sums) {
            for ((most, sums), rate) in most.iter_mut().zip(sums).zip([1.0, priced.microbatches]) {
                *most = most.max(sums[end] - sums[start] - rate * price * spare);
            }
        }
        most
    }

    /// The prices of a byte, in seconds of a microbatch, that are tried on a rank.
    #[must_use]
    pub fn prices(&self, rank: usize) -> &[f64] {
        &self.priced[rank].prices
    }

    /// What a step of the node takes at least.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.suffix[0][0]
    }

    /// What the ranks from `rank` on, with the layers from `start` on, take of a step at least.
    #[must_use]
    pub fn suffix(&self, rank: usize, start: usize) -> f64 {
        self.suffix[rank][start]
    }

    /// Work of a microbatch on the ranks from `rank` on, with the layers from `start` on, at least.
    #[must_use]
    pub fn work_after(&self, rank: usize, start: usize) -> f64 {
        self.work[rank][start]
    }

    /// Work of a microbatch on the ranks before `rank`, with the layers before `start`, at least.
    #[must_use]
    pub fn work_before(&self, rank: usize, start: usize) -> f64 {
        self.before[rank][start]
    }
}

/// Where a stage may begin.
fn starts(node: &Node) -> Vec<usize> {
    let cuts = node.cuts.iter().copied().skip(1);
    std::iter::once(0).chain(if node.grid.pp > 1 { cuts.collect() } else { Vec::new() }).collect()
}

/// Where the stage of `rank` that begins at `start` may end.
pub fn ends(node: &Node, rank: usize, start: usize) -> impl Iterator<Item = usize> + use<> {
    let ranks = node.grid.pp as usize;
    let (layers, after) = (node.layers(), ranks - 1 - rank);
    let inner = node.cuts.iter().copied().skip(1).filter(|cut| *cut > start);
    let mut list: Vec<usize> = if after == 0 { vec![layers] } else { inner.collect() };
    // Every later stage needs a block.
    let kept = if after == 0 { list.len() } else { list.len().saturating_sub(after - 1) };
    list.truncate(kept);
    list.into_iter()
}

impl Priced {
    fn new(node: &Node, in_flight: f64) -> Self {
        let microbatches = node.grid.microbatches as f64;
        let ways = node.ways.iter().flatten();
        let bytes = |way: &super::grid::Way| {
            let memory = &way.numbers.memory;
            memory.state.resident().get() + in_flight * memory.saved.get()
        };
        let (mut seconds, mut room) = (0.0_f64, 0.0_f64);
        for way in ways {
            seconds = seconds.max(way.numbers.work());
            room = room.max(bytes(way));
        }
        let scale = if room > 0.0 { seconds / room } else { 0.0 };
        let mut prices = vec![0.0];
        prices.extend((1..PRICES - 1).map(|index| scale * 1.6_f64.powi(index as i32 - 16)));
        prices.push(scale * 1e6);
        let sums = prices.iter().map(|price| {
            let least = |step: bool| {
                let of_kind: Vec<f64> = node
                    .ways
                    .iter()
                    .map(|ways| {
                        let cost = |way: &super::grid::Way| {
                            let numbers = &way.numbers;
                            let time = if step {
                                microbatches * numbers.work() + numbers.sync + numbers.optimizer
                            } else {
                                numbers.work()
                            };
                            // A byte is as dear for a microbatch as for a step, in proportion.
                            let rate = if step { microbatches } else { 1.0 };
                            time + rate * price * bytes(way)
                        };
                        ways.iter().map(cost).fold(f64::INFINITY, f64::min)
                    })
                    .collect();
                let mut sum = 0.0;
                let running = node.grid.kinds.iter().map(|&kind| {
                    sum += of_kind[kind];
                    sum
                });
                std::iter::once(0.0).chain(running).collect::<Vec<f64>>()
            };
            [least(false), least(true)]
        });
        Self { sums: sums.collect(), prices, microbatches }
    }
}
