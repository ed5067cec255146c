//! Costs of pipeline stages: sums over their layers.

use super::data_parallel::{layer_sync, sharded_exposure};
use super::error::StepError;
use super::optimizer::OwnedParameters;
use super::shares::slowest;
use crate::layer_cost::{LayerContext, LayerCost, PassCost, Passes, RankParameters, layer_cost};
use crate::memory::{MemoryContext, ModuleBytes};
use crate::model::Layer;
use crate::module_offload::{self, Extent, MovedLayer, extents};
use crate::modules::ModuleChoice;
use crate::offload::{CopiedLayer, shared_rate, waits};
use crate::parallel::{ParallelConfig, Recompute};
use crate::run::TrainingRun;
use crate::sites::{Site, Sites};
use crate::stages::Stage;
use cluster_profiles::{Bytes, BytesPerSecond, Seconds};
use std::sync::Arc;

/// One microbatch through one stage on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageCost {
    /// Pipeline rank.
    pub rank: usize,
    /// Its three passes; the input gradient holds what is recomputed. A head that is split over all ranks is apart.
    pub passes: Passes,
    /// Bytes sent to the next stage.
    pub output: Bytes,
    /// Parameters of its layers on one rank.
    pub parameters: RankParameters,
    /// What reducing gradients and gathering parameters by layers takes outside the microbatches.
    pub sync: Seconds,
}

impl StageCost {
    /// Forward.
    #[must_use]
    pub fn forward(&self) -> Seconds {
        self.passes.forward.total()
    }

    /// Both gradients and the recompute.
    #[must_use]
    pub fn backward(&self) -> Seconds {
        self.passes.input_gradient.total() + self.passes.weight_gradient.total()
    }

    pub(super) fn add(&mut self, cost: &LayerCost, sync: Seconds) {
        let mut passes = Passes {
            forward: cost.forward,
            input_gradient: cost.input_gradient,
            weight_gradient: cost.weight_gradient,
        };
        passes.input_gradient += cost.recompute;
        self.passes += passes;
        self.output = cost.output;
        self.parameters += cost.parameters;
        self.sync += sync;
    }
}

/// The costs of all stages, in forward order.
#[derive(Debug, Clone, PartialEq)]
pub struct StageCosts {
    /// One entry per stage.
    pub stages: Vec<StageCost>,
    /// Pipeline ranks.
    pub ranks: usize,
    /// What every rank does of a head that is split over all of them, and its parameters.
    pub split_head: Option<(Passes, RankParameters)>,
    /// What every pipeline rank runs on; none where all run on the same.
    pub sites: Option<Arc<Sites>>,
    /// What every pipeline rank owns, where layers differ in it.
    pub owned: Option<Vec<OwnedParameters>>,
}

impl StageCosts {
    /// The stages of a run; with shares by kind of GPU, those of the kind that the others wait for.
    ///
    /// # Errors
    /// [`StepError::Shape`] if stages and model do not fit together.
    pub fn of(run: &TrainingRun) -> Result<Self, StepError> {
        check(run)?;
        let sites = Sites::of(run.cluster, run.parallel);
        if !run.parallel.shares.is_empty() {
            return slowest(run, sites.as_ref());
        }
        Self::at(run, sites.map(Arc::new))
    }

    /// The stages of a run whose pipeline ranks run on these sites.
    ///
    /// # Errors
    /// As [`Self::of`]; and if hosts that have to reach each other cannot.
    pub fn at(run: &TrainingRun, sites: Option<Arc<Sites>>) -> Result<Self, StepError> {
        if let Some([a, b]) = sites.as_ref().and_then(|sites| sites.broken.as_ref()) {
            return Err(StepError::Shape {
                what: "the link between hosts",
                value: format!("broken ({a} and {b})"),
                rule: "ranks of one group and of neighbouring stages have to reach each other".to_owned(),
            });
        }
        let split = super::op_costs::splits_head(run);
        let mut table = LayerTable::new(run, sites.as_deref(), split);
        let stages = run.stages.0.iter().map(|stage| table.stage(stage)).collect();
        let split_head = split.then(|| table.share_of_head());
        Ok(Self { stages, ranks: run.parallel.pp as usize, split_head, sites, owned: None })
    }

