//! What is known of single hosts and links: sets of hosts below a switch, links that differ, a measured matrix.

use crate::read::Section;
use crate::units::{BytesPerSecond, Seconds};
use crate::write::{Toml, number};
use serde::{Deserialize, Serialize};

/// A set of hosts with a name: those below one leaf switch, or in one NVLink domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSet {
    /// Name of the switch or domain.
    pub name: String,
    /// Names of the hosts.
    pub hosts: Vec<String>,
}

impl HostSet {
    pub(crate) fn read(section: &Section) -> Self {
        Self { name: section.text("name"), hosts: section.texts("hosts") }
    }

    pub(crate) fn write(&self, toml: &mut Toml, key: &str) {
        toml.table(&format!("[{key}]"));
        toml.text("name", &self.name);
        toml.texts("hosts", &self.hosts);
    }
}

/// A link that is not what the node's tier says: slower, farther or broken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkOverride {
    /// Two names: host and leaf switch, host and NVLink domain, leaf switch and `spine`, or two hosts (then the whole
    /// way between them).
    pub between: [String; 2],
    /// Only this rail (network interface, from 0) of a link to or from a leaf switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<u32>,
    /// Rate per GPU per direction; of a leaf switch's uplink, per GPU below it. With a rail: the rate of that one wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BytesPerSecond>,
    /// Time of the smallest message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Seconds>,
    /// Whether nothing passes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broken: bool,
    /// Who found it.
    pub source: String,
}

impl LinkOverride {
    pub(crate) fn read(section: &Section) -> Self {
        let between = <[String; 2]>::try_from(section.texts("between")).unwrap_or_else(|_| {
            section.fault("between", "must be two names");
            Default::default()
        });
        let link = Self {
            between,
            rail: section.optional_count("rail", 0..=1023),
            bandwidth: section.has("bandwidth").then(|| section.bytes_per_second("bandwidth", 1e3..=1e15)),
            latency: section.has("latency").then(|| section.seconds("latency", 0.0..=60.0)),
            broken: section.flag("broken"),
            source: section.text("source"),
        };
        if link.bandwidth.is_none() && link.latency.is_none() && !link.broken {
            section.fault("between", "changes nothing: give bandwidth, latency or broken = true");
        }
        link
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        toml.table("[links]");
        toml.texts("between", &self.between);
        toml.optional_number("rail", self.rail.map(f64::from));
        if let Some(bandwidth) = self.bandwidth {
            toml.bytes_per_second("bandwidth", bandwidth);
        }
        if let Some(latency) = self.latency {
            toml.seconds("latency", latency);
        }
        if self.broken {
            toml.raw("broken", "true");
        }
        toml.text("source", &self.source);
    }
}

/// Ratio of the rates of two directions above which a measurement is wrong.
const MOST_ASYMMETRIC: f64 = 100.0;

/// Bandwidth measured between every two hosts, both busy with nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMatrix {
    /// Names of the hosts, in the order of rows and columns.
    pub hosts: Vec<String>,
    /// Rate per GPU per direction from row to column, in GB/s (1e9); the diagonal is not read.
    pub bandwidth_gb_per_second: Vec<Vec<f64>>,
    /// Time of the smallest message from row to column, in microseconds; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_us: Vec<Vec<f64>>,
    /// Where it was measured.
    pub source: String,
}

impl HostMatrix {
    /// Measured rate from one row to one column.
    #[must_use]
    pub fn bandwidth(&self, from: usize, to: usize) -> Option<BytesPerSecond> {
        self.bandwidth_gb_per_second.get(from)?.get(to).map(|rate| BytesPerSecond(rate * 1e9))
    }

    /// Measured latency from one row to one column.
    #[must_use]
    pub fn latency(&self, from: usize, to: usize) -> Option<Seconds> {
        self.latency_us.get(from)?.get(to).map(|time| Seconds::micros(*time))
    }

    pub(crate) fn read(section: &Section) -> Self {
        let matrix = Self {
            hosts: section.texts("hosts"),
            bandwidth_gb_per_second: section.rows("bandwidth_gb_per_second", 0.0..=1e6),
            latency_us: section.rows("latency_us", 0.0..=1e7),
            source: section.text("source"),
        };
        let n = matrix.hosts.len();
        let square = |rows: &[Vec<f64>]| rows.len() == n && rows.iter().all(|row| row.len() == n);
        if !square(&matrix.bandwidth_gb_per_second) {
            section.fault("bandwidth_gb_per_second", &format!("must be {n} rows of {n} numbers"));
        }
        matrix.check_rates(section);
        if !matrix.latency_us.is_empty() && !square(&matrix.latency_us) {
            section.fault("latency_us", &format!("must be {n} rows of {n} numbers"));
        }
        matrix
    }

    /// Every pair has a rate, and none that is a matter of units.
    fn check_rates(&self, section: &Section) {
        let rate =
            |i: usize, j: usize| self.bandwidth_gb_per_second.get(i).and_then(|row| row.get(j)).copied();
        let pairs = (0..self.hosts.len()).flat_map(|i| (0..self.hosts.len()).map(move |j| (i, j)));
        let fault = pairs.filter(|(i, j)| i != j).find_map(|(i, j)| {
            let (to, back) = (rate(i, j)?, rate(j, i)?);
            let (from, at) = (&self.hosts[i], &self.hosts[j]);
            if to <= 0.0 {
                return Some(format!(
                    "is {to} from `{from}` to `{at}`: give the measured rate, or a [[links]] with broken = true"
                ));
            }
            (to > MOST_ASYMMETRIC * back).then(|| {
                format!("is {to} from `{from}` to `{at}` and {back} the other way: one of the two has another unit")
            })
        });
        if let Some(fault) = fault {
            section.fault("bandwidth_gb_per_second", &fault);
        }
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        toml.table("matrix");
        toml.texts("hosts", &self.hosts);
        let rows = |rows: &[Vec<f64>]| {
            let row = |row: &Vec<f64>| row.iter().map(|n| number(*n)).collect::<Vec<_>>().join(", ");
            let rows: Vec<String> = rows.iter().map(|r| format!("    [{}],\n", row(r))).collect();
            format!("[\n{}]", rows.concat())
        };
        toml.raw("bandwidth_gb_per_second", &rows(&self.bandwidth_gb_per_second));
        if !self.latency_us.is_empty() {
            toml.raw("latency_us", &rows(&self.latency_us));
        }
        toml.text("source", &self.source);
    }

    /// The rows and columns of the hosts that `keep` says yes to.
    pub(crate) fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept: Vec<usize> = (0..self.hosts.len()).filter(|i| keep(&self.hosts[*i])).collect();
        let part = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
            if rows.is_empty() {
                return Vec::new();
            }
            let cell = |i: &usize, j: &usize| rows.get(*i).and_then(|row| row.get(*j)).copied();
            kept.iter().map(|i| kept.iter().filter_map(|j| cell(i, j)).collect()).collect()
        };
        Self {
            hosts: kept.iter().map(|i| self.hosts[*i].clone()).collect(),
            bandwidth_gb_per_second: part(&self.bandwidth_gb_per_second),
            latency_us: part(&self.latency_us),
            source: self.source.clone(),
        }
    }
}
