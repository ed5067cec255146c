//! The order of the ranks as a choice: when each order wins, and that the search takes it.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::topology::Topology;
use cluster_profiles::{BytesPerSecond, Cluster, HostMatrix};
use cost_models::runtime::SplitPolicy;
use cost_models::schedule::Placement;
use cost_models::stages::default_stages;
use cost_models::{ModelSpec, ParallelConfig, RankOrder, Runtime, TrainingRun, Workload, estimate};
use solver::placement::Demands;
use solver::{Constraints, Outcome, Problem, Silent, Solution, solve};
use support::runs::{cluster, workload};

struct Site {
    model: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
}

impl Site {
    /// A model on nodes of 8 GPUs whose network has `share` of the catalogue's rate.
    fn new(model: &str, gpus: u64, global_batch: u64, share: f64) -> Self {
        let mut cluster = cluster(gpus);
        let inter = &mut cluster.groups[0].node.inter;
        inter.bandwidth = BytesPerSecond(inter.bandwidth.get() * share);
        Self {
            model: cost_models::model::catalog::get(model).unwrap(),
            cluster,
            workload: workload(global_batch, 4096),
            runtime: Runtime::named("megatron-core").unwrap(),
        }
    }

    /// Seconds of a step in each order.
    fn steps(&self, parallel: &ParallelConfig) -> [f64; 2] {
        let stages = default_stages(&self.model, parallel, SplitPolicy::Even, Placement::Loop).unwrap();
        RankOrder::ALL.map(|rank_order| {
            let parallel = ParallelConfig { rank_order, ..parallel.clone() };
            let run = TrainingRun {
                model: &self.model,
                cluster: &self.cluster,
                workload: &self.workload,
                runtime: &self.runtime,
                parallel: &parallel,
                stages: &stages,
            };
            estimate(&run).unwrap().step_time_seconds.get()
        })
    }

    fn solved(&self, fix: &[&str], forbid: &[&str]) -> Solution {
        let constraints = Constraints::parse(fix, forbid).unwrap();
        let problem = Problem {
            constraints,
            ..Problem::new(&self.model, &self.cluster, &self.workload, &self.runtime)
        };
        match solve(&problem, &Silent).unwrap() {
            Outcome::Solved(solution) => *solution,
            other => panic!("{other:?}"),
        }
    }
}

fn layout(tp: u32, pp: u32, dp: u32, num_microbatches: u64) -> ParallelConfig {
    ParallelConfig {
        tp,
        pp,
        dp_shard: dp,
        num_microbatches,
        sequence_parallel: tp > 1,
        ..ParallelConfig::default()
    }
}

/// Sixteen chunks send a message each for every microbatch: inside a node they are quick, and the four ranks of a node that
/// reduce a stage's gradients share its interfaces. The other way round gradients stay inside, and every message leaves.
#[test]
fn a_pipeline_inside_the_node_wins_where_its_messages_are_many() {
    let mut site = Site::new("llama-3.1-8b", 16, 64, 0.5);
    site.workload.seq_len = 16_384;
    let chunks = ParallelConfig { vpp: 8, schedule: "interleaved-1f1b".to_owned(), ..layout(1, 2, 8, 8) };
    let [dp_inside, pp_inside] = site.steps(&chunks);
    assert!(pp_inside < dp_inside * 0.995, "{pp_inside} {dp_inside}");
}

/// With one microbatch per pipeline rank there are few messages, and gradients that two ranks of a node reduce together cross
/// the network half as often.
#[test]
fn data_parallelism_inside_the_node_wins_where_gradients_are_the_traffic() {
    let site = Site::new("llama-3.1-8b", 32, 16, 0.05);
    let [dp_inside, pp_inside] = site.steps(&layout(2, 4, 4, 4));
    assert!(dp_inside < pp_inside * 0.99, "{dp_inside} {pp_inside}");
}

