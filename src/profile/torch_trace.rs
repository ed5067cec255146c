//! Chrome traces of the PyTorch profiler: time of each module's forward and backward, and of the step.
//!
//! Modules show as `nn.Module: TransformerBlock_3` (`with_modules` or `with_stack`) or as `record_function` ranges. Kernels
//! belong to the module in whose range they were launched; a backward belongs to the forward whose sequence number it has.

use super::Hints;
use super::findings::{Findings, MeasuredRun, Origin};
use super::galvatron;
use super::samples::Samples;
use super::source::Input;
use crate::error::AppError;
use cluster_profiles::Seconds;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

const TOOL: &str = "torch-trace";
/// Ranges of modules that are kept.
const MOST_SPANS: usize = 1 << 18;
/// Module names that a note lists.
const LISTED: usize = 8;

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    tid: serde_json::Value,
    #[serde(default)]
    args: Arguments,
}

#[derive(Deserialize, Default)]
struct Arguments {
    #[serde(default)]
    correlation: Option<u64>,
    #[serde(default, rename = "Sequence number")]
    sequence: Option<i64>,
    #[serde(default, rename = "Input Dims")]
    dims: Option<serde_json::Value>,
}

/// A range on a thread.
#[derive(Debug, Clone, Copy)]
struct Range {
    thread: u64,
    start: f64,
    end: f64,
}

#[derive(Default)]
struct Trace {
    spans: Vec<(String, Range)>,
    steps: Samples,
    /// Launches by thread: time and correlation.
    launches: BTreeMap<u64, Vec<(f64, u64)>>,
    kernels: BTreeMap<u64, f64>,
    /// Forward operations by thread: time and sequence number.
    forwards: BTreeMap<u64, Vec<(f64, i64)>>,
    backwards: BTreeMap<i64, Range>,
    shapes: Vec<[u64; 3]>,
    events: u64,
}

fn thread(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| {
        value.to_string().bytes().fold(7, |h, b| h.wrapping_mul(31).wrapping_add(b.into()))
    })
}

impl Trace {
    fn take(&mut self, event: Event) {
        self.events += 1;
        if event.ph != "X" || !event.ts.is_finite() || !event.dur.is_finite() || event.dur < 0.0 {
            return;
        }
        let range = Range { thread: thread(&event.tid), start: event.ts, end: event.ts + event.dur };
        match event.cat.as_str() {
            "kernel" | "gpu_memset" => {
                if let Some(id) = event.args.correlation {
                    *self.kernels.entry(id).or_default() += event.dur;
                }
            }
            "cuda_runtime" | "cuda_driver" | "hip_runtime" => {
                if let Some(id) = event.args.correlation {
                    self.launches.entry(range.thread).or_default().push((event.ts, id));
                }
            }
            "cpu_op" => self.operation(&event, range),
            "user_annotation" | "python_function" => self.range(&event, range),
            _ => {}
        }
    }

    fn operation(&mut self, event: &Event, range: Range) {
        if let Some(sequence) = event.args.sequence.filter(|s| *s >= 0) {
            if event.name.starts_with("autograd::engine::evaluate_function") {
                self.backwards.entry(sequence).or_insert(range);
            } else {
                self.forwards.entry(range.thread).or_default().push((event.ts, sequence));
            }
        }
        if self.shapes.len() < 1024
            && matches!(
                event.name.as_str(),
                "aten::linear" | "aten::matmul" | "aten::rms_norm" | "aten::layer_norm"
            )
            && let Some(first) = event.args.dims.as_ref().and_then(|dims| dims.get(0)?.as_array())
            && let [Some(b), Some(s), Some(h)] =
                [0, 1, 2].map(|i| first.get(i).and_then(serde_json::Value::as_u64))
        {
            self.shapes.push([b, s, h]);
        }
    }

    fn range(&mut self, event: &Event, range: Range) {
        if event.name.starts_with("ProfilerStep#") {
            self.steps.push(event.dur * 1e-6);
        } else if let Some(module) = event.name.strip_prefix("nn.Module: ") {
            self.span(module, range);
        } else if event.cat == "user_annotation"
            && !event.name.contains('#')
            && !event.name.starts_with("nccl:")
        {
            self.span(&event.name, range);
        }
    }

    fn span(&mut self, name: &str, range: Range) {
        if self.spans.len() < MOST_SPANS {
            let base = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['_', '.', ' ']);
            self.spans.push((base.to_owned(), range));
        }
    }

    /// Seconds of GPU work launched within a range; of the range itself where the trace has no GPU.
    fn work(&self, range: Range) -> f64 {
        if self.kernels.is_empty() {
            return (range.end - range.start) * 1e-6;
        }
        let launches = within(self.launches.get(&range.thread), range);
        launches.iter().filter_map(|(_, id)| self.kernels.get(id)).sum::<f64>() * 1e-6
    }

    fn backward(&self, range: Range) -> f64 {
        let mut sequences: Vec<i64> =
            within(self.forwards.get(&range.thread), range).iter().map(|(_, s)| *s).collect();
        sequences.sort_unstable();
        sequences.dedup();
        sequences.iter().filter_map(|s| self.backwards.get(s)).map(|range| self.work(*range)).sum()
    }
}

