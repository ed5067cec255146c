//! Embedding, final norm, head and loss.

use super::context::LayerContext;
use super::linear::linear_in;
use super::passes::Passes;
use crate::comm::Collective;
use crate::compute::{Format, stream};
use cluster_profiles::Bytes;

/// Bytes per token and channel of looking the embedding up and scattering its gradient.
const LOOKUP_BYTES: f64 = 12.0;
/// Bytes per token and channel of one norm's forward.
const NORM_BYTES: f64 = 4.0;

/// The embedding: a lookup, and a reduction over the vocabulary's shards.
pub(super) fn embedding(context: &LayerContext) -> Passes {
    let elements = context.tokens * context.hidden();
    let lookup = stream(context.gpu, Bytes(LOOKUP_BYTES / 2.0 * elements));
    let collective =
        if context.sequence_shards > 1.0 { Collective::ReduceScatter } else { Collective::AllReduce };
    let reduce =
        context.tp_fabric().time(collective, Bytes(context.element_bytes() * elements), context.tp_group);
    let exposed = reduce * context.runtime.time.tp_exposed;
    Passes::kernels(lookup, lookup) + Passes::traffic(exposed, exposed)
}

/// The norm before the head.
pub(super) fn final_norm(context: &LayerContext) -> Passes {
    let elements = context.tokens / context.sequence_shards * context.hidden();
    let forward = stream(context.gpu, Bytes(NORM_BYTES * elements));
    Passes::kernels(forward, forward * context.shared().elementwise_backward)
}

/// The projection to the vocabulary and the loss.
pub(super) fn head(context: &LayerContext) -> Passes {
    let vocab = context.model.padded_vocab(context.tp as u32) as f64 / context.tp;
    let loss = stream(context.gpu, Bytes(context.runtime.time.loss_bytes / 2.0 * context.tokens * vocab));
    let elements = context.tokens * context.hidden();
    let gather = context.tp_fabric().time(
        Collective::AllGather,
        Bytes(context.element_bytes() * elements),
        context.tp_group,
    );
    let exposed = gather * context.runtime.time.tp_exposed;
    linear_in(context, Format::Bits16, context.tokens, vocab, context.hidden())
        + Passes::kernels(loss, loss)
        + Passes::traffic(exposed, exposed)
}
