//! Operations simulated per second, by schedule, and the largest case at hand: `cargo bench --bench simulate`.

use cost_models::schedule::{
    AutoOptions, OpCosts, RankOrders, ScheduleKind, ScheduleShape, auto_schedule, generate, record, simulate,
};
use divan::{Bencher, counter::ItemsCount};

fn main() {
    divan::main();
}

/// Schedules of 8 ranks and 64 microbatches that are written down rather than searched.
fn written() -> impl Iterator<Item = ScheduleKind> {
    let kinds = ScheduleKind::ALL.iter().copied();
    kinds.filter(|kind| !matches!(kind.definition().orders, cost_models::schedule::Generator::Searched(_)))
}

fn orders(kind: ScheduleKind, ranks: u32, microbatches: u32, chunks: Option<u32>) -> Option<RankOrders> {
    let shape = ScheduleShape { chunks, allow_asynchronous: true, ..ScheduleShape::new(ranks, microbatches) };
    generate(kind, &shape).ok()
}

#[divan::bench(args = written())]
fn by_schedule(bencher: Bencher, kind: ScheduleKind) {
    let Some(orders) = orders(kind, 8, 64, None) else { return };
    let costs = OpCosts::uniform(orders.stages(), 1.0, 1.1, 0.9).with_latency(0.05);
    bencher.counter(ItemsCount::new(orders.len())).bench(|| simulate(&orders, &costs));
}

/// Llama-3.1-405B: 16 ranks, 8 chunks, 256 microbatches.
#[divan::bench]
fn llama_405b(bencher: Bencher) {
    let Some(orders) = orders(ScheduleKind::Interleaved, 16, 256, Some(8)) else { return };
    let costs = OpCosts::uniform(orders.stages(), 1.0, 1.1, 0.9).with_latency(0.05);
    bencher.counter(ItemsCount::new(orders.len())).bench(|| simulate(&orders, &costs));
}

/// The same, keeping every start and end.
#[divan::bench]
fn llama_405b_recorded(bencher: Bencher) {
    let Some(orders) = orders(ScheduleKind::Interleaved, 16, 256, Some(8)) else { return };
    let costs = OpCosts::uniform(orders.stages(), 1.0, 1.1, 0.9).with_latency(0.05);
    bencher.counter(ItemsCount::new(orders.len())).bench(|| record(&orders, &costs));
}

/// Writing the orders and checking that they are complete.
#[divan::bench]
fn llama_405b_generated(bencher: Bencher) {
    bencher.bench(|| orders(ScheduleKind::Interleaved, 16, 256, Some(8)));
}

/// Searching an order: ranks, microbatches, chunks.
#[divan::bench(args = [(8, 64, 2), (16, 128, 2), (16, 256, 4)], sample_count = 5)]
fn auto(bencher: Bencher, (ranks, microbatches, chunks): (u32, u32, u32)) {
    let shape = ScheduleShape::new(ranks, microbatches).with_chunks(chunks);
    let costs = OpCosts::uniform(ranks * chunks, 1.0, 1.2, 0.8).with_latency(0.05);
    bencher.bench(|| auto_schedule(&shape, &costs, &AutoOptions::default()));
}
