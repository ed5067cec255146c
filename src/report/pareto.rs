//! A Pareto front as a table.

use super::layout::degrees;
use super::number::{amount, gib, grouped, seconds, significant};
use super::table::Table;
use crate::pareto::{Front, Point};
use crate::replan::Moved;
use solver::Status;
use solver::pareto::Trade;

/// A line per plan, cheapest first.
#[must_use]
pub fn text(front: &Front, trade: Trade) -> String {
    let (header, rows) = rows(front);
    let mut table = Table::new(&header);
    rows.into_iter().for_each(|row| table.row(row));
    let indented: String = table.text().lines().map(|line| format!("  {line}\n")).collect();
    format!("{}\n\n{indented}", title(front, trade))
}

/// What the plans have in common.
#[must_use]
pub fn title(front: &Front, trade: Trade) -> String {
    let stopped = if front.stopped { "; the time was up before all were tried" } else { "" };
    format!("Step time against {}: plans that no other beats in both{stopped}", trade.name())
}

/// Header and rows of the table, the layout last.
#[must_use]
pub fn rows(front: &Front) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let priced = front.pareto.iter().all(|point| point.dollars_per_step.is_some());
    let price = if priced { "$/1000 steps" } else { "GPU-h/1000 steps" };
    let moves = front.pareto.iter().any(|point| moved(point).is_some());
    let mut columns = vec!["GPUs", "step", "peak GiB", price, "gap", "layout"];
    if moves {
        columns.insert(5, "moves GiB");
    }
    let row = |point: &Point| {
        let cost = point.dollars_per_step.unwrap_or(point.gpu_hours_per_step);
        let gap = match &point.plan.certificate {
            Some(proof) if proof.status == Status::Feasible => {
                format!("{} %", significant(proof.gap * 100.0))
            }
            _ => "0".to_owned(),
        };
        let mut row = vec![
            grouped(point.gpus),
            seconds(point.step_time_seconds),
            gib(point.peak_memory_bytes),
            amount(cost * 1000.0),
            gap,
        ];
        row.extend(
            moves.then(|| moved(point).map_or_else(|| "-".to_owned(), |moved| gib(moved.total_bytes))),
        );
        row.push(degrees(&point.plan.parallel));
        row
    };
    (columns, front.pareto.iter().map(row).collect())
}

fn moved(point: &Point) -> Option<&Moved> {
    point.plan.replan.as_ref()?.moved.as_ref()
}