    /// The site of a pipeline rank, where ranks differ.
    #[must_use]
    pub fn site(&self, rank: usize) -> Option<&Site> {
        self.sites.as_ref()?.list.get(rank)
    }

    fn share(&self) -> Passes {
        self.split_head.map_or_else(Passes::default, |(passes, _)| passes)
    }

    /// Seconds by kind of one microbatch through all stages of a rank.
    #[must_use]
    pub fn rank_passes(&self, rank: usize) -> Passes {
        let own = self.stages.iter().filter(|stage| stage.rank == rank);
        own.fold(self.share(), |sum, stage| sum + stage.passes)
    }

    /// Seconds of one microbatch through all stages of a rank.
    #[must_use]
    pub fn rank_total(&self, rank: usize) -> Seconds {
        let own = self.stages.iter().filter(|stage| stage.rank == rank);
        own.map(|stage| stage.forward() + stage.backward()).sum::<Seconds>() + self.share().total()
    }

    /// Parameters of a rank.
    #[must_use]
    pub fn rank_parameters(&self, rank: usize) -> RankParameters {
        let mut sum = self.split_head.map_or_else(RankParameters::default, |(_, parameters)| parameters);
        self.stages.iter().filter(|stage| stage.rank == rank).for_each(|stage| sum += stage.parameters);
        sum
    }

    /// What a rank owns under a layout that all its layers have, unless they differ.
    #[must_use]
    pub fn rank_owned(&self, rank: usize, parallel: &ParallelConfig) -> OwnedParameters {
        let known = self.owned.as_ref().and_then(|owned| owned.get(rank)).copied();
        known.unwrap_or_else(|| OwnedParameters::of(parallel, self.rank_parameters(rank)))
    }

    /// What reducing gradients and gathering parameters by layers takes a rank outside the microbatches.
    #[must_use]
    pub fn rank_sync(&self, rank: usize) -> Seconds {
        self.stages.iter().filter(|stage| stage.rank == rank).map(|stage| stage.sync).sum()
    }

    /// The rank with the most work; the last of equal ones.
    #[must_use]
    pub fn busiest_rank(&self) -> usize {
        let time = |rank: &usize| self.rank_total(*rank).get();
        (0..self.ranks.max(1)).max_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(0)
    }
}

/// Costs of the layers met so far: most layers of a model are alike.
pub(super) struct LayerTable<'c, 'a> {
    /// Contexts of pipeline ranks that differ.
    contexts: Vec<LayerContext<'c>>,
    /// The context of every pipeline rank; all have the first where there is one only.
    of_rank: Vec<usize>,
    run: &'c TrainingRun<'a>,
    split: bool,
    entries: Vec<(usize, Layer, Recompute, (LayerCost, Seconds))>,
}

impl<'c, 'a> LayerTable<'c, 'a> {
    pub(super) fn new(run: &'c TrainingRun<'a>, sites: Option<&'c Sites>, split: bool) -> Self {
        let mut table = Self { contexts: Vec::new(), of_rank: Vec::new(), run, split, entries: Vec::new() };
        for site in sites.map_or(&[][..], |sites| &sites.list) {
            let known = table.contexts.iter().position(|context| context.site == Some(site));
            table.of_rank.push(known.unwrap_or(table.contexts.len()));
            if known.is_none() {
                table.contexts.push(LayerContext::on(run, Some(site)));
            }
        }
        if table.contexts.is_empty() {
            table.contexts.push(LayerContext::of(run));
        }
        table
    }
}

