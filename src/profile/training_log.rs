//! Logs of training runs: Megatron-LM's iteration and memory lines, torchtitan's step lines.

use super::findings::{Findings, MeasuredRun, Origin};
use super::samples::Samples;
use super::source::{self, Input, Lines, positive};
use crate::error::AppError;

/// Steps at the start that do not count: compilation, allocation, first touches of data.
const WARM_UP: usize = 3;
const MIB: f64 = 1_048_576.0;

/// What a log says so far.
#[derive(Default)]
struct Seen {
    lines: usize,
    steps: Samples,
    tokens: Samples,
    flops: Samples,
    allocated: f64,
    reserved: f64,
    first: u64,
    last: u64,
    date: Option<String>,
    warm: Vec<(Option<f64>, Option<f64>, Option<f64>)>,
}

impl Seen {
    fn step(&mut self, line: u64, time: Option<f64>, tokens: Option<f64>, flops: Option<f64>) {
        self.lines += 1;
        self.last = line;
        if self.first == 0 {
            self.first = line;
        }
        if self.lines <= WARM_UP {
            self.warm.push((time, tokens, flops));
            return;
        }
        self.count((time, tokens, flops));
    }

    fn count(&mut self, (time, tokens, flops): (Option<f64>, Option<f64>, Option<f64>)) {
        time.into_iter().for_each(|value| self.steps.push(value));
        tokens.into_iter().for_each(|value| self.tokens.push(value));
        flops.into_iter().for_each(|value| self.flops.push(value));
    }

    /// Whether the file ends inside this line, as that of a job that is running may: such a line is left out.
    fn is_cut(&self, input: &Input, lines: &Lines, found: &mut Findings) -> bool {
        if lines.ended() || self.lines == 0 {
            return false;
        }
        found.note(format!("{}: ends inside line {}, which is left out", input.name(), lines.number()));
        true
    }

    fn finish(mut self, tool: &str, input: &Input, found: &mut Findings) {
        // A log of very few steps: the last of them is all there is.
        if self.lines <= WARM_UP
            && let Some(last) = self.warm.last().copied()
        {
            self.count(last);
            found.note(format!(
                "{}: only {} steps, the first of them slow by nature",
                input.name(),
                self.lines
            ));
        }
        let origin = Origin {
            tool: tool.to_owned(),
            file: input.name(),
            lines: Some((self.first, self.last)),
            date: self.date,
        };
        let positive = |value: f64| (value > 0.0).then_some(value);
        found.runs.push(MeasuredRun {
            source: origin.to_string(),
            steps: self.lines.saturating_sub(WARM_UP).max(1),
            step_time_seconds: self.steps.median(),
            spread: self.steps.spread(),
            tokens_per_second_per_gpu: self.tokens.median(),
            flops_per_second_per_gpu: self.flops.median(),
            max_allocated_bytes: positive(self.allocated),
            max_reserved_bytes: positive(self.reserved),
        });
        found.note(format!(
            "{}: which layout and cluster ran is not in the log; the run is kept as it is",
            input.name()
        ));
    }
}

/// The first word after `key`, without what comes after a `/` (a running mean).
fn after<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let rest = line.split_once(key)?.1.trim_start();
    rest.split(|c: char| c.is_whitespace() || c == '|' || c == '/').next().filter(|word| !word.is_empty())
}

/// Imports a log of Megatron-LM (or of an engine that kept its lines).
///
/// # Errors
/// No iteration line is there, or one has no number where a time belongs.
pub fn megatron(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let mut seen = Seen::default();
    while let Some(line) = lines.next_line()? {
        let line = line.to_owned();
        if seen.is_cut(input, &lines, found) {
            break;
        }
        let value = |key: &str, scale: f64| -> Result<Option<f64>, AppError> {
            match after(&line, key) {
                Some(text) => positive(text, 1e12).map(|v| Some(v * scale)).map_err(|m| lines.fault(m)),
                None => Ok(None),
            }
        };
        if line.contains("elapsed time per iteration (ms):") {
            let time = value("elapsed time per iteration (ms):", 1e-3)?;
            if time.is_none() {
                return Err(lines.fault("an iteration without its time: the log is cut"));
            }
            let flops = match value("throughput per GPU (TFLOP/s/GPU):", 1e12)? {
                None => value("TFLOPs:", 1e12)?,
                some => some,
            };
            let date = source::date(&line);
            seen.date = seen.date.or(date);
            seen.step(lines.number(), time, None, flops);
        } else if line.contains("memory (MB) |") {
            // Megatron divides by 1024 x 1024.
            seen.allocated = seen.allocated.max(value("max allocated:", MIB)?.unwrap_or(0.0));
            seen.reserved = seen.reserved.max(value("max reserved:", MIB)?.unwrap_or(0.0));
        }
    }
    if seen.lines == 0 {
        let message = "no log of Megatron-LM: there is no `elapsed time per iteration (ms):`";
        return Err(input.whole(message, super::other_tool(input, "megatron-log")));
    }
    seen.finish("megatron-log", input, found);
    Ok(())
}

/// Imports a log of torchtitan.
///
/// # Errors
/// No step line is there, or one has no number where a rate belongs.
pub fn torchtitan(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let mut seen = Seen::default();
    while let Some(line) = lines.next_line()? {
        let line = line.to_owned();
        if seen.is_cut(input, &lines, found) {
            break;
        }
        if !(line.contains("step:") && line.contains("memory:")) {
            continue;
        }
        // Its thousands have commas: 5,432.
        let grouped = |key: &str| -> Result<Option<f64>, AppError> {
            match after(&line, key) {
                Some(text) => positive(&ungrouped(text), 1e12).map(Some).map_err(|m| lines.fault(m)),
                None => Ok(None),
            }
        };
        let tokens = match grouped("tps:")? {
            None => grouped("wps:")?,
            some => some,
        };
        if tokens.is_none() {
            return Err(lines.fault("a step without `tps:`: the log is cut"));
        }
        let flops = grouped("tflops:")?.map(|f| f * 1e12);
        if let Some(text) = after(&line, "memory:") {
            let number = text.split("GiB").next().unwrap_or(text);
            if !text.contains("GiB") {
                return Err(lines.fault(format!("`{text}` is no memory in GiB")));
            }
            let memory = positive(number, 1e6).map_err(|m| lines.fault(m))?;
            seen.reserved = seen.reserved.max(memory * 1024.0 * MIB);
        }
        let date = source::date(&line);
        seen.date = seen.date.or(date);
        seen.step(lines.number(), None, tokens, flops);
    }
    if seen.lines == 0 {
        let message = "no log of torchtitan: there is no line with `step:`, `memory:` and `tps:`";
        return Err(input.whole(message, super::other_tool(input, "torchtitan-log")));
    }
    seen.finish("torchtitan-log", input, found);
    Ok(())
}

/// `5,432` as `5432`; other commas stay and are refused.
fn ungrouped(text: &str) -> String {
    let mut parts = text.split('.').next().unwrap_or(text).split(',');
    let head = parts.next().unwrap_or_default();
    let groups: Vec<&str> = parts.collect();
    let thousands = (1..=3).contains(&head.len()) && groups.iter().all(|group| group.len() == 3);
    if thousands { text.replace(',', "") } else { text.to_owned() }
}
