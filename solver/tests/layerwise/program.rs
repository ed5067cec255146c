//! The same space as an integer program: which strategy every block has on which stage.
//!
//! Binary `x[block][stage][way]`; a redistribution `y` where neighbours differ; memory without what is a largest of something; the
//! step's bound `M >= m w_i + sum of w before + o_i` minimised. Solutions are listed by rising M, each cut off after `estimate` has
//! judged it, until none is below the best.

use crate::brute::{Frame, Menu, frames, judged};
use cost_models::layerwise::Strategy;
use cost_models::model::Layer;
use cost_models::rules::engine;
use good_lp::{Expression, ProblemVariables, Variable, constraint, variable};
use solver::Problem;
use solver::highs::{Mip, MipOptions, MipStatus};
use solver::layerwise::grid::{Choices, Grid, Hop, RECOMPUTES, SHARDINGS, Way};

/// Seconds of one stage as expressions.
#[derive(Default, Clone)]
struct Sums {
    work: Expression,
    outside: Expression,
    bytes: Expression,
}

struct Program<'p, 'a> {
    problem: &'p Problem<'a>,
    grid: &'p Grid,
    /// The layout of what is no block, on its first split.
    frame: &'p Frame,
    /// Index of the vocabulary's degree.
    tp: usize,
    ways: Vec<Vec<Way>>,
    blocks: Vec<usize>,
}

/// A solution: stage and way of every block.
type Chosen = Vec<(usize, usize)>;

impl Program<'_, '_> {
    fn in_flight(&self, stage: usize) -> f64 {
        let (p, m) = (self.frame.parallel.pp as usize, self.frame.parallel.num_microbatches as f64);
        match (p, self.frame.parallel.schedule.as_str()) {
            (1, _) => 1.0,
            (_, "gpipe") => m,
            _ => m.min((p - stage) as f64),
        }
    }

    /// The next solution that was not seen; its M, and the choices.
    fn next(&self, seen: &[Chosen]) -> Option<(f64, Chosen)> {
        let stages = self.frame.parallel.pp as usize;
        let mut variables = ProblemVariables::new();
        let x: Vec<Vec<Vec<Variable>>> = self
            .ways
            .iter()
            .map(|ways| {
                (0..stages)
                    .map(|_| ways.iter().map(|_| variables.add(variable().binary())).collect())
                    .collect()
            })
            .collect();
        let most = variables.add(variable().min(0.0));
        let mut sums = vec![Sums::default(); stages];
        let mut constraints = Vec::new();
        self.add_blocks(&x, &mut sums);
        self.add_vocabulary(&x, &mut sums);
        self.add_exchanges(&x, &mut sums, &mut variables, &mut constraints);
        let place = |block: usize| -> Expression {
            let of_stage = x[block].iter().enumerate();
            of_stage.flat_map(|(stage, ways)| ways.iter().map(move |&x| stage as f64 * x)).sum()
        };
        for (block, of_block) in x.iter().enumerate() {
            constraints.push(constraint!(of_block.iter().flatten().copied().sum::<Expression>() == 1.0));
            if block > 0 {
                constraints.push(constraint!(place(block) >= place(block - 1)));
                constraints.push(constraint!(place(block) <= place(block - 1) + 1.0));
            }
        }
        constraints.push(constraint!(place(0) == 0.0));
        constraints.push(constraint!(place(x.len() - 1) == (stages - 1) as f64));
        let m = self.frame.parallel.num_microbatches as f64;
        let mut before = Expression::default();
        let reserve = &self.problem.runtime.memory.reserve;
        let room = (self.problem.limit().get() - reserve.bytes) / reserve.ratio / GIB;
        for sum in &sums {
            let reached = m * sum.work.clone() + sum.outside.clone() + before.clone();
            constraints.push(constraint!(reached <= most));
            before += sum.work.clone();
            constraints.push(constraint!(sum.bytes.clone() <= room));
        }
        for chosen in seen {
            let same: Expression =
                chosen.iter().enumerate().map(|(block, &(stage, way))| x[block][stage][way]).sum();
            constraints.push(constraint!(same <= chosen.len() as f64 - 1.0));
        }
        let mut mip = Mip::minimise(variables, most);
        for constraint in constraints {
            mip = mip.with(constraint);
        }
        let solution = mip.solve(&MipOptions::default()).expect("HiGHS runs");
        if solution.status != MipStatus::Optimal {
            return None;
        }
        let incumbent = solution.incumbent.expect("an optimal solution");
        let chosen = |of_block: &Vec<Vec<Variable>>| {
            let all = of_block.iter().enumerate();
            let mut all = all.flat_map(|(stage, ways)| (0..ways.len()).map(move |way| (stage, way)));
            all.find(|&(stage, way)| incumbent.value(of_block[stage][way]) > 0.5).expect("one is chosen")
        };
        Some((incumbent.objective, x.iter().map(chosen).collect()))
    }

    fn add_blocks(&self, x: &[Vec<Vec<Variable>>], sums: &mut [Sums]) {
        for (ways, of_block) in self.ways.iter().zip(x) {
            for (stage, of_stage) in of_block.iter().enumerate() {
                for (way, &x) in ways.iter().zip(of_stage) {
                    let numbers = &way.numbers;
                    sums[stage].work += numbers.work() * x;
                    sums[stage].outside += (numbers.sync + numbers.optimizer) * x;
                    let memory = &numbers.memory;
                    let bytes = memory.state.resident().get() + self.in_flight(stage) * memory.saved.get();
                    sums[stage].bytes += bytes / GIB * x;
                }
            }
        }
    }

