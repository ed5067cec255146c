//! Modules whose saved tensors wait in host memory, with or without a pipeline.
//!
//! Megatron-core's order (`megatron/core/pipeline_parallel/fine_grained_activation_offload.py`, `PipelineOffloadManager`), with
//! `--fine-grained-offloading-max-inflight-offloads 1`. What the modules of a layer save is copied out after its forward, one layer
//! after the other, beside the computation; a layer has ended when the copy of the moved layer before it in the same stage has. In
//! the backward a layer begins to come back when the backward of the layer behind it begins, and has to be there before its own; the last layer
//! of a stage comes back beside the first layer of the stage's backward before. The last layer of the model does not go.
//!
//! ```text
//! compute  F0 F1 F2 F3 ..... B3 B2 B1 B0     a stage of four layers in the middle of a pipeline;
//! out         0  1  2  3                     F2 ends when 1 is out, F3 when 2 is;
//! back   3                   2  1  0  3'     3' is that of the next microbatch that goes backward
//! ```
//!
//! Assumed: a layer's copies are as one copy at its end; copies run at a link's rate each way whatever the other way carries;
//! forwards of a stage follow one another, so that the first copy of one waits for the last of the one before; the host runs no further
//! ahead of its GPU than the copies do. What waits for the copies of a stage is the same for all microbatches.

use crate::modules::ModuleChoice;
use cluster_profiles::Seconds;

/// How much of its modules a layer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All that are to be moved.
    Whole,
    /// Some of them.
    Part,
    /// None.
    Stays,
}

/// What the layers of a stage move that have so many modules to be moved: those of the first layers, up to the choice's share.
pub fn extents(choice: ModuleChoice, modules: &[u8]) -> impl Iterator<Item = Extent> + '_ {
    let all: u32 = modules.iter().map(|count| u32::from(*count)).sum();
    let (moved, mut before) = (choice.moved_of(all), 0);
    modules.iter().map(move |count| {
        let begun = before;
        before += u32::from(*count);
        match () {
            () if *count == 0 || begun >= moved => Extent::Stays,
            () if before > moved => Extent::Part,
            () => Extent::Whole,
        }
    })
}

/// A layer as the copies see it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MovedLayer {
    /// Seconds of its forward.
    pub forward: f64,
    /// Seconds of its backward, with what is repeated.
    pub backward: f64,
    /// Seconds of a copy of what its modules save, each way; 0 where it stays.
    pub copy: f64,
}

/// Seconds that forward and backward of one microbatch wait for copies in a stage.
#[must_use]
pub fn waits(layers: &[MovedLayer]) -> [Seconds; 2] {
    [forward_wait(layers), backward_wait(layers)].map(Seconds)
}

fn forward_wait(layers: &[MovedLayer]) -> f64 {
    let Some(last) = layers.iter().rposition(|layer| layer.copy > 0.0) else { return 0.0 };
    // The link may still be busy with the last layer of the forward before.
    let behind: f64 = layers[last + 1..].iter().map(|layer| layer.forward).sum();
    let mut free = (layers[last].copy - behind).max(0.0);
    let (mut now, mut work, mut before) = (0.0_f64, 0.0, 0.0_f64);
    for layer in layers {
        now += layer.forward;
        work += layer.forward;
        if layer.copy > 0.0 {
            free = now.max(free) + layer.copy;
            now = now.max(before);
            before = free;
        }
    }
    (now - work).max(0.0)
}

/// Between the beginnings of two layers lies the longer of the backward of the one and the copy of the other.
fn backward_wait(layers: &[MovedLayer]) -> f64 {
    let (Some(first), Some(last)) = (layers.first(), layers.last()) else { return 0.0 };
    let within: f64 = layers.windows(2).map(|pair| (pair[0].copy - pair[1].backward).max(0.0)).sum();
    within + (last.copy - first.backward).max(0.0)
}

/// The most bytes on their way out or back, or in use after it, on a rank whose stages move so much of each of their layers;
/// `partial` if there are modules that are to be moved and are not.
///
/// On the way out are no more than two neighbouring layers, the one that computes and the one before; where a stage begins also the
/// last layer of the stage that ran before it. On the way back are two more: the one in use and the next. This holds at
/// every moment, however fast link and GPU are, for stages of at least two moved layers. Every module asks for one to come back
/// when its backward is done, also one that stays, so that where some stay the whole of a microbatch may be back while
/// the one before is.
#[must_use]
pub fn most_passing(stages: &[Vec<f64>], partial: bool) -> f64 {
    let stages = || stages.iter().filter(|layers| layers.len() > 1);
    let pairs = stages().flat_map(|layers| layers.windows(2).map(|pair| pair[0] + pair[1]));
    let inner = pairs.fold(0.0, f64::max);
    let last = stages().filter_map(|layers| layers.last()).copied().fold(0.0, f64::max);
    let begun = stages().map(|layers| layers[0] + layers[1]).fold(0.0, f64::max);
    let first = stages().map(|layers| layers[0]).fold(0.0, f64::max);
    let back = if partial {
        2.0 * stages().map(|layers| layers.iter().sum::<f64>()).fold(0.0, f64::max)
    } else {
        inner.max(first + last)
    };
    inner.max(last + begun) + back
}
