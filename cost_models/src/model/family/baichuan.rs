//! Baichuan 1 and 2: Llama's block without grouped queries.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["baichuan"], read };

fn read(f: &Fields) -> ModelSpec {
    uniform(f, Norm::Rms, false, plain_block(attention_of(f, heads(f)), gated_mlp(f)))
}
