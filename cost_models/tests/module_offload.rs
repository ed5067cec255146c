//! Modules in host memory: what a rank of a pipeline holds at every moment, and how long its operations wait for copies.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod schedule_support;

use cluster_profiles::{BytesPerSecond, Precision, Seconds, catalog};
use cost_models::memory::InFlight;
use cost_models::model::{CustomLayer, Layer as ModelLayer};
use cost_models::module_offload::{Extent, MovedLayer, extents, most_passing, waits};
use cost_models::modules::ModuleChoice;
use cost_models::schedule::{OpKind, Placement, RankOrders, ScheduleKind, ScheduleShape, generate};
use cost_models::stages::stages_from_blocks;
use cost_models::{
    Estimate, Optimizer, ParallelConfig, Recompute, Runtime, Stage, StageMap, TrainingRun, Workload, estimate,
};
use schedule_support::random_numbers;
use std::collections::{BTreeMap, VecDeque};

/// A module of a layer: seconds and bytes.
#[derive(Clone, Copy)]
struct Module {
    forward: f64,
    backward: f64,
    copy: f64,
    moved: f64,
}

struct Layer {
    kept: f64,
    modules: Vec<Module>,
}

impl Layer {
    fn moved(&self) -> f64 {
        self.modules.iter().map(|module| module.moved).sum()
    }
}

/// What of a module of a microbatch is where: copied out at a time, asked back, or used.
#[derive(Clone, Copy, Default)]
struct Copied {
    out: Option<f64>,
    back: Option<f64>,
}

/// The operations of a rank, one copy engine each way, and every change of what is on the device.
struct Ledger<'a> {
    chunks: &'a [Vec<Layer>],
    now: f64,
    out_free: f64,
    back_free: f64,
    changes: Vec<(f64, f64)>,
    /// By chunk and microbatch: its modules in forward order, and those still to come back.
    copied: BTreeMap<(usize, u32), BTreeMap<(usize, usize), Copied>>,
    returning: BTreeMap<(usize, u32), Vec<(usize, usize)>>,
}

impl Ledger<'_> {
    fn charge(&mut self, at: f64, bytes: f64) {
        self.changes.push((at, bytes));
    }

    /// Megatron-core's forward: every module is copied when it is done, and then the one of this name before it has to be out.
    /// The last layer of what goes backward next stays.
    fn forward(&mut self, key: (usize, u32), next_backward: (usize, u32), choice: ModuleChoice) {
        let chunks = self.chunks;
        let layers = &chunks[key.0];
        let modules = layers.iter().map(|layer| layer.modules.len() as u32).sum();
        let mut left = choice.moved_of(modules);
        let mut pending: Vec<VecDeque<f64>> = vec![VecDeque::new(); layers[0].modules.len()];
        for (index, layer) in layers.iter().enumerate() {
            self.charge(self.now, layer.kept);
            for (name, module) in layer.modules.iter().enumerate() {
                self.charge(self.now, module.moved);
                self.now += module.forward;
                let is_over = left == 0;
                left = left.saturating_sub(1);
                if is_over || (index + 1 == layers.len() && next_backward == key) {
                    continue;
                }
                self.out_free = self.now.max(self.out_free) + module.copy;
                self.charge(self.out_free, -module.moved);
                let copied = Copied { out: Some(self.out_free), back: None };
                self.copied.entry(key).or_default().insert((index, name), copied);
                self.returning.entry(key).or_default().push((index, name));
                pending[name].push_back(self.out_free);
                if pending[name].len() > 1 {
                    self.now = self.now.max(pending[name].pop_front().unwrap());
                }
            }
        }
    }

    /// One module begins to come back: the last of this microbatch, or of the next once its forward is done.
    fn ask_back(&mut self, key: (usize, u32), next: Option<(usize, u32)>) {
        let has = |key: &(usize, u32)| self.returning.get(key).is_some_and(|list| !list.is_empty());
        let Some(from) = [Some(key), next].into_iter().flatten().find(has) else { return };
        let (index, name) = self.returning.get_mut(&from).unwrap().pop().unwrap();
        self.bring(from, (index, name), self.now);
    }

    fn bring(&mut self, key: (usize, u32), place: (usize, usize), asked: f64) {
        let module = self.chunks[key.0][place.0].modules[place.1];
        let copied = self.copied.get_mut(&key).unwrap().get_mut(&place).unwrap();
        if copied.back.is_some() {
            return;
        }
        let begin = asked.max(self.back_free).max(copied.out.unwrap());
        self.back_free = begin + module.copy;
        copied.back = Some(self.back_free);
        // Room is taken when it is asked for; what is not out yet is there already.
        let at = asked.max(copied.out.unwrap());
        self.charge(at, module.moved);
    }

    fn backward(&mut self, key: (usize, u32), next: Option<(usize, u32)>) {
        let chunks = self.chunks;
        for (index, layer) in chunks[key.0].iter().enumerate().rev() {
            for (name, module) in layer.modules.iter().enumerate().rev() {
                let copied = self.copied.get(&key).and_then(|of| of.get(&(index, name))).copied();
                if let Some(copied) = copied {
                    if copied.back.is_none() {
                        self.bring(key, (index, name), self.now);
                    }
                    let back = self.copied[&key][&(index, name)].back.unwrap();
                    self.now = self.now.max(back);
                }
                self.now += module.backward;
                self.charge(self.now, -module.moved);
                self.ask_back(key, next);
            }
            self.charge(self.now, -layer.kept);
        }
    }

    /// The most there ever is; frees before charges of one time.
    fn most(&mut self) -> f64 {
        self.changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut held = 0.0;
        let most = self.changes.iter().fold(0.0_f64, |most, (_, bytes)| {
            held += bytes;
            most.max(held)
        });
        assert!(held.abs() < 1e-6, "{held} bytes are never released");
        most
    }
}

