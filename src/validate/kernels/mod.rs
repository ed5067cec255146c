//! Kernel and collective times: predicted against measured, file by file.
//!
//! The files are those of `data/kernels` and `data/links`. A fixed 30 % of the points of every file, chosen by a hash of
//! what was measured, is reported apart: a fit that never sees them is scored by them.

mod attention;
mod collectives;
mod deepep;
mod experts;
mod gemm;
mod links;
mod split;
mod work;

pub use split::{HELD_OUT_SHARE, hash, held_out};
pub use work::Work;

use super::ValidateError;
use super::fields::{Fault, Fields, Header};
use super::hardware::Hardware;
use super::metrics::ErrorSummary;
use super::runs::read_file;
use cluster_profiles::Gpu;
use cost_models::Runtime;
use cost_models::runtime::{self, SharedTraits};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// One measured call.
#[derive(Debug, Clone)]
pub struct MeasuredWork {
    /// GPU kind, by its catalogue name.
    pub gpu: String,
    /// Precision or operation.
    pub group: String,
    /// What was done.
    pub work: Work,
    /// How long it took, in seconds.
    pub measured: f64,
    /// Whether it belongs to the 30 %.
    pub held_out: bool,
}

/// One prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// GPU kind, by its catalogue name.
    pub gpu: String,
    /// Precision or operation.
    pub group: String,
    /// Predicted over measured time, less one.
    pub error: f64,
    /// Whether it belongs to the 30 %.
    pub held_out: bool,
}

/// The points of one file.
#[derive(Debug, Default)]
pub struct Points {
    /// What could be read.
    pub points: Vec<MeasuredWork>,
    /// Rows left out, by reason.
    pub left_out: BTreeMap<String, usize>,
}

/// What predictions of kernels need.
#[derive(Debug)]
pub struct Kernels {
    hardware: &'static Hardware,
    shared: SharedTraits,
}

/// Errors of one GPU kind and group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelFigures {
    /// GPU kind.
    pub gpu: String,
    /// Precision or operation.
    pub group: String,
    /// All points.
    pub all: ErrorSummary,
    /// The 30 % that are held out.
    pub held_out: ErrorSummary,
}

/// Errors of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileFigures {
    /// The file.
    pub file: String,
    /// By GPU kind and group.
    pub figures: Vec<KernelFigures>,
    /// Rows left out, by reason.
    pub left_out: BTreeMap<String, usize>,
}

/// Turns a row into a point: the GPU, the group, the predicted and the measured time; or why it is left out.
type Reader = fn(&Kernels, &mut Fields) -> Result<Measured, String>;

/// A row of a kernel file, predicted.
pub(crate) struct Measured {
    gpu: String,
    group: String,
    work: Work,
    measured: f64,
}

const FILES: &[(&str, Reader)] = &[
    ("gemm.csv", gemm::read),
    ("attention_forward.csv", attention::read),
    ("moe_forward.csv", experts::read),
    ("collectives.csv", collectives::read),
    ("deepep.csv", deepep::read),
    ("links.csv", links::read),
];

/// Predicts every file of `dir`, and of its sibling or child folder `links`.
///
/// # Errors
/// [`ValidateError`] if a file is broken or `dir` has none of the files.
pub fn validate_kernels(dir: &Path) -> Result<Vec<FileFigures>, ValidateError> {
    let kernels = Kernels::new()?;
    let files = kernels.read(dir)?;
    Ok(files.into_iter().map(|(name, points)| FileFigures::of(&kernels, name, points)).collect())
}

impl Kernels {
    /// The catalogue and the numbers that all engines share.
    ///
    /// # Errors
    /// [`ValidateError::Table`] if the catalogue itself is broken.
    pub fn new() -> Result<Self, ValidateError> {
        let refuse = |reason: String| ValidateError::Table { origin: "the catalogue".to_owned(), reason };
        let hardware = Hardware::catalogue().map_err(|error| refuse(error.to_string()))?;
        let runtime = Runtime::named(runtime::DEFAULT).map_err(|error| refuse(error.to_string()))?;
        Ok(Self { hardware, shared: runtime.shared })
    }

