//! How layers are split over the pipeline.

use super::{Fault, FlagFacts, FlagRule, fault, say};
use crate::launch::nearest_values;

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "P1",
        statement: "at most one of --num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank and --pipeline-model-parallel-layout is given",
        broken: |f| {
            let given: Vec<&str> = [
                "--num-layers-per-virtual-pipeline-stage",
                "--num-virtual-stages-per-pipeline-rank",
                "--pipeline-model-parallel-layout",
            ]
            .into_iter()
            .filter(|flag| f.text(flag).is_some())
            .collect();
            fault(given.len() > 1, || format!("{} are given", given.join(" and ")), || say("keep one"))
        },
    },
    FlagRule {
        id: "P2",
        statement: "the layers (with the embedding and the loss where they are accounted for) divide evenly over pp, and over the chunks; releases before mid-2025 silently dropped the rest",
        broken: even_split,
    },
    FlagRule {
        id: "P3",
        statement: "what --decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers leave divides evenly over the ranks between",
        broken: uneven_split,
    },
    FlagRule {
        id: "P3a",
        statement: "stated layers of the first or last rank need a pipeline (Megatron-LM does not look at pp 1)",
        broken: |f| {
            let stated = f.text(FIRST).is_some() || f.text(LAST).is_some();
            fault(
                stated && f.parallel.pp == 1,
                || "stated layers with pp 1".to_owned(),
                || say("drop the flags, or pp 2 works"),
            )
        },
    },
    FlagRule {
        id: "P3b",
        statement: "stated layers of the first or last rank exclude --account-for-*-in-pipeline-split, and take --num-virtual-stages-per-pipeline-rank for chunks",
        broken: |f| {
            let stated = f.text(FIRST).is_some() || f.text(LAST).is_some();
            let other = f.has(EMBEDDING)
                || f.has(LOSS)
                || f.text("--num-layers-per-virtual-pipeline-stage").is_some();
            fault(stated && other, || "both are given".to_owned(), || say("keep one of the two"))
        },
    },
    FlagRule {
        id: "P4",
        statement: "--pipeline-model-parallel-layout lists a multiple of pp stages, one E first, one L last, and every layer once",
        broken: layout,
    },
    FlagRule {
        id: "P4a",
        statement: "a layout excludes every other option that splits layers",
        broken: |f| {
            let other =
                [FIRST, LAST].iter().any(|flag| f.text(flag).is_some()) || f.has(EMBEDDING) || f.has(LOSS);
            let wrong = f.text(LAYOUT).is_some() && other;
            fault(wrong, || "a layout and another split".to_owned(), || say("keep the layout alone"))
        },
    },
    FlagRule {
        id: "P5",
        statement: "chunks need a pipeline of 2 ranks, of 3 with --no-overlap-p2p-communication",
        broken: |f| {
            let least = if f.has("--no-overlap-p2p-communication") { 3 } else { 2 };
            let (pp, chunks) = (f.parallel.pp, f.parallel.vpp);
            fault(
                chunks > 1 && pp < least,
                || format!("{chunks} chunks with pp {pp}"),
                || Some(format!("pp {least} works, or 1 chunk")),
            )
        },
    },
    FlagRule {
        id: "P6",
        statement: "a group of an interleaved schedule has pp to num_microbatches microbatches, and the last group at least pp",
        broken: |f| {
            let group = f.flags.count("--microbatch-group-size-per-virtual-pipeline-stage")?;
            let (pp, m) = (u64::from(f.parallel.pp), f.parallel.num_microbatches);
            let rest = m % group;
            let wrong = f.parallel.vpp > 1 && (group < pp || group > m || (rest != 0 && rest < pp));
            fault(
                wrong,
                || format!("groups of {group} with pp {pp} and {m} microbatches"),
                || Some(format!("{pp} works where it divides the microbatches")),
            )
        },
    },
];

const FIRST: &str = "--decoder-first-pipeline-num-layers";
const LAST: &str = "--decoder-last-pipeline-num-layers";
const EMBEDDING: &str = "--account-for-embedding-in-pipeline-split";
const LOSS: &str = "--account-for-loss-in-pipeline-split";
const LAYOUT: &str = "--pipeline-model-parallel-layout";

