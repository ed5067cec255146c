//! MiniMax-Text-01 and M1: lightning attention in seven of eight blocks, experts in every block.

use super::common::*;

pub(super) const FAMILY: Family =
    Family { model_types: &["minimax", "minimax_text_01", "minimax_m1", "MiniMaxText01", "MiniMaxM1"], read };

fn read(f: &Fields) -> ModelSpec {
    let mlp = routed(f, "num_local_experts|num_experts", "intermediate_size")
        .with_shared(f.count("shared_intermediate_size", FFN), false);
    let block = |span| match span {
        Span::Linear => plain_block(lightning(f), mlp),
        _ => plain_block(windowed(f, grouped_attention(f), span), mlp),
    };
    model(f, Norm::Rms, false, block_spans(f).into_iter().map(block).collect())
}

/// `layer_types`, or the older `attn_type_list` (0 linear, 1 full), or linear in every second block.
fn block_spans(f: &Fields) -> Vec<Span> {
    let Some(list) = f.list("attn_type_list") else {
        return spans(f, |index| if index.is_multiple_of(2) { Span::Full } else { Span::Linear });
    };
    check_length(f, "attn_type_list", list);
    list.iter().map(|kind| if kind.as_u64() == Some(0) { Span::Linear } else { Span::Full }).collect()
}

fn lightning(f: &Fields) -> Attention {
    let head_dim = f.optional_size("head_dim", WIDTH).unwrap_or_else(|| even_head_dim(f));
    Attention::Linear {
        kind: LinearKind::Lightning,
        k_heads: heads(f),
        v_heads: heads(f),
        k_dim: head_dim,
        v_dim: head_dim,
        conv: 0,
    }
}
