//! Phi-1, 1.5 and 2: attention and MLP behind one norm, biases everywhere, on the head too.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["phi"], read };

fn read(f: &Fields) -> ModelSpec {
    let head_dim = even_head_dim(f);
    let block = Block {
        attention: attention(f)
            .with_biases(true, true)
            .with_qk_norm(f.flag("qk_layernorm", false), 4 * head_dim),
        mlp: Mlp::Dense { ffn: ffn(f), activation: plain(f, "gelu_new") },
        norms: 1,
        mlp_bias: true,
    };
    ModelSpec { head_bias: true, ..uniform(f, Norm::Layer, false, block) }
}
