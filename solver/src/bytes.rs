//! What every unit of the model needs in memory: running sums that no rank's true peak is below.

use crate::families::least_middle;
use crate::mesh::Mesh;
use crate::problem::Problem;
use crate::times::Mode;
use crate::units::Units;
use cost_models::memory::{LayerMemory, MemoryContext, MemoryError};
use cost_models::model::Layer;
use cost_models::schedule::{Schedule, ScheduleKind, Vocabulary};
use cost_models::{ParallelConfig, Recompute};
use std::ops::Range;

/// Bytes of the units of a model under one layout, and the room for them on a GPU.
#[derive(Debug, Clone)]
pub struct UnitBytes {
    /// Parameters, gradients and optimizer state before each unit.
    state: Vec<f64>,
    /// Saved activations of a microbatch before each unit, by mode.
    saved: [Vec<f64>; 3],
    /// What the limit leaves for state and activations.
    room: f64,
    /// The least state, and the least saved bytes by mode, of a block.
    leanest: (f64, [f64; 3]),
    /// State, and saved bytes by mode, of a unit of every kind.
    kinds: Vec<(f64, [f64; 3])>,
}

impl UnitBytes {
    /// The table of a layout.
    ///
    /// # Errors
    /// [`MemoryError`] for degrees or sizes of 0.
    pub fn new(problem: &Problem, units: &Units, parallel: &ParallelConfig) -> Result<Self, MemoryError> {
        let context =
            MemoryContext::new(problem.model, problem.cluster, problem.workload, problem.runtime, parallel)?;
        let uncertain = keeps_elsewhere(problem);
        let kinds: Vec<(f64, [f64; 3])> = units
            .kinds()
            .iter()
            .map(|kind| unit_bytes(problem, &context, kind.layers.clone(), uncertain))
            .collect();
        let count = units.len() + 1;
        let sums = || {
            let mut sums = Vec::with_capacity(count);
            sums.push(0.0);
            sums
        };
        let mut table = Self {
            state: sums(),
            saved: [sums(), sums(), sums()],
            room: room(problem, &context),
            leanest: (f64::INFINITY, [f64::INFINITY; 3]),
            kinds,
        };
        for unit in units.as_slice() {
            let (state, saved) = table.kinds[unit.kind];
            table.push(state, saved);
            if unit.body {
                table.leanest.0 = table.leanest.0.min(state);
                table.leanest.1.iter_mut().zip(saved).for_each(|(least, bytes)| *least = least.min(bytes));
            }
        }
        Ok(table)
    }

    fn push(&mut self, state: f64, saved: [f64; 3]) {
        let next = |sums: &[f64], value: f64| sums.last().copied().unwrap_or(0.0) + value;
        self.state.push(next(&self.state, state));
        for (sums, bytes) in self.saved.iter_mut().zip(saved) {
            let sum = next(sums, bytes);
            sums.push(sum);
        }
    }

    /// Whether a rank with these units, of which `in_flight` microbatches are held, may fit. Never false for one that does.
    #[must_use]
    pub fn may_fit(&self, units: &Range<usize>, mode: Mode, in_flight: f64) -> bool {
        let saved = &self.saved[mode as usize];
        let state = self.state[units.end] - self.state[units.start];
        state + in_flight * (saved[units.end] - saved[units.start]) <= self.room * (1.0 + 1e-12)
    }

    /// The same with the units `again` recomputed fully and the others not at all.
    #[must_use]
    pub fn may_fit_in_part(&self, units: &Range<usize>, again: &Range<usize>, in_flight: f64) -> bool {
        let of = |sums: &[f64], range: &Range<usize>| sums[range.end] - sums[range.start];
        let [keep, _, full] = &self.saved;
        let saved = of(keep, units) - of(keep, again) + of(full, again);
        of(&self.state, units) + in_flight * saved <= self.room * (1.0 + 1e-12)
    }

