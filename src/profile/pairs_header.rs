//! How a CSV of rates between hosts is written: separator, decimals, columns and their units.

use super::source::number;

/// Units whose capitals tell bits from bytes, as headers write them, with their scale in bytes per second.
const CAPITALS: [(&str, f64); 8] = [
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("GBps", 1e9),
    ("MBps", 1e6),
    ("Gb/s", 0.125e9),
    ("Mb/s", 0.125e6),
    ("Gbps", 0.125e9),
    ("Mbps", 0.125e6),
];
/// Units that need none.
const RATES: [(&str, f64); 14] = [
    ("gibps", 1_073_741_824.0),
    ("gib/s", 1_073_741_824.0),
    ("gib_per_second", 1_073_741_824.0),
    ("mib/s", 1_048_576.0),
    ("mib_per_second", 1_048_576.0),
    ("gbit", 0.125e9),
    ("mbit", 0.125e6),
    ("gb_per_second", 1e9),
    ("gbytes", 1e9),
    ("gigabytes", 1e9),
    ("mb_per_second", 1e6),
    ("mbytes", 1e6),
    ("megabytes", 1e6),
    ("bytes_per_second", 1.0),
];
/// The same of latencies, in seconds.
const TIMES: [(&str, f64); 5] = [("us", 1e-6), ("usec", 1e-6), ("ms", 1e-3), ("ns", 1e-9), ("seconds", 1.0)];

/// How a file separates its cells, and its decimals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    separator: char,
    decimal_comma: bool,
}

impl Dialect {
    pub(super) fn of(header: &str) -> Self {
        let count = |c: char| header.matches(c).count();
        let separator = [';', '\t', ','].into_iter().max_by_key(|c| (count(*c), *c == ',')).unwrap_or(',');
        Self { separator, decimal_comma: separator != ',' }
    }

    pub(super) fn cells(self, line: &str) -> Vec<String> {
        line.split(self.separator).map(|cell| cell.trim().trim_matches('"').to_owned()).collect()
    }

    pub(super) fn number(self, cell: &str) -> Result<f64, String> {
        if self.decimal_comma && cell.matches(',').count() == 1 && !cell.contains('.') {
            // Three digits after it may as well be thousands.
            if cell.split_once(',').is_some_and(|(whole, rest)| rest.len() == 3 && whole != "0") {
                return Err(format!(
                    "`{cell}` may be {} or {}: write decimals with a point",
                    cell.replace(',', "."),
                    cell.replace(',', "")
                ));
            }
            return number(&cell.replace(',', "."));
        }
        number(cell)
    }
}

/// What the columns of a list of pairs are.
pub(super) struct Columns {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) rail: Option<usize>,
    pub(super) rate: (usize, f64),
    pub(super) latency: Option<(usize, f64)>,
    pub(super) width: usize,
}

fn scale(name: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find(|(unit, _)| name.contains(unit)).map(|(_, scale)| *scale)
}

/// Bytes per second of the unit in a header.
pub(super) fn rate_unit(header: &str) -> Result<f64, String> {
    let exact = CAPITALS.iter().find(|(unit, _)| header.contains(unit)).map(|(_, scale)| *scale);
    let lower = header.to_lowercase();
    if let Some(unit) = exact.or_else(|| scale(&lower, &RATES)) {
        return Ok(unit);
    }
    if ["gb/s", "mb/s", "gbps", "mbps"].iter().any(|unit| lower.contains(unit)) {
        return Err(format!("`{header}` does not tell bits from bytes: GB/s, Gbit/s or MiB/s?"));
    }
    Err(format!("`{header}` has no unit: GB/s, Gbit/s or MiB/s?"))
}

/// The columns of a list; none where the header is that of a square table.
pub(super) fn columns(header: &[String]) -> Result<Option<Columns>, String> {
    let names: Vec<String> = header.iter().map(|name| name.to_lowercase()).collect();
    let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
    let (from, to) = (
        find(&["from", "src", "source", "sender", "host_a", "from_host", "client"]),
        find(&["to", "dst", "destination", "receiver", "host_b", "to_host", "server"]),
    );
    let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
    let rate = names.iter().position(|name| {
        ["bandwidth", "bw", "busbw", "algbw", "rate"].iter().any(|stem| name.starts_with(stem))
    });
    let rate = rate.ok_or("no column of bandwidths")?;
    let unit = rate_unit(&header[rate])?;
    let latency = match names.iter().position(|name| name.starts_with("lat")) {
        Some(at) => {
            Some((at, scale(&names[at], &TIMES).ok_or_else(|| format!("`{}` has no unit", names[at]))?))
        }
        None => None,
    };
    let rail = find(&["rail", "nic", "interface", "hca"]);
    Ok(Some(Columns { from, to, rail, rate: (rate, unit), latency, width: names.len() }))
}
