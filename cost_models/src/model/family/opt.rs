//! OPT: learned positions with two extra rows, ReLU, biases everywhere.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["opt"], read };

fn read(f: &Fields) -> ModelSpec {
    let projected = f.size_or("word_embed_proj_dim", WIDTH, hidden(f));
    if projected != hidden(f) {
        f.fault(format!("word_embed_proj_dim is {projected}, expected hidden_size {}", hidden(f)));
    }
    if !f.flag("do_layer_norm_before", true) {
        f.fault("do_layer_norm_before is false: blocks that norm after their parts are not planned");
    }
    let bias = f.flag("enable_bias", true);
    let block = Block {
        attention: attention_of(f, heads(f)).with_biases(bias, bias),
        mlp: Mlp::Dense { ffn: f.size("ffn_dim", FFN), activation: plain(f, "relu") },
        norms: 2,
        mlp_bias: bias,
    };
    let positions = f.size("max_position_embeddings", Limit(1 << 30));
    ModelSpec { learned_positions: Some(positions + 2), ..uniform(f, Norm::Layer, true, block) }
}
