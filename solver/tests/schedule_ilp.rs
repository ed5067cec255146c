//! The optimum of small pipelines by integer program: no handcrafted schedule beats it, no bound exceeds it, and the
//! automatic scheduler comes near it.

mod support;

use cost_models::schedule::*;
use solver::highs::MipOptions;
use solver::schedule_ilp::{Pipeline, optimal_order};
use support::random::Random;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

fn random_costs(stages: u32, random: &mut Random) -> OpCosts {
    let stages =
        (0..stages).map(|_| StageCosts::of_times(0.5 + random.unit(), 0.5 + random.unit(), random.unit()));
    OpCosts { stages: stages.collect(), ..OpCosts::default() }.with_latency(0.3 * random.unit())
}

/// The program's makespan, simulated; proved and equal to its bound.
fn optimum(costs: &OpCosts, placement: Placement, ranks: u32, m: u32, cap: u32, horizon: f64) -> f64 {
    let placed = placement.ranks_of_stages(ranks, costs.stages.len() as u32);
    let pipeline =
        Pipeline { costs, placement: &placed, microbatches: m, cap: Some(cap), horizon: horizon * 1.001 };
    let found = optimal_order(&pipeline, &MipOptions::default()).unwrap();
    assert!(found.proved);
    let timeline = simulate(&found.orders.expect("an order within the horizon"), costs).unwrap();
    assert!(timeline.worst_peak() <= cap, "{} held, cap {cap}", timeline.worst_peak());
    let bound = found.bound.unwrap();
    assert!((timeline.makespan - bound).abs() < 1e-5 * bound, "{} and {bound}", timeline.makespan);
    timeline.makespan
}

fn auto(costs: &OpCosts, ranks: u32, m: u32, chunks: u32, cap: u32, placement: Placement) -> AutoSchedule {
    let shape = ScheduleShape::new(ranks, m).with_chunks(chunks);
    let options = AutoOptions {
        memory_limit: Some(MemoryLimit::Chunks(cap)),
        placement: Some(placement),
        ..AutoOptions::default()
    };
    auto_schedule(&shape, costs, &options).unwrap()
}

/// Bound <= optimum <= automatic <= every handcrafted schedule that keeps the cap; automatic within 3 % of the optimum
/// and mostly equal to it.
#[test]
fn one_stage_a_rank() {
    let mut random = Random(SEED);
    let (mut exact, mut cases) = (0, 0);
    for (p, m) in [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3)] {
        for cap in [p, p + 1] {
            let costs = random_costs(p, &mut random);
            let found = auto(&costs, p, m, 1, cap, Placement::Loop);
            let makespan = found.timeline.makespan;
            let best = optimum(&costs, Placement::Loop, p, m, cap, makespan);
            let what = format!("p {p} m {m} cap {cap}: optimum {best}, found {makespan} as {}", found.origin);
            assert!(found.lower_bound <= best * (1.0 + 1e-6), "{what}, bound {}", found.lower_bound);
            assert!(best <= makespan * (1.0 + 1e-6) && makespan <= 1.03 * best, "{what}");
            (exact, cases) = (exact + u32::from(makespan <= best * (1.0 + 1e-6)), cases + 1);
            for kind in [ScheduleKind::Gpipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1, ScheduleKind::ZbH2]
            {
                let Ok(orders) = generate_for(kind, &ScheduleShape::new(p, m), &costs) else { continue };
                let timeline = simulate(&orders, &costs).unwrap();
                let fused_wins = best <= timeline.makespan * (1.0 + 1e-6);
                assert!(timeline.worst_peak() > cap || fused_wins, "{kind} {what}");
            }
        }
    }
    assert!(exact * 10 >= cases * 8, "{exact} of {cases} exact");
}

/// Two chunks a rank, placed as a V.
#[test]
fn two_stages_a_rank() {
    let mut random = Random(SEED);
    for cap in [3, 4] {
        let costs = random_costs(4, &mut random);
        let found = auto(&costs, 2, 2, 2, cap, Placement::V);
        let makespan = found.timeline.makespan;
        let best = optimum(&costs, Placement::V, 2, 2, cap, makespan);
        assert!(found.lower_bound <= best * (1.0 + 1e-6), "bound {} above {best}", found.lower_bound);
        assert!(best <= makespan * (1.0 + 1e-6) && makespan <= 1.05 * best, "{makespan}, optimum {best}");
    }
}

/// All orders of two ranks, one after the other.
#[test]
fn equals_brute_force() {
    let mut random = Random(SEED);
    let m = 2;
    let orders: Vec<Vec<Vec<Op>>> = (0..2).map(|rank| all_orders(rank, m)).collect();
    for cap in [1, 2] {
        let costs = random_costs(2, &mut random);
        let mut least = f64::INFINITY;
        for a in &orders[0] {
            for b in &orders[1] {
                let Ok(timeline) = simulate(&two_ranks(m, [a, b]), &costs) else { continue };
                if timeline.worst_peak() <= cap {
                    least = least.min(timeline.makespan);
                }
            }
        }
        let best = optimum(&costs, Placement::Loop, 2, m, cap, 2.0 * least);
        assert!((best / least - 1.0).abs() < 1e-6, "{best}, brute force {least}");
    }
}

/// A horizon below the optimum leaves nothing, as does a cap of no microbatch.
#[test]
fn nothing_within_reach() {
    let costs = OpCosts::uniform(2, 1.0, 1.0, 1.0);
    for (cap, horizon) in [(Some(2), 6.0), (Some(0), 100.0)] {
        let pipeline = Pipeline { costs: &costs, placement: &[0, 1], microbatches: 2, cap, horizon };
        let found = optimal_order(&pipeline, &MipOptions::default()).unwrap();
        assert!(found.orders.is_none() && !found.proved);
    }
}

/// All orders of one rank with one stage: microbatches in order, F before I before W.
fn all_orders(rank: u32, m: u32) -> Vec<Vec<Op>> {
    fn extend(rank: u32, m: u32, ops: &mut Vec<Op>, [f, i, w]: [u32; 3], all: &mut Vec<Vec<Op>>) {
        if w == m {
            return all.push(ops.clone());
        }
        let next = [
            (f < m, Op::f(rank, f), [f + 1, i, w]),
            (i < f, Op::i(rank, i), [f, i + 1, w]),
            (w < i, Op::w(rank, w), [f, i, w + 1]),
        ];
        for (_, op, counts) in next.into_iter().filter(|(possible, ..)| *possible) {
            ops.push(op);
            extend(rank, m, ops, counts, all);
            ops.pop();
        }
    }
    let mut all = Vec::new();
    extend(rank, m, &mut Vec::new(), [0; 3], &mut all);
    all
}

fn two_ranks(m: u32, orders: [&Vec<Op>; 2]) -> RankOrders {
    RankOrders::new(OrderParts {
        ranks: 2,
        stages: 2,
        microbatches: m,
        slices: 1,
        vocabulary: Vocabulary::Whole,
        placement: vec![0, 1],
        orders: orders.map(Clone::clone).to_vec(),
    })
    .unwrap()
}