impl LayerTable<'_, '_> {
    fn stage(&mut self, stage: &Stage) -> StageCost {
        let mut cost = StageCost { rank: stage.rank as usize, ..StageCost::default() };
        let mut blocks = 0;
        for index in stage.layer_range() {
            let Some(layer) = self.run.model.layers.get(index).copied() else { continue };
            if self.split && matches!(layer, Layer::Head) {
                continue;
            }
            let recompute = match stage.recompute {
                Recompute::Full { layers: Some(limit) } if blocks >= limit => Recompute::None,
                other => other,
            };
            blocks += u32::from(layer.can_recompute());
            let context = self.of_rank.get(cost.rank).copied().unwrap_or(0);
            let (layer_cost, sync) = self.layer(context, &layer, recompute);
            cost.add(&layer_cost, sync);
        }
        let waits = match stage.recompute {
            Recompute::Offload { layers } => Some(self.copy_waits(stage, layers)),
            Recompute::Modules(choice) if !choice.moved.is_empty() => Some(self.module_waits(stage, choice)),
            _ => None,
        };
        if let Some([forward, backward]) = waits {
            cost.passes.forward.host += forward;
            cost.passes.input_gradient.host += backward;
        }
        cost
    }

    /// The rate of a GPU's copies each way and the time of an empty one, on the slowest node.
    fn host_link(&self) -> (BytesPerSecond, Seconds) {
        let nodes = || self.run.cluster.groups.iter().map(|group| &group.node);
        let slowest = nodes().map(shared_rate).min_by(|a, b| a.get().total_cmp(&b.get()));
        let latency = nodes().map(|node| node.host.latency).fold(Seconds::ZERO, Seconds::max);
        (slowest.unwrap_or(BytesPerSecond(f64::INFINITY)), latency)
    }

    /// Seconds that a microbatch waits for copies of what its modules save, in forward and backward.
    fn module_waits(&mut self, stage: &Stage, choice: ModuleChoice) -> [Seconds; 2] {
        let run = self.run;
        let context =
            MemoryContext::new(run.model, run.cluster, run.workload, run.runtime, run.parallel).ok();
        let (rate, latency) = self.host_link();
        let place = self.of_rank.get(stage.rank as usize).copied().unwrap_or(0);
        // Where a forward comes before the backward it is combined with, what was computed last is not used next.
        let stays = run.parallel.schedule != "combined-1f1b";
        let last = run.model.layers.iter().rposition(Layer::can_recompute).filter(|_| stays);
        let indices: Vec<usize> =
            stage.layer_range().filter(|&index| index < run.model.layers.len()).collect();
        let bytes = |&index: &usize| context.as_ref().map(|own| own.layer_memory(index).modules);
        let modules: Vec<ModuleBytes> =
            indices.iter().map(|index| bytes(index).unwrap_or_default()).collect();
        let copies: Vec<u8> = modules.iter().map(|bytes| bytes.copies).collect();
        let mut layers: Vec<MovedLayer> = Vec::new();
        for ((&index, bytes), extent) in indices.iter().zip(&modules).zip(extents(choice, &copies)) {
            let layer = run.model.layers[index];
            if !layer.can_recompute() {
                continue;
            }
            let (cost, _) = self.layer(place, &layer, stage.recompute);
            let copy = latency * f64::from(bytes.copies) + bytes.copied / rate;
            let moves = extent != Extent::Stays && Some(index) != last;
            layers.push(MovedLayer {
                forward: cost.forward.total().get(),
                backward: cost.backward().total().get(),
                copy: if moves { copy.get() } else { 0.0 },
            });
        }
        module_offload::waits(&layers)
    }

