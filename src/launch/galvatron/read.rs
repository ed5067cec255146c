//! A `galvatron_config.json` as a run.

use crate::launch::draft::{Draft, left};
use crate::launch::flags::{FlagSet, MOST_BATCH};
use crate::launch::{Given, Question, ReadError};
use cost_models::layerwise::{LayerStrategies, Sharding, Strategy};
use cost_models::{ParallelConfig, Recompute};

/// The lists that Galvatron's own search writes beside what is read here.
const PASSED_OVER: &[&str] = &["ep_sizes_enc", "tp_of_ep_sizes_enc", "embed_sdp"];

/// Stages up to which a division that works is shown.
const MOST_SHOWN: u64 = 64;

/// Keys that its runtime cannot do without.
const REQUIRED: [&str; 6] =
    ["pp_deg", "tp_sizes_enc", "tp_consecutive_flags", "dp_types_enc", "global_bsz", "chunks"];

pub(super) fn read(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    let mut draft = Draft::new(question, "galvatron", ["GV1", "GV2"]);
    draft.passed_over = PASSED_OVER;
    for key in REQUIRED.into_iter().filter(|key| flags.text(key).is_none()) {
        flags.fault(key, "", "a value: Galvatron stops without it");
    }
    if let Some(what) = not_planned(flags) {
        let not_planned = Some(format!("{what} is not planned here"));
        return Err(ReadError { not_planned, ..ReadError::default() });
    }
    let lists = Lists::of(flags);
    let (pp, vtp, vcp) = (flags.degree("pp_deg"), flags.degree("vtp"), flags.degree("vcp"));
    let default = default_sharding(flags);
    let vocabulary = if flags.amount("vocab_sdp") == Some(1) { Sharding::Zero3 } else { default };
    let batch = flags.at_most("global_bsz", MOST_BATCH).unwrap_or(1);
    let chunks = flags.at_most("chunks", MOST_BATCH).unwrap_or(1);
    let dp = left(question.world_size, &[vtp, pp, vcp]);
    draft.parallel = ParallelConfig {
        tp: vtp,
        pp,
        cp: vcp,
        dp_shard: dp,
        zero_stage: vocabulary.zero_stage(),
        sequence_parallel: vtp > 1,
        micro_batch_size: (batch / chunks / u64::from(dp)).max(1),
        schedule: schedule(flags),
        ..ParallelConfig::default()
    };
    draft.global_batch = Some(batch);
    if !batch.is_multiple_of(chunks.saturating_mul(u64::from(dp))) {
        let message = format!("a global batch of {batch} is no multiple of {chunks} chunks x dp {dp}");
        draft.break_rule("GV2", message, None);
    }
    let given_world = flags.count("world_size").filter(|world| *world != question.world_size);
    if let Some(world) = given_world {
        let message = format!("the strategy is for {world} GPUs, there are {}", question.world_size);
        draft.break_rule("GV1", message, None);
    }
    if lists.context.iter().any(|cp| *cp != vcp) {
        let message = "cp differs between layers: only one degree of all is planned".to_owned();
        draft.break_rule("GV3", message, format!("{vcp} works"));
    }
    if lists.consecutive.contains(&0) {
        draft.assumed.push("consecutive tensor-parallel ranks: its runtime makes no others".to_owned());
    }
    let strategies = lists.strategies(default);
    lists.lengths(&mut draft);
    let blocks = division(flags, strategies.len() as u64, pp);
    if flags.text("pp_division").is_some() {
        let wanted = lists.blocks(&draft) as u64;
        judge_division(&mut draft, &blocks, wanted);
    }
    draft.blocks = Some(blocks);
    let runs = LayerStrategies::of_blocks(&strategies);
    let mut given = draft.finish()?;
    apply(&mut given, runs);
    Ok(given)
}

/// Strategies that are the run's own make an ordinary layout; others stay beside it.
fn apply(given: &mut Given, runs: LayerStrategies) {
    let own = |strategy: &Strategy| {
        strategy.tp == given.parallel.tp && strategy.sharding.zero_stage() == given.parallel.zero_stage
    };
    match runs.uniform().filter(own) {
        Some(strategy) => {
            given.parallel.recompute = strategy.recompute;
            given.stages = given.stages.take().map(|stages| stages.with_recompute(strategy.recompute));
        }
        None => given.layer_strategies = Some(runs),
    }
}

/// What a strategy asks for that no plan has.
fn not_planned(flags: &FlagSet) -> Option<&'static str> {
    let any = |key: &str, least: u32| numbers(flags, key, 0).iter().any(|value| *value >= least);
    if any("use_sp", 1) || (flags.amount("vsp").is_some_and(|on| on > 0) && flags.degree("vtp") > 1) {
        return Some("Ulysses sequence parallelism (use_sp, vsp)");
    }
    (any("ep_sizes_enc", 2) || any("tp_of_ep_sizes_enc", 2)).then_some("expert parallelism by layer")
}

fn default_sharding(flags: &FlagSet) -> Sharding {
    match flags.text("default_dp_type") {
        None | Some("ddp") => Sharding::Ddp,
        Some("zero2") => Sharding::Zero2,
        Some("zero3") => Sharding::Zero3,
        Some(other) => {
            flags.fault("default_dp_type", other, "ddp, zero2 or zero3");
            Sharding::Ddp
        }
    }
}

