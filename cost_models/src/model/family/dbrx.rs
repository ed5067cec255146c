//! DBRX: sizes in nested objects, sixteen experts in every block, norms without biases.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["dbrx"], read };

fn read(f: &Fields) -> ModelSpec {
    let attention = f.part("attn_config", |part| part.size("kv_n_heads", HEADS)).unwrap_or(1);
    let mlp = f.part("ffn_config", experts).unwrap_or_else(|| Mlp::swiglu(1));
    let block = plain_block(attention_of(f, attention), mlp);
    uniform(f, Norm::LayerWithoutBias, false, block)
}

fn experts(f: &Fields) -> Mlp {
    let (experts, topk) = (f.size("moe_num_experts", EXPERTS), f.size("moe_top_k", HEADS));
    if topk > experts {
        f.fault(format!("moe_top_k is {topk}, more than moe_num_experts {experts}"));
    }
    Mlp::routed(experts, topk, f.size("ffn_hidden_size", FFN))
}
