//! Collectives measured on a cluster: they stand above the model.

use crate::cluster::GroupShape;
use crate::kernels::Provenance;
use crate::quantity;
use crate::read::Section;
use crate::units::{Bytes, BytesPerSecond, Seconds};
use crate::write::Toml;
use serde::{Deserialize, Serialize};

/// A collective operation, by the name nccl-tests and torch give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank ends with the sum.
    AllReduce,
    /// Every rank ends with all parts.
    AllGather,
    /// Every rank ends with its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
    /// One rank sends to the next.
    SendRecv,
}

impl Collective {
    /// Every operation.
    pub const ALL: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllToAll, Self::SendRecv];

    /// The name used in profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::SendRecv => "send_recv",
        }
    }

    /// Bytes a rank of `ranks` puts on the wire for each byte of the full tensor: busbw over algbw, as
    /// `doc/PERFORMANCE.md` of NVIDIA/nccl-tests defines them.
    #[must_use]
    pub fn wire_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (n - 1.0) / n,
            Self::SendRecv => 1.0,
        }
    }
}

impl std::str::FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|op| op.name()).collect();
            format!("unknown collective, use one of {}", names.join(", "))
        })
    }
}

/// Bus bandwidth of collectives over every GPU of a cluster at once, as a start-up test or nccl-tests gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCollectives {
    /// Of all_reduce.
    pub all_reduce: BytesPerSecond,
    /// Of all_gather.
    pub all_gather: BytesPerSecond,
    /// Of reduce_scatter.
    pub reduce_scatter: BytesPerSecond,
    /// Where it was measured.
    pub source: String,
}

impl MeasuredCollectives {
    pub(crate) fn read(section: &Section) -> Self {
        Self {
            all_reduce: section.bytes_per_second("all_reduce", 1e6..=1e15),
            all_gather: section.bytes_per_second("all_gather", 1e6..=1e15),
            reduce_scatter: section.bytes_per_second("reduce_scatter", 1e6..=1e15),
            source: section.text("source"),
        }
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        toml.table("measured");
        toml.bytes_per_second("all_reduce", self.all_reduce);
        toml.bytes_per_second("all_gather", self.all_gather);
        toml.bytes_per_second("reduce_scatter", self.reduce_scatter);
        toml.text("source", &self.source);
    }
}

/// A collective measured on a group of one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCollective {
    /// The operation.
    pub op: Collective,
    /// Members of the group.
    pub ranks: u32,
    /// Members that share one NVLink domain.
    pub per_domain: u32,
    /// Time of the smallest message.
    pub latency: Seconds,
    /// Bus bandwidth of the largest.
    pub bandwidth: BytesPerSecond,
    /// Measured times by size of the full tensor, sizes ascending; with none, latency and bandwidth make a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<(Bytes, Seconds)>,
    /// Fitted lines by protocol regime, sizes ascending; read where there are no points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regimes: Vec<Regime>,
    /// Where it was measured.
    pub provenance: Provenance,
}

/// A range of sizes in which a collective keeps to one protocol, and its line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regime {
    /// Smallest size of the full tensor; the range ends where the next begins.
    pub from: Bytes,
    /// Time that does not depend on the size.
    pub latency: Seconds,
    /// Bus bandwidth.
    pub bandwidth: BytesPerSecond,
}

impl Regime {
    fn line(&self, op: Collective, ranks: u32, bytes: Bytes) -> Seconds {
        self.latency + bytes * op.wire_factor(ranks) / self.bandwidth
    }

    /// Time for a full tensor of `bytes`: the line of its regime, and never less than a smaller tensor takes.
    #[must_use]
    pub fn time(regimes: &[Self], op: Collective, ranks: u32, bytes: Bytes) -> Seconds {
        let own = regimes.iter().rposition(|regime| regime.from <= bytes).unwrap_or(0);
        let ends = regimes.windows(2).take(own).map(|pair| pair[0].line(op, ranks, pair[1].from));
        let time = regimes.get(own).map_or(Seconds::ZERO, |regime| regime.line(op, ranks, bytes));
        ends.fold(time, Seconds::max)
    }

    fn read(section: &Section) -> Self {
        Self {
            from: section.bytes("from", 1.0..=1e15),
            latency: section.seconds("latency", 0.0..=3600.0),
            bandwidth: section.bytes_per_second("bandwidth", 1.0..=1e15),
        }
    }

    fn text(&self) -> String {
        let (from, latency) = (quantity::write_bytes(self.from), quantity::write_seconds(self.latency));
        let bandwidth = quantity::write_bytes_per_second(self.bandwidth);
        format!("{{ from = \"{from}\", latency = \"{latency}\", bandwidth = \"{bandwidth}\" }}")
    }
}

