//! What measured collectives say of groups and operations that nobody measured.
//!
//! The model keeps its form and takes the level of the measurements on the same kind of links, inside a domain or across
//! domains: its time is multiplied by measured over modelled time of the curves nearest in operation and shape, at the size
//! of the message. A shape that was measured comes out as measured; a log of all_reduce over eight ranks moves the
//! reduce_scatter over four.

use super::Fabric;
use cluster_profiles::{Bytes, Collective, GroupShape, MeasuredCollective};

/// Distance between two operations, where a factor of e in the group's size is 1.
const OTHER_OPERATION: f64 = 1.5;
/// The same between gathering and scattering, which are each other's mirror.
const MIRRORED: f64 = 0.25;
/// Distance below which a curve is of the very shape.
const SAME: f64 = 1e-9;
/// Sizes at which curves are compared: 16 KiB to 1 GiB.
const COMPARED: std::ops::RangeInclusive<i32> = 14..=30;

impl Fabric<'_> {
    /// Measured over modelled time of `collective` in a call of `bytes` over a group: the mean of the logarithms over all
    /// curves measured on such links, weighed by 1 / distance^2; 1 where there is none.
    #[must_use]
    pub fn level(&self, collective: Collective, bytes: Bytes, group: GroupShape) -> f64 {
        if self.cluster().collectives.is_empty() {
            return 1.0;
        }
        self.level_by(collective, bytes, group, |_| true).unwrap_or(1.0)
    }

    fn level_by(
        &self,
        collective: Collective,
        bytes: Bytes,
        group: GroupShape,
        keep: impl Fn(&MeasuredCollective) -> bool,
    ) -> Option<f64> {
        let plain = self.plain();
        let (mut sum, mut weights) = (0.0, 0.0);
        for curve in self.cluster().collectives.iter().filter(|curve| keep(curve) && alike(curve, group)) {
            let Some(ratio) = plain.ratio(curve, bytes) else { continue };
            let distance = distance(curve, collective, group);
            if distance < SAME {
                return Some(ratio);
            }
            let weight = 1.0 / (distance * distance);
            sum += weight * ratio.ln();
            weights += weight;
        }
        (weights > 0.0).then(|| (sum / weights).exp())
    }

    /// Measured over modelled time of a curve's own group.
    fn ratio(&self, curve: &MeasuredCollective, bytes: Bytes) -> Option<f64> {
        let ratio = curve.time(bytes) / self.modelled(curve.op, bytes, curve.shape(), 1.0);
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// The measured curve nearest to a group, on the same kind of links.
    #[must_use]
    pub fn nearest_curve(&self, collective: Collective, group: GroupShape) -> Option<&MeasuredCollective> {
        let curves = self.cluster().collectives.iter().filter(|curve| alike(curve, group));
        curves.min_by(|a, b| distance(a, collective, group).total_cmp(&distance(b, collective, group)))
    }

    /// How well measured curves speak for each other: the median over all curves of a kind of links and over sizes of how far
    /// a curve is from what the others say of it, as a fraction. None with fewer than two curves.
    #[must_use]
    pub fn level_error(&self, local: bool) -> Option<f64> {
        let curves = self.cluster().collectives.iter().filter(|curve| curve.shape().is_local() == local);
        let plain = self.plain();
        let mut errors = Vec::new();
        for curve in curves {
            for power in COMPARED {
                let bytes = Bytes(2_f64.powi(power));
                let others =
                    self.level_by(curve.op, bytes, curve.shape(), |other| !std::ptr::eq(other, curve));
                let Some((others, own)) = others.zip(plain.ratio(curve, bytes)) else { continue };
                errors.push((others / own - 1.0).abs());
            }
        }
        cluster_profiles::fit::median(&errors)
    }
}

/// Whether a curve was measured on the kind of links that a group uses.
fn alike(curve: &MeasuredCollective, group: GroupShape) -> bool {
    curve.shape().is_local() == group.is_local()
}

