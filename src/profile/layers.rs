//! Measured layers and optimizer steps: each takes the median of the files that measured it.

use super::curves::CONTRADICTION;
use super::findings::Findings;
use cluster_profiles::fit::median;
use cluster_profiles::{Bytes, Cluster, MeasuredLayer, MeasuredOptimizer, Provenance, Seconds};

/// Moves what was measured into the profile, in place of what was there of the same shape.
pub(super) fn take(cluster: &mut Cluster, found: &mut Findings) {
    for alike in groups(std::mem::take(&mut found.layers), same_layer) {
        contradictions(&alike, &layer_words(&alike[0]), layer_total, |l| &l.provenance, found);
        let Some(layer) = median_layer(&alike) else { continue };
        if let Some(old) = cluster.layers.iter().find(|old| same_layer(old, &layer)) {
            let totals = (layer_total(old), layer_total(&layer));
            base_apart(&layer_words(&layer), totals, (&old.provenance, &layer.provenance), found);
        }
        cluster.layers.retain(|old| !same_layer(old, &layer));
        cluster.layers.push(layer);
    }
    for alike in groups(std::mem::take(&mut found.optimizers), same_optimizer) {
        contradictions(&alike, &format!("{} step", alike[0].name), per_parameter, |o| &o.provenance, found);
        let Some(optimizer) = median_optimizer(&alike) else { continue };
        if let Some(old) = cluster.optimizers.iter().find(|old| same_optimizer(old, &optimizer)) {
            let times = (per_parameter(old), per_parameter(&optimizer));
            let provenance = (&old.provenance, &optimizer.provenance);
            base_apart(&format!("{} step", optimizer.name), times, provenance, found);
        }
        cluster.optimizers.retain(|old| old.name != optimizer.name);
        cluster.optimizers.push(optimizer);
    }
}

/// Those that are the same in the order of their first.
fn groups<T>(all: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| same(first, &one))) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

fn same_layer(a: &MeasuredLayer, b: &MeasuredLayer) -> bool {
    let key = |l: &MeasuredLayer| {
        let widths = [Some(l.hidden), l.heads, l.kv_heads, l.ffn, l.experts, l.topk, l.vocab];
        (l.kind, widths, [l.seq_len, l.micro_batch, l.tp, l.cp, l.ep])
    };
    key(a) == key(b) && a.precision == b.precision
}

fn same_optimizer(a: &MeasuredOptimizer, b: &MeasuredOptimizer) -> bool {
    a.name == b.name
}

fn layer_total(layer: &MeasuredLayer) -> f64 {
    let exposed = [layer.exposed_forward, layer.exposed_backward].into_iter().flatten();
    let own = layer.forward + layer.input_gradient + layer.weight_gradient;
    exposed.fold(own, |sum, seconds| sum + seconds).get()
}

fn per_parameter(optimizer: &MeasuredOptimizer) -> f64 {
    optimizer.time.get() / optimizer.parameters.max(1.0)
}

fn layer_words(layer: &MeasuredLayer) -> String {
    let degrees = [("tp", layer.tp), ("cp", layer.cp), ("ep", layer.ep)];
    let degrees = degrees.iter().filter(|(_, degree)| *degree > 1);
    let degrees: String = degrees.map(|(name, degree)| format!(", {name} {degree}")).collect();
    format!("{} of {} x {} tokens{degrees}", layer.kind.name(), layer.micro_batch, layer.seq_len)
}

/// The two files that are farthest apart, where they disagree.
fn contradictions<T>(
    alike: &[T],
    what: &str,
    time: impl Fn(&T) -> f64,
    provenance: impl Fn(&T) -> &Provenance,
    found: &mut Findings,
) {
    let by_time = |a: &&T, b: &&T| time(a).total_cmp(&time(b));
    let (Some(fast), Some(slow)) = (alike.iter().min_by(by_time), alike.iter().max_by(by_time)) else {
        return;
    };
    let ratio = time(slow) / time(fast);
    if ratio > CONTRADICTION {
        found.contradictions.push(format!(
            "{what}: {} is {:.0} % slower than {}; the median of {} is used",
            provenance(slow).from,
            100.0 * (ratio - 1.0),
            provenance(fast).from,
            alike.len()
        ));
    }
}

