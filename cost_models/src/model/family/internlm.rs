//! InternLM 1, 2 and 3: Llama's block, `bias` on the attention projections.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["internlm2", "internlm", "internlm3"], read };

fn read(f: &Fields) -> ModelSpec {
    let third = f.text("model_type") == Some("internlm3");
    let bias = f.flag("bias", f.text("model_type") == Some("internlm"));
    let qkv = if third { f.flag("qkv_bias", false) } else { bias };
    let attention = attention(f).with_biases(qkv, bias);
    uniform(f, Norm::Rms, false, Block { mlp_bias: third && bias, ..plain_block(attention, gated_mlp(f)) })
}
