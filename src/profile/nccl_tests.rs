//! nccl-tests and rccl-tests: `all_reduce_perf` and its siblings, as text and as JSON (`-J`).
//!
//! The columns of the text are those its own header names, so that releases with and without `redop`, `root`, `#wrong`,
//! per-iteration figures and timestamps all read. Facts: `src/common.cu` and `src/util.cu` of NVIDIA/nccl-tests.

use super::findings::{Findings, Group, Origin};
use super::source::{self, Input, Lines, number, positive};
use crate::error::AppError;
use cluster_profiles::Collective;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Longest time of one call that is believed, in seconds.
const LONGEST: f64 = 3600.0;
/// How far size / time may be from the printed algbw: rounding of small figures, and no wrong unit.
const TOLERANCE: f64 = 0.03;

/// Fastest bus bandwidth that is believed, in GB/s.
const FASTEST: f64 = 8000.0;
/// Rate in GB/s from which on two decimals tell the ratio of busbw and algbw.
const TELLING: f64 = 0.4;
/// Rows that wait for one that tells which test it is.
const MOST_WAITING: usize = 4096;

/// A test by its name, with the collective where plans have one.
type Test = (&'static str, Option<Collective>);

/// Names of the tests, with the collective where plans have one.
const TESTS: [(&str, Option<Collective>); 12] = [
    ("all_reduce", Some(Collective::AllReduce)),
    ("all_gather", Some(Collective::AllGather)),
    ("reduce_scatter", Some(Collective::ReduceScatter)),
    ("alltoallv", None),
    ("alltoall", Some(Collective::AllToAll)),
    ("all_to_all", Some(Collective::AllToAll)),
    ("sendrecv", Some(Collective::SendRecv)),
    ("broadcast", None),
    ("reduce", None),
    ("gather", None),
    ("scatter", None),
    ("hypercube", None),
];

/// Imports a file.
///
/// # Errors
/// It is no output of these tests, or a row is not what its header says.
pub fn import(tool: &str, input: &Input, found: &mut Findings) -> Result<(), AppError> {
    if input.is_json()? { json(tool, input, found) } else { text(tool, input, found) }
}

/// The test named in `text` as `all_reduce_perf`.
fn test_named(text: &str) -> Option<Test> {
    TESTS.into_iter().find(|(name, _)| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let own = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            own && text[at + name.len()..].starts_with("_perf")
        })
    })
}

/// The test a file is named after: `all_gather.log`, `run3-AllGather.txt`, `broadcast_perf.log`. None where it names several.
fn test_of_file(name: &str) -> Option<Test> {
    if let Some(test) = test_named(name) {
        return Some(test);
    }
    let squeezed = name.to_lowercase().replace(['_', '-'], "");
    let stem = squeezed.split('.').next().unwrap_or_default();
    let plain = |name: &str| name.replace('_', "");
    if let Some(test) = TESTS.into_iter().find(|(name, _)| plain(name) == stem) {
        return Some(test);
    }
    let mut named = TESTS.into_iter().filter(|(name, op)| op.is_some() && squeezed.contains(&plain(name)));
    let first = named.next().filter(|_| !squeezed.contains("alltoallv"))?;
    named.all(|(_, op)| op == first.1).then_some(first)
}

/// What the lines above a table say.
#[derive(Debug, Default)]
struct Run {
    test: Option<Test>,
    waiting: Vec<Measured>,
    ranks: Ranks,
    columns: Vec<String>,
    date: Option<String>,
    table: u32,
    rows: u64,
    last_row: u64,
    closed: bool,
    wrong: u64,
}

/// A row: its line, and what it measured.
#[derive(Debug, Clone, Copy)]
struct Measured {
    line: u64,
    size: u64,
    time: f64,
}

/// Ranks of the first group, by host, in order.
#[derive(Debug, Default)]
struct Ranks {
    seen: BTreeSet<u32>,
    hosts: Vec<(String, u32)>,
    all_hosts: BTreeMap<String, u32>,
    gpu: Option<String>,
}

impl Ranks {
    fn add(&mut self, rank: u32, group: u32, host: &str, gpu: &str) {
        if !self.seen.insert(rank) {
            return;
        }
        *self.all_hosts.entry(host.to_owned()).or_default() += 1;
        if self.gpu.is_none() && !gpu.is_empty() {
            self.gpu = Some(gpu.to_owned());
        }
        if group != 0 {
            return;
        }
        match self.hosts.iter_mut().find(|(name, _)| name == host) {
            Some((_, count)) => *count += 1,
            None => self.hosts.push((host.to_owned(), 1)),
        }
    }

