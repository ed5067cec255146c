//! The layouts there are: every combination of degrees that fills the GPUs and the batch.
//!
//! A layout is chosen in two steps. A [`Mesh`] fixes the degrees that decide what a layer costs and how many microbatches
//! there are; a [`Pipeline`] then says which schedule runs how many chunks and what is recomputed, a [`Sharding`] where the
//! state lives and in which order its ranks are numbered ([`crate::orders`]). Rules that depend on a mesh alone are checked once for all its layouts.

use crate::choices::{recomputes, schedules};
use crate::constraint::Constraints;
use crate::divisors::{divisors, divisors_of_share};
use crate::mesh::{Mesh, Pipeline, Sharding, set_schedule};
use crate::orders::{allowed_orders, orders_of};
use crate::term::{Field, Term};
use cluster_profiles::Cluster;
use cost_models::modules::{Module, ModuleChoice};
use cost_models::rules::{Axis, Engine, Facts, RecomputeFreedom};
use cost_models::schedule::{Schedule, ScheduleKind, ScheduleShape};
use cost_models::{ParallelConfig, RankOrder, Recompute};
use std::collections::BTreeMap;

/// Layouts by the rule that excludes them.
pub type Pruned = BTreeMap<String, u64>;

/// All layouts of a run.
pub struct SearchSpace<'a> {
    pub(crate) facts: Facts,
    pub(crate) engine: &'static Engine,
    cluster: &'a Cluster,
    constraints: &'a Constraints,
    schedules: Vec<Schedule>,
    recomputes: Vec<Recompute>,
    freedom: RecomputeFreedom,
    rank_orders: Vec<RankOrder>,
}

/// The meshes of a space, and the layouts that no mesh is left for.
#[derive(Debug, Default)]
pub struct Meshes {
    /// Meshes that keep every rule a mesh can break, in the order of their degrees.
    pub list: Vec<Mesh>,
    /// Layouts of all meshes, legal or not.
    pub considered: u64,
    /// Layouts excluded, by rule.
    pub pruned: Pruned,
}

impl<'a> SearchSpace<'a> {
    /// The space of a run.
    #[must_use]
    pub fn new(
        facts: Facts,
        engine: &'static Engine,
        cluster: &'a Cluster,
        constraints: &'a Constraints,
    ) -> Self {
        let schedules = schedules(engine, constraints);
        let recomputes = recomputes(engine, constraints, false, &[]);
        let freedom = engine.recompute;
        let rank_orders = allowed_orders(engine, constraints);
        Self { facts, engine, cluster, constraints, schedules, recomputes, freedom, rank_orders }
    }

    /// The same where activations may wait in host memory, those of whole layers or of modules.
    #[must_use]
    pub fn with_offload(mut self, may_move: bool, modules: &[ModuleChoice]) -> Self {
        self.recomputes = recomputes(self.engine, self.constraints, may_move, modules);
        self
    }

    /// The same in the default order of the ranks alone.
    #[must_use]
    pub fn in_default_order(mut self) -> Self {
        self.rank_orders = vec![RankOrder::default()];
        self
    }

    /// The same where the launcher offers another recompute than its engine.
    #[must_use]
    pub const fn with_recompute(mut self, freedom: RecomputeFreedom) -> Self {
        self.freedom = freedom;
        self
    }

    /// How freely recompute is chosen.
    #[must_use]
    pub const fn freedom(&self) -> RecomputeFreedom {
        self.freedom
    }

    /// What the rules know.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// What may be recomputed.
    #[must_use]
    pub fn recomputes(&self) -> &[Recompute] {
        &self.recomputes
    }

    /// What repeats and moves just less, down to keeping all: of a choice of modules the one that moves fewer and repeats the
    /// same. None where that is not a choice of the space, and for numbers of layers. Of choices that move a share only keeping
    /// all is surely less: which layers a share falls on depends on the modules.
    #[must_use]
    pub fn keeps_more(&self, recompute: Recompute) -> Option<Recompute> {
        let choice = match recompute {
            Recompute::Modules(choice) => choice,
            Recompute::Selective | Recompute::Full { layers: None } => {
                return self.recomputes.contains(&Recompute::None).then_some(Recompute::None);
            }
            _ => return None,
        };
        let mut moved: Vec<Module> = choice.moved.iter().collect();
        while moved.pop().is_some() {
            if choice.percent < 100 && !moved.is_empty() {
                continue;
            }
            let less = match moved.is_empty() {
                true => Recompute::None,
                false => {
                    Recompute::Modules(ModuleChoice { moved: moved.iter().copied().collect(), ..choice })
                }
            };
            if self.recomputes.contains(&less) {
                return Some(less);
            }
        }
        None
    }

