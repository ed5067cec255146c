//! perftest: `ib_write_bw -a`, `ib_send_bw`, `ib_read_bw` and the latency tests, between two interfaces.
//!
//! `MB/sec` of old releases are MiB, as the `MiB/sec` of new ones; `--report_gbits` prints `Gb/sec`.

use super::findings::{Findings, LinkFact, LinkPlace, Origin};
use super::source::{self, Input, positive};
use crate::error::AppError;
use cluster_profiles::{BytesPerSecond, Seconds};

/// Units of the header with their bytes per second.
const UNITS: [(&str, f64); 3] =
    [("[MB/sec]", 1_048_576.0), ("[MiB/sec]", 1_048_576.0), ("[Gb/sec]", 0.125e9)];

#[derive(Clone, Copy)]
enum Columns {
    Rate(f64),
    Latency,
}

/// Imports a file.
///
/// # Errors
/// It is no perftest output, has another unit, or a row is cut.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let (mut columns, mut ways, mut device, mut date) = (None, 1.0, None, None);
    let (mut rate, mut latency, mut rows) = (0.0_f64, f64::INFINITY, 0_u64);
    while let Some(line) = lines.next_line()? {
        let line = line.trim().to_owned();
        date = date.or_else(|| source::date(&line));
        if line.contains("Bidirectional") {
            ways = 2.0;
        }
        if let Some((_, name)) = line.split_once("Device") {
            device = device.or_else(|| name.split_whitespace().nth(1).map(str::to_owned));
        }
        let body = line.trim_start_matches('#').trim_start();
        if line.contains("#bytes") || body.starts_with("bytes ") {
            columns = Some(header(&line).map_err(|message| lines.fault(message))?);
            continue;
        }
        let Some(now) = columns else { continue };
        let words: Vec<&str> = body.split_whitespace().collect();
        if words.len() < 2 || !words.iter().take(2).all(|w| w.bytes().all(|b| b.is_ascii_digit())) {
            continue;
        }
        let at = if matches!(now, Columns::Rate(_)) { 3 } else { 4 };
        // Every table has at least one more column, so that the value itself is whole.
        let (Some(text), true) = (words.get(at), words.len() > at + 1) else {
            return Err(lines.fault(format!(
                "{} columns, expected at least {}: the log is cut",
                words.len(),
                at + 2
            )));
        };
        let value = positive(text, 1e9).map_err(|message| lines.fault(message))?;
        rows += 1;
        match now {
            Columns::Rate(unit) => {
                source::believable(value * unit).map_err(|message| lines.fault(message))?;
                rate = rate.max(value * unit / ways);
            }
            Columns::Latency => latency = latency.min(value * 1e-6),
        }
    }
    if rows == 0 {
        let message = "no perftest output: there is no table below `#bytes #iterations ...`";
        return Err(input.whole(message, super::other_tool(input, "perftest")));
    }
    let origin =
        Origin { tool: "perftest".to_owned(), file: input.name(), lines: Some((1, lines.number())), date };
    found.note(format!(
        "{}: rate of one interface{}; the file does not name hosts, all interfaces are taken to be alike",
        input.name(),
        device.map_or_else(String::new, |name| format!(" ({name})"))
    ));
    let fact = LinkFact {
        kind: None,
        bandwidth: (rate > 0.0).then_some(BytesPerSecond(rate)),
        latency: latency.is_finite().then_some(Seconds(latency)),
        per_nic: true,
        nominal: false,
        origin,
    };
    found.link_facts.push((LinkPlace::Inter, fact));
    Ok(())
}

fn header(line: &str) -> Result<Columns, String> {
    if line.contains("t_typical[usec]") {
        return Ok(Columns::Latency);
    }
    let unit = UNITS.iter().find(|(name, _)| line.contains(&format!("average{name}")));
    unit.map(|(_, scale)| Columns::Rate(*scale)).ok_or_else(|| {
        "an unknown unit: expected BW average[MB/sec], [MiB/sec] or [Gb/sec], or t_typical[usec]".to_owned()
    })
}
