//! nccl-tests and rccl-tests: `all_reduce_perf` and its siblings, as text and as JSON (`-J`).
//!
//! The columns of the text are those its own header names, so that releases with and without `redop`, `root`, `#wrong`,
//! per-iteration figures and timestamps all read. Facts: `src/common.cu` and `src/util.cu` of NVIDIA/nccl-tests.

use super::findings::{Findings, Origin};
use super::nccl_json::json;
use super::nccl_names::{Ranks, TESTS, Test, rank_line, test_named, test_of_file};
use super::source::{self, Input, Lines, number, positive};
use crate::error::AppError;
use cluster_profiles::Collective;

/// Longest time of one call that is believed, in seconds.
const LONGEST: f64 = 3600.0;
/// How far size / time may be from the printed algbw: rounding of small figures, and no wrong unit.
pub(super) const TOLERANCE: f64 = 0.03;

/// Fastest bus bandwidth that is believed, in GB/s.
pub(super) const FASTEST: f64 = 8000.0;
/// Rate in GB/s from which on two decimals tell the ratio of busbw and algbw.
const TELLING: f64 = 0.4;
/// Rows that wait for one that tells which test it is.
const MOST_WAITING: usize = 4096;

/// Imports a file.
///
/// # Errors
/// It is no output of these tests, or a row is not what its header says.
pub fn import(tool: &str, input: &Input, found: &mut Findings) -> Result<(), AppError> {
    if input.is_json()? { json(tool, input, found) } else { text(tool, input, found) }
}

/// What the lines above a table say.
#[derive(Debug, Default)]
struct Run {
    test: Option<Test>,
    waiting: Vec<Measured>,
    ranks: Ranks,
    /// Names of the columns but for the timestamp, which comes last.
    columns: Vec<String>,
    date: Option<String>,
    /// Where its rows are from, made at the first.
    origin: Option<Origin>,
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
        // Rows have no dates, and are too many to look for one in each.
        if run.date.is_none() && !line.starts_with(|c: char| c.is_ascii_digit()) {
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
        run.columns =
            words.iter().filter(|word| **word != "timestamp").map(|word| (*word).to_owned()).collect();
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
    let columns = &run.columns;
    if words.len() < columns.len() {
        let (have, want) = (words.len(), columns.len());
        return Err(lines.fault(format!("{have} columns where the header names {want}: the log is cut")));
    }
    run.rows += 1;
    run.last_row = lines.number();
    let fault = |message: String| lines.fault(message);
    let size = number(words[0]).map_err(fault)?;
    let is_time = |at: &usize| matches!(columns[*at].as_str(), "time" | "cputime") && words[*at] != "N/A";
    let Some(at) = (0..columns.len()).find(is_time) else { return Ok(()) };
    if size < 1.0 {
        return Ok(());
    }
    if columns.get(at + 3).is_some_and(|c| c == "#wrong") && !matches!(words[at + 3], "0" | "N/A") {
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
            let op = guess(columns, &words, busbw / algbw, run)
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
    let date = &run.date;
    let origin = run.origin.get_or_insert_with(|| Origin {
        tool: tool.to_owned(),
        file: input.name(),
        lines: None,
        date: date.clone(),
    });
    for row in std::mem::take(&mut run.waiting).into_iter().chain([measured]).filter(|_| group.ranks > 1) {
        origin.lines = Some((row.line, row.line));
        found.time_of_run(group, origin, run.table, row.size, row.time);
    }
    Ok(())
}

/// The collective by its reduction and its ratio of busbw and algbw, where no name is given.
fn guess(columns: &[String], words: &[&str], ratio: f64, run: &Run) -> Result<Collective, String> {
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
