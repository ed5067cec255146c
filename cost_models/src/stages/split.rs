//! Splits of a model's blocks over pipeline stages.
//!
//! Every split first says how many blocks each stage has. The embedding joins the first stage; the final norm, the
//! multi-token-prediction blocks and the head join the last.

use super::{Stage, StageMap};
use crate::model::{Layer, ModelSpec};
use crate::parallel::ParallelConfig;
use crate::runtime::SplitPolicy;
use crate::schedule::Placement;
use thiserror::Error;

/// A split that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SplitError {
    /// There is nothing to split into.
    #[error("pp {pp} x vpp {vpp} makes no stage")]
    NoStages {
        /// Pipeline degree.
        pp: u32,
        /// Chunks per rank.
        vpp: u32,
    },
    /// The list does not match the stages.
    #[error(
        "the list has {given} stages, pp {pp} x vpp {vpp} needs {wanted}\n\nhint: give one number of blocks per stage"
    )]
    Count {
        /// Entries given.
        given: usize,
        /// Stages needed.
        wanted: u64,
        /// Pipeline degree.
        pp: u32,
        /// Chunks per rank.
        vpp: u32,
    },
    /// The list does not add up.
    #[error(
        "the stages hold {given} blocks, the model has {wanted}\n\nhint: the numbers of blocks must add up to {wanted}"
    )]
    Blocks {
        /// Blocks given.
        given: u64,
        /// Blocks of the model.
        wanted: u64,
    },
    /// A layout string cannot be read.
    #[error(
        "layout `{layout}`: {fault}\n\nhint: stages are separated by `|`, for example Et*3|t*4|t*4|t*3mL"
    )]
    Layout {
        /// The string.
        layout: String,
        /// What is wrong.
        fault: String,
    },
}

/// The stages an engine with the policy `split` makes of a model.
///
/// # Errors
/// [`SplitError::NoStages`] for a degree of 0.
pub fn default_stages(
    model: &ModelSpec,
    parallel: &ParallelConfig,
    split: SplitPolicy,
    placement: Placement,
) -> Result<StageMap, SplitError> {
    let stages = stage_count(parallel)?;
    let blocks = model.blocks().count() as u64;
    let last = stages as usize - 1;
    let (counts, head) = match split {
        SplitPolicy::Even => (even(blocks, stages), last),
        SplitPolicy::CountEnds => (count_ends(blocks, stages), last),
        SplitPolicy::EndsOneLess => (ends_one_less(blocks, stages), last),
        SplitPolicy::RunningCost => running_cost(model, stages),
    };
    Ok(place(model, parallel, &counts, head, placement))
}

/// The stages with `counts` blocks each, in forward order.
///
/// # Errors
/// [`SplitError`] when the list does not fit the degrees or the model.
pub fn stages_from_blocks(
    model: &ModelSpec,
    parallel: &ParallelConfig,
    counts: &[u64],
    placement: Placement,
) -> Result<StageMap, SplitError> {
    let wanted = stage_count(parallel)?;
    let (pp, vpp) = (parallel.pp, parallel.vpp);
    if counts.len() as u64 != wanted {
        return Err(SplitError::Count { given: counts.len(), wanted, pp, vpp });
    }
    let given = counts.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
    let blocks = model.blocks().count() as u64;
    if given != blocks {
        return Err(SplitError::Blocks { given, wanted: blocks });
    }
    Ok(place(model, parallel, counts, counts.len() - 1, placement))
}

/// The stages of a Megatron layout string, such as `Et*3|(tt|)*6mL`: `E` embedding, `t` block, `m` MTP block, `L` head.
///
/// # Errors
/// [`SplitError`] when the string cannot be read, or does not fit the degrees or the model.
pub fn stages_from_layout(
    model: &ModelSpec,
    parallel: &ParallelConfig,
    layout: &str,
) -> Result<StageMap, SplitError> {
    let stages = expand(layout).map_err(|fault| SplitError::Layout { layout: layout.to_owned(), fault })?;
    let counts: Vec<u64> =
        stages.split('|').map(|stage| stage.chars().filter(|&c| c == 't').count() as u64).collect();
    stages_from_blocks(model, parallel, &counts, Placement::Loop)
}

