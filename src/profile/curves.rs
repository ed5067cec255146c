//! Measured times by size to fitted curves of the profile.

use super::assemble::joined;
use super::findings::{Curve, Findings, Group, LinkFact, LinkPlace, Origin};
use super::links::take_link;
use super::samples::Samples;
use cluster_profiles::fit::{fit_regimes, median};
use cluster_profiles::{Basis, Bytes, Cluster, Collective, MeasuredCollective, Provenance, Regime, Seconds};
use serde::Serialize;
use std::collections::BTreeMap;

/// Fewest sizes that lines are fitted to; fewer stay points.
const FEWEST_SIZES: usize = 4;
/// Ratio between two measurements of one thing from which on they contradict.
pub(super) const CONTRADICTION: f64 = 1.25;

/// A curve and how well its lines fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveReport {
    /// The operation.
    pub op: Collective,
    /// Members of the group.
    pub ranks: u32,
    /// Members that share a domain.
    pub per_domain: u32,
    /// Sizes measured.
    pub sizes: usize,
    /// How often a size was measured, in the median.
    pub samples: usize,
    /// How far single measurements of a size are from their middle, relative, in the median; none where each is one.
    pub spread: Option<f64>,
    /// Lines fitted; none where the points themselves stand.
    pub regimes: Vec<Regime>,
    /// Median relative deviation.
    pub median_error: f64,
    /// The same below 64 KiB.
    pub small_error: Option<f64>,
    /// Largest relative deviation.
    pub largest_error: f64,
    /// Where it was read.
    pub from: String,
}

/// Moves the curves into the profile.
pub fn take(cluster: &mut Cluster, found: &mut Findings) -> Vec<CurveReport> {
    let mut reports = Vec::new();
    let curves = std::mem::take(&mut found.curves);
    for (group, parts) in &curves {
        let Some(per_domain) = per_domain(cluster, group) else {
            found.note(format!(
                "{} over {} ranks ({}): how many share a host is not in the file; left out, say it with --per-node",
                group.op.name(),
                group.ranks,
                joined(&parts.iter().map(|p| p.origin.clone()).collect::<Vec<_>>())
            ));
            continue;
        };
        contradictions(group, parts, found);
        let points = pooled(parts);
        let Some((measured, report)) = curve(group, per_domain, &points, parts) else { continue };
        take_send(cluster, group, &measured, parts, found);
        let shape = |c: &MeasuredCollective| (c.op, c.ranks, c.per_domain);
        if let Some(old) = cluster.collectives.iter().find(|old| shape(old) == shape(&measured)) {
            base_apart(old, &measured, found);
        }
        cluster.collectives.retain(|old| shape(old) != shape(&measured));
        cluster.collectives.push(measured);
        reports.push(report);
    }
    found.curves = curves;
    take_rates(cluster, found);
    reports
}

/// Bandwidths without sizes: lines with the link's latency, where no curve is there.
fn take_rates(cluster: &mut Cluster, found: &mut Findings) {
    for (group, rate, origin) in std::mem::take(&mut found.rates) {
        let Some(per_domain) = per_domain(cluster, &group) else { continue };
        let shape = |old: &MeasuredCollective| {
            (old.op, old.ranks, old.per_domain) == (group.op, group.ranks, per_domain)
        };
        if cluster.collectives.iter().any(shape) {
            continue;
        }
        let node = &cluster.main().node;
        let latency = if per_domain >= group.ranks { node.intra.latency } else { node.inter.latency };
        let from = format!("{origin}; latency of the link");
        cluster.collectives.push(MeasuredCollective {
            op: group.op,
            ranks: group.ranks,
            per_domain,
            latency,
            bandwidth: rate.min(cluster_profiles::BytesPerSecond(1e15)),
            points: Vec::new(),
            regimes: Vec::new(),
            provenance: Provenance { basis: Basis::Measured, from, median_error: None },
        });
    }
}

/// Members of a group that share a domain.
fn per_domain(cluster: &Cluster, group: &Group) -> Option<u32> {
    let node = &cluster.main().node;
    if node.domain > node.gpus {
        return Some(group.ranks.min(node.domain));
    }
    let per_host = group.per_host.or((cluster.node_count() == 1).then_some(group.ranks))?;
    Some(per_host.min(group.ranks).min(node.domain).max(1))
}

/// Median over files of each size's median.
fn pooled(parts: &[Curve]) -> Vec<(Bytes, Seconds)> {
    let mut times: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (size, time) in parts.iter().flat_map(Curve::points) {
        times.entry(size.get() as u64).or_default().push(time.get());
    }
    let point = |(size, times): (&u64, &Vec<f64>)| Some((Bytes(*size as f64), Seconds(median(times)?)));
    times.iter().filter_map(point).collect()
}

/// How often a size was measured and how far the measurements are apart: medians over the sizes.
fn spread(parts: &[Curve]) -> (usize, Option<f64>) {
    let mut sizes: BTreeMap<u64, (usize, Samples)> = BTreeMap::new();
    for (size, samples) in parts.iter().flat_map(|part| &part.times) {
        let (count, all) = sizes.entry(*size).or_default();
        *count += samples.count();
        samples.kept().iter().for_each(|value| all.push(*value));
    }
    let counts: Vec<f64> = sizes.values().map(|(count, _)| *count as f64).collect();
    let repeated = sizes.values().filter(|(count, _)| *count > 1);
    let spreads: Vec<f64> = repeated.filter_map(|(_, all)| all.spread()).collect();
    (median(&counts).unwrap_or(0.0) as usize, median(&spreads))
}

