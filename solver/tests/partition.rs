//! The dynamic program, against brute force over all splits with the simulator as judge.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use cost_models::schedule::{
    Hop, OpCosts, ScheduleKind, ScheduleShape, StageCosts as OpStage, generate, simulate,
};
use proptest::prelude::*;
use solver::highs::MipOptions;
use solver::ilp::best_split;
use solver::partition::{Chain, SplitTable, StageCosts, StageTimes};
use solver::split_list::Split;
use std::cell::Cell;
use std::ops::Range;

#[derive(Debug, Clone)]
struct Layer {
    forward: f64,
    backward: f64,
    resident: f64,
    saved: f64,
}

#[derive(Debug, Clone)]
struct Problem {
    layers: Vec<Layer>,
    stages: usize,
    microbatches: u32,
    hop: f64,
    limit: f64,
}

impl Problem {
    fn sum(&self, range: Range<usize>, what: impl Fn(&Layer) -> f64) -> f64 {
        self.layers[range].iter().map(what).sum()
    }

    /// 1F1B: rank i holds min(m, p - i) microbatches.
    fn fits(&self, stage: usize, range: Range<usize>) -> bool {
        let in_flight = (self.stages - stage).min(self.microbatches as usize) as f64;
        self.sum(range.clone(), |l| l.resident) + in_flight * self.sum(range, |l| l.saved) <= self.limit
    }

    fn simulated(&self, ends: &[usize]) -> f64 {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let stages = starts
            .zip(ends)
            .map(|(start, &end)| {
                let backward = self.sum(start..end, |l| l.backward);
                OpStage::of_times(self.sum(start..end, |l| l.forward), backward, 0.0)
            })
            .collect();
        let hops = vec![Hop { latency: self.hop, transfer: 0.0 }; self.stages - 1];
        let costs = OpCosts { stages, hops, ..OpCosts::default() };
        let shape = ScheduleShape::new(self.stages as u32, self.microbatches);
        let orders = generate(ScheduleKind::OneFOneB, &shape).expect("1F1B runs any shape");
        simulate(&orders, &costs).expect("costs are usable").makespan
    }