/// The part of a list sorted by time that lies in a range.
fn within<T>(list: Option<&Vec<(f64, T)>>, range: Range) -> &[(f64, T)] {
    let list = list.map(Vec::as_slice).unwrap_or_default();
    let first = list.partition_point(|(at, _)| *at < range.start);
    let last = list.partition_point(|(at, _)| *at <= range.end);
    list.get(first..last.max(first)).unwrap_or_default()
}

/// Reads events one by one: a trace may be far larger than memory allows as a document.
struct Events<'t>(&'t mut Trace);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a Chrome trace: an object with traceEvents, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                map.next_value_seed(Events(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Event>()? {
            self.0.take(event);
        }
        Ok(())
    }
}

/// Imports a file.
///
/// # Errors
/// It is no Chrome trace, or names no modules.
pub fn import(input: &Input, hints: &Hints, found: &mut Findings) -> Result<(), AppError> {
    if !input.is_json()? {
        return Err(input.whole("no JSON", super::other_tool(input, TOOL)));
    }
    let mut trace = Trace::default();
    let mut reader = serde_json::Deserializer::from_reader(input.open()?);
    Events(&mut trace).deserialize(&mut reader).map_err(|error| input.json(&error))?;
    reader.end().map_err(|error| input.json(&error))?;
    if trace.events == 0 {
        return Err(input.whole("no traceEvents", super::other_tool(input, TOOL)));
    }
    trace.launches.values_mut().for_each(|list| list.sort_by(|a, b| a.0.total_cmp(&b.0)));
    trace.forwards.values_mut().for_each(|list| list.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let origin = Origin { tool: TOOL.to_owned(), file: input.name(), lines: None, date: None };
    if trace.steps.count() > 0 {
        found.runs.push(MeasuredRun {
            source: origin.to_string(),
            steps: trace.steps.count(),
            step_time_seconds: trace.steps.median(),
            spread: trace.steps.spread(),
            tokens_per_second_per_gpu: None,
            flops_per_second_per_gpu: None,
            max_allocated_bytes: None,
            max_reserved_bytes: None,
        });
    }
    take_modules(input, &trace, hints, &origin, found)
}

/// Number, median forward and median backward of every kind of module.
fn modules(trace: &Trace) -> Vec<(String, usize, f64, f64)> {
    let mut kinds: BTreeMap<&str, (Samples, Samples)> = BTreeMap::new();
    for (name, range) in &trace.spans {
        let (forward, backward) = (trace.work(*range), trace.backward(*range));
        if forward > 0.0 {
            let samples = kinds.entry(name).or_default();
            samples.0.push(forward);
            samples.1.push(backward);
        }
    }
    let mut modules: Vec<(String, usize, f64, f64)> = kinds
        .into_iter()
        .filter_map(|(name, (f, b))| Some((name.to_owned(), f.count(), f.median()?, b.median()?)))
        .collect();
    modules.sort_by(|a, b| (b.1 as f64 * b.2).total_cmp(&(a.1 as f64 * a.2)));
    modules
}

fn take_modules(
    input: &Input,
    trace: &Trace,
    hints: &Hints,
    origin: &Origin,
    found: &mut Findings,
) -> Result<(), AppError> {
    let modules = modules(trace);
    if modules.is_empty() {
        return Err(input.whole(
            "the trace names no modules",
            "profile with with_modules=True (or with_stack=True), or wrap blocks in torch.profiler.record_function",
        ));
    }
    for (name, count, forward, backward) in modules.iter().take(LISTED) {
        found.note(format!(
            "{}: {count} x {name}: forward {:.3} ms, backward {:.3} ms",
            input.name(),
            forward * 1e3,
            backward * 1e3
        ));
    }
    let Some(model) = &hints.model else {
        found.note(
            "which of these modules is a block of which model? --model MODEL makes a layer profile of it",
        );
        return Ok(());
    };
    let blocks =
        model.layers.iter().filter(|l| matches!(l, cost_models::model::Layer::Block(_))).count().max(1);
    // The outermost module that is there once per block: more time than all that it holds.
    let block = modules.iter().find(|(_, count, ..)| count.is_multiple_of(blocks));
    let Some((name, _, forward, backward)) = block else {
        return Err(input.whole(
            format!("no module is there {blocks} times, as the blocks of {}", model.name),
            "is it this model's trace?",
        ));
    };
    let hidden = model.hidden;
    let shape = trace.shapes.iter().find(|[_, _, h]| *h == hidden);
    let Some([batch, seq, _]) = shape else {
        return Err(input.whole(
            format!("the trace does not show how many tokens a block had ([batch, sequence, {hidden}] in Input Dims)"),
            "profile with record_shapes=True",
        ));
    };
    let (Ok(batch), Ok(seq)) = (u32::try_from(*batch), u32::try_from(*seq)) else { return Ok(()) };
    if let Some(mut layer) = galvatron::layer(model, batch.max(1), seq.max(1), *forward, origin) {
        (layer.input_gradient, layer.weight_gradient) = (Seconds(backward / 2.0), Seconds(backward / 2.0));
        found.layers.push(layer);
        found.note(format!(
            "{name} is taken for the block; tp 1 and bf16 are assumed; a trace does not tell input and weight gradients apart: half each"
        ));
    }
    Ok(())
}
