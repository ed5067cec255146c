//! dots.llm1: norms on query and key heads, leading dense blocks, shared and routed experts.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["dots1"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let attention = grouped_attention(f).with_biases(bias, bias).with_head_norms(true);
    let leading = leading_dense(f);
    let mlp = |index| if index < leading { gated_mlp(f) } else { experts(f) };
    let span = |(index, span)| plain_block(windowed(f, attention, span), mlp(index));
    model(f, Norm::Rms, false, (0..).zip(spans(f, |_| Span::Full)).map(span).collect())
}

fn experts(f: &Fields) -> Mlp {
    routed(f, "n_routed_experts|num_local_experts", "moe_intermediate_size")
        .with_shared(shared_width(f), false)
        .with_router(true, true)
        .with_group_limit(group_limit(f))
}