    fn group(&self, op: Collective) -> Option<Group> {
        let ranks: u32 = self.hosts.iter().map(|(_, count)| count).sum();
        let per_host = self.hosts.iter().map(|(_, count)| *count).max()?;
        (ranks >= 1).then_some(Group { op, ranks, per_host: Some(per_host) })
    }

    fn tell(&self, found: &mut Findings, origin: &Origin) {
        for (host, gpus) in &self.all_hosts {
            found.host(host, *gpus, self.gpu.as_deref(), origin);
        }
    }
}

/// `#  Rank  0 Group  0 Pid   6899 on node-1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3`; older ones have no group.
fn rank_line(line: &str) -> Option<(u32, u32, String, String)> {
    let rest = line.trim_start_matches('#').trim_start().strip_prefix("Rank")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let rank = words.first()?.parse().ok()?;
    let after = |name: &str| words.iter().position(|w| *w == name).and_then(|at| words.get(at + 1)).copied();
    let group = after("Group").and_then(|g| g.parse().ok()).unwrap_or(0);
    let host = after("on")?.to_owned();
    let gpu = rest.split_once(']').map_or("", |(_, name)| name.trim()).to_owned();
    Some((rank, group, host, gpu))
}

/// The line without the task that `srun --label` puts before it (`0: `).
fn untagged(line: &str) -> &str {
    match line.split_once(": ") {
        Some((tag, rest)) if !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => line,
    }
}

fn text(tool: &str, input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let mut run = Run::default();
    let (mut tables, mut command) = (0, None);
    while let Some(line) = lines.next_line()? {
        let line = untagged(line).trim().to_owned();
        if let Some((rank, group, host, gpu)) = line.starts_with('#').then(|| rank_line(&line)).flatten() {
            if !run.columns.is_empty() {
                finish(tool, input, &run, found)?;
                run = Run::default();
            }
            run.ranks.add(rank, group, &host, &gpu);
        } else if line.starts_with('#') {
            comment(&line, &mut run, &mut tables);
        } else if line.starts_with(|c: char| c.is_ascii_digit()) && !run.columns.is_empty() && !run.closed {
            row(tool, input, &lines, &line, &mut run, command, found)?;
        } else if failed(&line) {
            let text: String = line.chars().take(80).collect();
            found.note(format!(
                "{}, line {}: the test FAILED (`{text}`); only the rows before it are used, larger sizes are extrapolated",
                input.name(),
                lines.number()
            ));
            run.closed = true;
        } else if let Some(test) = test_named(&line) {
            command = Some(test);
        }
        if run.date.is_none() {
            run.date = source::date(&line);
        }
    }
    if tables == 0 {
        let message =
            format!("no {tool} output: there is no header line `# size count type ... time algbw busbw`");
        return Err(input.whole(message, super::other_tool(input, tool)));
    }
    finish(tool, input, &run, found)?;
    if found.curves.is_empty() && run.rows == 0 {
        return Err(input.whole(
            "the header has no rows below it: the log is cut, or the test failed",
            "run the test to its end; it prints `# Avg bus bandwidth` last",
        ));
    }
    Ok(())
}

/// `node-1: Test NCCL failure common.cu:279 'unhandled cuda error'`, and the same of CUDA.
fn failed(line: &str) -> bool {
    ["Test NCCL failure", "Test CUDA failure"].iter().any(|sign| line.contains(sign))
}

fn comment(line: &str, run: &mut Run, tables: &mut u32) {
    if let Some(test) = test_named(line) {
        run.test = Some(test);
    }
    let words: Vec<&str> = line.trim_start_matches('#').split_whitespace().collect();
    if words.first() == Some(&"size") && words.contains(&"busbw") {
        run.columns = words.iter().map(|word| (*word).to_owned()).collect();
        run.closed = false;
        *tables += 1;
        run.table = *tables;
    }
    run.closed |= line.contains("Avg bus bandwidth");
}

/// What a run as a whole says, once it is over.
fn finish(tool: &str, input: &Input, run: &Run, found: &mut Findings) -> Result<(), AppError> {
    if run.rows == 0 {
        return Ok(());
    }
    if let Some(row) = run.waiting.first() {
        let message =
            "which test is it? No row up to the end of the table is large enough to tell".to_owned();
        return Err(unnamed(input, row.line, message));
    }
    let origin = Origin { tool: tool.to_owned(), file: input.name(), lines: None, date: run.date.clone() };
    run.ranks.tell(found, &origin);
    if !run.closed {
        found.note(format!(
            "{}: ends at line {} without its summary: the log may be cut; rows up to there are used",
            input.name(),
            run.last_row
        ));
    }
    if run.wrong > 0 {
        found.note(format!("{}: {} rows with wrong results were left out", input.name(), run.wrong));
    }
    Ok(())
}

