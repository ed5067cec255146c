//! Expert dispatch and combine: all-to-all with and without copies for the same destination.

use super::{Collective, Fabric};
use crate::runtime::ExpertDispatcher;
use cluster_profiles::{Bytes, BytesPerSecond, GroupShape, Seconds};

/// Expected number of distinct destinations among `destinations` when a token picks `picks` at random:
/// `D (1 - (1 - 1/D)^k)`.
#[must_use]
pub fn distinct_destinations(destinations: f64, picks: f64) -> f64 {
    if destinations <= 0.0 {
        return 0.0;
    }
    destinations * (1.0 - (1.0 - 1.0 / destinations).powf(picks))
}

/// What one rank sends to its experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dispatch {
    /// Tokens of the rank.
    pub tokens: f64,
    /// Bytes of one token.
    pub token_bytes: f64,
    /// Experts a token visits.
    pub topk: f64,
    /// Domains (node groups) a token's experts are limited to.
    pub group_limit: Option<f64>,
    /// The expert-parallel group.
    pub group: GroupShape,
    /// How tokens travel.
    pub dispatcher: ExpertDispatcher,
}

/// Bytes moved over the payload: headers, indices, weights.
const DISPATCH_OVERHEAD: f64 = 1.1;
/// The kernels' rate over that of an all_gather at best: they count copies that never leave the rank's own memory.
const DISPATCH_CEILING: f64 = 1.45;

/// Rates inside a domain that the `DeepEP` and `HybridEP` kernels reach, per GPU: dispatch and combine.
fn kernel_rates(dispatcher: ExpertDispatcher, blackwell: bool) -> (f64, f64) {
    match dispatcher {
        ExpertDispatcher::HybridEp => (670e9, 670e9),
        _ if blackwell => (555e9, 362e9),
        _ => (548e9, 310e9),
    }
}

impl Dispatch {
    /// Copies of a token that leave for other ranks of the domain.
    fn local_copies(&self) -> f64 {
        let ranks = f64::from(self.group.ranks);
        match self.dispatcher {
            ExpertDispatcher::AllToAll => self.topk,
            _ => distinct_destinations(ranks, self.topk),
        }
    }

    /// Copies that leave the domain.
    fn remote_copies(&self) -> f64 {
        let domains = f64::from(self.group.domains);
        match self.dispatcher {
            ExpertDispatcher::AllToAll => self.topk,
            _ => distinct_destinations(domains, self.topk).min(self.group_limit.unwrap_or(f64::INFINITY)),
        }
    }

    /// Time of one dispatch and one combine. The part inside the domain and the part across it run side by side.
    #[must_use]
    pub fn time(&self, fabric: &Fabric, blackwell: bool, latency: Seconds) -> Seconds {
        if self.group.ranks <= 1 || self.tokens <= 0.0 {
            return Seconds::ZERO;
        }
        let payload = self.tokens * self.token_bytes;
        let local = f64::from(self.group.per_domain);
        let domains = f64::from(self.group.domains);
        let inside = Bytes(payload * self.local_copies() * (local - 1.0) / local);
        let outside = Bytes(payload * self.remote_copies() * (domains - 1.0) / domains) / fabric.interface();
        let one_way = |rate: BytesPerSecond| latency + (inside / rate).max(outside);
        let (dispatch, combine) = self.rates(fabric, blackwell);
        one_way(dispatch) + one_way(combine)
    }

    fn rates(&self, fabric: &Fabric, blackwell: bool) -> (BytesPerSecond, BytesPerSecond) {
        let wire = fabric.local_bandwidth(Collective::AllToAll);
        if self.dispatcher == ExpertDispatcher::AllToAll {
            return (wire, wire);
        }
        let (dispatch, combine) = kernel_rates(self.dispatcher, blackwell);
        let limit = |rate: f64| BytesPerSecond(rate / DISPATCH_OVERHEAD).min(wire * DISPATCH_CEILING);
        (limit(dispatch), limit(combine))
    }
}