    /// Numbers that all engines share.
    #[must_use]
    pub fn shared(&self) -> &SharedTraits {
        &self.shared
    }

    /// Every measured call of the files that `dir`, or its sibling or child folder `links`, has.
    ///
    /// # Errors
    /// [`ValidateError`] if a file is broken or `dir` has none of the files.
    pub fn read(&self, dir: &Path) -> Result<Vec<(&'static str, Points)>, ValidateError> {
        let mut found = Vec::new();
        for &(name, reader) in FILES {
            let places = [
                dir.join(name),
                dir.join("links").join(name),
                dir.join("kernels").join(name),
                dir.join("../links").join(name),
            ];
            if let Some(path) = places.iter().find(|path| path.is_file()) {
                found.push((name, self.points(&path.display().to_string(), &read_file(path)?, reader)?));
            }
        }
        if found.is_empty() {
            let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
            let reason = format!("has none of the files {}", names.join(", "));
            return Err(ValidateError::Table { origin: dir.display().to_string(), reason });
        }
        Ok(found)
    }

    /// The GPU kind called `name`.
    ///
    /// # Errors
    /// That there is none.
    pub fn gpu(&self, name: &str) -> Result<&'static Gpu, String> {
        self.hardware.gpu(name)
    }

    fn points(&self, origin: &str, bytes: &[u8], reader: Reader) -> Result<Points, ValidateError> {
        let broken = |reason: String| ValidateError::Table { origin: origin.to_owned(), reason };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut csv = csv::Reader::from_reader(bytes);
        let names = csv.headers().map_err(|error| broken(error.to_string()))?.clone();
        let header =
            Header::new(names.iter()).map_err(|twice| broken(format!("names {} twice", twice.join(", "))))?;
        let mut points = Points::default();
        for record in csv.records() {
            let record = record.map_err(|error| broken(error.to_string()))?;
            points.take(self, &header, &record, reader);
        }
        Ok(points)
    }
}

impl Point {
    fn of(kernels: &Kernels, point: &MeasuredWork) -> Option<Self> {
        let predicted = point.work.predict(kernels.gpu(&point.gpu).ok()?, &kernels.shared);
        Some(Self {
            gpu: point.gpu.clone(),
            group: point.group.clone(),
            error: predicted.get() / point.measured - 1.0,
            held_out: point.held_out,
        })
    }
}

impl Points {
    fn take(&mut self, kernels: &Kernels, header: &Header, record: &csv::StringRecord, reader: Reader) {
        let line = record.position().map_or(0, csv::Position::line);
        let mut fields = Fields::new(header, record, line);
        let outcome = reader(kernels, &mut fields);
        let outcome = match fields.faults.first() {
            Some(Fault { column, message, .. }) => Err(format!("column {column} {message}")),
            None => outcome,
        };
        match outcome {
            Ok(row) if row.measured > 0.0 => self.points.push(MeasuredWork {
                gpu: row.gpu,
                group: row.group,
                work: row.work,
                measured: row.measured,
                held_out: held_out(record),
            }),
            Ok(_) => *self.left_out.entry("no measured time".to_owned()).or_default() += 1,
            Err(reason) => *self.left_out.entry(reason).or_default() += 1,
        }
    }
}

impl FileFigures {
    fn of(kernels: &Kernels, file: &str, points: Points) -> Self {
        let predicted: Vec<Point> =
            points.points.iter().filter_map(|point| Point::of(kernels, point)).collect();
        let mut groups: BTreeMap<(&str, &str), Vec<&Point>> = BTreeMap::new();
        for point in &predicted {
            groups.entry((&point.gpu, &point.group)).or_default().push(point);
        }
        let figures = groups.into_iter().map(|((gpu, group), points)| {
            let errors = |held_out: bool| -> Vec<f64> {
                points.iter().filter(|point| point.held_out || !held_out).map(|point| point.error).collect()
            };
            KernelFigures {
                gpu: gpu.to_owned(),
                group: group.to_owned(),
                all: ErrorSummary::of(&errors(false)),
                held_out: ErrorSummary::of(&errors(true)),
            }
        });
        Self { file: file.to_owned(), figures: figures.collect(), left_out: points.left_out }
    }
}
