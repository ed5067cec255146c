//! The families of Hugging Face models, one file each. To add one: its file, its line in [`ALL`].

mod common;

use super::ModelSpec;
use super::fields::Fields;

/// How the configurations of a family are read.
pub(super) struct Family {
    /// Values of `model_type`; the first names the family.
    pub model_types: &'static [&'static str],
    /// Reads sizes, and notes faults in the fields.
    pub read: fn(&Fields) -> ModelSpec,
}

macro_rules! families {
    ($($name:ident),+ $(,)?) => {
        $(mod $name;)+
        /// Every family.
        const ALL: &[&Family] = &[$(&$name::FAMILY),+];
    };
}

families![
    baichuan, bloom, cohere, dbrx, deepseek, dots1, ernie4_5, exaone, falcon, gemma, gemma4, glm, glm4_moe,
    gpt2, gpt_neo, gpt_neox, gpt_oss, gptj, granite, hunyuan, internlm, llama, llama4, mimo, mimo_v2,
    minimax, minimax_m2, mistral, mpt, nemotron, olmo, opt, phi, phi3, phimoe, qwen2, qwen3, qwen3_next,
    seed_oss, smollm3, stablelm, starcoder2,
];

/// The family of a `model_type`.
pub(super) fn by_model_type(model_type: &str) -> Option<&'static Family> {
    ALL.iter().copied().find(|family| family.model_types.contains(&model_type))
}

/// The family of a class name such as `Qwen3MoeForCausalLM`: its stem is the model type without underscores.
pub(super) fn by_architecture(class: &str) -> Option<&'static Family> {
    let stem = ["ForCausalLM", "ForConditionalGeneration", "LMHeadModel"]
        .iter()
        .find_map(|ending| class.strip_suffix(ending))?
        .to_ascii_lowercase();
    ALL.iter().copied().find(|family| family.model_types.iter().any(|name| squeezed(name) == stem))
}

fn squeezed(model_type: &str) -> String {
    model_type.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The families' names.
pub(super) fn names() -> Vec<&'static str> {
    ALL.iter().filter_map(|family| family.model_types.first().copied()).collect()
}