fn schedule(flags: &FlagSet) -> String {
    let schedule = match flags.text("pipeline_type") {
        Some("pipedream_flush") => "1f1b",
        None | Some("gpipe") => "gpipe",
        Some(other) => {
            flags.fault("pipeline_type", other, "gpipe or pipedream_flush");
            "gpipe"
        }
    };
    let single = flags.degree("pp_deg") == 1;
    // Without a pipeline it adds gradients up microbatch by microbatch, whatever is named.
    if single { "1f1b" } else { schedule }.to_owned()
}

/// Blocks of every stage; as its runtime deals them out where they are not listed.
fn division(flags: &FlagSet, blocks: u64, pp: u32) -> Vec<u64> {
    if flags.text("pp_division").is_some() {
        return numbers(flags, "pp_division", 1).into_iter().map(u64::from).collect();
    }
    even_division(blocks, pp)
}

/// As its runtime deals blocks out: the last stage has what is over.
fn even_division(blocks: u64, pp: u32) -> Vec<u64> {
    let (stages, share) = (u64::from(pp), blocks / u64::from(pp.max(1)));
    let mut counts = vec![share; pp.min(1 << 16) as usize];
    if let Some(last) = counts.last_mut() {
        *last = blocks - share * (stages - 1).min(blocks);
    }
    counts
}

/// A stated division has an entry per stage, and deals out all blocks.
fn judge_division(draft: &mut Draft, division: &[u64], blocks: u64) {
    let pp = draft.parallel.pp;
    let hint = (u64::from(pp) <= blocks.min(MOST_SHOWN)).then(|| {
        let even: Vec<String> = even_division(blocks, pp).iter().map(u64::to_string).collect();
        format!("\"{}\" works", even.join(","))
    });
    let (entries, sum) = (division.len(), division.iter().sum::<u64>());
    if entries as u64 != u64::from(pp) {
        let message = format!("pp_division has {entries} entries, pp_deg is {pp}: one for each stage");
        draft.break_rule("GV5", message, hint);
    } else if sum != blocks {
        let message = format!("pp_division adds up to {sum} blocks, the model has {blocks}");
        draft.break_rule("GV5", message, hint);
    }
}

/// The numbers of a list joined by commas; a wrong one is a fault of the key.
fn numbers(flags: &FlagSet, key: &str, least: u32) -> Vec<u32> {
    let Some(text) = flags.text(key) else { return Vec::new() };
    let number = |word: &str| word.trim().parse().ok().filter(|n| (least..=1 << 20).contains(n));
    let list: Option<Vec<u32>> = text.split(',').map(number).collect();
    list.unwrap_or_else(|| {
        flags.fault(key, text, &format!("numbers from {least}, joined by commas"));
        Vec::new()
    })
}

/// The lists with an entry per block.
struct Lists {
    tp: Vec<u32>,
    consecutive: Vec<u32>,
    context: Vec<u32>,
    sharded: Vec<u32>,
    checkpoint: Vec<u32>,
    ulysses: Vec<u32>,
}

impl Lists {
    fn of(flags: &FlagSet) -> Self {
        let switches = |key: &str| {
            let list = numbers(flags, key, 0);
            if list.iter().any(|value| *value > 1) {
                flags.fault(key, flags.text(key).unwrap_or_default(), "0 or 1 per block");
            }
            list
        };
        Self {
            tp: numbers(flags, "tp_sizes_enc", 1),
            consecutive: switches("tp_consecutive_flags"),
            context: numbers(flags, "cp_sizes_enc", 1),
            sharded: switches("dp_types_enc"),
            checkpoint: switches("checkpoint"),
            ulysses: switches("use_sp"),
        }
    }

    /// Blocks of the model; of the lists where none is given.
    fn blocks(&self, draft: &Draft) -> usize {
        draft
            .question
            .model
            .map_or(self.tp.len(), |model| model.layers.iter().filter(|layer| super::is_block(layer)).count())
    }

    /// Every list that is there has as many entries as the model has blocks.
    fn lengths(&self, draft: &mut Draft) {
        let wanted = self.blocks(draft);
        let lists = [
            ("tp_sizes_enc", &self.tp),
            ("tp_consecutive_flags", &self.consecutive),
            ("cp_sizes_enc", &self.context),
            ("dp_types_enc", &self.sharded),
            ("checkpoint", &self.checkpoint),
            ("use_sp", &self.ulysses),
        ];
        for (key, list) in lists {
            if !list.is_empty() && list.len() != wanted {
                let message = format!("{key} has {} entries, the model has {wanted} blocks", list.len());
                draft.break_rule("GV4", message, None);
            }
        }
    }

    fn strategies(&self, default: Sharding) -> Vec<Strategy> {
        let on = |list: &[u32], block: usize| list.get(block) == Some(&1);
        let strategy = |(block, &tp): (usize, &u32)| Strategy {
            tp,
            sharding: if on(&self.sharded, block) { Sharding::Zero3 } else { default },
            recompute: if on(&self.checkpoint, block) {
                Recompute::Full { layers: None }
            } else {
                Recompute::None
            },
        };
        self.tp.iter().enumerate().map(strategy).collect()
    }
}