fn distance(curve: &MeasuredCollective, collective: Collective, group: GroupShape) -> f64 {
    use Collective::{AllGather, ReduceScatter};
    let operation = match (curve.op, collective) {
        (a, b) if a == b => 0.0,
        (AllGather, ReduceScatter) | (ReduceScatter, AllGather) => MIRRORED,
        _ => OTHER_OPERATION,
    };
    let factor = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
    let shape = factor(curve.ranks, group.ranks)
        + if group.is_local() { 0.0 } else { factor(curve.per_domain, group.per_domain) };
    operation + shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use cluster_profiles::{Basis, BytesPerSecond, Cluster, Provenance, Seconds, catalog};

    /// dgx-h100 with curves `slow` times as long as its model says.
    fn with(curves: &[(Collective, u32, u32, f64)]) -> Cluster {
        let mut cluster = catalog::cluster("dgx-h100").unwrap().resized(64).unwrap();
        let runtime = Runtime::named("megatron-core").unwrap();
        let model = cluster.clone();
        let fabric = Fabric::new(&model, &runtime.shared);
        for (op, ranks, per_domain, slow) in curves.iter().copied() {
            let group = GroupShape { ranks, per_domain, domains: ranks.div_ceil(per_domain) };
            let points = (8..34).map(|power| {
                let size = Bytes(2_f64.powi(power));
                (size, fabric.time(op, size, group) * slow)
            });
            cluster.collectives.push(MeasuredCollective {
                op,
                ranks,
                per_domain,
                latency: Seconds::ZERO,
                bandwidth: BytesPerSecond(1e9),
                points: points.collect(),
                regimes: Vec::new(),
                provenance: Provenance { basis: Basis::Measured, from: "log".to_owned(), median_error: None },
            });
        }
        cluster
    }

    /// Time on the cluster over time on the catalogue's.
    fn slower(cluster: &Cluster, op: Collective, bytes: f64, ranks: u32, stride: u32) -> f64 {
        let runtime = Runtime::named("megatron-core").unwrap();
        let plain = with(&[]);
        let time = |cluster: &Cluster| {
            Fabric::new(cluster, &runtime.shared).time(op, Bytes(bytes), cluster.group_shape(ranks, stride))
        };
        time(cluster) / time(&plain)
    }

    #[test]
    fn one_measured_group_moves_its_neighbours_and_the_other_operations_on_its_links() {
        let cluster = with(&[(Collective::AllReduce, 8, 8, 2.5)]);
        // Powers of two are sizes of the curve; others lie between its points.
        for bytes in [65_536.0, 1_048_576.0, 268_435_456.0] {
            for (op, ranks) in Collective::ALL.into_iter().flat_map(|op| [2, 4, 8].map(|ranks| (op, ranks))) {
                let factor = slower(&cluster, op, bytes, ranks, 1);
                assert!((factor / 2.5 - 1.0).abs() < 1e-9, "{op:?} {ranks} {bytes}: {factor}");
            }
            // Groups that leave the node use other links.
            assert_eq!(slower(&cluster, Collective::AllReduce, bytes, 16, 1), 1.0);
            assert_eq!(slower(&cluster, Collective::AllGather, bytes, 8, 8), 1.0);
        }
    }

    #[test]
    fn between_two_measured_groups_the_level_lies_between_theirs() {
        let cluster = with(&[(Collective::AllGather, 2, 2, 1.2), (Collective::AllGather, 8, 8, 3.0)]);
        let at = |ranks| slower(&cluster, Collective::AllGather, 1_048_576.0, ranks, 1);
        assert!((at(2) - 1.2).abs() < 1e-9 && (at(8) - 3.0).abs() < 1e-9);
        // Half way between in the logarithm of the ranks.
        assert!((at(4) / (1.2_f64 * 3.0).sqrt() - 1.0).abs() < 1e-9, "{}", at(4));
    }

    #[test]
    fn curves_that_agree_have_no_error_and_one_alone_has_none_to_compare_with() {
        let runtime = Runtime::named("megatron-core").unwrap();
        let error = |curves: &[(Collective, u32, u32, f64)]| {
            let cluster = with(curves);
            Fabric::new(&cluster, &runtime.shared).level_error(true)
        };
        assert_eq!(error(&[(Collective::AllReduce, 8, 8, 2.0)]), None);
        let same = error(&[(Collective::AllReduce, 8, 8, 2.0), (Collective::AllGather, 4, 4, 2.0)]);
        assert!(same.unwrap() < 1e-9);
        let apart = error(&[(Collective::AllReduce, 8, 8, 2.0), (Collective::AllGather, 4, 4, 1.0)]);
        assert!((apart.unwrap() - 0.75).abs() < 1e-9, "{apart:?}");
    }
}
