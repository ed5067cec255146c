//! Every layout with strategies by layer, judged by `estimate`.

use cost_models::layerwise::{LayerStrategies, LayeredRun, Sharding, Strategy, estimate};
use cost_models::memory::layered_memory;
use cost_models::model::Layer;
use cost_models::rules::engine;
use cost_models::{ParallelConfig, Recompute, Stage, StageMap};
use solver::Problem;
use solver::times::run_of;

/// A layout of the vocabulary that legal layouts share, with the cuts between its blocks.
#[derive(Debug, Clone)]
pub struct Frame {
    pub parallel: ParallelConfig,
    pub stages: StageMap,
}

/// What strategies are drawn from.
#[derive(Debug, Clone)]
pub struct Menu {
    pub tps: Vec<u32>,
    pub shardings: Vec<Sharding>,
    pub recomputes: Vec<Recompute>,
}

fn divisors(number: u64) -> impl Iterator<Item = u64> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

fn is_block(layer: &Layer) -> bool {
    matches!(layer, Layer::Block(_) | Layer::Custom(_))
}

/// Every layout of what is no block, with every split of the blocks.
pub fn frames(problem: &Problem, menu: &Menu) -> Vec<Frame> {
    let facts = problem.facts();
    let engine = engine("galvatron");
    let mut frames = Vec::new();
    for pp in divisors(facts.world).filter(|pp| *pp <= facts.blocks) {
        for &tp in &menu.tps {
            let dp = facts.world / pp / u64::from(tp).max(1);
            if dp * pp * u64::from(tp) != facts.world {
                continue;
            }
            for m in divisors(facts.global_batch) {
                if !(facts.global_batch / m).is_multiple_of(dp) {
                    continue;
                }
                for schedule in if pp == 1 { &["1f1b"][..] } else { &["1f1b", "gpipe"] } {
                    for sharding in &menu.shardings {
                        let parallel = ParallelConfig {
                            tp,
                            pp: pp as u32,
                            dp_shard: dp as u32,
                            zero_stage: sharding.zero_stage(),
                            sequence_parallel: tp > 1,
                            micro_batch_size: facts.global_batch / m / dp,
                            num_microbatches: m,
                            schedule: (*schedule).to_owned(),
                            ..ParallelConfig::default()
                        };
                        let allowed = problem.constraints.first_broken(&parallel, problem.cluster).is_none();
                        if engine.allows(&facts, &parallel) && allowed {
                            let splits = splits(&problem.model.layers, pp as usize);
                            frames.extend(
                                splits.into_iter().map(|stages| Frame { parallel: parallel.clone(), stages }),
                            );
                        }
                    }
                }
            }
        }
    }
    frames
}

/// Every cut of the layers before a block, each stage with a block.
fn splits(layers: &[Layer], stages: usize) -> Vec<StageMap> {
    let cuts: Vec<usize> = (0..layers.len()).filter(|&layer| is_block(&layers[layer])).skip(1).collect();
    chosen(&cuts, stages - 1)
        .into_iter()
        .map(|cuts| {
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain([layers.len()]);
            let stage = |(rank, (start, end)): (usize, (usize, usize))| Stage {
                rank: rank as u32,
                chunk: 0,
                layers: Some([start as u32, end as u32 - 1]),
                recompute: Recompute::None,
            };
            StageMap(starts.zip(ends).enumerate().map(stage).collect())
        })
        .collect()
}

fn chosen(from: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let firsts = 0..from.len();
    firsts
        .flat_map(|first| {
            chosen(&from[first + 1..], count - 1)
                .into_iter()
                .map(move |rest| [vec![from[first]], rest].concat())
        })
        .collect()
}

/// Every list of strategies for so many blocks.
pub fn lists(menu: &Menu, blocks: usize) -> Vec<Vec<Strategy>> {
    let one: Vec<Strategy> = menu
        .tps
        .iter()
        .flat_map(|&tp| {
            menu.shardings.iter().flat_map(move |&sharding| {
                menu.recomputes.iter().map(move |&recompute| Strategy { tp, sharding, recompute })
            })
        })
        .collect();
    (0..blocks).fold(vec![Vec::new()], |lists, _| {
        lists
            .into_iter()
            .flat_map(|list| one.iter().map(move |&strategy| [list.clone(), vec![strategy]].concat()))
            .collect()
    })
}

/// Seconds of a step, if the layout is legal and fits.
pub fn judged(problem: &Problem, frame: &Frame, strategies: &[Strategy]) -> Option<f64> {
    let run = run_of(problem, &frame.parallel, &frame.stages);
    let layered = LayeredRun::new(run, &LayerStrategies::of_blocks(strategies)).ok()?;
    let memory = layered_memory(&layered).expect("a legal layout has memory");
    if memory.iter().any(|rank| rank.peak_bytes > problem.limit()) {
        return None;
    }
    let estimate = estimate(&layered).expect("a legal layout can be estimated");
    Some((estimate.step_time_seconds + estimate.edge_penalty_seconds).get())
}

/// The best step of all, and of those whose layers are alike.
pub fn best(problem: &Problem, menu: &Menu) -> (Option<f64>, Option<f64>) {
    let blocks = problem.model.layers.iter().filter(|layer| is_block(layer)).count();
    let lists = lists(menu, blocks);
    let (mut any, mut alike): (Option<f64>, Option<f64>) = (None, None);
    let least = |best: &mut Option<f64>, step: f64| *best = Some(best.map_or(step, |best| best.min(step)));
    for frame in frames(problem, menu) {
        for list in &lists {
            let Some(step) = judged(problem, &frame, list) else { continue };
            least(&mut any, step);
            let same = |own: &Strategy| {
                own.tp == frame.parallel.tp
                    && own.sharding.zero_stage() == frame.parallel.zero_stage
                    && own.recompute == list[0].recompute
            };
            if list.iter().all(same) {
                least(&mut alike, step);
            }
        }
    }
    (any, alike)
}