    /// The same with what the units `moved` save elsewhere: at the end of the forward they hold nothing.
    #[must_use]
    pub fn may_fit_without(&self, units: &Range<usize>, moved: &Range<usize>, in_flight: f64) -> bool {
        let of = |sums: &[f64], range: &Range<usize>| sums[range.end] - sums[range.start];
        let saved = of(&self.saved[0], units) - of(&self.saved[0], moved);
        of(&self.state, units) + in_flight * saved <= self.room * (1.0 + 1e-12)
    }

    /// Whether selective recompute saves nothing less.
    #[must_use]
    pub fn selects_none(&self) -> bool {
        self.saved[Mode::Keep as usize] == self.saved[Mode::Selective as usize]
    }

    /// State of some units, and what a microbatch saves of them.
    #[must_use]
    pub fn stage(&self, units: &Range<usize>, again: &Range<usize>, mode: Mode) -> (f64, f64) {
        let of = |sums: &[f64], range: &Range<usize>| sums[range.end] - sums[range.start];
        let state = of(&self.state, units);
        match mode {
            Mode::Full => {
                let [keep, _, full] = &self.saved;
                (state, of(keep, units) - of(keep, again) + of(full, again))
            }
            other => (state, of(&self.saved[other as usize], units)),
        }
    }

    /// State of some units and what `in_flight` microbatches save of them.
    #[must_use]
    pub fn held(&self, units: &Range<usize>, mode: Mode, in_flight: f64) -> f64 {
        let of = |sums: &[f64]| sums[units.end] - sums[units.start];
        of(&self.state) + in_flight * of(&self.saved[mode as usize])
    }

    /// The least state of a block, and the least that a microbatch saves of one.
    #[must_use]
    pub fn leanest(&self, mode: Mode) -> (f64, f64) {
        (self.leanest.0, self.leanest.1[mode as usize])
    }

    /// Whether so many bytes of state and activations may fit.
    #[must_use]
    pub fn bytes_may_fit(&self, bytes: f64) -> bool {
        bytes <= self.room * (1.0 + 1e-12)
    }

    /// Whether a rank with so many blocks may fit.
    #[must_use]
    pub fn blocks_may_fit(&self, blocks: usize, mode: Mode, in_flight: f64) -> bool {
        let (state, saved) = self.leanest;
        blocks == 0 || blocks as f64 * (state + in_flight * saved[mode as usize]) <= self.room * (1.0 + 1e-12)
    }

    /// What the limit leaves for state and activations.
    #[must_use]
    pub fn room(&self) -> f64 {
        self.room.max(0.0) * (1.0 + 1e-12)
    }

    /// State of a unit of a kind, and what it saves of `in_flight` microbatches.
    #[must_use]
    pub fn of_kind(&self, kind: usize, mode: Mode, in_flight: f64) -> f64 {
        let (state, saved) = self.kinds[kind];
        state + in_flight * saved[mode as usize]
    }

    /// Whether the average rank may fit: if not, no split of the model does.
    #[must_use]
    pub fn average_may_fit(&self, ranks: f64, mode: Mode, in_flight: f64) -> bool {
        let last = |sums: &[f64]| sums.last().copied().unwrap_or(0.0);
        last(&self.state) + in_flight * last(&self.saved[mode as usize]) <= self.room * ranks * (1.0 + 1e-12)
    }
}

/// Whether the average of `ranks` ranks may fit with one microbatch in flight, without a table of every unit. Without a mode
/// nothing is saved.
#[must_use]
pub fn average_may_fit(
    problem: &Problem,
    units: &Units,
    parallel: &ParallelConfig,
    ranks: f64,
    mode: Option<Mode>,
) -> bool {
    let context =
        MemoryContext::new(problem.model, problem.cluster, problem.workload, problem.runtime, parallel);
    let Ok(context) = context else { return false };
    let uncertain = keeps_elsewhere(problem);
    let needed: f64 = units
        .kinds()
        .iter()
        .map(|kind| {
            let (state, saved) = unit_bytes(problem, &context, kind.layers.clone(), uncertain);
            f64::from(kind.count) * (state + mode.map_or(0.0, |mode| saved[mode as usize]))
        })
        .sum();
    needed <= room(problem, &context) * ranks * (1.0 + 1e-12)
}

