//! Degrees, heads, experts and the batch.

use super::{FlagFacts, FlagRule, fault, say};
use crate::launch::megatron::layout::PP_INSIDE;
use crate::launch::{nearest_divisors, nearest_values};

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "M1",
        statement: "tp x pp x cp divides the number of GPUs",
        broken: |f| {
            let p = f.parallel;
            let clash = || {
                format!("{} GPUs with tp {} x pp {} x cp {} = {}", f.world, p.tp, p.pp, p.cp, f.model_ranks())
            };
            let others = f.model_ranks() / u64::from(p.tp.max(1));
            let hint = || {
                nearest_values("tp", p.tp.into(), |tp| {
                    f.world.is_multiple_of((tp * others).max(1)) && f.heads.is_multiple_of(tp)
                })
                .or_else(|| nearest_divisors("tp x pp x cp", f.model_ranks(), f.world))
            };
            fault(f.dp() == 0, clash, hint)
        },
    },
    FlagRule {
        id: "M3",
        statement: "with --use-tp-pp-dp-mapping and a pipeline the experts' data-parallel ranks are those of the rest (etp x ep = tp x cp, without experts too)",
        broken: |f| {
            let p = f.parallel;
            let experts = u64::from(p.etp) * u64::from(p.ep);
            let rest = u64::from(p.tp) * u64::from(p.cp);
            let wrong = f.has(PP_INSIDE) && p.pp > 1 && experts != rest;
            fault(
                wrong,
                || format!("etp x ep is {experts}, tp x cp {rest}"),
                || say("drop --use-tp-pp-dp-mapping"),
            )
        },
    },
    FlagRule {
        id: "M6",
        statement: "the hidden size is a multiple of the heads unless --kv-channels is given",
        broken: |f| {
            let hidden = f.flags.count("--hidden-size").unwrap_or(0);
            let wrong =
                f.text("--kv-channels").is_none() && hidden > 0 && !hidden.is_multiple_of(f.heads.max(1));
            fault(
                wrong,
                || format!("hidden size {hidden} with {} heads", f.heads),
                || nearest_divisors("--num-attention-heads", f.heads, hidden),
            )
        },
    },
    FlagRule {
        id: "M7a",
        statement: "the levels of --hierarchical-context-parallel-sizes multiply to cp",
        broken: |f| {
            let sizes = f.flags.words("--hierarchical-context-parallel-sizes");
            let product = sizes.iter().fold(1u64, |all, size| all.saturating_mul(size.parse().unwrap_or(0)));
            fault(
                !sizes.is_empty() && product != u64::from(f.parallel.cp),
                || format!("levels {} with cp {}", sizes.join(" x "), f.parallel.cp),
                || None,
            )
        },
    },
    FlagRule {
        id: "M7b",
        statement: "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes",
        broken: |f| {
            let mixed = f.flags.words("--cp-comm-type").contains(&"a2a+p2p");
            let sizes = f.text("--hierarchical-context-parallel-sizes").is_some();
            fault(mixed && !sizes, || "a2a+p2p without levels".to_owned(), || say("--cp-comm-type p2p works"))
        },
    },
    FlagRule {
        id: "M7c",
        statement: "--cp-comm-type names one kind, or one per layer",
        broken: |f| {
            let kinds = f.flags.words("--cp-comm-type").len() as u64;
            fault(
                kinds > 1 && kinds != f.blocks,
                || format!("{kinds} kinds with {} layers", f.blocks),
                || say("name one kind"),
            )
        },
    },
    FlagRule {
        id: "M8",
        statement: "all-to-all context parallelism splits the heads of a tensor-parallel rank: cp divides heads / tp and key-value heads / tp (Megatron-LM finds out only at run time)",
        broken: all_to_all,
    },
    FlagRule {
        id: "M9a",
        statement: "expert parallelism needs --num-experts",
        broken: |f| {
            let ep = f.parallel.ep;
            fault(
                ep > 1 && f.experts == 0,
                || format!("ep {ep} in a model without experts"),
                || say("ep 1 works"),
            )
        },
    },
    FlagRule {
        id: "M12",
        statement: "the global batch is a multiple of micro batch x dp",
        broken: |f| {
            let batch = f.flags.count("--global-batch-size")?;
            let round = f.parallel.micro_batch_size.saturating_mul(f.dp());
            let clash = || {
                format!(
                    "global batch {batch} with micro batch {} x dp {}",
                    f.parallel.micro_batch_size,
                    f.dp()
                )
            };
            let hint = || nearest_values("--global-batch-size", batch, |batch| batch.is_multiple_of(round));
            fault(f.dp() > 0 && !batch.is_multiple_of(round.max(1)), clash, hint)
        },
    },
    FlagRule {
        id: "M13a",
        statement: "the expert groups of group-limited routing divide the experts",
        broken: |f| {
            let groups = f.flags.count("--moe-router-num-groups")?;
            if f.experts == 0 {
                return Some((
                    format!("{groups} groups without experts"),
                    say("drop --moe-router-num-groups"),
                ));
            }
            fault(
                !f.experts.is_multiple_of(groups),
                || format!("{groups} groups of {} experts", f.experts),
                || nearest_divisors("--moe-router-num-groups", groups, f.experts),
            )
        },
    },
    FlagRule {
        id: "M20",
        statement: "--max-position-embeddings is given, and at least the sequence length",
        broken: |f| {
            let seq = f.flags.count("--seq-length")?;
            let most = f.flags.count("--max-position-embeddings").unwrap_or(0);
            let stated = f.text("--num-layers").is_some();
            fault(
                stated && most < seq,
                || format!("{most} positions with sequences of {seq}"),
                || Some(format!("--max-position-embeddings {seq} works")),
            )
        },
    },
    FlagRule {
        id: "M21",
        statement: "latent attention has no query groups",
        broken: |f| {
            let wrong = f.has("--multi-latent-attention") && f.has("--group-query-attention");
            fault(
                wrong,
                || "--group-query-attention with --multi-latent-attention".to_owned(),
                || say("drop --group-query-attention"),
            )
        },
    },
];

fn all_to_all(f: &FlagFacts) -> Option<super::Fault> {
    let kinds = f.flags.words("--cp-comm-type");
    let (tp, cp) = (u64::from(f.parallel.tp.max(1)), u64::from(f.parallel.cp));
    if cp == 1 || !kinds.contains(&"a2a") {
        return None;
    }
    let (heads, kv_heads) = (f.heads / tp, (f.kv_heads / tp).max(1));
    let works = |cp: u64| heads.is_multiple_of(cp) && kv_heads.is_multiple_of(cp);
    let clash =
        || format!("cp {cp} with {heads} heads and {kv_heads} key-value heads per tensor-parallel rank");
    let hint = || {
        let degrees = nearest_values("cp", cp, works).map(|text| text + ", or ").unwrap_or_default();
        Some(format!("{degrees}--cp-comm-type p2p works"))
    };
    fault(!works(cp), clash, hint)
}
