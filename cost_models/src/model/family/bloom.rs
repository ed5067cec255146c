//! BLOOM: ALiBi positions, a norm after the embedding, biases everywhere.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["bloom"], read };

fn read(f: &Fields) -> ModelSpec {
    let block = Block {
        attention: attention_of(f, heads(f)).with_biases(true, true),
        mlp: Mlp::Dense { ffn: 4 * hidden(f), activation: Activation::Gelu },
        norms: 2,
        mlp_bias: true,
    };
    ModelSpec { embedding_norm: true, ..uniform(f, Norm::Layer, true, block) }
}
