//! What is computed once for a mesh and serves all its pipelines.

use crate::bytes::UnitBytes;
use crate::mesh::{Mesh, Sharding, set_schedule};
use crate::outside::outside_bound;
use crate::problem::Problem;
use crate::times::UnitTimes;
use crate::units::Units;
use cost_models::ParallelConfig;
use cost_models::schedule::Schedule;
use std::cmp::Reverse;

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
}

impl Tables {
    /// The tables of a mesh with these shardings for a schedule (those of one that combines forwards with backwards are
    /// apart: expert traffic hides there); none if there is no sharding, or the sizes make no sense.
    #[must_use]
    pub fn new(
        problem: &Problem,
        units: &Units,
        mesh: &Mesh,
        shardings: &[Sharding],
        schedule: Schedule,
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
        for sharded in &mut list {
            sharded.outside = outside_bound(problem, &sharded.parallel, &times);
        }
        list.sort_by(|a, b| a.outside.total_cmp(&b.outside));
        Some(Self { mesh: *mesh, times, bytes, shardings: list })
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
