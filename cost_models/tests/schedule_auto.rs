//! The automatic scheduler against handcrafted schedules, against the optimum, and at equal times.

mod schedule_support;

use cost_models::schedule::*;
use schedule_support::*;

fn random_costs(stages: u32, random: &mut impl FnMut() -> f64) -> OpCosts {
    let stages = (0..stages).map(|_| StageCosts::of_times(0.5 + random(), 0.5 + random(), random()));
    OpCosts { stages: stages.collect(), ..OpCosts::default() }.with_latency(0.3 * random())
}

/// Under the cap of any handcrafted schedule, and given its chunks, auto takes no longer than it.
#[test]
fn never_worse_than_a_handcrafted_schedule_under_the_same_cap() {
    let mut random = random_numbers();
    for case in 0..12 {
        let (p, m, v) = (2 + case % 3, 4 + (random() * 8.0) as u32, 1 + case % 2);
        let costs = random_costs(p * v, &mut random);
        for &kind in ScheduleKind::ALL {
            let definition = kind.definition();
            let shape = ScheduleShape::new(p, m).with_chunks(v);
            let sliced = definition.default_slices.is_some() || definition.vocabulary != Vocabulary::Whole;
            let searched = matches!(definition.orders, Generator::Searched(_));
            if sliced || searched {
                continue;
            }
            let Ok(orders) = generate_for(kind, &shape, &costs) else { continue };
            let timeline = simulate(&orders, &costs).unwrap();
            let limit = Some(MemoryLimit::Chunks(timeline.worst_peak()));
            let replicated_weights = definition.placement.pipelines() > 1;
            let options =
                AutoOptions { memory_limit: limit, replicated_weights, effort: 60, ..AutoOptions::default() };
            let found = auto_schedule(&shape, &costs, &options).unwrap();
            let what = format!("{kind} p {p} m {m} v {v}: {} {}", found.timeline.makespan, timeline.makespan);
            assert!(found.timeline.makespan <= timeline.makespan * (1.0 + 1e-12), "{what}");
            assert!(found.timeline.worst_peak() <= timeline.worst_peak(), "{what}");
            assert!(found.lower_bound <= found.timeline.makespan * (1.0 + 1e-12), "{what}");
        }
    }
}

/// All orders of one rank with one stage: microbatches in order, F before I before W.
fn all_orders(rank: u32, m: u32) -> Vec<Vec<Op>> {
    let mut done = vec![(Vec::new(), [0u32; 3])];
    for _ in 0..3 * m {
        let mut next = Vec::new();
        for (ops, [f, i, w]) in done {
            let mut push = |op: Op, counts: [u32; 3]| {
                let longer: Vec<Op> = ops.iter().copied().chain([op]).collect();
                next.push((longer, counts));
            };
            if f < m {
                push(Op::f(rank, f), [f + 1, i, w]);
            }
            if i < f {
                push(Op::i(rank, i), [f, i + 1, w]);
            }
            if w < i {
                push(Op::w(rank, w), [f, i, w + 1]);
            }
        }
        done = next;
    }
    done.into_iter().map(|(ops, _)| ops).collect()
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

/// Two ranks, three microbatches, every possible order: auto finds the optimum within 2 %, and mostly exactly, and no
/// order beats the bound.
#[test]
fn near_the_optimum_of_all_orders() {
    let mut random = random_numbers();
    let (m, mut exact) = (3, 0);
    let (first, second) = (all_orders(0, m), all_orders(1, m));
    for case in 0..10 {
        let costs = random_costs(2, &mut random);
        let cap = 2 + case % 2;
        let limit = Some(MemoryLimit::Chunks(cap));
        let options = AutoOptions { memory_limit: limit, ..AutoOptions::default() };
        let found = auto_schedule(&ScheduleShape::new(2, m), &costs, &options).unwrap();
        let mut optimum = f64::INFINITY;
        for a in &first {
            for b in &second {
                let Ok(timeline) = simulate(&two_ranks(m, [a, b]), &costs) else { continue };
                if timeline.worst_peak() <= cap {
                    optimum = optimum.min(timeline.makespan);
                }
            }
        }
        assert!(found.lower_bound <= optimum * (1.0 + 1e-12), "bound {} above {optimum}", found.lower_bound);
        assert!(found.timeline.makespan <= 1.02 * optimum, "{} of {optimum}", found.timeline.makespan);
        exact += u32::from(found.timeline.makespan <= optimum * (1.0 + 1e-12));
    }
    assert!(exact >= 9, "{exact} of 10 exact");
}

/// At equal times the searched schedules reach the closed forms of ZB-H1 and ZB-H2, and V-ZB idles nowhere.
#[test]
fn equal_times() {
    for p in [2, 4, 6, 8] {
        for m in [2 * p, 4 * p] {
            let once = run(ScheduleKind::Zb1p, ScheduleShape::new(p, m), UNIT, 0.0);
            close(once.span_bubble(), f64::from(p - 1), &format!("zb-1p {p} {m}"));
            assert!(once.worst_peak() <= p);
            let twice = run(ScheduleKind::Zb2p, ScheduleShape::new(p, m), UNIT, 0.0);
            close(twice.span_bubble(), 0.0, &format!("zb-2p {p} {m}"));
            assert!(twice.worst_peak() <= 2 * p);
            let v = run(ScheduleKind::VZb, ScheduleShape::new(p, m), UNIT, 0.0);
            close(v.span_bubble(), 0.0, &format!("v-zb {p} {m}"));
            assert!(v.worst_peak() <= 2 * p);
        }
    }
}

/// Corrected statement: at F 10, I 12, W 8 a searched 2p schedule has a shorter span than ZB-H2's 18.
#[test]
fn searched_schedules_know_the_costs() {
    let shape = ScheduleShape::new(4, 16);
    assert!(run(ScheduleKind::Zb2p, shape, UNEVEN, 0.0).span_bubble() < 18.0);
    let v = run(ScheduleKind::VZb, shape, UNEVEN, 0.0);
    assert!(v.span_bubble() < run(ScheduleKind::ZbV, shape, UNEVEN, 0.0).span_bubble());
}

#[test]
fn a_cap_nothing_keeps_is_an_answer() {
    let costs = OpCosts::uniform(8, 1.0, 1.0, 1.0);
    let options = AutoOptions { memory_limit: Some(MemoryLimit::Chunks(1)), ..AutoOptions::default() };
    let error = auto_schedule(&ScheduleShape::new(4, 8).with_chunks(2), &costs, &options).unwrap_err();
    assert!(matches!(error, ScheduleError::MemoryCap { .. }), "{error}");
    assert!(error.to_string().contains("1 microbatch-chunks"), "{error}");
}

/// Bytes per stage bind as well as counts, and more memory never makes the answer slower.
#[test]
fn more_memory_is_never_slower() {
    let mut costs = OpCosts::uniform(4, 1.0, 1.2, 0.7);
    costs.stages[0].activation_bytes = 3.0;
    let mut last = f64::INFINITY;
    for bytes in [6.0, 9.0, 12.0, 18.0, 24.0] {
        let options = AutoOptions { memory_limit: Some(MemoryLimit::Bytes(bytes)), ..AutoOptions::default() };
        let found = auto_schedule(&ScheduleShape::new(4, 12), &costs, &options).unwrap();
        assert!(found.timeline.ranks.iter().all(|rank| rank.peak_activation_bytes <= bytes));
        assert!(found.timeline.makespan <= last * (1.0 + 1e-12), "{bytes}");
        last = found.timeline.makespan;
    }
}