/// What an earlier import left in the base and this one contradicts: times and provenance of old and new.
fn base_apart(
    what: &str,
    (old, new): (f64, f64),
    (before, now): (&Provenance, &Provenance),
    found: &mut Findings,
) {
    let ratio = new / old;
    if ratio.max(1.0 / ratio) > CONTRADICTION {
        found.contradict(format!(
            "{what}: {} is {:.0} % {} than {}, which the base has; the new one is used",
            now.from,
            100.0 * (ratio.max(1.0 / ratio) - 1.0),
            if ratio > 1.0 { "slower" } else { "faster" },
            before.from
        ));
    }
}

/// The median of each of the layer's times by itself.
fn median_layer(alike: &[MeasuredLayer]) -> Option<MeasuredLayer> {
    let first = alike.first()?;
    if alike.len() == 1 {
        return Some(first.clone());
    }
    let middle =
        |part: fn(&MeasuredLayer) -> Option<f64>| median(&alike.iter().filter_map(part).collect::<Vec<_>>());
    let totals: Vec<f64> = alike.iter().map(layer_total).collect();
    Some(MeasuredLayer {
        forward: Seconds(middle(|l| Some(l.forward.get()))?),
        input_gradient: Seconds(middle(|l| Some(l.input_gradient.get()))?),
        weight_gradient: Seconds(middle(|l| Some(l.weight_gradient.get()))?),
        exposed_forward: middle(|l| l.exposed_forward.map(Seconds::get)).map(Seconds),
        exposed_backward: middle(|l| l.exposed_backward.map(Seconds::get)).map(Seconds),
        saved: middle(|l| l.saved.map(Bytes::get)).map(Bytes),
        provenance: joined(alike.iter().map(|l| &l.provenance), &totals)?,
        ..first.clone()
    })
}

fn median_optimizer(alike: &[MeasuredOptimizer]) -> Option<MeasuredOptimizer> {
    let first = alike.first()?;
    if alike.len() == 1 {
        return Some(first.clone());
    }
    let times: Vec<f64> = alike.iter().map(per_parameter).collect();
    Some(MeasuredOptimizer {
        time: Seconds(median(&times)? * first.parameters.max(1.0)),
        provenance: joined(alike.iter().map(|o| &o.provenance), &times)?,
        ..first.clone()
    })
}

/// The first file's provenance, how many there are and how far they are apart: their median distance from their median.
fn joined<'a>(mut all: impl Iterator<Item = &'a Provenance>, times: &[f64]) -> Option<Provenance> {
    let first = all.next()?;
    let more = all.filter(|other| other.from != first.from).count();
    let middle = median(times)?;
    let distances: Vec<f64> = times.iter().map(|time| (time / middle - 1.0).abs()).collect();
    let from = match more {
        0 => first.from.clone(),
        1 => format!("{}; and 1 file more, median of both", first.from),
        more => format!("{}; and {more} files more, median of all", first.from),
    };
    Some(Provenance { from, median_error: median(&distances).map(|d| d.min(10.0)), ..first.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_profiles::{Basis, catalog};

    fn optimizer(file: &str, time: f64) -> MeasuredOptimizer {
        let provenance = Provenance { basis: Basis::Measured, from: file.to_owned(), median_error: None };
        MeasuredOptimizer { name: "adamw".to_owned(), parameters: 1e6, time: Seconds(time), provenance }
    }

    #[test]
    fn the_middle_of_three_files_stands_and_the_odd_one_is_named() {
        let mut cluster = catalog::cluster("dgx-h100").unwrap();
        let optimizers = vec![optimizer("a", 1e-3), optimizer("b", 9e-3), optimizer("c", 1.1e-3)];
        let mut found = Findings { optimizers, ..Findings::default() };
        take(&mut cluster, &mut found);
        assert_eq!(cluster.optimizers.len(), 1);
        assert!((cluster.optimizers[0].time.get() - 1.1e-3).abs() < 1e-12);
        assert_eq!(cluster.optimizers[0].provenance.from, "a; and 2 files more, median of all");
        assert_eq!(found.contradictions.len(), 1);
        assert!(found.contradictions[0].starts_with("adamw step: b is 800 % slower than a"), "{found:?}");
    }
}
