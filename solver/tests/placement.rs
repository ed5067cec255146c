//! Where hosts go: exact against brute force and the integer program, the local search against annealing, and the cases
//! an operator meets.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::topology::Topology;
use cluster_profiles::{Cluster, HostMatrix};
use cost_models::schedule::Placement as StagePlacement;
use cost_models::sites::Network;
use cost_models::stages::stages_from_blocks;
use cost_models::{ModelSpec, ParallelConfig, RankOrder, Runtime, StageMap, TrainingRun, Workload, estimate};
use solver::Problem;
use solver::highs::MipOptions;
use solver::placement::{Demands, Group, Seating, Traffic, best_placement, place};
use solver::{Outcome, Silent, Solution, solve};
use support::random::Random;
use support::runs::{cluster, workload};

/// A pipeline of `stages` over `slots` hosts: every stage a group, every place a way, on random links.
fn pipeline(random: &mut Random, hosts: usize, slots: usize, stages: usize) -> Demands {
    let width = slots / stages;
    let table = |random: &mut Random, high: usize| -> Vec<f64> {
        (0..hosts * hosts).map(|_| 1.0 + random.index(high) as f64).collect()
    };
    let tables = vec![table(random, 9), table(random, 4), table(random, 9)];
    let groups = (0..stages).map(|stage| Group {
        slots: (stage * width..(stage + 1) * width).collect(),
        table: if stage == 0 { 0 } else { 2 },
    });
    let ways =
        (0..width).map(|place| Group { slots: (0..stages).map(|s| s * width + place).collect(), table: 1 });
    let traffic = vec![Traffic::Collective(groups.collect()), Traffic::Ways(ways.collect())];
    Demands::new(slots, hosts, traffic, tables)
}

fn permutations(hosts: usize, slots: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..slots {
        all = all
            .into_iter()
            .flat_map(|chosen: Vec<usize>| {
                let free: Vec<usize> = (0..hosts).filter(|host| !chosen.contains(host)).collect();
                free.into_iter().map(move |host| [chosen.clone(), vec![host]].concat())
            })
            .collect();
    }
    all
}

fn brute_force(demands: &Demands) -> f64 {
    let all = permutations(demands.hosts(), demands.slots());
    all.iter().map(|hosts| demands.seconds(hosts)).fold(f64::INFINITY, f64::min)
}

fn draw(random: &mut Random, most: usize) -> Demands {
    let slots = [2, 3, 4, 6, 6, 8][random.index(6)].min(most);
    let stages = (1..=slots).filter(|stages| slots % stages == 0).nth(random.index(2)).unwrap_or(1);
    let hosts = (slots + random.index(2)).min(most);
    pipeline(random, hosts, slots, stages)
}

#[test]
fn two_hundred_small_placements_are_the_best_there_are() {
    let mut random = Random(5);
    for case in 0..200 {
        let demands = draw(&mut random, if case % 20 == 0 { 8 } else { 6 });
        let placed = place(&demands);
        let best = brute_force(&demands);
        assert!((placed.seconds - best).abs() <= 1e-9 * best, "case {case}: {} {best}", placed.seconds);
        assert_eq!(placed.gap(), 0.0);
        assert!(
            demands.bound() <= best * (1.0 + 1e-12),
            "case {case}: bound {} above {best}",
            demands.bound()
        );
    }
}

fn integer_program_agrees(cases: usize, most: usize) {
    let mut random = Random(17);
    for case in 0..cases {
        let demands = draw(&mut random, most);
        let program =
            best_placement(&demands, &MipOptions::default()).expect("HiGHS runs").expect("there is one");
        let exact = place(&demands);
        assert!(
            (program.seconds - exact.seconds).abs() <= 1e-9 * exact.seconds,
            "case {case}: {program:?} {exact:?}"
        );
    }
}

#[test]
fn the_integer_program_agrees() {
    integer_program_agrees(12, 4);
}

#[test]
#[ignore = "minutes: cargo test -p meshwright-solver --test placement -- --ignored"]
fn the_integer_program_agrees_on_200() {
    integer_program_agrees(200, 8);
}