    /// Seconds that a microbatch waits for copies of its activations, in forward and backward.
    fn copy_waits(&mut self, stage: &Stage, moved: u32) -> [Seconds; 2] {
        let run = self.run;
        let context =
            MemoryContext::new(run.model, run.cluster, run.workload, run.runtime, run.parallel).ok();
        let (rate, latency) = self.host_link();
        let place = self.of_rank.get(stage.rank as usize).copied().unwrap_or(0);
        let mut layers: Vec<CopiedLayer> = Vec::new();
        for index in stage.layer_range() {
            let Some(layer) = run.model.layers.get(index).copied().filter(Layer::can_move) else { continue };
            let saved = context.as_ref().map_or(Bytes::ZERO, |context| context.layer_memory(index).saved);
            let (cost, _) = self.layer(place, &layer, Recompute::None);
            layers.push(CopiedLayer {
                forward: cost.forward.total().get(),
                backward: cost.backward().total().get(),
                copy: (latency + saved / rate).get(),
            });
        }
        waits(&layers, moved as usize)
    }

    /// One rank's share of a head that all ranks split: what the slowest takes.
    fn share_of_head(&mut self) -> (Passes, RankParameters) {
        let heads = (0..self.contexts.len()).map(|context| {
            let mut head = StageCost::default();
            let (cost, sync) = self.layer(context, &Layer::Head, Recompute::None);
            head.add(&cost, sync);
            head
        });
        let slowest = heads.reduce(|a, b| if b.passes.total() > a.passes.total() { b } else { a });
        let head = slowest.unwrap_or_default();
        let share = 1.0 / f64::from(self.run.parallel.pp);
        let parameters =
            RankParameters { dense: head.parameters.dense * share, expert: head.parameters.expert * share };
        (head.passes * share, parameters)
    }

    /// The cost of a layer, and what its synchronisation takes outside the microbatches.
    pub(super) fn layer(
        &mut self,
        index: usize,
        layer: &Layer,
        recompute: Recompute,
    ) -> (LayerCost, Seconds) {
        let known = self.entries.iter().find(|(own, l, r, _)| *own == index && *r == recompute && l == layer);
        if let Some((.., known)) = known {
            return *known;
        }
        let context = &self.contexts[index];
        let mut cost = layer_cost(context, layer, recompute);
        let (forward, backward) = sharded_exposure(self.run, context, &cost);
        cost.forward += PassCost { dp: forward, ..PassCost::default() };
        cost.input_gradient += PassCost { dp: backward, ..PassCost::default() };
        let sync = layer_sync(self.run, context, cost.parameters);
        self.entries.push((index, *layer, recompute, (cost, sync)));
        (cost, sync)
    }
}

pub(super) fn check(run: &TrainingRun) -> Result<(), StepError> {
    let parallel = run.parallel;
    let refuse =
        |what, value: String, rule: &str| Err(StepError::Shape { what, value, rule: rule.to_owned() });
    let degrees = [
        ("tp", parallel.tp),
        ("pp", parallel.pp),
        ("vpp", parallel.vpp),
        ("cp", parallel.cp),
        ("ep", parallel.ep),
        ("etp", parallel.etp),
        ("dp_replicate", parallel.dp_replicate),
        ("dp_shard", parallel.dp_shard),
    ];
    if let Some((what, value)) = degrees.into_iter().find(|(_, degree)| *degree == 0) {
        return refuse(what, value.to_string(), "a degree is at least 1");
    }
    if parallel.num_microbatches == 0 || parallel.micro_batch_size == 0 || run.workload.seq_len == 0 {
        return refuse("batch", "0".to_owned(), "a step needs at least one token");
    }
    let mut next = 0;
    for stage in &run.stages.0 {
        if stage.rank >= parallel.pp {
            return refuse("stages.rank", stage.rank.to_string(), "ranks go from 0 to pp - 1");
        }
        let range = stage.layer_range();
        if range.is_empty() {
            continue;
        }
        if range.start != next {
            return refuse("stages.layers", format!("{range:?}"), "stages hold every layer once, in order");
        }
        next = range.end;
    }
    if next != run.model.layers.len() {
        let rule = format!("stages hold every layer once; the model has {}", run.model.layers.len());
        return refuse("stages", format!("{next} layers"), &rule);
    }
    Ok(())
}
