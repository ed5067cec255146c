//! What a row says of memory beyond its runtime's profile.

use super::row::RunRow;
use cost_models::Runtime;
use cost_models::runtime::RecomputeModule;

const MODULES: &[(&str, RecomputeModule)] = &[
    ("core_attn", RecomputeModule::CoreAttention),
    ("core attention", RecomputeModule::CoreAttention),
    ("core-attn", RecomputeModule::CoreAttention),
    ("layernorm", RecomputeModule::Layernorm),
    ("moe_act", RecomputeModule::Activation),
    ("gelu", RecomputeModule::Activation),
    ("dropout", RecomputeModule::Dropout),
    ("mla_up_proj", RecomputeModule::MlaUpProjection),
    ("per-op", RecomputeModule::PerOperator),
    ("selective op", RecomputeModule::PerOperator),
];

/// Sets the memory switches a row's words speak of.
pub fn set_memory_switches(runtime: &mut Runtime, row: &RunRow) {
    let memory = &mut runtime.memory;
    let modules = modules(&row.recompute_detail);
    if !modules.is_empty() {
        memory.activations.selective = modules;
    }
    if row.notes.contains("fused cross-entropy") {
        memory.loss.bytes_per_logit = 2.0;
    }
}

/// The modules a source's words name; `moe` and `mlp` only as whole words.
fn modules(detail: &str) -> Vec<RecomputeModule> {
    let mut modules: Vec<RecomputeModule> =
        MODULES.iter().filter(|(word, _)| detail.contains(word)).map(|(_, module)| *module).collect();
    modules.dedup();
    let words: Vec<&str> = detail.split([',', '+', ' ']).collect();
    for (word, module) in [("moe", RecomputeModule::Moe), ("mlp", RecomputeModule::Mlp)] {
        if words.contains(&word) {
            modules.push(module);
        }
    }
    modules
}