/// `; 3 measurements of a size, spread 2.1 %`.
fn repeated(samples: usize, spread: Option<f64>) -> String {
    spread.map_or_else(String::new, |spread| {
        format!("; {samples} measurements of a size, spread {:.1} %", 100.0 * spread)
    })
}

/// Files that measured the same and disagree.
fn contradictions(group: &Group, parts: &[Curve], found: &mut Findings) {
    for (i, a) in parts.iter().enumerate() {
        for b in &parts[i + 1..] {
            let others: BTreeMap<u64, f64> =
                b.points().iter().map(|(s, t)| (s.get() as u64, t.get())).collect();
            let ratios: Vec<f64> = a
                .points()
                .iter()
                .filter_map(|(size, time)| Some(time.get() / others.get(&(size.get() as u64))?))
                .collect();
            // Small messages are all latency: the largest third speaks for the rates.
            let large = &ratios[ratios.len() - ratios.len().div_ceil(3)..];
            let apart = |ratio: &f64| ratio.max(1.0 / ratio);
            let candidates = [median(&ratios), median(large)].into_iter().flatten();
            let Some(ratio) = candidates.max_by(|a, b| apart(a).total_cmp(&apart(b))) else { continue };
            if !(1.0 / CONTRADICTION..=CONTRADICTION).contains(&ratio) {
                found.contradictions.push(format!(
                    "{} over {} ranks: {} is {:.0} % {} than {}; their middle is used",
                    group.op.name(),
                    group.ranks,
                    a.origin,
                    100.0 * (ratio.max(1.0 / ratio) - 1.0),
                    if ratio > 1.0 { "slower" } else { "faster" },
                    b.origin
                ));
            }
        }
    }
}

fn curve(
    group: &Group,
    per_domain: u32,
    points: &[(Bytes, Seconds)],
    parts: &[Curve],
) -> Option<(MeasuredCollective, CurveReport)> {
    let (first, last) = (points.first()?, points.last()?);
    let origins: Vec<Origin> = parts.iter().map(|part| part.origin.clone()).collect();
    let (samples, spread) = spread(parts);
    let from = joined(&origins) + &repeated(samples, spread);
    let wire = group.op.wire_factor(group.ranks);
    let fit = fit_regimes(group.op, group.ranks, points).filter(|_| points.len() >= FEWEST_SIZES);
    let regimes = fit.as_ref().map_or_else(Vec::new, |fit| fit.regimes.clone());
    let asymptote = regimes.last().map_or((last.0 * wire) / last.1, |regime| regime.bandwidth);
    // A last range that is bound by latency has no rate of its own.
    let bandwidth = asymptote.min((last.0 * wire) / last.1 * 2.0).max(cluster_profiles::BytesPerSecond(1e3));
    let provenance = Provenance {
        basis: Basis::Measured,
        from: from.clone(),
        median_error: fit.as_ref().map(|fit| fit.median_error.min(10.0)),
    };
    let measured = MeasuredCollective {
        op: group.op,
        ranks: group.ranks,
        per_domain,
        latency: regimes.first().map_or(first.1, |regime| regime.latency.max(first.1 * 0.5)).min(first.1),
        bandwidth,
        points: if fit.is_some() { Vec::new() } else { points.to_vec() },
        regimes: regimes.clone(),
        provenance,
    };
    let report = CurveReport {
        op: group.op,
        ranks: group.ranks,
        per_domain,
        sizes: points.len(),
        samples,
        spread,
        regimes,
        median_error: fit.as_ref().map_or(0.0, |fit| fit.median_error),
        small_error: fit.as_ref().and_then(|fit| fit.small_error),
        largest_error: fit.as_ref().map_or(0.0, |fit| fit.largest_error),
        from,
    };
    Some((measured, report))
}

/// A send between two ranks is the link itself.
fn take_send(
    cluster: &mut Cluster,
    group: &Group,
    measured: &MeasuredCollective,
    parts: &[Curve],
    found: &mut Findings,
) {
    if group.op != Collective::SendRecv {
        return;
    }
    let local = measured.per_domain >= measured.ranks;
    let single = local || measured.per_domain == 1;
    let bandwidth = Some(measured.bandwidth).filter(|b| single && (1e6..=1e15).contains(&b.get()));
    let facts: Vec<LinkFact> = parts
        .iter()
        .map(|part| LinkFact {
            kind: None,
            bandwidth,
            latency: Some(measured.latency.min(Seconds(0.9))),
            per_nic: false,
            nominal: false,
            origin: part.origin.clone(),
        })
        .collect();
    let (_, name) = LinkPlace::ALL[usize::from(!local)];
    for node in cluster.groups.iter_mut().map(|group| &mut group.node) {
        let link = if local { &mut node.intra } else { &mut node.inter };
        take_link(link, name, &facts, 1.0, found);
    }
}

/// A curve that an earlier import left in the base and that this one contradicts.
fn base_apart(old: &MeasuredCollective, new: &MeasuredCollective, found: &mut Findings) {
    let ratio = old.bandwidth / new.bandwidth;
    if old.provenance.basis == Basis::Measured && ratio.max(1.0 / ratio) > CONTRADICTION {
        found.contradict(format!(
            "{} over {} ranks: {} is {:.0} % {} on large messages than {}, which the base has; the new one is used",
            new.op.name(),
            new.ranks,
            new.provenance.from,
            100.0 * (ratio.max(1.0 / ratio) - 1.0),
            if ratio > 1.0 { "slower" } else { "faster" },
            old.provenance.from
        ));
    }
}
