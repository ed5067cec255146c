//! Whether a stage map holds every layer once, in order, where the engine can put it.

use super::engines::Engine;
use super::pipeline::EVEN_STAGES;
use super::rule::Violation;
use crate::model::Layer;
use crate::run::TrainingRun;
use crate::stages::Stage;

/// What is wrong with the stage map of a run.
#[must_use]
pub fn stage_faults(run: &TrainingRun, engine: &Engine) -> Vec<Violation> {
    let stages = &run.stages.0;
    let wanted = u64::from(run.parallel.pp) * u64::from(run.parallel.vpp);
    if stages.len() as u64 != wanted {
        let message = format!(
            "there are {} stages, but pp {} x {} chunks",
            stages.len(),
            run.parallel.pp,
            run.parallel.vpp
        );
        return vec![violation("P10", message, Some(format!("list {wanted} stages")))];
    }
    let mut faults = Vec::new();
    faults.extend(gap(stages, run.model.layers.len()).map(|message| violation("P11", message, None)));
    faults.extend(
        home(stages, run.parallel.pp, run.parallel.vpp).map(|message| violation("P12", message, None)),
    );
    if engine.rules.iter().any(|rule| rule.id == EVEN_STAGES.id) {
        faults.extend(uneven(run, stages));
    }
    faults.extend(split_mtp(run, stages));
    faults
}

fn violation(id: &str, message: String, hint: Option<String>) -> Violation {
    Violation { id: id.to_owned(), message, hint }
}

/// The first place where the stages skip or repeat a layer.
fn gap(stages: &[Stage], layers: usize) -> Option<String> {
    let mut next = 0;
    for (index, stage) in stages.iter().enumerate() {
        let Some([first, last]) = stage.layers else { continue };
        if first as usize != next || last < first {
            return Some(format!(
                "stage {index} has layers {first} to {last}, but {next} comes next: stages hold every layer once, in order"
            ));
        }
        next = last as usize + 1;
    }
    (next != layers).then(|| format!("the stages hold {next} layers, the model has {layers}"))
}

/// The first stage with a rank or chunk that does not exist, or two stages in one place.
fn home(stages: &[Stage], ranks: u32, chunks: u32) -> Option<String> {
    let mut taken = vec![false; stages.len()];
    for (index, stage) in stages.iter().enumerate() {
        let place = u64::from(stage.chunk) * u64::from(ranks) + u64::from(stage.rank);
        let free = stage.rank < ranks && stage.chunk < chunks;
        match taken.get_mut(place as usize).filter(|taken| free && !**taken) {
            Some(taken) => *taken = true,
            None => {
                return Some(format!(
                    "stage {index} is chunk {} of rank {}, which is taken or does not exist",
                    stage.chunk, stage.rank
                ));
            }
        }
    }
    None
}

fn uneven(run: &TrainingRun, stages: &[Stage]) -> Option<Violation> {
    let blocks = |stage: &Stage| {
        let layers = run.model.layers.get(stage.layer_range()).unwrap_or(&[]);
        layers.iter().filter(|layer| matches!(layer, Layer::Block(_) | Layer::Custom(_))).count()
    };
    let first = stages.first().map_or(0, blocks);
    let odd = stages.iter().position(|stage| blocks(stage) != first)?;
    let message = format!(
        "stage {odd} has {} blocks, stage 0 has {first}: {} deals them out evenly",
        blocks(&stages[odd]),
        run.runtime.name
    );
    Some(violation("P2", message, None))
}

/// MTP blocks share one stage, the head's or one before it, never on the first rank of a pipeline (Megatron P4).
fn split_mtp(run: &TrainingRun, stages: &[Stage]) -> Option<Violation> {
    let has_mtp = |stage: &Stage| {
        let layers = run.model.layers.get(stage.layer_range()).unwrap_or(&[]);
        layers.iter().any(|layer| matches!(layer, Layer::Mtp(_)))
    };
    let holders = stages.iter().filter(|stage| has_mtp(stage)).count();
    let message =
        format!("the multi-token-prediction blocks are spread over {holders} stages: they share one");
    (holders > 1).then(|| violation("P4", message, None))
}