fn unnamed(input: &Input, line: u64, message: String) -> AppError {
    input.hinted(line, message, Some("name the file after its test, such as all_gather.log".to_owned()))
}

/// The values of a row by the names of its header; the second `time` is the one in place.
fn row(
    tool: &str,
    input: &Input,
    lines: &Lines,
    line: &str,
    run: &mut Run,
    command: Option<Test>,
    found: &mut Findings,
) -> Result<(), AppError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let columns: Vec<&str> = run.columns.iter().map(String::as_str).filter(|c| *c != "timestamp").collect();
    if words.len() < columns.len() {
        let (have, want) = (words.len(), columns.len());
        return Err(lines.fault(format!("{have} columns where the header names {want}: the log is cut")));
    }
    run.rows += 1;
    run.last_row = lines.number();
    let fault = |message: String| lines.fault(message);
    let size = number(words[0]).map_err(fault)?;
    let times: Vec<usize> =
        (0..columns.len()).filter(|i| matches!(columns[*i], "time" | "cputime")).collect();
    let Some(at) = times.iter().copied().find(|at| words[*at] != "N/A") else { return Ok(()) };
    if size < 1.0 {
        return Ok(());
    }
    if columns.get(at + 3).is_some_and(|c| matches!(*c, "#wrong")) && !matches!(words[at + 3], "0" | "N/A") {
        run.wrong += 1;
        return Ok(());
    }
    let time = positive(words[at], LONGEST * 1e6).map_err(fault)? * 1e-6;
    let algbw = number(words[at + 1]).map_err(fault)?;
    let busbw = number(words[at + 2]).map_err(fault)?;
    let exact = size / time / 1e9;
    if (exact - algbw).abs() > exact.max(algbw) * TOLERANCE + 0.011 {
        return Err(lines.fault(format!(
            "{size} bytes in {} us are {exact:.2} GB/s, but algbw says {}: the units are not those of {tool}",
            words[at],
            words[at + 1]
        )));
    }
    if busbw > FASTEST {
        return Err(lines.fault(format!(
            "busbw is {} GB/s, more than any GPU's links have ({FASTEST:.0}): are the columns in MB/s?",
            words[at + 2]
        )));
    }
    let measured = Measured { line: lines.number(), size: size as u64, time };
    let telling = algbw.min(busbw) >= TELLING;
    let op = match run.test.or(command).or_else(|| test_of_file(&input.name())) {
        Some((name, None)) => {
            found.note(format!("{}: {name}_perf is no collective of a plan and was left out", input.name()));
            return Ok(());
        }
        Some((_, Some(op))) => op,
        None if !telling && run.waiting.len() < MOST_WAITING => {
            run.waiting.push(measured);
            return Ok(());
        }
        None => {
            let op = guess(&columns, &words, busbw / algbw, run)
                .map_err(|message| unnamed(input, lines.number(), message))?;
            run.test = TESTS.into_iter().find(|(_, known)| *known == Some(op));
            op
        }
    };
    let group = run.ranks.group(op).ok_or_else(|| {
        lines.fault("a row without `# Rank` lines above it: how many GPUs on which hosts were in the group?")
    })?;
    let by_name = run.test.or(command).is_none();
    if by_name && telling && (busbw / algbw / op.wire_factor(group.ranks) - 1.0).abs() > 0.1 {
        let message = format!(
            "the file's name says {}, but busbw / algbw is {:.2} where that has {:.2}",
            op.name(),
            busbw / algbw,
            op.wire_factor(group.ranks)
        );
        return Err(unnamed(input, lines.number(), message));
    }
    for row in std::mem::take(&mut run.waiting).into_iter().chain([measured]).filter(|_| group.ranks > 1) {
        let origin = Origin {
            tool: tool.to_owned(),
            file: input.name(),
            lines: Some((row.line, row.line)),
            date: run.date.clone(),
        };
        found.time_of_run(group, &origin, run.table, row.size, row.time);
    }
    Ok(())
}

