//! Shared by the schedule tests.
#![allow(dead_code, reason = "each test file uses its part")]

use cost_models::schedule::*;

/// tF = tI = tW.
pub const UNIT: [f64; 3] = [1.0, 1.0, 1.0];
/// tF, tI, tW that differ.
pub const UNEVEN: [f64; 3] = [10.0, 12.0, 8.0];

/// Simulates with the same times on every stage and `latency` on every hop.
#[track_caller]
pub fn run(kind: ScheduleKind, shape: ScheduleShape, times: [f64; 3], latency: f64) -> Timeline {
    run_schedule(kind.into(), shape, times, latency)
}

#[track_caller]
pub fn run_schedule(schedule: Schedule, shape: ScheduleShape, [f, i, w]: [f64; 3], latency: f64) -> Timeline {
    let times = ChunkTimes { forward: f, input_grad: i, weight_grad: w };
    let orders = generate(schedule, &ScheduleShape { times, ..shape })
        .unwrap_or_else(|error| panic!("{schedule} {shape:?}: {error}"));
    let costs = OpCosts::uniform(orders.stages(), f, i, w).with_latency(latency);
    simulate(&orders, &costs).unwrap_or_else(|error| panic!("{schedule} {shape:?}: {error}"))
}

/// Combined pairs are `saving` shorter than their two operations.
pub fn run_paired(kind: ScheduleKind, shape: ScheduleShape, [f, i, w]: [f64; 3], saving: f64) -> Timeline {
    let orders = generate(kind, &shape).unwrap();
    let mut costs = OpCosts::uniform(orders.stages(), f, i, w);
    costs.stages.iter_mut().for_each(|stage| stage.pair_saving = saving);
    simulate(&orders, &costs).unwrap()
}

/// The shapes of p in 2..=16 and m in p..=4p.
pub fn shapes() -> impl Iterator<Item = (u32, u32)> {
    (2..=16).flat_map(|p| (p..=4 * p).map(move |m| (p, m)))
}

#[track_caller]
pub fn close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        "{what}: {found}, expected {expected}"
    );
}

/// Numbers in 0..1, always the same.
pub fn random_numbers() -> impl FnMut() -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 33) as u32) / f64::from(1u32 << 31)
    }
}