/// The most that a rank holds, with idle time before some of its operations.
fn most_held(
    orders: &RankOrders,
    rank: usize,
    chunks: &[Vec<Layer>],
    choice: ModuleChoice,
    mut idle: impl FnMut() -> f64,
) -> f64 {
    let ranks = orders.ranks() as usize;
    let ops: Vec<(bool, (usize, u32))> = orders.orders()[rank]
        .iter()
        .map(|op| (op.kind == OpKind::F, (usize::from(op.stage) / ranks, op.microbatch)))
        .collect();
    let backwards: Vec<(usize, u32)> = ops.iter().filter(|op| !op.0).map(|op| op.1).collect();
    let mut ledger = Ledger {
        chunks,
        now: 0.0,
        out_free: 0.0,
        back_free: 0.0,
        changes: Vec::new(),
        copied: BTreeMap::new(),
        returning: BTreeMap::new(),
    };
    let mut done = 0;
    for (is_forward, key) in ops {
        ledger.now += idle();
        if is_forward {
            // The first backward of the step has its last layer kept, as its forward was seen to be the first to be asked for.
            let kept = if done == 0 { backwards[0] } else { backwards[done] };
            ledger.forward(key, kept, choice);
        } else {
            done += 1;
            ledger.backward(key, backwards.get(done).copied());
        }
    }
    ledger.most()
}

fn layers(random: &mut impl FnMut() -> f64, count: usize, names: usize, speed: f64) -> Vec<Layer> {
    let layer = |random: &mut dyn FnMut() -> f64| {
        let module = |random: &mut dyn FnMut() -> f64| {
            let moved = 0.1 + random();
            Module { forward: random(), backward: 2.0 * random(), copy: moved / speed, moved }
        };
        Layer { kept: random(), modules: (0..names).map(|_| module(random)).collect() }
    };
    (0..count).map(|_| layer(random)).collect()
}

#[test]
fn a_rank_never_holds_more_than_is_said() {
    let mut random = random_numbers();
    let (mut tight, mut spared, mut cases) = (0, 0, 0);
    for case in 0..3000 {
        let below = |random: &mut dyn FnMut() -> f64, most: u32| (random() * f64::from(most)) as u32;
        let ranks = 2 + below(&mut random, 4);
        let chunks = 1 + below(&mut random, 3);
        let microbatches = ranks * (1 + below(&mut random, 4));
        let kind = if chunks == 1 { ScheduleKind::OneFOneB } else { ScheduleKind::Interleaved };
        let shape = ScheduleShape::new(ranks, microbatches).with_chunks(chunks);
        let orders = generate(kind, &shape).expect("a legal shape");
        let rank = below(&mut random, ranks) as usize;
        let names = 1 + below(&mut random, 3) as usize;
        let speed = [0.3, 1.0, 3.0, 1e6][below(&mut random, 4) as usize];
        let of_chunk: Vec<Vec<Layer>> = (0..chunks)
            .map(|_| {
                let count = 1 + below(&mut random, 5) as usize;
                layers(&mut random, count, names, speed)
            })
            .collect();
        let busy = below(&mut random, 2) == 0;
        let mut gaps = random_numbers();
        let percent = [100, 100, 75, 50][below(&mut random, 4) as usize];
        let choice = ModuleChoice { percent, ..ModuleChoice::default() };
        let held = most_held(&orders, rank, &of_chunk, choice, || if busy { 0.0 } else { gaps() });
        let is_last = |chunk: usize| rank + 1 == ranks as usize && chunk + 1 == of_chunk.len();
        let moved: Vec<Vec<f64>> = of_chunk
            .iter()
            .enumerate()
            .map(|(chunk, layers)| {
                let stays = usize::from(is_last(chunk));
                let modules: Vec<u8> = layers.iter().map(|layer| layer.modules.len() as u8).collect();
                let moving = layers.iter().zip(extents(choice, &modules)).take(layers.len() - stays);
                let whole = moving.filter(|(_, extent)| *extent == Extent::Whole);
                let moved: Vec<f64> = whole.map(|(layer, _)| layer.moved()).collect();
                if moved.len() > 1 { moved } else { Vec::new() }
            })
            .collect();
        let all: Vec<f64> = of_chunk
            .iter()
            .map(|layers| layers.iter().map(|layer| layer.kept + layer.moved()).sum())
            .collect();
        let kept: Vec<f64> =
            all.iter().zip(&moved).map(|(all, moved)| all - moved.iter().sum::<f64>()).collect();
        let in_flight = InFlight::of(&orders);
        let whole = in_flight.peak(rank, &all);
        let said = whole.min(in_flight.peak(rank, &kept) + most_passing(&moved, percent < 100));
        assert!(held <= said * (1.0 + 1e-9), "case {case}: {held} of {said} ({whole} without moves)");
        cases += 1;
        tight += u32::from(held > 0.9 * said);
        spared += u32::from(said < 0.9 * whole);
    }
    assert!(tight > cases / 10 && spared > cases / 10, "{tight} tight and {spared} sparing of {cases}");
}