/// Stages a Megatron layout string makes, where it can be read.
#[must_use]
pub fn layout_stages(layout: &str) -> Option<usize> {
    expand(layout).ok().map(|stages| stages.split('|').count())
}

fn stage_count(parallel: &ParallelConfig) -> Result<u64, SplitError> {
    let stages = u64::from(parallel.pp) * u64::from(parallel.vpp);
    if stages == 0 || stages > 1 << 20 {
        return Err(SplitError::NoStages { pp: parallel.pp, vpp: parallel.vpp });
    }
    Ok(stages)
}

/// As equal as possible, the first stages taking the remainder.
fn even(blocks: u64, stages: u64) -> Vec<u64> {
    (0..stages).map(|stage| blocks / stages + u64::from(stage < blocks % stages)).collect()
}

/// Embedding and head count as a block each: torchtitan `generate_llm_fqn_per_model_part` with weights of 1,
/// Megatron `account_for_embedding_in_pipeline_split`.
fn count_ends(blocks: u64, stages: u64) -> Vec<u64> {
    if stages < 2 {
        return vec![blocks];
    }
    let mut counts = even(blocks + 2, stages);
    take_from(&mut counts, 0);
    let last = counts.len() - 1;
    take_from(&mut counts, last);
    counts
}

/// One unit less on `stage`, or on the next that has one.
fn take_from(counts: &mut [u64], stage: usize) {
    let order = (stage..counts.len()).chain((0..stage).rev());
    for stage in order {
        if counts[stage] > 0 {
            counts[stage] -= 1;
            return;
        }
    }
}

/// The first and last stage hold one block less than the others where that divides, else all are equal where that
/// divides, else as `count_ends`.
fn ends_one_less(blocks: u64, stages: u64) -> Vec<u64> {
    let divides = |units: u64| units.is_multiple_of(stages);
    if divides(blocks) && !divides(blocks + 2) { even(blocks, stages) } else { count_ends(blocks, stages) }
}

/// nanotron `src/nanotron/models/base.py`, `build_model`: walk the blocks (cost 4 h^2 + 3 h f each) and the head
/// (cost h V), and go on to the next stage once the running sum reaches its share of the total. Blocks of every stage, and
/// the stage of the head, after which nothing is left but the loss.
fn running_cost(model: &ModelSpec, stages: u64) -> (Vec<u64>, usize) {
    let costs: Vec<f64> = model.blocks().map(|(_, block)| block_cost(model, block)).collect();
    let total = costs.iter().sum::<f64>() + model.hidden as f64 * model.vocab as f64;
    let mut counts = vec![0; stages as usize];
    let (mut stage, mut sum) = (0usize, 0.0);
    for cost in costs {
        sum += cost;
        counts[stage] += 1;
        if sum >= total * (stage + 1) as f64 / stages as f64 && stage + 1 < stages as usize {
            stage += 1;
        }
    }
    (counts, stage)
}

fn block_cost(model: &ModelSpec, block: &crate::model::Block) -> f64 {
    let hidden = model.hidden as f64;
    let ffn = match block.mlp {
        crate::model::Mlp::Dense { ffn, .. } => ffn,
        crate::model::Mlp::Moe { ffn, topk, shared_ffn, dense_ffn, .. } => {
            ffn * topk + shared_ffn + dense_ffn
        }
    };
    4.0 * hidden * hidden + 3.0 * hidden * ffn as f64
}