    /// Every split that fits.
    fn all_splits(&self) -> Vec<Vec<usize>> {
        let mut splits = vec![vec![]];
        for stage in 0..self.stages {
            let last = stage + 1 == self.stages;
            splits = splits
                .into_iter()
                .flat_map(|ends: Vec<usize>| {
                    let first = ends.last().copied().unwrap_or(0);
                    let range = if last {
                        self.layers.len()..=self.layers.len()
                    } else {
                        first + 1..=self.layers.len()
                    };
                    range
                        .filter(|&end| end > first && self.fits(stage, first..end))
                        .map(|end| [ends.clone(), vec![end]].concat())
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        splits
    }

    fn brute_force(&self) -> Option<f64> {
        self.all_splits().iter().map(|ends| self.simulated(ends)).reduce(f64::min)
    }

    fn chain(&self) -> Chain {
        Chain {
            layers: self.layers.len(),
            stages: self.stages,
            microbatches: f64::from(self.microbatches),
            hop: self.hop,
        }
    }

    fn table(&self, cutoff: f64) -> SplitTable {
        SplitTable::new(self.chain(), self, cutoff)
    }

    /// Splits by rising bound, each simulated, until no bound is below the best time.
    fn by_program(&self) -> Option<f64> {
        let table = self.table(f64::INFINITY);
        let mut best: Option<f64> = None;
        for split in table.splits(self) {
            if best.is_some_and(|best| split.bound >= best) {
                break;
            }
            let time = self.simulated(&split.ends);
            assert!(split.bound <= time * (1.0 + 1e-12), "bound {} above {time}", split.bound);
            best = Some(best.map_or(time, |best| best.min(time)));
        }
        best
    }
}

impl Problem {
    /// The same with the integer program as the source of splits.
    fn by_integer_program(&self) -> Option<f64> {
        let chain = self.chain();
        let (mut best, mut seen): (Option<f64>, Vec<Split>) = (None, Vec::new());
        while let Some(split) =
            best_split(&chain, self, &seen, f64::INFINITY, &MipOptions::default()).expect("HiGHS runs")
        {
            if best.is_some_and(|best| split.bound >= best) {
                break;
            }
            let time = self.simulated(&split.ends);
            best = Some(best.map_or(time, |best| best.min(time)));
            seen.push(split);
        }
        best
    }
}

impl StageCosts for Problem {
    fn times(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes> {
        let work = self.sum(layers.clone(), |l| l.forward + l.backward);
        self.fits(stage, layers).then_some(StageTimes { work, lead: work })
    }
}

fn layer() -> impl Strategy<Value = Layer> {
    (1u32..20, 1u32..40, 1u32..10, 1u32..10).prop_map(|(forward, backward, resident, saved)| Layer {
        forward: f64::from(forward),
        backward: f64::from(backward),
        resident: f64::from(resident),
        saved: f64::from(saved),
    })
}

fn problem() -> impl Strategy<Value = Problem> {
    (prop::collection::vec(layer(), 1..=10), 1usize..=8, 1u32..=12, 0u32..5, 0u32..4).prop_map(
        |(layers, stages, microbatches, hop, tightness)| {
            let stages = stages.min(layers.len());
            let total: f64 = layers.iter().map(|l| l.resident + l.saved * stages as f64).sum();
            let limit = total / stages as f64 * [1.2, 1.6, 2.5, 100.0][tightness as usize];
            Problem { layers, stages, microbatches, hop: f64::from(hop), limit }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_program_ends_where_brute_force_ends(problem in problem()) {
        match (problem.by_program(), problem.brute_force()) {
            (Some(program), Some(brute)) => prop_assert!((program - brute).abs() <= 1e-9 * brute, "{program} {brute}"),
            (program, brute) => prop_assert_eq!(program, brute),
        }
    }

    #[test]
    fn the_integer_program_has_the_same_least_bound(problem in problem()) {
        let split = best_split(&problem.chain(), &problem, &[], f64::INFINITY, &MipOptions::default()).expect("HiGHS runs");
        match (split, problem.table(f64::INFINITY).bound()) {
            (Some(split), Some(bound)) => {
                prop_assert!((split.bound - bound).abs() <= 1e-9 * bound, "{} {bound}", split.bound);
            }
            (split, bound) => prop_assert_eq!(split.map(|split| split.bound), bound),
        }
    }

    #[test]
    fn splits_come_by_rising_bound_and_all_of_them(problem in problem()) {
        let table = problem.table(f64::INFINITY);
        let splits: Vec<_> = table.splits(&problem).collect();
        prop_assert!(splits.windows(2).all(|pair| pair[0].bound <= pair[1].bound));
        prop_assert_eq!(table.bound(), splits.first().map(|split| split.bound));
        let mut ends: Vec<Vec<usize>> = splits.into_iter().map(|split| split.ends).collect();
        ends.sort();
        prop_assert_eq!(ends, problem.all_splits());
    }

    #[test]
    fn a_cutoff_only_removes_splits_above_it(problem in problem(), share in 0.5f64..1.5) {
        let all = problem.table(f64::INFINITY);
        let Some(bound) = all.bound() else { return Ok(()) };
        let cutoff = bound * share;
        let below: Vec<_> = all.splits(&problem).filter(|split| split.bound <= cutoff).collect();
        let cut: Vec<_> = problem.table(cutoff).splits(&problem).collect();
        prop_assert_eq!(cut, below);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_integer_program_ends_where_brute_force_ends(problem in problem()) {
        match (problem.by_integer_program(), problem.brute_force()) {
            (Some(program), Some(brute)) => prop_assert!((program - brute).abs() <= 1e-9 * brute, "{program} {brute}"),
            (program, brute) => prop_assert_eq!(program, brute),
        }
    }
}

/// Costs whose second look refuses stages at random, and finds others dearer.
struct Refusing<'a> {
    problem: &'a Problem,
    seed: u64,
    /// Stages refused, of eight.
    refused: u64,
    looks: Cell<usize>,
}

impl<'a> Refusing<'a> {
    fn new(problem: &'a Problem, seed: u64, refused: u64) -> Self {
        Self { problem, seed, refused, looks: Cell::new(0) }
    }

    fn draw(&self, stage: usize, layers: &Range<usize>) -> u64 {
        let key = [stage, layers.start, layers.end];
        key.iter().fold(self.seed, |state, &part| {
            (state ^ part as u64).wrapping_mul(6_364_136_223_846_793_005).rotate_left(29)
        })
    }

    fn confirmed(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes> {
        let times = self.times(stage, layers.clone())?;
        self.confirm(stage, &layers, times)
    }

    /// Every split whose stages survive the second look, with its bound.
    fn by_brute_force(&self) -> Vec<Split> {
        let chain = self.problem.chain();
        let split = |ends: Vec<usize>| {
            let ranges = Split { ends: ends.clone(), bound: 0.0 };
            let times: Option<Vec<StageTimes>> =
                ranges.ranges().enumerate().map(|(stage, layers)| self.confirmed(stage, layers)).collect();
            times.map(|times| Split { ends, bound: chain.bound(&times) })
        };
        let mut splits: Vec<Split> = self.problem.all_splits().into_iter().filter_map(split).collect();
        splits.sort_by(|a, b| a.bound.total_cmp(&b.bound).then_with(|| a.ends.cmp(&b.ends)));
        splits
    }
}

impl StageCosts for Refusing<'_> {
    fn times(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes> {
        self.looks.set(self.looks.get() + 1);
        self.problem.times(stage, layers)
    }

    fn confirm(&self, stage: usize, layers: &Range<usize>, times: StageTimes) -> Option<StageTimes> {
        let draw = self.draw(stage, layers);
        let more = (draw >> 8) % 4;
        let dearer = StageTimes { work: times.work + more as f64, lead: times.lead + more as f64 };
        (draw % 8 >= self.refused).then_some(dearer)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_survives_the_second_look_comes_by_rising_bound(
        problem in problem(), seed in any::<u64>(), refused in 0u64..7, dead_ends in prop::sample::select(vec![0, 1, 4, 512]),
    ) {
        let costs = Refusing::new(&problem, seed, refused);
        let table = SplitTable::new(problem.chain(), &costs, f64::INFINITY);
        let mut splits: Vec<Split> = table.splits(&costs).with_dead_ends(dead_ends).collect();
        prop_assert!(splits.windows(2).all(|pair| pair[0].bound <= pair[1].bound));
        splits.sort_by(|a, b| a.bound.total_cmp(&b.bound).then_with(|| a.ends.cmp(&b.ends)));
        prop_assert_eq!(splits, costs.by_brute_force());
    }

    #[test]
    fn a_cutoff_holds_after_the_second_look_too(
        problem in problem(), seed in any::<u64>(), refused in 0u64..5, dead_ends in 0usize..5, share in 0.8f64..1.6,
    ) {
        let costs = Refusing::new(&problem, seed, refused);
        let all = costs.by_brute_force();
        let Some(least) = all.first() else { return Ok(()) };
        let cutoff = least.bound * share;
        let table = SplitTable::new(problem.chain(), &costs, cutoff);
        let mut splits: Vec<Split> = table.splits(&costs).with_dead_ends(dead_ends).collect();
        splits.sort_by(|a, b| a.bound.total_cmp(&b.bound).then_with(|| a.ends.cmp(&b.ends)));
        let below: Vec<Split> = all.into_iter().filter(|split| split.bound <= cutoff).collect();
        prop_assert_eq!(splits, below);
    }
}

#[test]
fn the_next_split_of_equal_layers_costs_as_many_looks_as_the_one_before() {
    let layer = Layer { forward: 1.0, backward: 2.0, resident: 1.0, saved: 1.0 };
    let problem = Problem { layers: vec![layer; 96], stages: 48, microbatches: 96, hop: 1.0, limit: 1e9 };
    for refused in [0, 1] {
        let costs = Refusing::new(&problem, 3, refused);
        let table = SplitTable::new(problem.chain(), &costs, f64::INFINITY);
        let looks_for = |count: usize| {
            costs.looks.set(0);
            assert_eq!(table.splits(&costs).take(count).count(), count);
            costs.looks.get()
        };
        let (few, many) = (looks_for(50), looks_for(200));
        let dive = 48 * 49;
        assert!(many < 200 * dive, "{many} looks for 200 splits");
        assert!(many < 8 * few, "{few} looks for 50 splits, {many} for 200");
    }
}
