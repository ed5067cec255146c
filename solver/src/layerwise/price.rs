//! Prices of a byte for a single rank: what the layers from one on take at least, a byte being worth so much.

use super::bound::Bounds;
use super::node::Node;

/// Times the best price is halved and doubled beside it.
const AROUND: [f64; 5] = [0.0, 0.5, 1.0, 1.3, 2.0];
/// Steps of the search for the best price.
const STEPS: usize = 24;

/// The least of a step, and bytes at their price, of all suffixes of the layers.
pub struct Prices {
    list: Vec<Priced>,
    spare: f64,
}

struct Priced {
    price: f64,
    /// By first layer and degree of the layer before it.
    least: Vec<Vec<f64>>,
}

impl Prices {
    /// The prices at which the bound is highest, for a node with one rank.
    #[must_use]
    pub fn new(node: &Node) -> Self {
        let spare = node.spare(true);
        let bound = |price: f64| Priced::new(node, price).whole() - price * spare;
        let (mut low, mut high) = (-60.0_f64, 10.0_f64);
        for _ in 0..STEPS {
            let (a, b) = (low + (high - low) * 0.382, low + (high - low) * 0.618);
            if bound(a.exp()) < bound(b.exp()) { low = a } else { high = b }
        }
        let best = low.midpoint(high).exp();
        Self { list: AROUND.iter().map(|factor| Priced::new(node, best * factor)).collect(), spare }
    }

    /// What a step takes at least whose layers before `start` take so many seconds and bytes, the last of them of degree `tp`.
    #[must_use]
    pub fn least(&self, step: f64, bytes: f64, start: usize, tp: usize) -> f64 {
        let with = |priced: &Priced| step + priced.least[start][tp] + priced.price * (bytes - self.spare);
        self.list.iter().map(with).fold(0.0, f64::max)
    }

    /// What any step takes at least.
    #[must_use]
    pub fn whole(&self, bounds: &Bounds) -> f64 {
        let with = |priced: &Priced| priced.whole() - priced.price * self.spare;
        self.list.iter().map(with).fold(bounds.least(), f64::max)
    }
}

impl Priced {
    fn new(node: &Node, price: f64) -> Self {
        let (layers, degrees) = (node.layers(), node.grid.tps.len());
        let microbatches = node.grid.microbatches as f64;
        let mut least = vec![vec![f64::INFINITY; degrees]; layers + 1];
        least[layers] = vec![0.0; degrees];
        for layer in (0..layers).rev() {
            for from in 0..degrees {
                let cost = |way: &super::grid::Way| {
                    let (numbers, memory) = (&way.numbers, &way.numbers.memory);
                    let hop = if layer == 0 { Default::default() } else { node.grid.exchanges[from][way.tp] };
                    let bytes = memory.state.resident().get() + node.in_flight[0] * memory.saved.get();
                    microbatches * (numbers.work() + hop.forward + hop.backward)
                        + numbers.sync
                        + numbers.optimizer
                        + price * bytes
                        + least[layer + 1][way.tp]
                };
                least[layer][from] = node.ways_of(layer).iter().map(cost).fold(f64::INFINITY, f64::min);
            }
        }
        Self { price, least }
    }

    fn whole(&self) -> f64 {
        self.least[0].iter().copied().fold(f64::INFINITY, f64::min)
    }
}
