//! What an import found, for people.

use super::number::{seconds, significant};
use super::table::Table;
use crate::profile::{CurveReport, Imported, LinkPlace, MeasuredRun};

/// Lines of a list that are shown.
const SHOWN: usize = 40;

/// The text.
#[must_use]
pub fn text(imported: &Imported) -> String {
    let cluster = &imported.cluster;
    let group = cluster.main();
    let mut text = format!(
        "{}: {} nodes of {} x {}, base {}\n",
        cluster.name,
        cluster.node_count(),
        group.node.gpus,
        group.gpu.title,
        imported.base
    );
    if !imported.curves.is_empty() {
        text += &format!("\n{}", curves(&imported.curves));
    }
    if !imported.cluster.layers.is_empty() {
        text += &format!("\n{}", layers(imported));
    }
    text += &list("links and switches", &links(imported));
    text += &runs(&imported.runs);
    text += &list("odd links", &imported.anomalies);
    text += &list("contradictions", &imported.contradictions);
    text += &list("not measured, from the base", &imported.holes);
    text + &list("notes", &imported.notes)
}

fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}\n");
    items.iter().take(SHOWN).for_each(|item| text += &format!("  {item}\n"));
    if items.len() > SHOWN {
        text += &format!("  and {} more (--format json has all)\n", items.len() - SHOWN);
    }
    text
}

fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

fn curves(curves: &[CurveReport]) -> String {
    let header = [
        "collective",
        "ranks",
        "a domain",
        "sizes",
        "samples",
        "spread",
        "latency",
        "busbw",
        "regimes",
        "error",
        "< 64 KiB",
        "from",
    ];
    let mut table = Table::new(&header);
    for curve in curves {
        let (first, last) = (curve.regimes.first(), curve.regimes.last());
        table.row([
            curve.op.name().to_owned(),
            curve.ranks.to_string(),
            curve.per_domain.to_string(),
            curve.sizes.to_string(),
            curve.samples.to_string(),
            curve.spread.map_or_else(|| "-".to_owned(), percent),
            first.map_or_else(|| "-".to_owned(), |regime| seconds(regime.latency)),
            last.map_or_else(|| "-".to_owned(), |r| format!("{} GB/s", significant(r.bandwidth.get() / 1e9))),
            if curve.regimes.is_empty() { "points".to_owned() } else { curve.regimes.len().to_string() },
            percent(curve.median_error),
            curve.small_error.map_or_else(|| "-".to_owned(), percent),
            curve.from.clone(),
        ]);
    }
    table.text()
}

fn layers(imported: &Imported) -> String {
    let mut table = Table::new(&[
        "layer",
        "hidden",
        "tokens",
        "tp",
        "cp",
        "forward",
        "input gradient",
        "weight gradient",
    ]);
    for layer in &imported.cluster.layers {
        table.row([
            layer.kind.name().to_owned(),
            layer.hidden.to_string(),
            format!("{} x {}", layer.micro_batch, layer.seq_len),
            layer.tp.to_string(),
            layer.cp.to_string(),
            seconds(layer.forward),
            seconds(layer.input_gradient),
            seconds(layer.weight_gradient),
        ]);
    }
    table.text()
}

/// Links that were measured, and the switches that hosts are known to hang on.
fn links(imported: &Imported) -> Vec<String> {
    let (cluster, node) = (&imported.cluster, &imported.cluster.main().node);
    let places = LinkPlace::ALL.into_iter().zip([&node.intra, &node.inter, &node.host]);
    let measured = places.filter(|(_, link)| link.source.starts_with("measured: "));
    let mut lines: Vec<String> = measured
        .map(|((_, name), link)| {
            let rate = significant(link.bandwidth.get() / 1e9);
            format!("{name}: {rate} GB/s a GPU, {} ({})", seconds(link.latency), link.source)
        })
        .collect();
    let sets = [("leaf switches", &cluster.leaves), ("domains", &cluster.domains)];
    for (what, sets) in sets.into_iter().filter(|(_, sets)| !sets.is_empty()) {
        let sizes = || sets.iter().map(|set| set.hosts.len());
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let hosts = if least == most { most.to_string() } else { format!("{least} to {most}") };
        lines.push(format!("{} {what} of {hosts} hosts", sets.len()));
    }
    lines
}

fn runs(runs: &[MeasuredRun]) -> String {
    let lines: Vec<String> = runs
        .iter()
        .map(|run| {
            let mut parts = vec![format!("{} steps", run.steps)];
            let step = |s: f64| format!("{} a step", seconds(cluster_profiles::Seconds(s)));
            parts.extend(run.step_time_seconds.map(step));
            parts.extend(run.spread.map(|s| format!("spread {}", percent(s))));
            parts.extend(run.tokens_per_second_per_gpu.map(|t| format!("{t:.0} tokens/s/GPU")));
            parts.extend(run.flops_per_second_per_gpu.map(|f| format!("{:.0} TFLOP/s/GPU", f / 1e12)));
            let gib = |what: &str, bytes: f64| format!("{what} {:.1} GiB", bytes / 1_073_741_824.0);
            parts.extend(run.max_allocated_bytes.map(|b| gib("allocated", b)));
            parts.extend(run.max_reserved_bytes.map(|b| gib("reserved", b)));
            format!("{} ({})", parts.join(", "), run.source)
        })
        .collect();
    list("measured runs", &lines)
}
