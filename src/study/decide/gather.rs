//! The figures of every row that decisions look at.

use super::pareto::TradeOff;
use crate::error::AppError;
use crate::study::file::Study;
use crate::study::merge::Rows;
use crate::study::row::{Cell, Column, column_name};
use cost_models::RankOrder;
use serde::Serialize;
use solver::Objective;
use solver::pareto::unbeaten;
use std::collections::BTreeMap;

/// A point with a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The point.
    pub point: u64,
    /// Values of the axes, as text.
    pub values: Vec<String>,
    /// The layout in short.
    pub layout: String,
    /// The same without data parallelism, which grows with the GPUs.
    pub shape: String,
    /// GPUs.
    pub gpus: f64,
    /// Seconds of a step.
    pub step_time_seconds: f64,
    /// Tokens per second of all GPUs, failures taken off.
    pub tokens_per_second: f64,
    /// Tokens per second and GPU.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs over the peak.
    pub model_flops_utilization: f64,
    /// Dollars for a billion tokens.
    pub dollars_per_billion_tokens: Option<f64>,
    /// Dollars an hour of all GPUs.
    pub dollars_per_hour: Option<f64>,
    /// Joules for a token.
    pub joules_per_token: f64,
    /// Seconds for all tokens.
    pub training_seconds: Option<f64>,
    /// Dollars for all tokens.
    pub training_dollars: Option<f64>,
}

/// The figures of all rows.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Rows by status.
    pub counts: BTreeMap<String, u64>,
    /// Rows without use, by what binds.
    pub binding: BTreeMap<String, u64>,
    /// The reason of the first row of every kind of these, where rows have one.
    pub reasons: BTreeMap<String, String>,
    /// Points that keep every limit, in their order.
    pub outcomes: Vec<Outcome>,
    /// The job of every outcome: what is trained, whatever it runs on.
    pub jobs: Vec<String>,
}

/// Keys that say what is trained rather than on what.
fn is_job(key: &str) -> bool {
    key == "model" || key.starts_with("model.") || ["seq_len", "tokens", "expert_imbalance"].contains(&key)
}

struct Columns<'a>(&'a [Column]);

impl Columns<'_> {
    fn at(&self, name: &str) -> usize {
        self.0.iter().position(|column| column.name == name).unwrap_or(0)
    }
}

impl Gathered {
    /// Reads all rows once.
    pub(super) fn read(study: &Study, rows: &mut Rows) -> Result<Self, AppError> {
        let columns = rows.manifest.columns.clone();
        let columns = Columns(&columns);
        let axes = study.axis_keys();
        let job: Vec<usize> = (0..axes.len()).filter(|at| is_job(axes[*at])).collect();
        let named: Vec<usize> = axes.iter().map(|key| columns.at(&column_name(key))).collect();
        let mut gathered = Self::default();
        let (status, binding, reason) = (columns.at("status"), columns.at("binding"), columns.at("reason"));
        rows.each(|row| {
            let state = row[status].text().unwrap_or_default().to_owned();
            if state != "ok" {
                let why = row[binding].text().unwrap_or(&state).to_owned();
                if let Some(reason) = row[reason].text() {
                    gathered.reasons.entry(why.clone()).or_insert_with(|| reason.to_owned());
                }
                *gathered.binding.entry(why).or_default() += 1;
            } else if let Some(outcome) = outcome(&columns, &named, &row) {
                let job: Vec<String> =
                    job.iter().map(|at| format!("{} {}", axes[*at], outcome.values[*at])).collect();
                gathered.jobs.push(job.join(", "));
                gathered.outcomes.push(outcome);
            }
            *gathered.counts.entry(state).or_default() += 1;
            Ok(())
        })?;
        Ok(gathered)
    }

    /// Every job, in the order of its first point, with its outcomes.
    #[must_use]
    pub fn by_job(&self) -> Vec<(&str, Vec<&Outcome>)> {
        let mut list: Vec<(&str, Vec<&Outcome>)> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for (job, outcome) in self.jobs.iter().zip(&self.outcomes) {
            let at = *known.entry(job).or_insert(list.len());
            if at == list.len() {
                list.push((job, Vec::new()));
            }
            list[at].1.push(outcome);
        }
        list
    }

    /// The best outcome of every job by the study's objective.
    #[must_use]
    pub fn best_of_jobs(&self, study: &Study) -> Vec<Outcome> {
        let value = |outcome: &Outcome| match study.objective {
            Objective::StepTime => 1.0 / outcome.tokens_per_second,
            Objective::TokensPerDollar => {
                outcome.dollars_per_billion_tokens.unwrap_or(outcome.gpus / outcome.tokens_per_second)
            }
            Objective::Gpus { .. } => outcome.gpus,
            Objective::Energy => outcome.joules_per_token,
        };
        let best = |(_, list): (&str, Vec<&Outcome>)| {
            list.into_iter().min_by(|a, b| value(a).total_cmp(&value(b)).then(a.point.cmp(&b.point))).cloned()
        };
        self.by_job().into_iter().filter_map(best).collect()
    }

