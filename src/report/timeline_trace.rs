//! A recorded timeline in Chrome's trace event format, which Perfetto opens.

use super::timeline::Held;
use cost_models::schedule::{RankOrders, Timeline};
use serde::Serialize;

#[derive(Serialize)]
struct Trace<'a> {
    #[serde(rename = "traceEvents")]
    events: Vec<Event<'a>>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
}

/// One event; absent fields are left out.
#[derive(Serialize)]
struct Event<'a> {
    name: String,
    ph: &'static str,
    pid: u32,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Args<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Operation { stage: u16, microbatch: u32 },
    Name { name: &'a str },
    Held { held: f64 },
}

/// The JSON document: one thread per rank, one complete event per operation, one counter of what is held per
/// rank. `microseconds` is the length of one unit of the timeline.
#[must_use]
pub fn render(orders: &RankOrders, timeline: &Timeline, microseconds: f64, held: Held) -> String {
    let names: Vec<String> = (0..timeline.ranks.len()).map(|rank| format!("rank {rank}")).collect();
    let counter = match held {
        Held::Chunks => "activations",
        Held::Bytes(_) => "activation bytes",
    };
    let mut events: Vec<Event> = Vec::new();
    for (rank, line) in timeline.ranks.iter().enumerate() {
        events.push(event("thread_name".into(), "M", rank, Args::Name { name: &names[rank] }));
        events.extend(line.spans.iter().map(|span| {
            let op = span.op;
            let args = Args::Operation { stage: op.stage, microbatch: op.microbatch };
            Event {
                cat: Some(category(op.kind.letter())),
                ts: Some(span.start * microseconds),
                dur: Some((span.end - span.start) * microseconds),
                ..event(format!("{}{} stage {}", op.kind.letter(), op.microbatch, op.stage), "X", rank, args)
            }
        }));
        events.extend(held.over_time(orders, timeline, rank).into_iter().map(|(time, held)| Event {
            ts: Some(time * microseconds),
            ..event(format!("{counter} of rank {rank}"), "C", rank, Args::Held { held })
        }));
    }
    serde_json::to_string(&Trace { events, unit: "ms" }).unwrap_or_default()
}

fn event<'a>(name: String, ph: &'static str, tid: usize, args: Args<'a>) -> Event<'a> {
    Event { name, ph, pid: 0, tid, cat: None, ts: None, dur: None, args }
}

fn category(letter: char) -> &'static str {
    match letter {
        'F' => "forward",
        'I' => "input gradient",
        'W' => "weight gradient",
        'B' => "backward",
        _ => "vocabulary",
    }
}
