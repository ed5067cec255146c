//! Modules in host memory (`TransformerConfig.__post_init__`). Megatron-LM checks the numbers only with CUDA graphs of a full iteration;
//! a share outside 0 to 1 and a negative number of copies mean nothing, so they are refused always.

use super::super::offload::{FRACTION, MODULES, SWITCH, UNDER_WAY, VARIABLE};
use super::{FlagFacts, FlagRule, fault, say};

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "R5",
        statement: "--fine-grained-activation-offloading needs Transformer Engine's layers, --offload-modules that exist (attn_proj only with core_attn, none inside a recomputed moe, fused_group_mlp without expert_fc1 and moe_act), a fraction from 0 to 1, copies under way from 0 and NVTE_CPU_OFFLOAD_V1=1, and excludes --cpu-offloading-num-layers",
        broken: |f| {
            if !f.has(SWITCH) {
                return None;
            }
            let clashes: Vec<(String, &str)> = clashes(f);
            let (said, hints): (Vec<String>, Vec<&str>) = clashes.into_iter().unzip();
            fault(!said.is_empty(), || said.join(", "), || Some(hints.join("; ")))
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

/// All that is wrong with the flags, each with what works.
fn clashes(f: &FlagFacts) -> Vec<(String, &'static str)> {
    let modules = f.flags.words(MODULES);
    let mut clashes = clashing_modules(f, &modules);
    let mut add = |wrong: bool, clash: String, hint: &'static str| {
        if wrong {
            clashes.push((clash, hint));
        }
    };
    add(modules.is_empty(), format!("no {MODULES}"), "--offload-modules core_attn attn_proj works");
    let layers = f.flags.amount("--cpu-offloading-num-layers").is_some_and(|n| n > 0);
    add(layers, "--cpu-offloading-num-layers is set".to_owned(), "drop --cpu-offloading-num-layers");
    let local = f.is("--transformer-impl", "local");
    add(local, "--transformer-impl local".to_owned(), "--transformer-impl transformer_engine works");
    let (name, value) = VARIABLE;
    let shown: String = f.flags.variable(name).unwrap_or(value).chars().take(40).collect();
    add(shown != value, format!("{name} is `{shown}`"), "set NVTE_CPU_OFFLOAD_V1=1");
    let outside = f.flags.real(FRACTION).is_some_and(|share| !(0.0..=1.0).contains(&share));
    add(outside, format!("{FRACTION} is not from 0 to 1"), "--activation-offload-fraction 1 works");
    let under_way: Option<String> = f.text(UNDER_WAY).map(|text| text.chars().take(40).collect());
    let strange = under_way.as_deref().filter(|text| text.parse::<u32>().is_err());
    let clash = strange.map_or_else(String::new, |text| format!("{UNDER_WAY} is `{text}`"));
    add(strange.is_some(), clash, "--fine-grained-offloading-max-inflight-offloads 1 works");
    clashes
}

/// Modules that do not exist or exclude each other.
fn clashing_modules(f: &FlagFacts, modules: &[&str]) -> Vec<(String, &'static str)> {
    let has = |module: &str| modules.contains(&module);
    let mut clashes = Vec::new();
    if let Some(module) = modules.iter().find(|module| !KNOWN.contains(module)) {
        let module: String = module.chars().take(40).collect();
        let hint = "it takes core_attn, attn_proj, expert_fc1, fused_group_mlp, moe_act, attn_norm, mlp_norm, qkv_linear and gdp_qkv";
        clashes.push((format!("module {module}"), hint));
    }
    if has("attn_proj") && !has("core_attn") {
        clashes.push(("attn_proj without core_attn".to_owned(), "add core_attn to --offload-modules"));
    }
    let repeated =
        f.is("--recompute-granularity", "selective") && f.flags.words("--recompute-modules").contains(&"moe");
    if let Some(module) = modules.iter().find(|module| repeated && INSIDE_EXPERTS.contains(module)) {
        clashes.push((format!("{module} inside a recomputed moe"), "drop moe from --recompute-modules"));
    }
    if has("fused_group_mlp") && (has("expert_fc1") || has("moe_act")) {
        let hint = "drop expert_fc1 and moe_act from --offload-modules";
        clashes.push(("fused_group_mlp beside a part of it".to_owned(), hint));
    }
    if has("fused_group_mlp") && !f.has("--use-transformer-engine-op-fuser") {
        let clash = "fused_group_mlp without --use-transformer-engine-op-fuser".to_owned();
        clashes.push((clash, "add --use-transformer-engine-op-fuser"));
    }
    clashes
}