    /// Embedding, final norm and head, and redistribution from and to them.
    fn add_vocabulary(&self, x: &[Vec<Vec<Variable>>], sums: &mut [Sums]) {
        let (first, last) = (self.blocks[0], *self.blocks.last().expect("a block"));
        let stages = sums.len();
        for (layer, &kind) in self.grid.kinds.iter().enumerate() {
            if self.blocks.contains(&layer) {
                continue;
            }
            let sharding =
                SHARDINGS.iter().position(|own| own.zero_stage() == self.frame.parallel.zero_stage);
            let numbers =
                self.grid.of(kind, self.tp, sharding.expect("a sharding"), 0).expect("a legal layout");
            let stage = if layer < first { 0 } else { stages - 1 };
            sums[stage].work += numbers.work();
            sums[stage].outside += numbers.sync + numbers.optimizer;
            let memory = &numbers.memory;
            let bytes = memory.state.resident().get() + self.in_flight(stage) * memory.saved.get();
            sums[stage].bytes += bytes / GIB;
        }
        let both = |hop: &Hop| hop.forward + hop.backward;
        let (ways, end) = (&self.ways, x.len() - 1);
        if first > 0 {
            for (way, &x) in ways[0].iter().zip(&x[0][0]) {
                sums[0].work += both(&self.grid.exchanges[self.tp][way.tp]) * x;
            }
        }
        if last + 1 < self.grid.kinds.len() {
            for (way, &x) in ways[end].iter().zip(&x[end][stages - 1]) {
                sums[stages - 1].work += both(&self.grid.exchanges[way.tp][self.tp]) * x;
            }
        }
    }

    /// Redistribution before every block, on its stage.
    fn add_exchanges(
        &self,
        x: &[Vec<Vec<Variable>>],
        sums: &mut [Sums],
        variables: &mut ProblemVariables,
        constraints: &mut Vec<good_lp::Constraint>,
    ) {
        let degrees = self.grid.tps.len();
        let with = |block: usize, stage: usize, tp: usize| -> Expression {
            let ways = self.ways[block].iter().zip(&x[block][stage]);
            ways.filter(|(way, _)| way.tp == tp).map(|(_, &x)| x).sum()
        };
        for block in 1..x.len() {
            for (stage, sum) in sums.iter_mut().enumerate() {
                for from in 0..degrees {
                    for to in (0..degrees).filter(|to| *to != from) {
                        let hop = &self.grid.exchanges[from][to];
                        let y = variables.add(variable().min(0.0));
                        let before: Expression =
                            (0..x[block - 1].len()).map(|stage| with(block - 1, stage, from)).sum();
                        constraints.push(constraint!(before + with(block, stage, to) <= 1.0 + y));
                        sum.work += (hop.forward + hop.backward) * y;
                    }
                }
            }
        }
    }

    /// The frame with the stages of a solution, and its strategies.
    fn layout(&self, chosen: &Chosen) -> (Frame, Vec<Strategy>) {
        let mut frame = self.frame.clone();
        let count = frame.stages.0.len();
        let mut start = 0;
        for (stage, of_stage) in frame.stages.0.iter_mut().enumerate() {
            let next = chosen.iter().position(|(own, _)| *own > stage);
            let end =
                next.filter(|_| stage + 1 < count).map_or(self.grid.kinds.len(), |block| self.blocks[block]);
            of_stage.layers = Some([start as u32, end as u32 - 1]);
            start = end;
        }
        let strategy = |(block, &(_, way)): (usize, &(usize, usize))| {
            let way = &self.ways[block][way];
            Strategy {
                tp: self.grid.tps[way.tp],
                sharding: SHARDINGS[way.sharding],
                recompute: RECOMPUTES[way.recompute],
            }
        };
        (frame, chosen.iter().enumerate().map(strategy).collect())
    }
}

const GIB: f64 = 1_073_741_824.0;

/// Seconds of the best step.
pub fn best(problem: &Problem, menu: &Menu) -> Option<f64> {
    let choices = Choices { problem, facts: problem.facts(), engine: engine("galvatron") };
    let mut best: Option<f64> = None;
    let fixed = problem.runtime.time.step.get();
    let all = frames(problem, menu);
    for group in all.chunk_by(|a, b| a.parallel == b.parallel) {
        let frame = &group[0];
        let p = &frame.parallel;
        let Some(grid) = Grid::new(&choices, [p.pp, p.cp], p.num_microbatches, "1f1b") else { continue };
        let Some(tp) = grid.tps.iter().position(|own| *own == p.tp) else { continue };
        let is_block =
            |layer: &usize| matches!(problem.model.layers[*layer], Layer::Block(_) | Layer::Custom(_));
        let blocks: Vec<usize> = (0..grid.kinds.len()).filter(is_block).collect();
        let ways = blocks.iter().map(|&layer| grid.options(grid.kinds[layer], 1)).collect();
        let program = Program { problem, grid: &grid, frame, tp, ways, blocks };
        let mut seen: Vec<Chosen> = Vec::new();
        while let Some((bound, chosen)) = program.next(&seen) {
            if best.is_some_and(|best| bound + fixed >= best * (1.0 - 1e-10)) {
                break;
            }
            let (frame, strategies) = program.layout(&chosen);
            best = best.into_iter().chain(judged(problem, &frame, &strategies)).reduce(f64::min);
            seen.push(chosen);
        }
    }
    best
}
