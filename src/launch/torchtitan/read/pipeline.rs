//! torchtitan's schedules and stages.

use super::super::{FILE_SCHEDULES, SCHEDULES, usual_chunks};
use crate::launch::draft::Draft;
use crate::launch::flags::FlagSet;
use crate::launch::nearest_divisors;
use cost_models::schedule::Schedule;

/// The schedule, and the stages per rank it takes.
pub(super) fn pipeline(flags: &FlagSet, draft: &mut Draft) {
    if draft.parallel.pp == 1 {
        return;
    }
    let stated = flags.text("parallelism.pipeline_parallel_schedule").unwrap_or("1F1B");
    if let Some(file) =
        flags.text("parallelism.pipeline_parallel_schedule_csv").filter(|file| !file.is_empty())
    {
        return schedule_file(flags, draft, stated, file);
    }
    let found = SCHEDULES.iter().find(|(_, theirs)| theirs.eq_ignore_ascii_case(stated));
    let Some((ours, _)) = found else {
        let names: Vec<&str> = SCHEDULES.iter().map(|(_, theirs)| *theirs).collect();
        let hint = format!("it has {}", names.join(", "));
        draft.break_rule("T5a", format!("schedule `{stated}` is none of torch's"), hint);
        return;
    };
    draft.parallel.schedule = (*ours).to_owned();
    let single = usual_chunks(ours) == 1;
    let vee = matches!(*ours, "zb-v" | "dualpipev");
    let chunks = stated_chunks(flags, draft, single).unwrap_or(usual_chunks(ours));
    if single && chunks != 1 || !single && chunks < 2 || vee && chunks != 2 {
        let wanted = if single {
            "exactly 1 stage"
        } else if vee {
            "exactly 2 stages"
        } else {
            "at least 2 stages"
        };
        draft.break_rule("T5", format!("{stated} with {chunks} stages per rank: it takes {wanted}"), None);
    }
    draft.parallel.vpp = chunks;
}

/// An order of operations in a file of its own: the file's name says which, where it is one of a known schedule.
fn schedule_file(flags: &FlagSet, draft: &mut Draft, class: &str, file: &str) {
    let single = class != FILE_SCHEDULES[1];
    let chunks = stated_chunks(flags, draft, single).unwrap_or(usual_chunks(class));
    draft.parallel.vpp = chunks;
    let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".csv");
    let known = name.parse::<Schedule>().is_ok();
    let instead = if chunks > 1 { "interleaved-1f1b" } else { "1f1b" };
    draft.parallel.schedule = if known { name } else { instead }.to_owned();
    if !known {
        let shown: String = file.chars().take(80).collect();
        draft.assumed.push(format!("schedule {instead}: the order of operations in {shown} is not read"));
    }
}

/// Blocks of every stage where `module_fqns_per_model_part` lists their modules.
fn listed_blocks(flags: &FlagSet) -> Option<Vec<u64>> {
    let text = flags.text("parallelism.module_fqns_per_model_part")?;
    let inner = text.trim().strip_prefix('[')?;
    let stages = inner.split('[').skip(1);
    let blocks: Vec<u64> = stages.map(|stage| stage.matches("layers.").count() as u64).collect();
    (!blocks.is_empty()).then_some(blocks)
}

/// Stages per rank that `module_fqns_per_model_part` lists or `pipeline_parallel_layers_per_stage` makes.
fn stated_chunks(flags: &FlagSet, draft: &mut Draft, single: bool) -> Option<u32> {
    if let Some(blocks) = listed_blocks(flags) {
        let (stages, pp) = (blocks.len() as u64, u64::from(draft.parallel.pp));
        if !stages.is_multiple_of(pp) {
            let message = format!("{stages} stages are listed, no multiple of pp {pp}");
            draft.break_rule("T5", message, nearest_divisors("pp", pp, stages));
        }
        draft.blocks = Some(blocks);
        return u32::try_from((stages / pp).max(1)).ok();
    }
    let layers = flags.count("parallelism.pipeline_parallel_layers_per_stage")?;
    let model = draft.model.as_ref().or(draft.question.model)?;
    let ends = ["first", "last"].map(|end| {
        flags.amount(&format!("parallelism.pipeline_parallel_{end}_stage_less_layers")).unwrap_or(1)
    });
    let units = model.blocks().count() as u64 + ends[0] + ends[1];
    let stages = units.div_ceil(layers);
    let pp = u64::from(draft.parallel.pp);
    if !stages.is_multiple_of(pp) {
        let wanted = if single { pp } else { 2 * pp };
        let hint = format!("pipeline_parallel_layers_per_stage {} works", units.div_ceil(wanted));
        draft.break_rule(
            "T5",
            format!("{layers} layers per stage make {stages} stages, no multiple of pp {pp}"),
            hint,
        );
    }
    u32::try_from((stages / pp).max(1)).ok()
}