/// A measured matrix of 256 hosts in islands of 16, shuffled, with noise and some bad links.
fn measured(random: &mut Random, hosts: usize, stages: usize) -> Demands {
    let mut island: Vec<usize> = (0..hosts).map(|host| host / 16).collect();
    (1..hosts).rev().for_each(|last| island.swap(last, random.index(last + 1)));
    let mut seconds = vec![0.0; hosts * hosts];
    for a in 0..hosts {
        for b in 0..hosts {
            let near = if island[a] == island[b] { 1.0 } else { 2.5 };
            let bad = if random.index(200) == 0 { 4.0 } else { 1.0 };
            seconds[a * hosts + b] = near * bad * (1.0 + 0.2 * random.unit());
        }
    }
    let hop: Vec<f64> = seconds.iter().map(|seconds| seconds * 0.02).collect();
    let width = hosts / stages;
    let groups = (0..stages).map(|s| Group { slots: (s * width..(s + 1) * width).collect(), table: 0 });
    let ways =
        (0..width).map(|place| Group { slots: (0..stages).map(|s| s * width + place).collect(), table: 1 });
    let traffic = vec![Traffic::Collective(groups.collect()), Traffic::Ways(ways.collect())];
    Demands::new(hosts, hosts, traffic, vec![seconds, hop])
}

/// Simulated annealing over swaps.
fn annealed(demands: &Demands, seconds: f64, random: &mut Random) -> f64 {
    let start = std::time::Instant::now();
    let mut order: Vec<usize> = (0..demands.slots()).collect();
    let (mut now, mut best) = (demands.seconds(&order), f64::INFINITY);
    loop {
        let spent = start.elapsed().as_secs_f64() / seconds;
        if spent >= 1.0 {
            return best;
        }
        let (a, b) = (random.index(order.len()), random.index(order.len()));
        order.swap(a, b);
        let next = demands.seconds(&order);
        let temperature = 0.3 * (1.0 - spent);
        if next <= now || random.unit() < ((now - next) / temperature.max(1e-9)).exp() {
            now = next;
            best = best.min(now);
        } else {
            order.swap(a, b);
        }
    }
}

fn beats_annealing(seconds: f64) {
    let mut random = Random(3);
    let demands = measured(&mut random, 256, 16);
    let start = std::time::Instant::now();
    let placed = place(&demands);
    let spent = start.elapsed();
    let annealed = annealed(&demands, seconds, &mut random);
    assert!(placed.seconds <= annealed, "{} after {spent:?}, annealing {annealed}", placed.seconds);
    assert!(placed.bound <= placed.seconds && demands.bound() == placed.bound);
    assert_eq!(place(&demands), placed, "the same input gives the same placement");
}

#[test]
fn a_measured_matrix_of_256_hosts_is_placed_better_than_annealing_does() {
    beats_annealing(2.0);
}

#[test]
#[ignore = "a minute: cargo test -p meshwright-solver --release --test placement -- --ignored"]
fn a_measured_matrix_of_256_hosts_is_placed_better_than_a_minute_of_annealing() {
    beats_annealing(60.0);
}

struct Site {
    model: ModelSpec,
    workload: Workload,
    runtime: Runtime,
}

impl Site {
    fn new(model: &str) -> Self {
        Self {
            model: cost_models::model::catalog::get(model).expect("a catalogue model"),
            workload: workload(64, 4096),
            runtime: Runtime::named("megatron-core").expect("a catalogue runtime"),
        }
    }

    /// Hosts with a measured matrix.
    fn cluster(&self, hosts: usize, slow: &[(usize, usize)]) -> Cluster {
        let mut cluster = cluster(8 * hosts as u64);
        let mut rates = vec![vec![50.0; hosts]; hosts];
        for &(a, b) in slow {
            rates[a][b] = 5.0;
            rates[b][a] = 5.0;
        }
        cluster.matrix = Some(HostMatrix {
            hosts: cluster.host_names(),
            bandwidth_gb_per_second: rates,
            latency_us: Vec::new(),
            source: "made up".to_owned(),
        });
        cluster
    }

    /// The demands of a layout on such hosts.
    fn demands(
        &self,
        hosts: usize,
        parallel: &ParallelConfig,
        stages: &StageMap,
        slow: &[(usize, usize)],
    ) -> Demands {
        let cluster = self.cluster(hosts, slow);
        let topology = Topology::new(&cluster).expect("a small cluster");
        let problem = Problem::new(&self.model, &cluster, &self.workload, &self.runtime);
        Demands::of_layout(&problem, &topology, parallel, stages).expect("whole hosts")
    }
}

fn stages(site: &Site, parallel: &ParallelConfig, blocks: &[u64]) -> StageMap {
    stages_from_blocks(&site.model, parallel, blocks, StagePlacement::Loop).expect("they add up")
}

