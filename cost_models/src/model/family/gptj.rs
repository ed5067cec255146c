//! GPT-J and CodeGen: attention and MLP behind one norm, biases on MLP and head only.

use super::common::*;
use super::gpt2::inner_mlp;

pub(super) const FAMILY: Family = Family { model_types: &["gptj", "codegen"], read };

fn read(f: &Fields) -> ModelSpec {
    let block = Block { attention: attention_of(f, heads(f)), mlp: inner_mlp(f, "gelu_new"), norms: 1, mlp_bias: true };
    ModelSpec { head_bias: true, ..uniform(f, Norm::Layer, false, block) }
}