    /// Every mesh that keeps the rules and constraints a mesh can break.
    #[must_use]
    pub fn meshes(&self) -> Meshes {
        let mut meshes = Meshes::default();
        let mut scratch = ParallelConfig::default();
        let world = self.facts.world;
        let degrees = |able: bool, ranks: u64| if able { divisors(ranks) } else { vec![1] };
        for tp in degrees(self.engine.tensor, world) {
            for cp in degrees(self.engine.context, world / tp) {
                for pp in degrees(self.engine.pipeline, world / tp / cp) {
                    self.add_grid([tp, cp, pp, world / tp / cp / pp], &mut scratch, &mut meshes);
                }
            }
        }
        meshes
    }

    /// All meshes with these four degrees.
    fn add_grid(&self, [tp, cp, pp, dp]: [u64; 4], scratch: &mut ParallelConfig, meshes: &mut Meshes) {
        let degree = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let mut mesh = Mesh {
            tp: degree(tp),
            cp: degree(cp),
            pp: degree(pp),
            dp: degree(dp),
            ep: 1,
            etp: 1,
            sequence_parallel: false,
            micro_batch_size: 1,
            num_microbatches: 1,
        };
        let choices = self.layout_count(&mesh);
        let batches = divisors_of_share(self.facts.global_batch, dp);
        let experts = self.expert_grids(tp, pp);
        let sequences: &[bool] = if tp > 1 && self.engine.sequence { &[false, true] } else { &[false] };
        let count = batches.len().max(1) * experts.len() * sequences.len();
        let layouts = count as u64 * choices;
        meshes.considered += layouts;
        mesh.write(scratch);
        if let Some(rule) = self.grid_fault(scratch, batches.is_empty()) {
            *meshes.pruned.entry(rule).or_default() += layouts;
            return;
        }
        for &(ep, etp) in &experts {
            for &sequence_parallel in sequences {
                for &micro_batch_size in &batches {
                    mesh.ep = degree(ep);
                    mesh.etp = degree(etp);
                    mesh.sequence_parallel = sequence_parallel;
                    mesh.micro_batch_size = micro_batch_size;
                    mesh.num_microbatches = self.facts.global_batch / dp / micro_batch_size;
                    mesh.write(scratch);
                    match self.mesh_fault(scratch) {
                        Some(rule) => *meshes.pruned.entry(rule.to_owned()).or_default() += choices,
                        None => meshes.list.push(mesh),
                    }
                }
            }
        }
    }

    /// Expert degrees worth a look: ep over the divisors of the experts, etp 1 or those of tp.
    fn expert_grids(&self, tp: u64, pp: u64) -> Vec<(u64, u64)> {
        let Some(&experts) = self.facts.experts.first() else { return vec![(1, 1)] };
        let eps = if self.engine.expert { divisors(experts) } else { vec![1] };
        let etps = if self.engine.expert_tensor { divisors(tp) } else { vec![1] };
        let ranks = self.facts.world / pp;
        let grids = eps.iter().flat_map(|&ep| etps.iter().map(move |&etp| (ep, etp)));
        grids.filter(|(ep, etp)| ep * etp <= ranks).collect()
    }

    /// The first rule or constraint on tp, cp, pp and dp that is broken.
    fn grid_fault(&self, scratch: &mut ParallelConfig, no_batch: bool) -> Option<String> {
        if no_batch {
            return Some("M12".to_owned());
        }
        let fields = [Field::Axis(Axis::Tp), Field::Axis(Axis::Cp), Field::Axis(Axis::Pp), Field::Dp];
        let fixed = fields.iter().any(|&field| !self.constraints.allows_number(field, field.number(scratch)));
        if fixed || !self.grid_groups_allowed(scratch) {
            return Some("constraint".to_owned());
        }
        let rules = self.engine.rules.iter().filter(|rule| GRID_RULES.contains(&rule.id));
        let broken = rules.into_iter().find(|rule| !(rule.holds)(&self.facts, scratch));
        broken.map(|rule| rule.id.to_owned())
    }

