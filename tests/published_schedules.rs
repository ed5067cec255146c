//! Schedules against each other: published runs of one job under different schedules come out in the measured order
//! (Zero Bubble, arXiv 2401.10241, and Vocabulary Parallelism, arXiv 2411.05288).

use meshwright::validate::metrics::median;
use meshwright::validate::{Models, Scored, Selection, read_file, validate};
use std::path::Path;

/// Step times closer than this are ties.
const TIE: f64 = 0.03;
const SOURCES: [&str; 3] = ["ZB", "VP5", "VPA"];

/// What a table of runs says of schedules.
struct Comparison {
    /// Pairs of runs of one job whose step times differ by more than [`TIE`].
    pairs: usize,
    /// Those that come out in the measured order.
    ordered: usize,
    /// The others, for the message.
    misplaced: Vec<String>,
    /// Median of |predicted / measured memory - 1|.
    memory_error: f64,
    memory_rows: usize,
}

impl Comparison {
    fn of(table: &Path, models: &Path) -> Self {
        let text = read_file(models).unwrap();
        let models = Models::read("models.json", &String::from_utf8_lossy(&text)).unwrap();
        let table = read_file(table).unwrap();
        let validation = validate("runs.csv", &table, &models, Selection::All).unwrap();
        let ours = |run: &&Scored| SOURCES.contains(&run.case.row.source_key.as_str());
        let runs: Vec<&Scored> = validation.runs.iter().filter(ours).collect();
        let errors: Vec<f64> = runs.iter().filter_map(|run| Some(run.memory_error()?.abs())).collect();
        let mut comparison = Self {
            pairs: 0,
            ordered: 0,
            misplaced: Vec::new(),
            memory_error: median(&errors).unwrap(),
            memory_rows: errors.len(),
        };
        for (at, a) in runs.iter().enumerate() {
            runs[at + 1..].iter().filter(|b| same_job(a, b)).for_each(|b| comparison.add(a, b));
        }
        comparison
    }

    fn add(&mut self, a: &Scored, b: &Scored) {
        let (Some(measured_a), Some(measured_b)) = (a.measured_step(), b.measured_step()) else { return };
        if (measured_a - measured_b).abs() <= TIE * measured_a.min(measured_b) {
            return;
        }
        self.pairs += 1;
        let predicted = a.estimate.step_time_seconds.get() - b.estimate.step_time_seconds.get();
        if predicted * (measured_a - measured_b) > 0.0 {
            self.ordered += 1;
        } else {
            self.misplaced.push(format!("{} / {}", a.case.row.id, b.case.row.id));
        }
    }

    fn assert(&self, pairs: usize, memory_rows: usize) {
        println!(
            "{} of {} pairs in the measured order ({}); memory median error {:.4} of {} rows",
            self.ordered,
            self.pairs,
            self.misplaced.join(", "),
            self.memory_error,
            self.memory_rows
        );
        assert!(self.pairs >= pairs && self.memory_rows >= memory_rows, "too few rows were read");
        assert!(self.ordered * 10 >= self.pairs * 9, "out of order: {:#?}", self.misplaced);
        assert!(self.memory_error <= 0.06, "memory: {}", self.memory_error);
    }
}

/// Same model, sequences, batch and pipeline on the same GPUs, but another schedule.
fn same_job(a: &Scored, b: &Scored) -> bool {
    let job = |run: &Scored| {
        let (row, parallel, workload) = (&run.case.row, &run.case.parallel, &run.case.workload);
        let names = [&row.source_key, &row.model, &row.gpu, &row.runtime].map(Clone::clone);
        let degrees = [parallel.tp, parallel.pp, parallel.cp, parallel.dp()].map(u64::from);
        let batch = [workload.seq_len, workload.global_batch, parallel.micro_batch_size, row.n_gpus];
        (names, degrees, batch)
    };
    let schedule = |run: &Scored| (run.case.parallel.schedule.clone(), run.case.parallel.vpp);
    job(a) == job(b) && schedule(a) != schedule(b)
}

#[test]
fn the_projects_own_table() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    Comparison::of(&data.join("published_runs.csv"), &data.join("published_models.json")).assert(30, 40);
}

#[test]
fn the_collection() {
    let root = std::env::var("MESHWRIGHT_SHARED")
        .unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let data = Path::new(&root).join("data/validation");
    if !data.join("measured_runs.csv").is_file() {
        eprintln!("skipped: no published runs in {}", data.display());
        return;
    }
    Comparison::of(&data.join("measured_runs.csv"), &data.join("models.json")).assert(200, 150);
}