fn four_stages_of_two_hosts() -> ParallelConfig {
    ParallelConfig {
        tp: 8,
        pp: 4,
        dp_shard: 2,
        num_microbatches: 32,
        sequence_parallel: true,
        ..Default::default()
    }
}

/// All links of one host are slow.
fn behind_a_slow_link(host: usize, hosts: usize) -> Vec<(usize, usize)> {
    (0..hosts).filter(|other| *other != host).map(|other| (host, other)).collect()
}

#[test]
fn a_slow_host_is_left_out_when_there_is_a_spare() {
    let site = Site::new("llama-3.1-70b");
    let parallel = four_stages_of_two_hosts();
    let stages = stages(&site, &parallel, &[20; 4]);
    let demands = site.demands(9, &parallel, &stages, &behind_a_slow_link(3, 9));
    let placed = place(&demands);
    assert!(!placed.hosts.contains(&3), "{:?}", placed.hosts);
    let healthy = place(&site.demands(8, &parallel, &stages, &[]));
    assert!((placed.seconds - healthy.seconds).abs() <= 1e-9 * healthy.seconds);
}

#[test]
fn a_slow_host_without_a_spare_goes_where_it_costs_least() {
    let site = Site::new("llama-3.1-70b");
    let parallel = four_stages_of_two_hosts();
    let stages = stages(&site, &parallel, &[20; 4]);
    let demands = site.demands(8, &parallel, &stages, &behind_a_slow_link(2, 8));
    let placed = place(&demands);
    let at = |slot: usize| {
        let mut order: Vec<usize> = (0..8).filter(|host| *host != 2).collect();
        order.insert(slot, 2);
        demands.seconds(&order)
    };
    let costs: Vec<f64> = (0..8).map(at).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(placed.seconds <= least * (1.0 + 1e-12), "{placed:?} {costs:?}");
    assert!(costs.iter().any(|cost| *cost > least * 1.001), "every slot costs the same: {costs:?}");
}

#[test]
fn a_slow_pair_carries_no_expert_traffic() {
    let site = Site::new("qwen3-30b-a3b");
    let parallel = ParallelConfig { pp: 4, ep: 16, dp_shard: 16, num_microbatches: 4, ..Default::default() };
    let stages = stages(&site, &parallel, &[12; 4]);
    let demands = site.demands(8, &parallel, &stages, &[(0, 1)]);
    let placed = place(&demands);
    for pair in placed.hosts.chunks(2) {
        assert!(pair != [0, 1] && pair != [1, 0], "the slow pair shares a stage: {:?}", placed.hosts);
    }
    let own: Vec<usize> = (0..8).collect();
    assert!(placed.seconds < demands.seconds(&own));
}

#[test]
fn hosts_of_equal_links_keep_their_order() {
    let site = Site::new("llama-3.1-70b");
    let parallel = four_stages_of_two_hosts();
    let stages = stages(&site, &parallel, &[20; 4]);
    let placed = place(&site.demands(8, &parallel, &stages, &[]));
    assert_eq!(placed.hosts, (0..8).collect::<Vec<_>>());
}

