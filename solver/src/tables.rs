//! What is computed once for a mesh and serves all its pipelines.

use crate::bytes::UnitBytes;
use crate::mesh::{Mesh, Sharding, set_schedule};
use crate::objective::Objective;
use crate::outside::outside_bound;
use crate::problem::Problem;
use crate::times::UnitTimes;
use crate::units::Units;
use cost_models::modules::ModuleChoice;
use cost_models::schedule::Schedule;
use cost_models::{ParallelConfig, Recompute};
use std::cmp::Reverse;
use std::sync::OnceLock;

/// A sharding of the state, and the seconds it costs outside the pipeline at least.
#[derive(Debug, Clone)]
pub struct Sharded {
    /// The sharding.
    pub sharding: Sharding,
    /// The mesh with it: no recompute, no chunks.
    pub parallel: ParallelConfig,
    /// Seconds outside the pipeline, at least.
    pub outside: f64,
}

/// Times and bytes of every unit.
type TimesAndBytes = (UnitTimes, UnitBytes);

/// Times and bytes of a mesh's units.
#[derive(Debug)]
pub struct Tables {
    /// The mesh.
    pub mesh: Mesh,
    /// Times of every unit; with one pipeline rank, under the only sharding.
    pub times: UnitTimes,
    /// Bytes of every unit, under the sharding with least state.
    pub bytes: UnitBytes,
    /// Shardings, least traffic first; at least one.
    pub shardings: Vec<Sharded>,
    /// Whether selective recompute repeats nothing and saves nothing less.
    selects_none: bool,
    /// The same times and bytes under choices of modules, made when they are asked for.
    modules: Vec<(ModuleChoice, OnceLock<Option<TimesAndBytes>>)>,
}

impl Tables {
    /// The tables of a mesh with these shardings for a schedule (those of one that combines forwards with backwards are
    /// apart: expert traffic hides there); none if there is no sharding, or the sizes make no sense. Only values below the
    /// cutoff matter: a rank whose work alone takes as long is none to hide traffic behind.
    #[must_use]
    pub fn new(
        problem: &Problem,
        units: &Units,
        mesh: &Mesh,
        shardings: &[Sharding],
        schedule: Schedule,
        cutoff: f64,
    ) -> Option<Self> {
        let sharded = |sharding: &Sharding| {
            let mut parallel = mesh.sharded(*sharding);
            set_schedule(&mut parallel, &schedule.to_string());
            Sharded { sharding: *sharding, parallel, outside: 0.0 }
        };
        let mut list: Vec<Sharded> = shardings.iter().map(sharded).collect();
        let lean = leanest(&list)?;
        let times = UnitTimes::new(problem, units, &lean.parallel);
        let bytes = UnitBytes::new(problem, units, &lean.parallel).ok()?;
        let matters = problem.objective == Objective::StepTime && cutoff.is_finite();
        let longest = matters.then(|| cutoff / mesh.num_microbatches as f64);
        for sharded in &mut list {
            sharded.outside = outside_bound(problem, &sharded.parallel, &times, longest);
        }
        list.sort_by(|a, b| a.outside.total_cmp(&b.outside));
        let selects_none = times.selects_none() && bytes.selects_none();
        Some(Self { mesh: *mesh, times, bytes, shardings: list, selects_none, modules: Vec::new() })
    }

    /// The same, which also knows the choices of modules among these recomputes.
    #[must_use]
    pub fn with_modules(mut self, recomputes: &[Recompute]) -> Self {
        let choices = recomputes.iter().filter_map(|recompute| match recompute {
            Recompute::Modules(choice) => Some(*choice),
            _ => None,
        });
        self.modules = choices.map(|choice| (choice, OnceLock::new())).collect();
        self
    }

    /// Times and bytes of every unit under a recompute: of choices of modules their own, in which what is kept stands for what
    /// the choice makes of it.
    #[must_use]
    pub fn under(&self, problem: &Problem, units: &Units, recompute: Recompute) -> (&UnitTimes, &UnitBytes) {
        let of = |choice| self.modules.iter().find(|(own, _)| *own == choice);
        let own = match recompute {
            Recompute::Modules(choice) => of(choice).and_then(|(_, own)| {
                own.get_or_init(|| {
                    let parallel = ParallelConfig { recompute, ..self.leanest()?.parallel.clone() };
                    let bytes = UnitBytes::new(problem, units, &parallel).ok()?;
                    Some((UnitTimes::new(problem, units, &parallel), bytes))
                })
                .as_ref()
            }),
            _ => None,
        };
        own.map_or((&self.times, &self.bytes), |(times, bytes)| (times, bytes))
    }

    /// The recompute that takes as long and keeps as much, if another does: nothing, where a runtime's selective recompute finds
    /// nothing to repeat.
    #[must_use]
    pub fn same(&self, recompute: Recompute) -> Option<Recompute> {
        (self.selects_none && recompute == Recompute::Selective).then_some(Recompute::None)
    }

    /// Seconds outside the pipeline, at least.
    #[must_use]
    pub fn outside(&self) -> f64 {
        self.shardings.first().map_or(0.0, |sharded| sharded.outside)
    }

    /// The sharding with the least state on a rank.
    #[must_use]
    pub fn leanest(&self) -> Option<&Sharded> {
        leanest(&self.shardings)
    }
}

fn leanest(shardings: &[Sharded]) -> Option<&Sharded> {
    shardings
        .iter()
        .max_by_key(|sharded| (sharded.sharding.zero_stage, Reverse(sharded.sharding.dp_replicate)))
}
