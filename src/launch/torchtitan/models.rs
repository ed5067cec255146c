//! Models that torchtitan has, by the names of its registries.

use cost_models::ModelSpec;
use cost_models::model::catalog;

/// A model of torchtitan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// Our name.
    pub ours: &'static str,
    /// The module.
    pub module: &'static str,
    /// The flavour its `model_registry` takes.
    pub flavor: &'static str,
    /// The configuration function that is nearest (that of 405B trains in 8 bits).
    pub config: &'static str,
}

const fn entry(
    ours: &'static str,
    module: &'static str,
    flavor: &'static str,
    config: &'static str,
) -> Registered {
    Registered { ours, module, flavor, config }
}

impl Registered {
    /// Whether the configuration function trains this very model, so that overrides of it are enough.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.config == own_config(self)
    }
}

/// The configuration function that a module would have for the flavour.
fn own_config(model: &Registered) -> String {
    format!("{}_{}", model.module, model.flavor.to_lowercase().replace(['.', '-'], "_"))
}

/// Every model both sides know.
pub const MODELS: &[Registered] = &[
    entry("llama-3.2-1b", "llama3", "1B", "llama3_8b"),
    entry("llama-3.2-3b", "llama3", "3B", "llama3_8b"),
    entry("llama-3.1-8b", "llama3", "8B", "llama3_8b"),
    entry("llama-3-8b", "llama3", "8B", "llama3_8b"),
    entry("llama-3.1-70b", "llama3", "70B", "llama3_70b"),
    entry("llama-3.3-70b", "llama3", "70B", "llama3_70b"),
    entry("llama-3-70b", "llama3", "70B", "llama3_70b"),
    entry("llama-3.1-405b", "llama3", "405B", "llama3_70b"),
    entry("qwen3-0.6b", "qwen3", "0.6B", "qwen3_0_6b"),
    entry("qwen3-1.7b", "qwen3", "1.7B", "qwen3_1_7b"),
    entry("qwen3-4b", "qwen3", "4B", "qwen3_14b"),
    entry("qwen3-8b", "qwen3", "8B", "qwen3_14b"),
    entry("qwen3-14b", "qwen3", "14B", "qwen3_14b"),
    entry("qwen3-32b", "qwen3", "32B", "qwen3_32b"),
    entry("qwen3-30b-a3b", "qwen3", "30B-A3B", "qwen3_30b_a3b"),
    entry("qwen3-235b-a22b", "qwen3", "235B-A22B", "qwen3_30b_a3b"),
    entry("deepseek-v2-lite", "deepseek_v3", "16B", "deepseek_v3_16b"),
    entry("deepseek-v2", "deepseek_v3", "236B", "deepseek_v3_671b"),
    entry("deepseek-v3", "deepseek_v3", "671B", "deepseek_v3_671b"),
    entry("gpt-oss-20b", "gpt_oss", "20b", "gpt_oss_20b"),
    entry("gpt-oss-120b", "gpt_oss", "120b", "gpt_oss_120b"),
];

/// The entry of `model`: that of its name where the sizes are the same, else the first of the same sizes.
#[must_use]
pub fn ours(model: &ModelSpec) -> Option<&'static Registered> {
    let named = MODELS.iter().filter(|entry| entry.ours == model.name);
    let same = |entry: &&Registered| catalog::get(entry.ours).is_ok_and(|own| same_sizes(&own, model));
    named.chain(MODELS).find(same)
}

fn same_sizes(a: &ModelSpec, b: &ModelSpec) -> bool {
    a.layers == b.layers
        && (a.hidden, a.vocab, a.tied_embeddings, a.norm) == (b.hidden, b.vocab, b.tied_embeddings, b.norm)
}

/// The model of a configuration function such as `llama3_70b`, or of a module and flavour.
#[must_use]
pub fn theirs(module: &str, flavor: &str, config: &str) -> Option<&'static Registered> {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let by_flavor = MODELS.iter().find(|model| same(model.module, module) && same(model.flavor, flavor));
    by_flavor.or_else(|| {
        MODELS.iter().find(|model| {
            let own = own_config(model);
            config == own || config.starts_with(&format!("{own}_"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_known_by_its_sizes() {
        let mut model = catalog::get("llama-3.1-70b").expect("the catalogue has it");
        model.name = "config".to_owned();
        assert_eq!(ours(&model).map(|entry| entry.flavor), Some("70B"));
        model.name = "llama-3.1-70b".to_owned();
        model.layers.remove(1);
        assert_eq!(ours(&model), None);
    }

    #[test]
    fn names_of_both_sides_are_found() {
        for model in MODELS {
            assert!(catalog::get(model.ours).is_ok(), "{}", model.ours);
        }
        assert_eq!(theirs("llama3", "", "llama3_70b").map(|m| m.flavor), Some("70B"));
        assert_eq!(theirs("llama3", "8B", "").map(|m| m.ours), Some("llama-3.1-8b"));
        assert_eq!(theirs("qwen3", "", "qwen3_0_6b").map(|m| m.ours), Some("qwen3-0.6b"));
        assert_eq!(theirs("llama3", "", "llama3_debugmodel"), None);
    }
}