/// Forwards, or backwards, of one stage after one another, layer by layer: how long the last of them waits.
fn replayed(layers: &[MovedLayer]) -> [f64; 2] {
    const TIMES: usize = 40;
    let (mut now, mut link, mut wait) = (0.0_f64, 0.0_f64, [0.0; 2]);
    for _ in 0..TIMES {
        let begun = now;
        let mut before = 0.0_f64;
        for layer in layers {
            now += layer.forward;
            if layer.copy > 0.0 {
                link = link.max(now) + layer.copy;
                now = now.max(before);
                before = link;
            }
        }
        wait[0] = now - begun - layers.iter().map(|layer| layer.forward).sum::<f64>();
    }
    // The last layer of the first is there.
    let (mut now, mut link, mut ready) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..TIMES {
        let begun = now;
        for index in (0..layers.len()).rev() {
            now = now.max(ready);
            let next = if index == 0 { layers.len() - 1 } else { index - 1 };
            link = link.max(now) + layers[next].copy;
            ready = link;
            now += layers[index].backward;
        }
        wait[1] = now.max(ready) - begun - layers.iter().map(|layer| layer.backward).sum::<f64>();
    }
    wait
}

#[test]
fn waits_are_those_of_forwards_and_backwards_in_a_row() {
    let mut random = random_numbers();
    let mut waited = 0;
    for case in 0..3000 {
        let count = 1 + (random() * 6.0) as usize;
        let slow = [0.0, 0.5, 2.0][(random() * 3.0) as usize];
        let stays = random() < 0.3;
        let mut layers: Vec<MovedLayer> = (0..count)
            .map(|_| MovedLayer { forward: random(), backward: 2.0 * random(), copy: slow * random() })
            .collect();
        if stays {
            layers[count - 1].copy = 0.0;
        }
        let [forward, backward] = waits(&layers).map(Seconds::get);
        let told = replayed(&layers);
        if count > 1 {
            // The wait for the first copy of a next microbatch counts to it, not to the one before.
            let slack = layers[0].backward.max(layers[count - 1].copy) - layers[0].backward;
            assert!((forward - told[0]).abs() < 1e-9, "case {case}: forward {forward} {told:?}");
            assert!((backward - told[1]).abs() < 1e-9 + slack, "case {case}: backward {backward} {told:?}");
        }
        waited += u32::from(forward + backward > 0.0);
        let faster: Vec<MovedLayer> =
            layers.iter().map(|layer| MovedLayer { copy: 0.7 * layer.copy, ..*layer }).collect();
        let less = waits(&faster).map(Seconds::get);
        assert!(less[0] <= forward + 1e-12 && less[1] <= backward + 1e-12, "case {case}: {less:?}");
        let none: Vec<MovedLayer> = layers.iter().map(|layer| MovedLayer { copy: 0.0, ..*layer }).collect();
        assert_eq!(waits(&none), [Seconds::ZERO; 2]);
    }
    assert!(waited > 1000, "only {waited} wait");
}