fn even_split(f: &FlagFacts) -> Option<Fault> {
    let stated = [FIRST, LAST, LAYOUT].iter().any(|flag| f.text(flag).is_some());
    if stated {
        return None;
    }
    let units = f.blocks + u64::from(f.has(EMBEDDING)) + u64::from(f.has(LOSS));
    let pp = u64::from(f.parallel.pp);
    let hint = || {
        let pp_values = nearest_values("pp", pp, |pp| units.is_multiple_of(pp)).unwrap_or_default();
        Some(format!(
            "{pp_values}; or a layout: --pipeline-model-parallel-layout '{}'",
            near_even(f.blocks, pp)
        ))
    };
    if !units.is_multiple_of(pp) {
        return Some((format!("{units} layers over pp {pp}"), hint()));
    }
    let rank = units / pp;
    if let Some(layers) = f.flags.count("--num-layers-per-virtual-pipeline-stage") {
        let hint =
            nearest_values("--num-layers-per-virtual-pipeline-stage", layers, |n| rank.is_multiple_of(n));
        return fault(
            !rank.is_multiple_of(layers),
            || format!("{rank} layers per rank in chunks of {layers}"),
            || hint,
        );
    }
    let chunks = u64::from(f.parallel.vpp);
    let hint =
        || nearest_values("--num-virtual-stages-per-pipeline-rank", chunks, |n| rank.is_multiple_of(n));
    fault(!rank.is_multiple_of(chunks), || format!("{rank} layers per rank in {chunks} chunks"), hint)
}

/// A layout of one stage per rank that is as even as can be, embedding and loss counted as a layer each.
fn near_even(blocks: u64, pp: u64) -> String {
    let units = blocks + 2;
    if pp < 2 || pp > units || pp > 256 {
        return format!("Et*{blocks}L");
    }
    let stage = |index: u64| {
        let count = units / pp + u64::from(index > 0 && index <= units % pp);
        let ends = u64::from(index == 0) + u64::from(index == pp - 1);
        let blocks = match count.saturating_sub(ends) {
            0 => String::new(),
            count => format!("t*{count}"),
        };
        match (index == 0, index == pp - 1) {
            (true, _) => format!("E{blocks}"),
            (_, true) => format!("{blocks}L"),
            _ => blocks,
        }
    };
    (0..pp).map(stage).collect::<Vec<_>>().join("|")
}

fn uneven_split(f: &FlagFacts) -> Option<Fault> {
    let (first, last) = (f.flags.count(FIRST), f.flags.count(LAST));
    if first.is_none() && last.is_none() {
        return None;
    }
    let (pp, chunks) = (u64::from(f.parallel.pp), u64::from(f.parallel.vpp));
    let ends = first.unwrap_or(0).saturating_add(last.unwrap_or(0));
    let stated = u64::from(first.is_some()) + u64::from(last.is_some());
    let middle = pp.saturating_sub(stated);
    let rest = f.blocks.checked_sub(ends);
    let fits = match rest {
        None => false,
        Some(0) => middle == 0,
        Some(rest) => middle > 0 && rest.is_multiple_of(middle) && (rest / middle).is_multiple_of(chunks),
    };
    let chunked = [first, last].into_iter().flatten().all(|count| count.is_multiple_of(chunks));
    let clash = || {
        let left =
            rest.map_or_else(|| format!("{} too many", ends - f.blocks), |rest| format!("{rest} left"));
        format!(
            "{} layers, {ends} on the stated ranks, {left} for {middle} ranks in {chunks} chunks",
            f.blocks
        )
    };
    let hint = || {
        let end = last.map(|_| LAST).or(first.map(|_| FIRST))?;
        let own = last.or(first)?;
        let other = ends - own;
        nearest_values(end, own, |count| {
            let rest = f.blocks.checked_sub(other + count).filter(|rest| *rest > 0);
            count.is_multiple_of(chunks)
                && rest.is_some_and(|rest| {
                    middle > 0 && rest.is_multiple_of(middle) && (rest / middle).is_multiple_of(chunks)
                })
        })
    };
    fault(!fits || !chunked, clash, hint)
}

fn layout(f: &FlagFacts) -> Option<Fault> {
    let text = f.text(LAYOUT)?;
    let shown: String = text.chars().take(120).collect();
    let pp = u64::from(f.parallel.pp);
    let Some(stages) = cost_models::stages::layout_stages(text) else {
        return Some((
            format!("layout `{shown}` cannot be read"),
            Some(format!("for example {}", near_even(f.blocks, pp))),
        ));
    };
    fault(
        !(stages as u64).is_multiple_of(pp),
        || format!("layout `{shown}` has {stages} stages, pp is {pp}"),
        || Some(format!("for example {}", near_even(f.blocks, pp))),
    )
}

#[cfg(test)]
mod tests {
    use super::near_even;

    #[test]
    fn near_even_layouts_hold_every_layer() {
        for (blocks, pp) in [(46u64, 4u64), (80, 3), (94, 8), (30, 4), (7, 7), (2, 4)] {
            let text = near_even(blocks, pp);
            let count: u64 = text
                .split("t*")
                .skip(1)
                .filter_map(|rest| rest.split(['|', 'L']).next()?.parse::<u64>().ok())
                .sum();
            assert_eq!((count, text.split('|').count() as u64), (blocks, pp), "{text}");
        }
    }
}
