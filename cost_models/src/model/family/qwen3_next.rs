//! Qwen3-Next and Qwen3.5: three gated delta nets, then one gated softmax attention; dense or with experts.

use super::common::*;
use super::qwen2::qwen_mlp;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"],
    read,
};

fn read(f: &Fields) -> ModelSpec {
    let every = f.size_or("full_attention_interval", LAYERS, 4);
    let rule = |index: u64| if (index + 1).is_multiple_of(every) { Span::Full } else { Span::Linear };
    let blocks: Vec<Block> = (0..).zip(spans(f, rule)).map(|(index, span)| block(f, index, span)).collect();
    let full = Block { attention: softmax(f), ..blocks.last().copied().unwrap_or_else(|| block(f, 0, Span::Full)) };
    let mtp = mtp_blocks(f, MTP_KEYS, &[full]);
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}

fn block(f: &Fields, index: u64, span: Span) -> Block {
    let attention = match span {
        Span::Linear => delta_net(f),
        _ => windowed(f, softmax(f), span),
    };
    plain_block(attention, qwen_mlp(f, index))
}

fn softmax(f: &Fields) -> Attention {
    let bias = f.flag("attention_bias", false);
    let head_dim = f.size_or("head_dim", WIDTH, 256);
    checked_attention(f, f.size(KV_HEAD_KEYS, HEADS), head_dim)
        .with_biases(bias, bias)
        .with_head_norms(true)
        .with_output_gate(f.flag("attn_output_gate", true))
}

fn delta_net(f: &Fields) -> Attention {
    let (k_heads, v_heads) = (f.size("linear_num_key_heads", HEADS), f.size("linear_num_value_heads", HEADS));
    if !v_heads.is_multiple_of(k_heads) {
        f.fault(format!("linear_num_key_heads is {k_heads}, which does not divide linear_num_value_heads {v_heads}"));
    }
    Attention::Linear {
        kind: LinearKind::GatedDelta,
        k_heads,
        v_heads,
        k_dim: f.size("linear_key_head_dim", WIDTH),
        v_dim: f.size("linear_value_head_dim", WIDTH),
        conv: f.size_or("linear_conv_kernel_dim", HEADS, 4),
    }
}
