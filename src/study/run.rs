//! Plans the points of a study on all cores and writes a row for each as it is done.

use super::draft::Ready;
use super::file::Study;
use super::journal::{Journal, Manifest, SCHEMA};
use super::row::{Cell, Column, columns, infeasible, invalid, planned};
use super::work::Units;
use crate::error::AppError;
use crate::inputs;
use crate::{Answer, Wishes};
use cost_models::step::Makespans;
use sha2::{Digest, Sha256};
use solver::{Objective, Silent};
use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows that are held before they are written.
const ROWS: usize = 256;

/// How a run is watched.
pub trait Watch: Sync {
    /// How many points there are, and how many were done before.
    fn begin(&self, _points: u64, _done: u64) {}
    /// Some more points are done.
    fn advance(&self, _points: u64) {}
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Points of this shard.
    pub points: u64,
    /// Points that were done before.
    pub before: u64,
}

/// The manifest of a study, or of one shard of it.
#[must_use]
pub fn manifest(study: &Study, shard: [u64; 2]) -> Manifest {
    let columns = columns(study);
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    for column in &columns {
        digest.update(format!("\n{}", column.name));
    }
    digest.update(&study.text);
    for (name, sum) in study.library.digests() {
        digest.update(format!("\n{name} {sum}"));
    }
    let points = if study.skip.is_empty() { study.grid_size() } else { study.points().count() as u64 };
    Manifest {
        schema: SCHEMA.to_owned(),
        name: study.name.clone(),
        digest: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        points,
        shard,
        columns,
        study: study.text.clone(),
    }
}

/// What all workers share.
struct Shared<'a, I> {
    study: &'a Study,
    units: &'a Units<'a>,
    columns: &'a [Column],
    done: &'a BTreeSet<u64>,
    queue: Mutex<I>,
    journal: Mutex<Journal>,
    failure: Mutex<Option<AppError>>,
    /// What points have in common: those that differ in memory or links alone try many of the same pipelines.
    makespans: Arc<Makespans>,
    watch: &'a dyn Watch,
}

/// Plans every point of a shard that the folder does not have yet.
///
/// # Errors
/// The folder belongs to something else, another run has it open, or a row cannot be written. Rows written before stay, and
/// the next run goes on behind them.
pub fn run(study: &Study, folder: &Path, shard: [u64; 2], watch: &dyn Watch) -> Result<Done, AppError> {
    let manifest = manifest(study, shard);
    let journal = Journal::open(folder, &manifest)?;
    let units = Units::new(study);
    let done: BTreeSet<u64> = journal.entries().iter().map(|entry| entry.point).collect();
    let points = if shard[1] == 1 {
        manifest.points
    } else {
        units.of_shard(shard).map(|unit| units.points(unit).len() as u64).sum()
    };
    let result = Done { points, before: done.len() as u64 };
    watch.begin(points, result.before);
    let shared = Shared {
        study,
        units: &units,
        columns: &manifest.columns,
        done: &done,
        queue: Mutex::new(units.of_shard(shard)),
        journal: Mutex::new(journal),
        failure: Mutex::new(None),
        makespans: Arc::default(),
        watch,
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| shared.work());
        }
    });
    if let Some(error) = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    shared.journal.into_inner().unwrap_or_else(PoisonError::into_inner).sync()?;
    Ok(result)
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<I: Iterator<Item = u64>> Shared<'_, I> {
    /// Takes units until there are none. A search runs on its worker's thread alone: the study is what is parallel.
    fn work(&self) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        let next = || held(&self.queue).next();
        while let Some(unit) = next() {
            if held(&self.failure).is_some() {
                break;
            }
            let done = self.plan_unit(unit, pool.as_ref().ok());
            if let Err(error) = done {
                held(&self.failure).get_or_insert(error);
                break;
            }
        }
    }

    /// Plans what is not done of a unit: one search.
    fn plan_unit(&self, unit: u64, pool: Option<&rayon::ThreadPool>) -> Result<(), AppError> {
        let mut points = self.units.points(unit);
        points.retain(|point| !self.done.contains(point));
        let mut search = Search::new(self.study, self.columns, Arc::clone(&self.makespans));
        for points in points.chunks(ROWS) {
            let mut plan = || points.iter().map(|point| search.row(*point)).collect::<Vec<_>>();
            let rows = match pool {
                Some(pool) => pool.install(plan),
                None => plan(),
            };
            self.record(points, &rows)?;
            self.watch.advance(points.len() as u64);
        }
        Ok(())
    }

    fn record(&self, points: &[u64], rows: &[Vec<Cell>]) -> Result<(), AppError> {
        let mut journal = held(&self.journal);
        points.iter().zip(rows).try_for_each(|(point, row)| journal.add(*point, row))
    }
}