/// The plan has the order that wins, whatever is fixed or forbidden besides, and it is worth what the estimate says.
#[test]
fn the_plan_takes_the_order_that_wins() {
    let site = Site::new("llama-3.1-8b", 16, 64, 1.0);
    let free = site.solved(&[], &[]);
    assert_eq!(free.parallel.rank_order, RankOrder::PpInside, "{:?}", free.parallel);
    assert_eq!(free.certificate.gap, 0.0);
    let step = |solution: &Solution| solution.estimate.step_time_seconds.get();
    let fixed = site.solved(&["rank_order=tp-cp-ep-dp-pp"], &[]);
    let forbidden = site.solved(&[], &["rank_order=tp-cp-ep-pp-dp"]);
    assert_eq!(fixed.parallel, forbidden.parallel);
    assert!(fixed.parallel.rank_order.is_default());
    assert!(step(&free) < step(&fixed) * 0.9999, "{} {}", step(&free), step(&fixed));
    assert!(fixed.certificate.considered == free.certificate.considered || fixed.certificate.gap == 0.0);
    // A layout whose orders cost the same is there under the only one allowed.
    let inside = site.solved(&["rank_order=tp-cp-ep-pp-dp,tp=8"], &[]);
    assert_eq!(inside.parallel.rank_order, RankOrder::PpInside);
    let outside = site.solved(&["tp=8"], &[]);
    assert_eq!(step(&inside), step(&outside));
}

/// Experts pin the order down: with a pipeline inside data parallelism their group is the one of dense layers (M3).
#[test]
fn experts_keep_their_group_beside_the_pipeline() {
    let site = Site::new("deepseek-v2-lite", 32, 256, 0.1);
    let solution = site.solved(&["rank_order=tp-cp-ep-pp-dp", "pp>1"], &[]);
    let p = &solution.parallel;
    assert_eq!(p.etp * p.ep, p.tp * p.cp, "{p:?}");
    assert!(p.pp > 1);
}

#[test]
fn an_engine_with_one_order_says_so() {
    let mut site = Site::new("llama-3.1-8b", 16, 64, 1.0);
    site.runtime = Runtime::named("nanotron").unwrap();
    let constraints = Constraints::parse(&["rank_order=tp-cp-ep-pp-dp"], &[]).unwrap();
    let problem =
        Problem { constraints, ..Problem::new(&site.model, &site.cluster, &site.workload, &site.runtime) };
    let error = solve(&problem, &Silent).unwrap_err();
    assert!(error.to_string().contains("tp-cp-ep-dp-pp"), "{error}");
}

/// Hosts that a pipeline inside a node leaves out of its messages have no traffic between stages to place; gradients join them
/// all.
#[test]
fn demands_follow_the_order() {
    let mut site = Site::new("llama-3.1-8b", 32, 256, 1.0);
    site.cluster.matrix = Some(HostMatrix {
        hosts: site.cluster.host_names(),
        bandwidth_gb_per_second: vec![vec![50.0; 4]; 4],
        latency_us: Vec::new(),
        source: "made up".to_owned(),
    });
    let topology = Topology::new(&site.cluster).unwrap();
    let problem = Problem::new(&site.model, &site.cluster, &site.workload, &site.runtime);
    let slots = |parallel: &ParallelConfig| -> Vec<Vec<usize>> {
        let stages = default_stages(&site.model, parallel, SplitPolicy::Even, Placement::Loop).unwrap();
        let demands = Demands::of_layout(&problem, &topology, parallel, &stages).unwrap();
        let groups = demands.traffic().iter().flat_map(|kind| kind.groups());
        groups.map(|group| group.slots.clone()).collect()
    };
    let mut parallel = layout(2, 4, 4, 64);
    // Every stage has a host of its own: messages go from one to the next.
    assert_eq!(slots(&parallel), vec![vec![0, 1, 2, 3]]);
    parallel.rank_order = RankOrder::PpInside;
    // Every host has a pipeline of its own: the four stages reduce their gradients over all hosts.
    assert_eq!(slots(&parallel), vec![vec![0, 1, 2, 3]; 4]);
}
