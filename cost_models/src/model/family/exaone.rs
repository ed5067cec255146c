//! EXAONE 3 (Llama's block) and 4 (norms after both parts, norms on heads, sliding blocks), and its MoE.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["exaone", "exaone4", "exaone_moe"], read };

fn read(f: &Fields) -> ModelSpec {
    let first = f.text("model_type") == Some("exaone");
    let attention = grouped_attention(f).with_head_norms(!first);
    let dense = dense_blocks(f);
    let mlp = |dense: bool| if dense { gated_mlp(f) } else { experts(f) };
    let block = |(span, dense)| plain_block(windowed(f, attention, span), mlp(dense));
    let blocks: Vec<Block> = block_spans(f).into_iter().zip(dense).map(block).collect();
    let mtp = mtp_blocks(f, MTP_KEYS, &blocks);
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}

/// `sliding_window_pattern`: a text of L (slides) and G (full) that repeats, or a number n for every n-th full.
fn block_spans(f: &Fields) -> Vec<Span> {
    if !f.has("sliding_window") {
        return spans(f, |_| Span::Full);
    }
    match f.value("sliding_window_pattern").and_then(|pattern| pattern.as_str()) {
        Some(pattern) if !pattern.is_empty() => {
            let letters = pattern.as_bytes();
            let last = layer_count(f) - 1;
            spans(f, |index| match letters[index as usize % letters.len()] {
                b'L' if index != last => Span::Sliding,
                _ => Span::Full,
            })
        }
        _ => spans(f, every_nth_full(f.size_or("sliding_window_pattern", LAYERS, 4))),
    }
}

fn dense_blocks(f: &Fields) -> Vec<bool> {
    if f.text("model_type") != Some("exaone_moe") {
        return vec![true; layer_count(f) as usize];
    }
    let leading = if f.has("first_k_dense_replace") { f.count("first_k_dense_replace", LAYERS) } else { 1 };
    named_layers(f, "mlp_layer_types", &[("dense", true), ("sparse", false)])
        .unwrap_or_else(|| (0..layer_count(f)).map(|index| index < leading).collect())
}

fn experts(f: &Fields) -> Mlp {
    let shared = f.count("num_shared_experts", EXPERTS).saturating_mul(f.count("moe_intermediate_size", FFN));
    routed(f, "num_experts", "moe_intermediate_size")
        .with_shared(shared, false)
        .with_router(true, true)
        .with_group_limit(group_limit(f))
}