/// The collective by its reduction and its ratio of busbw and algbw, where no name is given.
fn guess(columns: &[&str], words: &[&str], ratio: f64, run: &Run) -> Result<Collective, String> {
    let value = |name: &str| columns.iter().position(|c| *c == name).map(|at| words[at]);
    let reduces = value("redop").is_some_and(|op| op != "none");
    let rooted = value("root").is_some_and(|root| root != "-1");
    let ranks = run.ranks.group(Collective::AllReduce).map_or(0, |group| group.ranks);
    let near = |op: Collective| (ratio / op.wire_factor(ranks) - 1.0).abs() < 0.05;
    match (reduces, rooted) {
        (true, false) if near(Collective::AllReduce) => Ok(Collective::AllReduce),
        (true, false) if near(Collective::ReduceScatter) => Ok(Collective::ReduceScatter),
        (false, false) if near(Collective::SendRecv) => Ok(Collective::SendRecv),
        (false, false) => Err("which test is it? all_gather and alltoall print the same columns".to_owned()),
        _ => Err("which test is it? The file does not name it".to_owned()),
    }
}

/// The document of `-J`: JSON file version 1 and 2.
#[derive(Deserialize)]
struct Document {
    start_time: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default)]
    results: Vec<Row>,
    #[serde(default)]
    average_bus_bandwidth: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    rank: u32,
    #[serde(default)]
    group: u32,
    hostname: String,
    #[serde(default)]
    device_info: String,
}

#[derive(Deserialize)]
struct Row {
    size: u64,
    #[serde(default)]
    out_of_place: Option<Timing>,
    #[serde(default)]
    in_place: Option<Timing>,
    #[serde(default)]
    experiment_name: Option<String>,
}

#[derive(Deserialize)]
struct Timing {
    #[serde(alias = "cpu_time")]
    time: serde_json::Value,
    alg_bw: serde_json::Value,
    #[serde(default)]
    nwrong: Option<serde_json::Value>,
}

fn json(tool: &str, input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let text = input.text()?;
    let document: Document = serde_json::from_str(&text).map_err(|error| input.json(&error))?;
    let devices = document.config.map(|config| config.devices).unwrap_or_default();
    if document.results.is_empty() || devices.is_empty() {
        let hint = super::other_tool(input, tool);
        return Err(input.whole("no JSON of nccl-tests: `config.devices` and `results` are missing", hint));
    }
    let mut ranks = Ranks::default();
    devices.iter().for_each(|d| ranks.add(d.rank, d.group, &d.hostname, &d.device_info));
    let named = document.args.iter().find_map(|arg| test_named(arg));
    let last = text.lines().count() as u64;
    let origin = Origin {
        tool: tool.to_owned(),
        file: input.name(),
        lines: Some((1, last)),
        date: document.start_time.clone(),
    };
    for (index, row) in document.results.iter().enumerate() {
        let test = row.experiment_name.as_deref().and_then(test_named).or(named);
        let Some((_, op)) = test.or_else(|| test_of_file(&input.name())) else {
            return Err(input.whole(
                "which test is it? Neither `args` nor the file's name says",
                "name the file after its test, such as all_gather.json",
            ));
        };
        let (Some(op), Some(timing)) = (op, row.out_of_place.as_ref().or(row.in_place.as_ref())) else {
            continue;
        };
        let wrong = timing.nwrong.as_ref().and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        if row.size == 0 || wrong > 0.0 {
            continue;
        }
        let fault = |what: &str| input.whole(format!("results[{index}].{what}"), "run the test again");
        let value = |value: &serde_json::Value| value.as_f64().filter(|v| v.is_finite() && *v > 0.0);
        let Some(time) = value(&timing.time) else {
            return Err(fault(&format!("time is {}: no measurement", timing.time)));
        };
        let exact = row.size as f64 / time / 1e3;
        if timing.alg_bw.as_f64().is_some_and(|bw| (exact - bw).abs() > exact.max(bw) * TOLERANCE + 0.011) {
            return Err(fault(&format!("alg_bw is {} where size and time give {exact:.2}", timing.alg_bw)));
        }
        if let Some(group) = ranks.group(op).filter(|group| group.ranks > 1) {
            let busbw = exact * op.wire_factor(group.ranks);
            if busbw > FASTEST {
                return Err(fault(&format!("bus_bw is {busbw:.0} GB/s, more than any GPU's links have")));
            }
            found.time(group, &origin, row.size, time * 1e-6);
        }
    }
    ranks.tell(found, &origin);
    if document.average_bus_bandwidth.is_none() {
        found.note(format!("{}: has no average_bus_bandwidth: the test may have been cut", input.name()));
    }
    Ok(())
}
