//! The automatic scheduler against handcrafted schedules, against the optimum, and at equal times.

mod schedule_support;

use cost_models::schedule::*;
use schedule_support::*;

fn random_costs(stages: u32, random: &mut impl FnMut() -> f64) -> OpCosts {
    let stages = (0..stages).map(|_| StageCosts::of_times(0.5 + random(), 0.5 + random(), random()));
    OpCosts { stages: stages.collect(), ..OpCosts::default() }.with_latency(0.3 * random())
}

/// Every synchronous schedule of these ranks, microbatches and chunks, with every split of the output layer and number of
/// slices it has up to `most_slices`: its name, its run, and what it holds in microbatch-stages, rounded up.
fn others(shape: ScheduleShape, costs: &OpCosts, most_slices: u32) -> Vec<(String, Timeline, u32)> {
    let mut found = Vec::new();
    for &kind in ScheduleKind::ALL.iter().filter(|&&kind| kind != ScheduleKind::Auto && kind.is_synchronous())
    {
        let definition = kind.definition();
        let most = if definition.default_slices.is_some() { most_slices } else { 1 };
        let splits = [Vocabulary::OneBarrier, Vocabulary::TwoBarriers];
        let splits = if kind.takes_vocabulary() { &splits[..] } else { &[] };
        for slices in 1..=most {
            let costs = costs.of_slices(slices);
            let shape = if most > 1 { shape.with_slices(slices) } else { shape };
            for &vocabulary in [definition.vocabulary].iter().chain(splits) {
                let schedule = Schedule { kind, vocabulary };
                let Ok(orders) = generate_for(schedule, &shape, &costs) else { continue };
                let timeline = simulate(&orders, &costs).unwrap();
                let held = timeline.worst_peak().div_ceil(slices);
                found.push((format!("{schedule} {slices}"), timeline, held));
            }
        }
    }
    found
}

/// Under any cap on what a rank holds, auto takes no longer than any other schedule that keeps it: sliced, of two
/// pipelines, with passes of the output layer, or searched. What it finds keeps the cap, and no other schedule beats the
/// bound.
#[test]
fn never_worse_than_any_other_schedule_under_the_same_cap() {
    let mut random = random_numbers();
    let mut compared = std::collections::BTreeSet::new();
    for case in 0..40 {
        let (p, v) = (2 + (random() * 5.0) as u32, [1, 2, 1, 2, 4][case % 5]);
        let m = if case % 2 == 0 { p * (1 + (random() * 3.0) as u32) } else { 1 + (random() * 12.0) as u32 };
        let costs = random_costs(p * v, &mut random);
        let group_rule = if case % 3 == 0 { GroupRule::Torch } else { GroupRule::Megatron };
        let shape = ScheduleShape { group_rule, ..ScheduleShape::new(p, m).with_chunks(v) };
        let most_slices = 1 + (random() * 5.0) as u32;
        let others = others(shape, &costs, most_slices);
        let most = others.iter().map(|(_, _, held)| *held).max().unwrap();
        let cap = 1 + (random() * f64::from(most)) as u32;
        let memory_limit = Some(MemoryLimit::Chunks(cap));
        let (replicated_weights, effort) = (true, 40);
        let options =
            AutoOptions { memory_limit, replicated_weights, most_slices, effort, ..AutoOptions::default() };
        let found = auto_schedule(&shape, &costs, &options);
        for (name, timeline, _) in others.iter().filter(|(_, _, held)| *held <= cap) {
            let found = found.as_ref().unwrap_or_else(|error| panic!("{name} p {p} m {m} v {v}: {error}"));
            let times = (found.timeline.makespan, timeline.makespan, found.lower_bound);
            let what = format!("{name} p {p} m {m} v {v} cap {cap}: {times:?} by {}", found.origin);
            assert!(times.0 <= times.1 * (1.0 + 1e-12), "{what}");
            // Passes are work beside the stages that the bound does not count; here they take no time.
            assert!(times.2 <= times.1 * (1.0 + 1e-12), "{what}");
            compared.insert(name.split(' ').next().unwrap().to_owned());
        }
        let Ok(found) = found else { continue };
        assert!(found.timeline.worst_peak() <= cap * found.orders.slices(), "{}", found.origin);
        let again = simulate(&found.orders, &found.costs).unwrap();
        close(again.makespan, found.timeline.makespan, "the order with its own costs");
    }
    let synchronous =
        ScheduleKind::ALL.iter().filter(|&&kind| kind != ScheduleKind::Auto && kind.is_synchronous());
    for kind in synchronous {
        assert!(compared.contains(kind.name()), "{kind} was never compared");
    }
}

/// Slices shorten the step where nothing whole can: four microbatches at a time, hops that cost half a forward.
#[test]
fn slices_are_taken_where_they_help() {
    let costs = OpCosts::uniform(4, 1.7, 1.06, 0.02).with_latency(0.5);
    let limited = AutoOptions { memory_limit: Some(MemoryLimit::Chunks(8)), ..AutoOptions::default() };
    let whole = auto_schedule(&ScheduleShape::new(4, 8), &costs, &limited).unwrap();
    let options = AutoOptions { most_slices: 4, ..limited };
    let cut = auto_schedule(&ScheduleShape::new(4, 8), &costs, &options).unwrap();
    assert!(cut.timeline.makespan < 0.9 * whole.timeline.makespan, "{}", cut.origin);
    assert!(cut.orders.slices() > 1 && cut.lower_bound <= cut.timeline.makespan);
    for (most_slices, rule) in [(0, "1 to 16 slices"), (17, "1 to 16 slices")] {
        let error = auto_schedule(&ScheduleShape::new(4, 8), &costs, &AutoOptions { most_slices, ..limited });
        assert!(error.unwrap_err().to_string().contains(rule));
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
