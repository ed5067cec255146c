//! How long a combined forward-backward of one mixture-of-experts layer takes: two streams, one that computes and one
//! that carries the expert all-to-alls.
//!
//! Order inside a pair, after Megatron-LM `model_chunk_schedule_plan.py`:
//!
//! ```text
//! compute        attention F | experts I, experts W, experts F | attention I, attention W
//! communication  combine I   | dispatch F, dispatch I          | combine F
//! ```
//!
//! The forward layer needs attention -> dispatch -> experts -> combine, the backward layer combine -> experts ->
//! dispatch -> attention; each stream runs one thing at a time, in this order. Layer after layer, forward l beside
//! backward L - 1 - l.

/// Seconds of one layer's parts; forward and backward all-to-alls by what they carry.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExpertLayer {
    /// Attention and whatever else precedes the experts: forward, input gradient, weight gradient.
    pub attention: [f64; 3],
    /// The experts: forward, input gradient, weight gradient.
    pub experts: [f64; 3],
    /// Tokens to the experts, and the gradient of that on the way back.
    pub dispatch: [f64; 2],
    /// Tokens from the experts, and the gradient of that on the way back.
    pub combine: [f64; 2],
}

impl ExpertLayer {
    /// Forward and backward one after the other, nothing hidden.
    pub fn serial_seconds(&self) -> f64 {
        let sum = |parts: &[f64]| parts.iter().sum::<f64>();
        sum(&self.attention) + sum(&self.experts) + sum(&self.dispatch) + sum(&self.combine)
    }
}

/// Seconds of a combined pair: the layers of `forward` in order beside those of `backward` from last to first. Layers
/// without a partner run alone.
pub fn pair_seconds(forward: &[ExpertLayer], backward: &[ExpertLayer]) -> f64 {
    let idle = ExpertLayer::default();
    let mut streams = Streams::default();
    for at in 0..forward.len().max(backward.len()) {
        let back = backward.len().checked_sub(at + 1).map(|at| &backward[at]);
        streams.layer(forward.get(at).unwrap_or(&idle), back.unwrap_or(&idle));
    }
    streams.compute.max(streams.communication)
}

/// When each stream is free, and when the last forward and backward layer handed on their results.
#[derive(Default)]
struct Streams {
    compute: f64,
    communication: f64,
    forward_ready: f64,
    backward_ready: f64,
}

impl Streams {
    fn compute(&mut self, after: f64, seconds: f64) -> f64 {
        self.compute = self.compute.max(after) + seconds;
        self.compute
    }

    fn communicate(&mut self, after: f64, seconds: f64) -> f64 {
        self.communication = self.communication.max(after) + seconds;
        self.communication
    }

    fn layer(&mut self, forward: &ExpertLayer, backward: &ExpertLayer) {
        let combined_back = self.communicate(self.backward_ready, backward.combine[1]);
        let attended = self.compute(self.forward_ready, forward.attention[0]);
        let dispatched = self.communicate(attended, forward.dispatch[0]);
        let experts_back = self.compute(combined_back, backward.experts[1]);
        let dispatched_back = self.communicate(experts_back, backward.dispatch[1]);
        self.compute(experts_back, backward.experts[2]);
        let experts = self.compute(dispatched, forward.experts[0]);
        self.forward_ready = self.communicate(experts, forward.combine[0]);
        self.backward_ready = self.compute(dispatched_back, backward.attention[1]);
        self.compute(self.backward_ready, backward.attention[2]);
    }
}
