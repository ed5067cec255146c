//! A Pareto front as a page, with the plan of its fast end.

use super::chart::{Chart, Dot, Series, Style};
use super::parts::{plots, table};
use super::{page, plan};
use crate::pareto::{Front, Point};
use crate::report::layout::degrees;
use crate::report::number::seconds;
use crate::report::pareto::{rows, title};
use maud::{Markup, html};
use solver::pareto::Trade;

/// The page of a front.
#[must_use]
pub fn front(front: &Front, trade: Trade) -> String {
    let heading = plan::title(&front.plan);
    let content = html! {
        h1 { (heading) }
        (section(front, trade))
        h2 { "The fastest plan" }
        (plan::body(&front.plan))
    };
    page(&heading, &content)
}

fn section(front: &Front, trade: Trade) -> Markup {
    let (header, rows) = rows(front);
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.into_iter().map(|cell| cell.replace("   ", ", ")).collect()).collect();
    let dots = front.pareto.iter().map(|point| Dot {
        x: point.step_time_seconds.get(),
        y: cost(point, trade),
        tip: format!(
            "{} on {} GPUs\n{}",
            seconds(point.step_time_seconds),
            point.gpus,
            degrees(&point.plan.parallel)
        ),
    });
    let unit = match trade {
        Trade::Gpus => "GPUs",
        Trade::Memory => "peak memory, GiB",
        Trade::Price if priced(front) => "dollars of 1,000 steps",
        Trade::Price => "GPU hours of 1,000 steps",
    };
    let chart = Chart {
        title: format!("step time against {unit}"),
        axes: ["step, seconds".to_owned(), unit.to_owned()],
        log: [false, false],
        diagonal: false,
        series: vec![Series {
            name: "front".to_owned(),
            style: Style::Curve,
            colour: 0,
            dots: dots.collect(),
        }],
    };
    html! {
        p { (title(front, trade)) "." }
        (plots(&[chart.render()]))
        (table(&header, &[header.len() - 1], &rows))
    }
}

fn priced(front: &Front) -> bool {
    front.pareto.iter().all(|point| point.dollars_per_step.is_some())
}

fn cost(point: &Point, trade: Trade) -> f64 {
    match trade {
        Trade::Gpus => point.gpus as f64,
        Trade::Memory => point.peak_memory_bytes.as_gib(),
        Trade::Price => point.dollars_per_step.unwrap_or(point.gpu_hours_per_step) * 1000.0,
    }
}