    /// The fronts of every job: time against money, GPUs and energy.
    #[must_use]
    pub fn fronts(&self) -> Vec<TradeOff> {
        let time = |outcome: &Outcome| 1e9 / outcome.tokens_per_second;
        type Measure = fn(&Outcome) -> Option<f64>;
        let against: [(&str, Measure); 3] = [
            ("dollars_per_billion_tokens", |outcome| outcome.dollars_per_billion_tokens),
            ("gpus", |outcome| Some(outcome.gpus)),
            ("joules_per_token", |outcome| Some(outcome.joules_per_token)),
        ];
        let mut fronts = Vec::new();
        for (job, list) in self.by_job() {
            for (name, measure) in against {
                let points: Vec<(f64, f64, u64)> = list
                    .iter()
                    .filter_map(|outcome| Some((time(outcome), measure(outcome)?, outcome.point)))
                    .collect();
                if !points.is_empty() {
                    fronts.push(TradeOff {
                        job: job.to_owned(),
                        against: name.to_owned(),
                        points: unbeaten(points),
                    });
                }
            }
        }
        fronts
    }
}

/// The layout in short, without data parallelism and with it.
fn layouts(columns: &Columns, row: &[Cell]) -> (String, String) {
    let shown = |name: &str| row[columns.at(name)].to_string();
    let degree = |name: &str| row[columns.at(name)].number().unwrap_or(1.0);
    let names = ["tp", "pp", "vpp", "cp", "ep", "etp"].into_iter();
    let names = names.filter(|name| degree(name) > 1.0 && (*name != "etp" || degree("ep") > 1.0));
    let mut shape: Vec<String> = names.map(|name| format!("{name} {}", shown(name))).collect();
    let mut layout = shape.clone();
    let (replicas, shards) = (degree("dp_replicate"), degree("dp_shard"));
    let zero = match shown("zero_stage").as_str() {
        stage if stage != "0" && replicas * shards > 1.0 => format!(" (ZeRO-{stage})"),
        _ => String::new(),
    };
    layout.push(if replicas > 1.0 {
        format!("dp {replicas} x {shards}{zero}")
    } else {
        format!("dp {shards}{zero}")
    });
    let micro_batch = Some(shown("micro_batches")).filter(|sizes| !sizes.is_empty());
    let mut rest = vec![format!("micro batch {}", micro_batch.unwrap_or_else(|| shown("micro_batch_size")))];
    let words = [
        ("schedule", "none", ""),
        ("recompute", "none", "recompute "),
        ("stage_recomputes", "", "recompute by stage "),
        ("layer_strategies", "", "blocks "),
        ("state_shares", "", "state "),
        ("rank_order", RankOrder::default().name(), "ranks "),
    ];
    for (name, usual, word) in words {
        let text = shown(name);
        if text != usual {
            rest.push(format!("{word}{text}"));
        }
    }
    if row[columns.at("optimizer_offload")].number().is_some_and(|share| share > 0.0) {
        rest.push("optimizer in host memory".to_owned());
    }
    shape.extend_from_slice(&rest);
    layout.extend(rest);
    (shape.join(", "), layout.join(", "))
}

fn outcome(columns: &Columns, axes: &[usize], row: &[Cell]) -> Option<Outcome> {
    let number = |name: &str| row[columns.at(name)].number();
    let gpus = number("gpu_count")?;
    let per_gpu = number("tokens_per_second_per_gpu")?;
    let goodput = number("goodput_fraction").unwrap_or(1.0);
    let (shape, layout) = layouts(columns, row);
    Some(Outcome {
        point: number("point")? as u64,
        values: axes.iter().map(|at| row[*at].to_string()).collect(),
        layout,
        shape,
        gpus,
        step_time_seconds: number("step_time_seconds")?,
        tokens_per_second: per_gpu * gpus * goodput,
        tokens_per_second_per_gpu: per_gpu,
        model_flops_utilization: number("model_flops_utilization")?,
        dollars_per_billion_tokens: number("dollars_per_billion_tokens"),
        dollars_per_hour: number("cluster_dollars_per_hour"),
        joules_per_token: number("joules_per_token")?,
        training_seconds: number("training_seconds"),
        training_dollars: number("training_dollars"),
    })
}