    fn mesh_fault(&self, scratch: &mut ParallelConfig) -> Option<&'static str> {
        let fields = [
            Field::Axis(Axis::Ep),
            Field::Axis(Axis::Etp),
            Field::Axis(Axis::SequenceParallel),
            Field::Axis(Axis::MicroBatch),
            Field::Axis(Axis::Microbatches),
        ];
        if fields.iter().any(|&field| !self.constraints.allows_number(field, field.number(scratch)))
            || !self.groups_allowed(scratch, &[Field::Axis(Axis::Ep)])
        {
            return Some("constraint");
        }
        scratch.vpp = 1;
        scratch.zero_stage = self.engine.zero_stages.first().copied().unwrap_or(0);
        scratch.recompute = Recompute::None;
        set_schedule(scratch, "1f1b");
        self.engine.first_broken(&self.facts, scratch)
    }

    /// Whether the groups of tp, cp and pp may lie as they do in some order.
    fn grid_groups_allowed(&self, scratch: &mut ParallelConfig) -> bool {
        let fields = [Axis::Tp, Axis::Cp, Axis::Pp].map(Field::Axis);
        let allowed = self.rank_orders.iter().any(|&order| {
            scratch.rank_order = order;
            self.groups_allowed(scratch, &fields)
        });
        scratch.rank_order = RankOrder::default();
        allowed
    }

    fn groups_allowed(&self, parallel: &ParallelConfig, fields: &[Field]) -> bool {
        self.constraints.as_slice().iter().all(|constraint| match &constraint.term {
            Term::CrossNode(field) if fields.contains(field) => constraint.allows(parallel, self.cluster),
            _ => true,
        })
    }

    /// Number of layouts a mesh has, legal or not.
    #[must_use]
    pub fn layout_count(&self, mesh: &Mesh) -> u64 {
        let chunks = self.schedules_for(mesh).flat_map(|schedule| self.chunk_counts(schedule, mesh));
        let pipelines: usize = chunks
            .map(|vpp| if self.chooses_per_stage(mesh, vpp) { 1 } else { self.recomputes_of(mesh).count() })
            .sum();
        (self.orders(mesh).len() * self.state_shardings(mesh).len() * pipelines) as u64
    }

    /// Whether every stage may recompute what it must, independently of the others.
    fn chooses_per_stage(&self, mesh: &Mesh, vpp: u32) -> bool {
        let all = Recompute::Full { layers: None };
        let free = [Recompute::None, all].iter().all(|recompute| self.recomputes.contains(recompute));
        self.freedom == RecomputeFreedom::PerStage && mesh.pp > 1 && vpp == 1 && free
    }

    /// What the pipelines of a mesh with so many chunks may recompute.
    pub(crate) fn choices(&self, mesh: &Mesh, vpp: u32) -> Vec<(Recompute, bool)> {
        if self.chooses_per_stage(mesh, vpp) {
            return vec![(Recompute::Full { layers: None }, true)];
        }
        self.recomputes_of(mesh).map(|recompute| (recompute, false)).collect()
    }

    /// Those of whole layers are only moved where there is no pipeline.
    fn recomputes_of(&self, mesh: &Mesh) -> impl Iterator<Item = Recompute> + '_ {
        let single = mesh.pp == 1;
        let known = self.recomputes.iter().copied();
        known.filter(move |recompute| single || !matches!(recompute, Recompute::Offload { .. }))
    }

    /// What can run on a mesh without pipeline, whatever its micro batch.
    #[must_use]
    pub fn single_pipelines(&self, mesh: &Mesh) -> Vec<Pipeline> {
        let schedules = self.schedules_for(mesh);
        schedules
            .flat_map(|schedule| {
                let choices = self.choices(mesh, 1).into_iter();
                choices.map(move |(recompute, per_stage)| Pipeline { schedule, vpp: 1, recompute, per_stage })
            })
            .collect()
    }

    /// Whether a layout keeps every rule and constraint.
    #[must_use]
    pub fn allows(&self, parallel: &ParallelConfig) -> bool {
        self.fault(parallel).is_none()
    }

    pub(crate) fn fault(&self, parallel: &ParallelConfig) -> Option<&'static str> {
        if self.constraints.first_broken(parallel, self.cluster).is_some() {
            return Some("constraint");
        }
        self.engine.first_broken(&self.facts, parallel)
    }

    pub(crate) fn shape_fault(&self, schedule: Schedule, mesh: &Mesh, vpp: u32) -> Option<&'static str> {
        schedule.kind.check(&self.shape(mesh, vpp)).is_err().then_some("schedule")
    }

    /// The shape a schedule runs in, with the engine's groups of microbatches, as the cost model simulates it.
    pub(crate) fn shape(&self, mesh: &Mesh, vpp: u32) -> ScheduleShape {
        let microbatches = u32::try_from(mesh.num_microbatches).unwrap_or(u32::MAX);
        let shape = ScheduleShape::new(mesh.pp, microbatches).with_chunks(vpp);
        ScheduleShape { group_rule: self.engine.groups, ..shape }
    }

    /// A schedule that combines forwards with backwards, if there is one: none hides more expert traffic.
    #[must_use]
    pub fn combining(&self) -> Option<Schedule> {
        self.schedules.iter().copied().find(|schedule| schedule.kind.definition().combines)
    }

    /// Without a pipeline all schedules of whole microbatches are one, but for one that combines a forward with a backward.
    pub(crate) fn schedules_for(&self, mesh: &Mesh) -> impl Iterator<Item = Schedule> + '_ {
        let single = mesh.pp == 1;
        let one = |index: usize, schedule: Schedule| index == 0 || schedule.kind == ScheduleKind::Combined;
        let kept = self.schedules.iter().copied().enumerate();
        kept.filter(move |&(index, schedule)| !single || one(index, schedule)).map(|(_, schedule)| schedule)
    }

    /// Chunks per rank: what the schedule is made for; any number from two on for interleaved ones.
    pub(crate) fn chunk_counts(&self, schedule: Schedule, mesh: &Mesh) -> impl Iterator<Item = u32> + use<> {
        let default = schedule.kind.definition().default_chunks;
        let most = u32::try_from(self.facts.units / u64::from(mesh.pp)).unwrap_or(u32::MAX);
        let open = OPEN_CHUNKS.contains(&schedule.kind.name());
        if mesh.pp == 1 {
            1..=1
        } else if open {
            2..=most
        } else {
            default..=default
        }
    }

    /// The orders of the ranks that cost a mesh something else.
    fn orders(&self, mesh: &Mesh) -> &[RankOrder] {
        orders_of(&self.rank_orders, mesh, self.cluster)
    }

    /// The ways to shard the state of a mesh, in every order of the ranks that costs something else.
    #[must_use]
    pub fn shardings(&self, mesh: &Mesh) -> Vec<Sharding> {
        let own = self.state_shardings(mesh);
        let of_order =
            |&rank_order: &RankOrder| own.iter().map(move |sharding| Sharding { rank_order, ..*sharding });
        self.orders(mesh).iter().flat_map(of_order).collect()
    }

    /// The same in the default order. Without sharding there is nothing to replicate apart from the one group.
    #[must_use]
    pub fn state_shardings(&self, mesh: &Mesh) -> Vec<Sharding> {
        let replicas: Vec<u32> = if self.engine.hybrid_sharding {
            divisors(mesh.dp.into()).into_iter().filter_map(|divisor| u32::try_from(divisor).ok()).collect()
        } else {
            vec![1]
        };
        let sharded = |zero_stage: u8| {
            let shards = mesh.dp;
            let useful = replicas.iter().filter(move |&&replicas| replicas < shards || shards == 1);
            useful.map(move |&dp_replicate| Sharding { zero_stage, dp_replicate, ..Sharding::NONE })
        };
        let stages = self.engine.zero_stages.iter();
        stages
            .flat_map(|&zero| match zero {
                0 => vec![Sharding::NONE],
                _ => sharded(zero).collect(),
            })
            .collect()
    }
}

/// Rules that look at tp, cp, pp and dp only, given the least demanding other degrees.
const GRID_RULES: &[&str] = &["M1", "M5", "T6b", "M7", "M16", "M13", "P9", "P2"];

/// Schedules that run any number of chunks.
const OPEN_CHUNKS: &[&str] = &["interleaved-1f1b", "looped-bfs", "interleaved-zb", "combined-1f1b"];
