//! Seconds by kind, for one pass and for the three passes of a layer.

use cluster_profiles::Seconds;
use std::ops::{Add, AddAssign, Mul};

/// Seconds of one pass of one microbatch through a layer (or a stage) on one rank, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PassCost {
    /// Matrix products of linear layers, experts and head.
    pub matmul: Seconds,
    /// Core attention.
    pub attention: Seconds,
    /// Norms, activations, rotary, permutation, casts, loss.
    pub other_kernels: Seconds,
    /// Exposed tensor-parallel collectives.
    pub tp: Seconds,
    /// Exposed context-parallel traffic.
    pub cp: Seconds,
    /// Exposed expert dispatch and combine.
    pub ep: Seconds,
    /// Exposed gathering of parameters and scattering of gradients, where that happens for every microbatch.
    pub dp: Seconds,
    /// Time the GPU waits for its host.
    pub host: Seconds,
    /// Expert traffic that a combined forward-backward hides: no part of the total, but exposed where the pass runs alone.
    pub ep_hidden: Seconds,
}

impl PassCost {
    /// All kinds together, in a combined pair where the schedule has them.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.gpu() + self.host
    }

    /// All kinds but the host.
    #[must_use]
    pub fn gpu(&self) -> Seconds {
        self.matmul + self.attention + self.other_kernels + self.tp + self.cp + self.ep + self.dp
    }

    /// Matrix products only.
    #[must_use]
    pub fn of_matmul(seconds: Seconds) -> Self {
        Self { matmul: seconds, ..Self::default() }
    }

    /// Element-wise and other kernels only.
    #[must_use]
    pub fn of_kernels(seconds: Seconds) -> Self {
        Self { other_kernels: seconds, ..Self::default() }
    }

    /// Tensor-parallel traffic only.
    #[must_use]
    pub fn of_tp(seconds: Seconds) -> Self {
        Self { tp: seconds, ..Self::default() }
    }
}

impl Add for PassCost {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self {
            matmul: self.matmul + other.matmul,
            attention: self.attention + other.attention,
            other_kernels: self.other_kernels + other.other_kernels,
            tp: self.tp + other.tp,
            cp: self.cp + other.cp,
            ep: self.ep + other.ep,
            dp: self.dp + other.dp,
            host: self.host + other.host,
            ep_hidden: self.ep_hidden + other.ep_hidden,
        }
    }
}

impl AddAssign for PassCost {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<f64> for PassCost {
    type Output = Self;

    #[inline]
    fn mul(self, factor: f64) -> Self {
        Self {
            matmul: self.matmul * factor,
            attention: self.attention * factor,
            other_kernels: self.other_kernels * factor,
            tp: self.tp * factor,
            cp: self.cp * factor,
            ep: self.ep * factor,
            dp: self.dp * factor,
            host: self.host * factor,
            ep_hidden: self.ep_hidden * factor,
        }
    }
}

/// Forward, input gradient and weight gradient of one microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Passes {
    /// Forward.
    pub forward: PassCost,
    /// Gradient of the layer's input.
    pub input_gradient: PassCost,
    /// Gradient of the layer's weights.
    pub weight_gradient: PassCost,
}

impl Add for Passes {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            input_gradient: self.input_gradient + other.input_gradient,
            weight_gradient: self.weight_gradient + other.weight_gradient,
        }
    }
}

impl AddAssign for Passes {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<f64> for Passes {
    type Output = Self;

    #[inline]
    fn mul(self, factor: f64) -> Self {
        Self {
            forward: self.forward * factor,
            input_gradient: self.input_gradient * factor,
            weight_gradient: self.weight_gradient * factor,
        }
    }
}

impl Passes {
    /// All three together.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.forward.total() + self.input_gradient.total() + self.weight_gradient.total()
    }

    /// A kernel with a forward, and a backward that belongs to the input gradient.
    #[must_use]
    pub fn kernels(forward: Seconds, backward: Seconds) -> Self {
        Self {
            forward: PassCost::of_kernels(forward),
            input_gradient: PassCost::of_kernels(backward),
            weight_gradient: PassCost::default(),
        }
    }

    /// Tensor-parallel traffic of forward and backward.
    #[must_use]
    pub fn traffic(forward: Seconds, backward: Seconds) -> Self {
        Self {
            forward: PassCost::of_tp(forward),
            input_gradient: PassCost::of_tp(backward),
            weight_gradient: PassCost::default(),
        }
    }
}
