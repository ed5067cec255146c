//! Values that exclude each other, and values that a flag does not take.

use super::{FlagFacts, FlagRule, fault, say};
use crate::launch::megatron::flag_list;
use crate::launch::violation;
use cost_models::rules::Violation;

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "V1",
        statement: "only one of --bf16 and --fp16",
        broken: |f| {
            fault(f.has("--bf16") && f.has("--fp16"), || "both are set".to_owned(), || say("drop --fp16"))
        },
    },
    FlagRule {
        id: "V2",
        statement: "--fp8-format and --fp4-format exclude each other",
        broken: |f| {
            let both = f.text("--fp8-format").is_some() && f.text("--fp4-format").is_some();
            fault(both, || "both are set".to_owned(), || say("drop one"))
        },
    },
    FlagRule {
        id: "V3",
        statement: "0.19.2 refuses the loss fusion of Transformer Engine",
        broken: |f| {
            let wrong = f.has("--cross-entropy-loss-fusion") && f.is("--cross-entropy-fusion-impl", "te");
            fault(
                wrong,
                || "--cross-entropy-fusion-impl te".to_owned(),
                || say("--cross-entropy-fusion-impl native works"),
            )
        },
    },
    FlagRule {
        id: "V4",
        statement: "expert bias of the router needs sigmoid scores",
        broken: |f| {
            let scores = matches!(f.text("--moe-router-score-function"), Some("sigmoid" | "sqrtsoftplus"));
            let wrong = f.has("--moe-router-enable-expert-bias") && !scores;
            fault(
                wrong,
                || "--moe-router-enable-expert-bias".to_owned(),
                || say("--moe-router-score-function sigmoid works"),
            )
        },
    },
    FlagRule {
        id: "V5",
        statement: "--moe-pad-expert-input-to-capacity needs --moe-expert-capacity-factor",
        broken: |f| {
            let wrong = f.has("--moe-pad-expert-input-to-capacity")
                && f.text("--moe-expert-capacity-factor").is_none();
            fault(wrong, || "no capacity factor".to_owned(), || say("--moe-expert-capacity-factor 1.0 works"))
        },
    },
    FlagRule {
        id: "V6",
        statement: "multi-token prediction needs rotary positions, or none",
        broken: |f| {
            let depths = f.flags.amount("--mtp-num-layers").unwrap_or(0);
            let rotary = matches!(f.text("--position-embedding-type"), Some("rope" | "none"))
                || f.has("--use-rotary-position-embeddings");
            fault(
                depths > 0 && !rotary,
                || "learned positions".to_owned(),
                || say("--position-embedding-type rope works"),
            )
        },
    },
    FlagRule {
        id: "V7",
        statement: "--moe-ffn-hidden-size needs --num-experts",
        broken: |f| {
            let wrong = f.text("--moe-ffn-hidden-size").is_some()
                && f.experts == 0
                && f.text("--num-layers").is_some();
            fault(wrong, || "no experts".to_owned(), || say("add --num-experts, or drop it"))
        },
    },
    FlagRule {
        id: "V8",
        statement: "grouped experts with biases need --no-bias-dropout-fusion",
        broken: |f| {
            let biased = f.experts > 0 && f.has("--moe-grouped-gemm") && !f.has("--disable-bias-linear");
            let stated = f.text("--num-layers").is_some();
            fault(
                stated && biased && !f.has("--no-bias-dropout-fusion"),
                || "--moe-grouped-gemm without --disable-bias-linear".to_owned(),
                || say("add --no-bias-dropout-fusion or --disable-bias-linear"),
            )
        },
    },
];

/// Flags with a value that is none of their choices.
#[must_use]
pub(super) fn choices(facts: &FlagFacts) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (flag, value) in facts.flags.iter() {
        let Some(known) = flag_list::known(flag).filter(|known| !known.choices.is_empty()) else { continue };
        let wrong = facts
            .flags
            .words(flag)
            .into_iter()
            .find(|word| !known.choices.iter().any(|choice| choice == word));
        if let Some(word) = wrong.filter(|_| !value.is_empty()) {
            let word: String = word.chars().take(40).collect();
            let hint = format!("it takes {}", known.choices.join(", "));
            broken.push(violation("V0", format!("{flag} is `{word}`"), hint));
        }
    }
    broken
}