/// Llama-3.1-8B, or layers of stated cost, in two stages on four H100 with a host link of so many GB/s.
fn run(custom: bool, gigabytes: f64, seq_len: u64, recompute: &str) -> Estimate {
    let recompute: Recompute = recompute.parse().unwrap();
    let mut model = cost_models::model::catalog::get("llama-3.1-8b").unwrap();
    if custom {
        let layer = CustomLayer {
            parameters: 100_000_000,
            forward_seconds: 0.01,
            input_gradient_seconds: 0.011,
            weight_gradient_seconds: 0.012,
            activation_bytes: 1e9,
            output_bytes: 3e7,
        };
        model.layers = vec![ModelLayer::Custom(layer); 32];
    }
    let mut cluster = catalog::cluster("dgx-h100").and_then(|cluster| cluster.resized(4)).unwrap();
    cluster.groups[0].node.host.bandwidth = BytesPerSecond(gigabytes * 1e9);
    let workload = Workload {
        global_batch: 16,
        seq_len,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    };
    let parallel =
        ParallelConfig { pp: 2, dp_shard: 2, num_microbatches: 8, recompute, ..Default::default() };
    let halves = [16, 16];
    let stages = stages_from_blocks(&model, &parallel, &halves, Placement::Loop);
    let by_layer = |rank| Stage { rank, chunk: 0, layers: Some([rank * 16, rank * 16 + 15]), recompute };
    let stages = if custom { StageMap(vec![by_layer(0), by_layer(1)]) } else { stages.unwrap() };
    let runtime = Runtime::named("megatron-core").unwrap();
    estimate(&TrainingRun {
        model: &model,
        cluster: &cluster,
        workload: &workload,
        runtime: &runtime,
        parallel: &parallel,
        stages: &stages.with_recompute(recompute),
    })
    .unwrap()
}

const ALL_OF_DENSE: &str = "offload:qkv_linear+core_attn+attn_proj";

#[test]
fn where_no_bytes_are_moved_nothing_changes() {
    // Layers of stated cost have no modules, and no tensor of so few tokens is large enough.
    for (custom, seq_len) in [(true, 8192), (false, 64)] {
        let (kept, moved) = (run(custom, 1.0, seq_len, "none"), run(custom, 1.0, seq_len, ALL_OF_DENSE));
        assert_eq!(kept.step_time_seconds, moved.step_time_seconds);
        assert_eq!(kept.time_seconds, moved.time_seconds);
        assert_eq!(kept.memory, moved.memory);
    }
}

#[test]
fn a_faster_link_is_never_worse_and_a_fast_one_costs_only_what_is_repeated() {
    let step = |estimate: &Estimate| estimate.step_time_seconds.get();
    let kept = run(false, 1.0, 8192, "none");
    let modules = ["core_attn", "core_attn+attn_proj", "qkv_linear", "qkv_linear+core_attn+attn_proj"];
    for names in modules {
        let moved = format!("offload:{names}");
        let rates = [0.5, 2.0, 10.0, 25.0, 50.0, 200.0, 1e9];
        let runs: Vec<Estimate> = rates.iter().map(|rate| run(false, *rate, 8192, &moved)).collect();
        assert!(runs.windows(2).all(|pair| step(&pair[1]) <= step(&pair[0])), "{names}");
        assert!(step(&runs[0]) > 2.0 * step(&kept), "{names}: {}", step(&runs[0]));
        let latencies = 8.0 * 32.0 * 2.0 * 3.0 * 10e-6;
        assert!((step(&runs[6]) - step(&kept)).abs() <= latencies, "{names}");
        assert!(runs.iter().all(|run| run.memory == runs[0].memory));
        for (rank, memory) in runs[0].memory.iter().enumerate() {
            let less = kept.memory[rank].activations_bytes - memory.activations_bytes;
            assert!(less.get() >= 0.0 && memory.host_bytes.get() > 0.0, "{names}: rank {rank}");
        }
        let [first, other] = [&runs[0], &kept].map(|run| run.memory[0].activations_bytes.get());
        assert!(first < other, "{names}: {first} of {other}");
    }
    // Two microbatches in flight, sixteen layers: queries of 32 heads, keys and values of 8, of 128, and the output twice.
    let moved = run(false, 1.0, 8192, "offload:core_attn+attn_proj").memory[0].host_bytes.get();
    let core = 2.0 * 8192.0 * 128.0 * (32.0 + 2.0 * 8.0 + 2.0 * 32.0);
    assert_eq!(moved, 2.0 * 16.0 * core);
    let again = run(false, 1e9, 8192, "selective:mlp/offload:core_attn+attn_proj");
    let full = run(false, 1e9, 8192, "full");
    assert!(step(&kept) < step(&again) && step(&again) < step(&full), "{} {}", step(&again), step(&full));
    assert!(again.memory[0].peak_bytes < kept.memory[0].peak_bytes);
}