/// Whether the runtime may keep activations elsewhere than a split's modes say.
fn keeps_elsewhere(problem: &Problem) -> bool {
    let facts = &problem.runtime.facts;
    facts.offloaded_layers > 0 || facts.recompute_every.is_some()
}

/// State and saved bytes, by mode, of a unit; nothing saved where the runtime may keep it elsewhere.
fn unit_bytes(
    problem: &Problem,
    context: &MemoryContext,
    layers: Range<usize>,
    uncertain: bool,
) -> (f64, [f64; 3]) {
    let (mut state, mut saved) = (0.0, [0.0; 3]);
    let recompute = context.parallel.recompute;
    for index in layers {
        let memory = context.layer_memory(index);
        state += memory.state.resident().get();
        let shares =
            if uncertain { [0.0; 3] } else { saved_bytes(&problem.model.layers[index], &memory, recompute) };
        saved.iter_mut().zip(shares).for_each(|(sum, bytes)| *sum += bytes);
    }
    (state, saved)
}

/// Only blocks are ever recomputed.
fn saved_bytes(layer: &Layer, memory: &LayerMemory, recompute: Recompute) -> [f64; 3] {
    if !layer.can_recompute() {
        return [memory.saved.get(); 3];
    }
    Mode::ALL.map(|mode| match mode.recompute(recompute) {
        // At the least nothing is under way.
        Recompute::Modules(_) => memory.modules.kept.get(),
        other => memory.saved_bytes(other).get(),
    })
}

fn room(problem: &Problem, context: &MemoryContext) -> f64 {
    let reserve = &problem.runtime.memory.reserve;
    let allocated = (problem.limit().get() - reserve.bytes) / reserve.ratio.max(1e-9);
    allocated - context.workspace_bytes() - context.mask_bytes()
}

/// Microbatches of all its stages that a rank holds at least when it holds most, no fewer than a rank behind it; `layers` are
/// those dealt out over the stages.
#[must_use]
pub fn least_in_flight(schedule: Schedule, mesh: &Mesh, vpp: u32, rank: u32, layers: usize) -> f64 {
    if schedule.vocabulary != Vocabulary::Whole {
        return 0.0;
    }
    let (m, p) = (mesh.num_microbatches, u64::from(mesh.pp));
    match schedule.kind {
        ScheduleKind::Gpipe => m as f64,
        ScheduleKind::OneFOneB => m.min(p - u64::from(rank)) as f64,
        ScheduleKind::Interleaved | ScheduleKind::Combined => interleaved_in_flight(mesh, vpp, rank, layers),
        _ => 1.0,
    }
}

/// After the warm-up a rank holds p microbatches of every chunk but its last, and of that one at most as many. The last
/// chunk has no more than the share that the splits of several chunks give it.
fn interleaved_in_flight(mesh: &Mesh, vpp: u32, rank: u32, layers: usize) -> f64 {
    let (m, p) = (mesh.num_microbatches, u64::from(mesh.pp));
    let last_chunk = m.min(p).min(2 * (p - 1 - u64::from(rank)) + 1) as f64;
    let least = least_middle(layers, (mesh.pp * vpp) as usize);
    if least == 0 || vpp < 2 {
        return last_chunk;
    }
    let share = (least + 1) as f64 / ((vpp - 1) as f64 * least as f64);
    last_chunk.max(m.min(p) as f64 * (1.0 - share))
}

/// Microbatches of one of its chunks that a rank of an interleaved schedule holds after the warm-up.
#[must_use]
pub fn held_of_chunk(mesh: &Mesh, vpp: u32, rank: u32, chunk: u32) -> f64 {
    let (m, p) = (mesh.num_microbatches, u64::from(mesh.pp));
    let tail = 2 * (p - 1 - u64::from(rank)) + 1;
    let held = match chunk {
        _ if chunk + 1 == vpp => p.min(tail),
        0 => p + tail.saturating_sub(p).min(p),
        _ => p,
    };
    held.min(m) as f64
}