impl MeasuredCollective {
    /// Time for a full tensor of `bytes` (what nccl-tests calls size).
    ///
    /// Between two points the logarithm of the time is linear in the logarithm of the size; below the first the time
    /// stays, above the last it grows with the size. Without points the regimes' lines hold, without those latency and
    /// bandwidth.
    #[must_use]
    pub fn time(&self, bytes: Bytes) -> Seconds {
        if self.points.is_empty() && !self.regimes.is_empty() {
            return Regime::time(&self.regimes, self.op, self.ranks, bytes);
        }
        let Some(upper) = self.points.iter().position(|(size, _)| *size >= bytes) else {
            return self
                .points
                .last()
                .map_or_else(|| self.line(bytes), |(size, time)| *time * (bytes / *size));
        };
        let (size, time) = self.points[upper];
        match upper.checked_sub(1).map(|lower| self.points[lower]) {
            None => time,
            Some((below, before)) => {
                let share = (bytes / below).ln() / (size / below).ln();
                before * (time / before).powf(share)
            }
        }
    }

    fn line(&self, bytes: Bytes) -> Seconds {
        self.latency + bytes * self.op.wire_factor(self.ranks) / self.bandwidth
    }

    /// The shape of the group it was measured on.
    #[must_use]
    pub fn shape(&self) -> GroupShape {
        let per_domain = self.per_domain.max(1);
        GroupShape { ranks: self.ranks, per_domain, domains: self.ranks.div_ceil(per_domain) }
    }

    /// Whether it was measured on a group of this shape.
    #[must_use]
    pub fn fits(&self, op: Collective, shape: GroupShape) -> bool {
        self.op == op && self.ranks == shape.ranks && self.per_domain == shape.per_domain
    }

    pub(crate) fn read(section: &Section) -> Self {
        let ranks = section.count("ranks", 2..=1 << 24);
        let measured = Self {
            op: section.parsed("op", str::parse).unwrap_or(Collective::AllReduce),
            ranks,
            per_domain: section.count("per_domain", 1..=ranks),
            latency: section.seconds("latency", 0.0..=60.0),
            bandwidth: section.bytes_per_second("bandwidth", 1e3..=1e15),
            points: section.points("points"),
            regimes: section.sections("regimes", Regime::read),
            provenance: section.section("provenance", Provenance::read),
        };
        let ascending = measured.points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ascending || measured.points.iter().any(|(size, time)| size.get() < 1.0 || time.get() < 1e-9) {
            section.fault("points", "must be sizes from 1 B up, ascending, with times from 1 ns up");
        }
        if !measured.regimes.windows(2).all(|pair| pair[0].from < pair[1].from) {
            section.fault("regimes", "must start at ascending sizes");
        }
        measured
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        toml.table("[collectives]");
        toml.text("op", self.op.name());
        toml.number("ranks", self.ranks.into());
        toml.number("per_domain", self.per_domain.into());
        toml.seconds("latency", self.latency);
        toml.bytes_per_second("bandwidth", self.bandwidth);
        if !self.points.is_empty() {
            let pair = |(size, time): &(Bytes, Seconds)| {
                format!("[\"{}\", \"{}\"]", quantity::write_bytes(*size), quantity::write_seconds(*time))
            };
            let points: Vec<String> = self.points.iter().map(pair).collect();
            toml.raw("points", &format!("[{}]", points.join(", ")));
        }
        if !self.regimes.is_empty() {
            let lines: Vec<String> =
                self.regimes.iter().map(|regime| format!("    {},\n", regime.text())).collect();
            toml.raw("regimes", &format!("[\n{}]", lines.concat()));
        }
        self.provenance.write(toml);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Basis;

    fn curve(points: Vec<(Bytes, Seconds)>) -> MeasuredCollective {
        MeasuredCollective {
            op: Collective::AllReduce,
            ranks: 8,
            per_domain: 8,
            latency: Seconds::micros(20.0),
            bandwidth: BytesPerSecond(350e9),
            points,
            regimes: Vec::new(),
            provenance: Provenance { basis: Basis::Measured, from: "here".into(), median_error: None },
        }
    }

    #[test]
    fn a_curve_goes_through_its_points_and_is_monotonic_between_them() {
        let points = vec![
            (Bytes(1e3), Seconds::micros(20.0)),
            (Bytes(1e6), Seconds::micros(30.0)),
            (Bytes(1e9), Seconds::micros(5000.0)),
        ];
        let curve = curve(points.clone());
        for (size, time) in points {
            assert!((curve.time(size).get() / time.get() - 1.0).abs() < 1e-12);
        }
        let times: Vec<f64> =
            (0..40).map(|i| curve.time(Bytes(10f64.powf(f64::from(i) / 4.0))).get()).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(curve.time(Bytes(2e9)), Seconds::micros(5000.0) * 2.0);
    }

    #[test]
    fn without_points_the_bus_bandwidth_decides() {
        let time = curve(Vec::new()).time(Bytes(8e9));
        assert!((time.get() - (20e-6 + 14e9 / 350e9)).abs() < 1e-12);
    }
}