/// The best layout of a site on `available` hosts, of which `gpus` are used.
fn solved(site: &Site, available: &Cluster, gpus: u64) -> Box<Solution> {
    let used = available.resized(gpus).expect("whole nodes");
    let problem = Problem {
        available: Some(available),
        ..Problem::new(&site.model, &used, &site.workload, &site.runtime)
    };
    match solve(&problem, &Silent).expect("no fault") {
        Outcome::Solved(solution) => solution,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plan_leaves_a_slow_host_out_and_is_as_fast_as_without_it() {
    let site = Site::new("llama-3.1-8b");
    let available = site.cluster(5, &behind_a_slow_link(1, 5));
    let solution = solved(&site, &available, 32);
    let names = available.host_names();
    assert!(!solution.cluster.host_names().contains(&names[1]), "{:?}", solution.cluster.host_names());
    let healthy = solved(&site, &site.cluster(4, &[]), 32);
    let (slow, fast) = (solution.estimate.step_time_seconds, healthy.estimate.step_time_seconds);
    assert!((slow / fast - 1.0).abs() < 1e-9, "{slow:?} {fast:?}");
    assert_eq!(solution.certificate.gap, 0.0);
}

#[test]
fn a_plan_is_what_the_estimate_of_its_cluster_says_and_no_slower_than_the_own_order() {
    let site = Site::new("llama-3.1-8b");
    let available = site.cluster(4, &behind_a_slow_link(1, 4));
    let solution = solved(&site, &available, 32);
    let step = |cluster: &Cluster| {
        let run = TrainingRun {
            model: &site.model,
            cluster,
            workload: &site.workload,
            runtime: &site.runtime,
            parallel: &solution.parallel,
            stages: &solution.stages,
        };
        estimate(&run).expect("legal").step_time_seconds
    };
    assert_eq!(step(&solution.cluster), solution.estimate.step_time_seconds);
    assert!(step(&available) >= solution.estimate.step_time_seconds);
    assert!(solution.certificate.bound_seconds <= solution.estimate.step_time_seconds);
}

/// A layout of `hosts` hosts with random degrees, on random links.
fn random_seats(random: &mut Random, most: usize) -> (Site, Cluster, ParallelConfig, StageMap) {
    let mut site = Site::new("llama-3.1-8b");
    let slots = 2 + random.index(most - 2);
    let hosts = (slots + random.index(2)).min(most);
    let stage_counts: Vec<usize> = (1..=slots).filter(|count| slots.is_multiple_of(*count)).collect();
    let pp = stage_counts[random.index(stage_counts.len())] as u32;
    let spread = random.index(4) == 0 && (slots as u32 / pp).is_multiple_of(2);
    let tp = if spread { 16 } else { [2, 4, 8][random.index(3)] };
    let dp = slots as u32 * 8 / pp / tp;
    site.workload.global_batch = u64::from(dp) * 8;
    let parallel = ParallelConfig {
        tp,
        pp,
        dp_shard: dp,
        num_microbatches: 8,
        sequence_parallel: true,
        schedule: "1f1b".to_owned(),
        rank_order: RankOrder::ALL[random.index(2)],
        ..Default::default()
    };
    let mut blocks = vec![32 / u64::from(pp); pp as usize];
    blocks[0] += 32 % u64::from(pp);
    let stages = stages(&site, &parallel, &blocks);
    let mut cluster = site.cluster(hosts, &[]);
    let rate = |random: &mut Random| [2.0, 5.0, 25.0, 40.0, 50.0][random.index(5)];
    if let Some(matrix) = &mut cluster.matrix {
        for row in &mut matrix.bandwidth_gb_per_second {
            row.iter_mut().for_each(|cell| *cell = rate(random));
        }
    }
    (site, cluster, parallel, stages)
}

/// The search, every permutation through the step, and the estimate of the chosen cluster say the same.
fn seats_are_the_best(seed: u64, cases: usize, most: usize) {
    let mut random = Random(seed);
    for case in 0..cases {
        let (site, cluster, parallel, stages) = random_seats(&mut random, most);
        let problem = Problem::new(&site.model, &cluster, &site.workload, &site.runtime);
        let network = Network::new(&cluster).expect("small");
        let seating = Seating::new(&problem, &network, &parallel, &stages).expect("whole hosts");
        let seated = seating.best(false);
        assert!(seated.proved, "case {case}");
        let all = permutations(seating.demands().hosts(), seating.demands().slots());
        let best = all.iter().map(|hosts| seating.seconds(hosts)).fold(f64::INFINITY, f64::min);
        assert!(
            (seated.seconds / best - 1.0).abs() <= 1e-9,
            "case {case}: {} {best} {parallel:?}",
            seated.seconds
        );
        let names = cluster.host_names();
        let order: Vec<String> = seated.hosts.iter().map(|&host| names[host].clone()).collect();
        let arranged = cluster.arranged(&order).expect("known hosts");
        let run = TrainingRun {
            model: &site.model,
            cluster: &arranged,
            workload: &site.workload,
            runtime: &site.runtime,
            parallel: &parallel,
            stages: &stages,
        };
        let again = estimate(&run).expect("legal").step_time_seconds.get();
        assert!((again / seated.seconds - 1.0).abs() <= 1e-9, "case {case}: {again} {}", seated.seconds);
    }
}

#[test]
fn small_placements_are_the_best_of_all_permutations_through_the_step() {
    seats_are_the_best(11, 30, 5);
}

#[test]
#[ignore = "minutes: cargo test -p meshwright-solver --release --test placement -- --ignored"]
fn two_hundred_placements_are_the_best_of_all_permutations_through_the_step() {
    seats_are_the_best(23, 200, 7);
}