/// One search and the rows of the points that share it.
pub struct Search<'a> {
    study: &'a Study,
    columns: &'a [Column],
    makespans: Arc<Makespans>,
    answer: Option<Result<Answer, String>>,
}

impl<'a> Search<'a> {
    /// A search that is made for the first point that asks for it.
    #[must_use]
    pub const fn new(study: &'a Study, columns: &'a [Column], makespans: Arc<Makespans>) -> Self {
        Self { study, columns, makespans, answer: None }
    }

    /// The row of a point; the first of them that can be planned is searched.
    pub fn row(&mut self, point: u64) -> Vec<Cell> {
        let (study, columns) = (self.study, self.columns);
        let ready = study.draft(point).and_then(|draft| {
            let ready = draft.ready(&study.library, study.objective)?;
            Ok((draft, ready))
        });
        let (draft, ready) = match ready {
            Ok(ready) => ready,
            Err(fault) => return invalid(study, columns, point, &fault),
        };
        let inputs = &ready.inputs;
        if let Some((binding, reason)) = refusal(&ready) {
            return infeasible(study, columns, point, &ready, binding, &reason);
        }
        match self.answer(&ready) {
            Ok(Answer::Plan(plan)) => {
                let own = &inputs.cluster;
                let cluster = if study.objective == Objective::StepTime { own } else { &plan.inputs.cluster };
                planned(study, columns, point, &draft, plan, cluster)
            }
            Ok(Answer::Infeasible(why)) => {
                infeasible(study, columns, point, &ready, &why.binding_term, &why.reason)
            }
            Ok(Answer::Stopped { .. }) => invalid(study, columns, point, "the search was stopped"),
            Err(fault) => invalid(study, columns, point, fault),
        }
    }

    fn answer(&mut self, ready: &Ready) -> &Result<Answer, String> {
        self.answer.get_or_insert_with(|| {
            let makespans = Some(Arc::clone(&self.makespans));
            let wishes = Wishes { makespans, ..ready.wishes.clone() };
            crate::plan(ready.inputs.clone(), &wishes, &Silent).map_err(|error| error.to_string())
        })
    }
}

/// What no layout can mend, as `plan` refuses it: what binds, and the reason.
fn refusal(ready: &Ready) -> Option<(&'static str, String)> {
    let inputs = &ready.inputs;
    let workload = &inputs.workload;
    if let Some((fault, able)) = inputs::unsupported(&inputs.cluster, workload.precision) {
        return Some(("precision", format!("precision is {fault}; {able}")));
    }
    if let Some((faults, hint)) = inputs::refused(inputs.launcher.as_deref(), &inputs.model, workload) {
        return Some(("launcher", format!("{}; {hint}", faults.join("; "))));
    }
    let few_gpus = matches!(ready.wishes.objective, Objective::Gpus { .. });
    (few_gpus && !inputs.cluster.is_homogeneous()).then(|| {
        (
            "objective",
            format!("the fewest GPUs are looked for among one kind, and {} has several", inputs.cluster.name),
        )
    })
}

/// The rows of points that share one search.
#[must_use]
pub fn rows(study: &Study, columns: &[Column], points: &[u64]) -> Vec<Vec<Cell>> {
    let mut search = Search::new(study, columns, Arc::default());
    points.iter().map(|point| search.row(*point)).collect()
}

/// The plan of one point.
///
/// # Errors
/// The point makes no sense.
pub fn plan_of(study: &Study, point: u64, top: usize) -> Result<Answer, AppError> {
    let wrong = |message: String| AppError::Other { message, hint: None };
    let ready = study.draft(point).and_then(|draft| draft.ready(&study.library, study.objective));
    let ready = ready.map_err(wrong)?;
    crate::plan(ready.inputs, &Wishes { top, ..ready.wishes }, &Silent)
}
