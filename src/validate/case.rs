//! A row, turned into the training run it describes.

use super::engine::facts;
use super::fields::Fault;
use super::hardware::{Hardware, assumed};
use super::inherit::Inherited;
use super::layout::{Layout, layout};
use super::models::Models;
use super::row::RunRow;
use super::stages::stages;
use super::switches::set_memory_switches;
use super::words::Kind;
use cluster_profiles::Cluster;
use cost_models::{
    Assumption, ModelSpec, ParallelConfig, Recompute, Runtime, StageMap, TrainingRun, Workload,
};

/// A published run and everything a prediction of it needs.
#[derive(Debug, Clone)]
pub struct RunCase {
    /// The row.
    pub row: RunRow,
    /// The model.
    pub model: ModelSpec,
    /// The cluster.
    pub cluster: Cluster,
    /// The step.
    pub workload: Workload,
    /// The engine.
    pub runtime: Runtime,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// Layers of every stage.
    pub stages: StageMap,
    /// Whether the row says what is recomputed.
    pub recompute_stated: bool,
    /// What was inferred.
    pub assumptions: Vec<Assumption>,
}

/// What rows are interpreted with.
#[derive(Debug)]
pub struct Context<'a> {
    /// The architectures.
    pub models: &'a Models,
    /// The catalogue.
    pub hardware: &'a Hardware,
}

impl Context<'_> {
    /// The run a row describes.
    ///
    /// # Errors
    /// Every fault that keeps it from being predicted.
    pub fn case(&self, row: &RunRow, inherited: &Inherited) -> Result<RunCase, Vec<Fault>> {
        let fault = |column, value: &str, message: String| vec![Fault::new(row.line, column, value, message)];
        refuse_other_tasks(row)?;
        let mut assumptions = Vec::new();
        let model = self.models.get(&row.model).map_err(|reason| fault("model", &row.model, reason))?;
        let cluster = self.hardware.cluster(row, &mut assumptions).map_err(|fault| vec![fault])?;
        if let Some(from) = &inherited.from {
            assumptions.push(assumed(format!("graphs, expert overlap, recompute and offload as in {from}")));
        }
        if row.private_engine {
            assumptions.push(assumed("a private engine, taken for megatron-core".to_owned()));
        }
        let Layout { parallel, workload, recompute_stated } =
            layout(row, model, inherited, &mut assumptions)?;
        let mut runtime = Runtime::for_run(&row.runtime, &facts(row, cluster.gpu(), inherited))
            .map_err(|error| fault("runtime", &row.runtime, error.to_string()))?;
        set_memory_switches(&mut runtime, row);
        let stages = stages(row, model, &parallel, &runtime, &mut assumptions)
            .map_err(|error| fault("pp", &parallel.pp.to_string(), error.to_string()))?;
        let (row, model) = (row.clone(), model.clone());
        Ok(RunCase {
            row,
            model,
            cluster,
            workload,
            runtime,
            parallel,
            stages,
            recompute_stated,
            assumptions,
        })
    }
}

/// Rows that are no plain optimizer step.
fn refuse_other_tasks(row: &RunRow) -> Result<(), Vec<Fault>> {
    let refuse = |column, value: &str, message: &str| Err(vec![Fault::new(row.line, column, value, message)]);
    if row.kind == Kind::LayerTime {
        return refuse("kind", "layer-time", "is the time of one layer, not of a step");
    }
    if row.notes.contains("LoRA fine") || row.notes.contains("task=LoRA") {
        return refuse("notes", "LoRA", "freezes most weights, which is not modelled");
    }
    Ok(())
}

impl RunCase {
    /// The run, for the cost model.
    #[must_use]
    pub fn training_run(&self) -> TrainingRun<'_> {
        TrainingRun {
            model: &self.model,
            cluster: &self.cluster,
            workload: &self.workload,
            runtime: &self.runtime,
            parallel: &self.parallel,
            stages: &self.stages,
        }
    }

    /// What the engine can recompute, the least first. Megatron-Core recomputes any number of a stage's layers; NeMo
    /// AutoModel has one switch, for all.
    #[must_use]
    pub fn recompute_choices(&self) -> Vec<Recompute> {
        let full = Recompute::Full { layers: None };
        if self.row.framework.contains("AutoModel") {
            return vec![full];
        }
        let most = self.stages.0.iter().map(|stage| stage.layer_range().len()).max().unwrap_or(0);
        let some = 1..if self.runtime.name == "megatron-core" { most as u32 } else { 1 };
        let some = some.map(|layers| Recompute::Full { layers: Some(layers) });
        std::iter::once(Recompute::Selective).chain(some).chain([full]).collect()
    }

    /// The same run with `recompute` in every stage.
    #[must_use]
    pub fn with_recompute(&self, recompute: Recompute) -> Self {
        let mut case = self.clone();
        case.parallel.recompute = recompute;
        case.stages = case.stages.with_recompute(recompute);
        case.assumptions.push(assumed(format!("recompute {recompute}, not stated")));
        case
    }
}
