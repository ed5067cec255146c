//! What is recomputed, and layers in host memory.

use super::{FlagFacts, FlagRule, fault, say};

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "R1",
        statement: "full recompute needs --recompute-method and --recompute-num-layers; selective takes neither",
        broken: |f| {
            let (method, layers) = (f.text("--recompute-method"), f.text("--recompute-num-layers"));
            match granularity(f)? {
                "full" => {
                    let lacking: Vec<&str> =
                        [(method, "--recompute-method"), (layers, "--recompute-num-layers")]
                            .into_iter()
                            .filter(|(value, _)| value.is_none())
                            .map(|(_, flag)| flag)
                            .collect();
                    fault(
                        !lacking.is_empty(),
                        || format!("full without {}", lacking.join(" and ")),
                        || say("--recompute-method uniform --recompute-num-layers 1 works"),
                    )
                }
                "selective" => fault(
                    method.is_some() || layers.is_some(),
                    || "selective with a method or a number of layers".to_owned(),
                    || say("drop --recompute-method and --recompute-num-layers"),
                ),
                _ => None,
            }
        },
    },
    FlagRule {
        id: "R2",
        statement: "each of --recompute-modules exists and has what it recomputes",
        broken: modules,
    },
    FlagRule {
        id: "R3",
        statement: "--distribute-saved-activations needs tp above 1, full recompute with a method, and no sequence parallelism",
        broken: |f| {
            let met = f.parallel.tp > 1
                && granularity(f) == Some("full")
                && f.text("--recompute-method").is_some()
                && !f.parallel.sequence_parallel;
            fault(
                f.has("--distribute-saved-activations") && !met,
                || "that is not so".to_owned(),
                || say("drop --distribute-saved-activations"),
            )
        },
    },
    FlagRule {
        id: "R4",
        statement: "--cpu-offloading-num-layers goes with pp 1, without recompute, and is below the number of layers",
        broken: |f| {
            let layers = f.flags.amount("--cpu-offloading-num-layers").unwrap_or(0);
            let p = f.parallel;
            let wrong = layers > 0 && (p.pp > 1 || granularity(f).is_some() || layers >= f.blocks);
            let clash = || {
                format!(
                    "{layers} of {} layers, pp {}, recompute {}",
                    f.blocks,
                    p.pp,
                    granularity(f).unwrap_or("none")
                )
            };
            fault(wrong, clash, || say("drop --cpu-offloading-num-layers, or use pp 1 without recompute"))
        },
    },
    FlagRule {
        id: "R6",
        statement: "with CUDA graphs full recompute needs --cuda-graph-impl full_iteration, and --cpu-offloading-num-layers needs it too",
        broken: |f| {
            let graphs = f.text("--cuda-graph-impl").unwrap_or("none");
            let offload = f.flags.amount("--cpu-offloading-num-layers").is_some_and(|n| n > 0);
            let wrong =
                !matches!(graphs, "none" | "full_iteration") && (granularity(f) == Some("full") || offload);
            let clash = || {
                format!(
                    "--cuda-graph-impl {graphs} with {}",
                    if offload { "offload" } else { "full recompute" }
                )
            };
            fault(wrong, clash, || say("--recompute-granularity selective, or drop --cuda-graph-impl"))
        },
    },
];

fn granularity<'a>(f: &'a FlagFacts) -> Option<&'a str> {
    f.text("--recompute-granularity").or_else(|| f.has("--recompute-activations").then_some("selective"))
}

const MODULES: &[&str] =
    &["core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", "gdn_norm_out"];

fn modules(f: &FlagFacts) -> Option<super::Fault> {
    if granularity(f) != Some("selective") {
        return None;
    }
    let modules = f.flags.words("--recompute-modules");
    let unknown = modules.iter().find(|module| !MODULES.contains(module));
    let lacking = |module: &str, met: bool, what: &str| {
        (modules.contains(&module) && !met).then(|| format!("{module} without {what}"))
    };
    let clash = unknown
        .map(|module| format!("module {module}"))
        .or_else(|| lacking("moe_act", f.has("--moe-grouped-gemm"), "--moe-grouped-gemm"))
        .or_else(|| lacking("mla_up_proj", f.has("--multi-latent-attention"), "--multi-latent-attention"))
        .or_else(|| {
            lacking(
                "shared_experts",
                !f.has("--moe-shared-expert-overlap"),
                "leaving --moe-shared-expert-overlap",
            )
        })?;
    Some((clash, Some(format!("modules are {}", MODULES.join(", ")))))
}