/// Stages with `counts` blocks and the head in stage `head`, laid on ranks by `placement`; the chunk of a stage counts its
/// rank's earlier stages.
fn place(
    model: &ModelSpec,
    parallel: &ParallelConfig,
    counts: &[u64],
    head: usize,
    placement: Placement,
) -> StageMap {
    let ranks = placement.ranks_of_stages(parallel.pp, counts.len() as u32);
    let mut chunks = vec![0; parallel.pp as usize];
    let stages = bounds(model, counts, head).into_iter().zip(ranks).map(|(layers, rank)| {
        let chunk = chunks[usize::from(rank)];
        chunks[usize::from(rank)] += 1;
        Stage { rank: u32::from(rank), chunk, layers, recompute: parallel.recompute }
    });
    StageMap(stages.collect())
}

/// Layer ranges of stages with `counts` blocks: what precedes the first block goes to the first stage, what follows the last to
/// stage `head`.
fn bounds(model: &ModelSpec, counts: &[u64], head: usize) -> Vec<Option<[u32; 2]>> {
    let blocks: Vec<usize> = model.blocks().map(|(index, _)| index).collect();
    let end = model.layers.len();
    let first_tail = blocks.last().map_or_else(|| leading(model), |last| last + 1);
    let mut start = 0;
    let mut seen = 0;
    let ranges = counts.iter().enumerate().map(|(stage, &count)| {
        seen += count as usize;
        let head_of_next = blocks.get(seen).copied().unwrap_or(first_tail);
        let stop = match (stage >= head, stage == 0 && count == 0) {
            (true, _) => end,
            (_, true) => leading(model).min(head_of_next),
            _ => head_of_next,
        };
        let range = (stop > start).then(|| [start as u32, stop as u32 - 1]);
        start = stop.max(start);
        range
    });
    ranges.collect()
}

/// Layers before the first block: the embedding.
fn leading(model: &ModelSpec) -> usize {
    model.layers.iter().take_while(|layer| matches!(layer, Layer::Embedding)).count()
}

/// Writes out the repetitions `x*n` and `(..)*n` of a layout string; commas and spaces are cosmetic.
fn expand(layout: &str) -> Result<String, String> {
    let symbols: Vec<char> = layout.chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    let mut position = 0;
    let text = expand_group(&symbols, &mut position, 0)?;
    if position < symbols.len() {
        return Err("`)` without `(`".to_owned());
    }
    match (text.matches('E').count(), text.matches('L').count()) {
        (1, 1) if text.starts_with('E') && text.ends_with('L') => Ok(text),
        _ => Err("it must start with its only E and end with its only L".to_owned()),
    }
}

fn expand_group(symbols: &[char], position: &mut usize, depth: u32) -> Result<String, String> {
    let mut text = String::new();
    while let Some(&symbol) = symbols.get(*position) {
        let item = match symbol {
            ')' if depth > 0 => return Ok(text),
            ')' => return Ok(text),
            '(' if depth < 8 => group(symbols, position, depth)?,
            'E' | 'L' | 't' | 'm' | '|' => symbol.to_string(),
            other => return Err(format!("`{other}` is not one of E t m L | ( ) *")),
        };
        *position += 1;
        let times = repetitions(symbols, position)?;
        if text.len() + item.len() * times > 1 << 16 {
            return Err("it is too long".to_owned());
        }
        text.push_str(&item.repeat(times));
    }
    if depth > 0 { Err("`(` is not closed".to_owned()) } else { Ok(text) }
}

fn group(symbols: &[char], position: &mut usize, depth: u32) -> Result<String, String> {
    *position += 1;
    expand_group(symbols, position, depth + 1)
}

/// Reads an optional `*n`.
fn repetitions(symbols: &[char], position: &mut usize) -> Result<usize, String> {
    if symbols.get(*position) != Some(&'*') {
        return Ok(1);
    }
    *position += 1;
    let digits: String = symbols[*position..].iter().take_while(|c| c.is_ascii_digit()).collect();
    *position += digits.len();
    digits.parse::<usize>().ok().filter(|&n| n <= 1 << 16).ok_or_else(|| "`*` needs a number".to_owned())
}
