//! Modules in host memory (`TransformerConfig.__post_init__`).

use super::super::offload::{MODULES, SWITCH, UNDER_WAY};
use super::{FlagFacts, FlagRule, fault, say};

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "R5",
        statement: "--fine-grained-activation-offloading needs Transformer Engine's layers, --offload-modules that exist (attn_proj only with core_attn, none inside a recomputed moe, fused_group_mlp without expert_fc1 and moe_act) and NVTE_CPU_OFFLOAD_V1=1, and excludes --cpu-offloading-num-layers",
        broken: |f| {
            let modules = f.flags.words(MODULES);
            let layers = f.flags.amount("--cpu-offloading-num-layers").is_some_and(|n| n > 0);
            let local = f.is("--transformer-impl", "local");
            let set = f.flags.variable("NVTE_CPU_OFFLOAD_V1") == Some("1");
            let wrong =
                f.has(SWITCH) && (modules.is_empty() || clash(f, &modules) || layers || local || !set);
            fault(
                wrong,
                || {
                    let variable = if set { "set" } else { "not set" };
                    format!("modules {}, NVTE_CPU_OFFLOAD_V1 {variable}", modules.join(", "))
                },
                || say("NVTE_CPU_OFFLOAD_V1=1 with --offload-modules core_attn attn_proj works"),
            )
        },
    },
    FlagRule {
        id: "R7",
        statement: "with CUDA graphs --fine-grained-activation-offloading needs --cuda-graph-impl transformer_engine, full_iteration with --fine-grained-offloading-max-inflight-offloads, or local with modules of experts only",
        broken: |f| {
            let graphs = f.text("--cuda-graph-impl").unwrap_or("none");
            let modules = f.flags.words(MODULES);
            let able = match graphs {
                "none" | "transformer_engine" => true,
                "full_iteration" => f.text(UNDER_WAY).is_some(),
                _ => modules.iter().all(|module| INSIDE_EXPERTS.contains(module)),
            };
            fault(
                f.has(SWITCH) && !able,
                || format!("--cuda-graph-impl {graphs} with modules {}", modules.join(", ")),
                || say("--cuda-graph-impl transformer_engine works"),
            )
        },
    },
];

const KNOWN: &[&str] = &[
    "core_attn",
    "attn_proj",
    "expert_fc1",
    "fused_group_mlp",
    "moe_act",
    "attn_norm",
    "mlp_norm",
    "qkv_linear",
    "gdp_qkv",
];
const INSIDE_EXPERTS: &[&str] = &["expert_fc1", "moe_act", "fused_group_mlp"];

/// Whether modules do not exist or exclude each other.
fn clash(f: &FlagFacts, modules: &[&str]) -> bool {
    let has = |module: &str| modules.contains(&module);
    let repeated = f.is("--recompute-granularity", "selective")
        && f.flags.words("--recompute-modules").contains(&"moe")
        && modules.iter().any(|module| INSIDE_EXPERTS.contains(module));
    let fused = has("fused_group_mlp")
        && (has("expert_fc1") || has("moe_act") || !f.has("--use-transformer-engine-op-fuser"));
    let alone = has("attn_proj") && !has("core_attn");
    alone || repeated || fused || !modules.iter().all(|module| KNOWN.contains(module))
}
