//! Bad input is refused, with the operation or rule named.

use cost_models::schedule::*;

fn orders_of(orders: Vec<Vec<Op>>) -> Result<RankOrders, OrdersError> {
    let ranks = orders.len() as u32;
    RankOrders::new(OrderParts {
        ranks,
        stages: ranks,
        microbatches: 1,
        slices: 1,
        vocabulary: Vocabulary::Whole,
        placement: (0..ranks as u16).collect(),
        orders,
    })
}

#[test]
fn every_schedule_refuses_zero_and_absurd_sizes() {
    for &kind in ScheduleKind::ALL {
        for (ranks, microbatches) in
            [(0, 4), (4, 0), (0, 0), (u32::MAX, u32::MAX), (4, u32::MAX), (40_000, 40_000)]
        {
            let shape = ScheduleShape { allow_asynchronous: true, ..ScheduleShape::new(ranks, microbatches) };
            let error = generate(kind, &shape).expect_err(kind.name());
            assert!(matches!(error, ScheduleError::Shape { .. }), "{kind}: {error}");
            assert!(!error.hint().is_empty());
        }
    }
}

#[test]
fn all_broken_rules_are_reported_together() {
    let error = generate(ScheduleKind::Gpipe, &ScheduleShape::new(0, 0)).unwrap_err().to_string();
    assert!(error.contains("ranks = 0") && error.contains("microbatches = 0"), "{error}");
}

#[test]
fn interleaved_names_the_launchers_rule() {
    let megatron = ScheduleShape::new(4, 9);
    let error = generate(ScheduleKind::Interleaved, &megatron).unwrap_err().to_string();
    assert!(error.contains("Megatron-LM") && error.contains("microbatches = 9"), "{error}");
    let torch = ScheduleShape { group_rule: GroupRule::Torch, ..megatron };
    let error = generate(ScheduleKind::Interleaved, &torch).unwrap_err().to_string();
    assert!(error.contains("torch") && error.contains("microbatches = 9"), "{error}");
    let few = generate(ScheduleKind::Interleaved, &ScheduleShape::new(4, 2)).unwrap_err().to_string();
    assert!(few.contains("group_size = 4"), "{few}");
}

#[test]
fn unusable_costs_are_named() {
    let orders = generate(ScheduleKind::OneFOneB, &ScheduleShape::new(2, 2)).unwrap();
    for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        let mut costs = OpCosts::uniform(2, 1.0, 1.0, 1.0);
        costs.stages[1].weight_grad = bad;
        let error = simulate(&orders, &costs).unwrap_err().to_string();
        assert!(error.contains("weight_grad[1]"), "{error}");
    }
    let short = simulate(&orders, &OpCosts::uniform(3, 1.0, 1.0, 1.0)).unwrap_err();
    assert_eq!(short, SimulateError::CostLength { field: "stages", found: 3, expected: 2 });
}

#[test]
fn missing_doubled_and_misplaced_operations_are_named() {
    let error = orders_of(vec![vec![Op::f(0, 0), Op::b(0, 0)], vec![Op::f(1, 0)]]).unwrap_err().to_string();
    assert!(error.contains("rank 1 lacks 1I0"), "{error}");
    let twice = vec![vec![Op::f(0, 0), Op::b(0, 0), Op::b(0, 0)]];
    assert!(orders_of(twice).unwrap_err().to_string().contains("runs 0B0 twice"));
    let early = vec![vec![Op::b(0, 0), Op::f(0, 0)]];
    assert!(orders_of(early).unwrap_err().to_string().contains("runs 0B0 before"));
    let foreign = vec![vec![Op::f(1, 0), Op::b(0, 0)], vec![Op::f(0, 0), Op::b(1, 0)]];
    assert!(orders_of(foreign).unwrap_err().to_string().contains("belongs to rank 1"));
    let unknown = vec![vec![Op::f(0, 7), Op::b(9, 0)]];
    let text = orders_of(unknown).unwrap_err().to_string();
    assert!(text.contains("1 microbatches") && text.contains("1 stages"), "{text}");
}

#[test]
fn a_deadlock_names_its_circle() {
    let parts = OrderParts {
        ranks: 2,
        stages: 2,
        microbatches: 2,
        slices: 1,
        vocabulary: Vocabulary::Whole,
        placement: vec![0, 1],
        orders: vec![
            vec![Op::f(0, 0), Op::b(0, 0), Op::f(0, 1), Op::b(0, 1)],
            vec![Op::f(1, 0), Op::f(1, 1), Op::b(1, 0), Op::b(1, 1)],
        ],
    };
    let orders = RankOrders::new(parts).unwrap();
    let error = simulate(&orders, &OpCosts::uniform(2, 1.0, 1.0, 1.0)).unwrap_err();
    let SimulateError::Deadlock { cycle } = &error else { panic!("{error}") };
    assert_eq!(cycle.len(), 2, "{error}");
    assert_eq!(error.to_string(), "deadlock: rank 0 holds 0B0 until 1B0; rank 1 holds 1F1 until 0F1");
}

#[test]
fn names_round_trip_and_unknown_ones_list_the_known() {
    for &kind in ScheduleKind::ALL {
        assert_eq!(kind.name().parse::<Schedule>().unwrap(), Schedule::from(kind));
    }
    let error = "2f2b".parse::<Schedule>().unwrap_err();
    assert!(error.to_string().contains("2f2b") && error.hint().contains("interleaved-1f1b"));
    assert!("gpipe-vocab1".parse::<Schedule>().is_err());
}
