//! A recorded timeline as an SVG picture: a row per rank, colours by operation, microbatch numbers where there is room,
//! the share of idle time beside each row, and held activations over time underneath.

use std::collections::BTreeMap;
use std::fmt::Write;

use cost_models::schedule::{OpKind, OpSpan, RankOrders, Timeline};

use super::number::gib;
use super::timeline::{Held, chunk};
use cluster_profiles::Bytes;

const LEFT: f64 = 64.0;
const RIGHT: f64 = 76.0;
const PLOT: f64 = 1360.0;
const TOP: f64 = 74.0;
const MEMORY: f64 = 120.0;
/// Numbers more than this would not be read and make the file heavy.
const MOST_NUMBERS: usize = 20_000;

// Scoped, so that a page around the picture keeps its own.
const STYLE: &str = ".timeline text{font:11px system-ui,sans-serif;fill:#1c2733}.timeline .t{font-size:16px;font-weight:600}\
.timeline .n{font-size:9px;text-anchor:middle;fill:#fff;pointer-events:none}.timeline .r{text-anchor:end}\
.timeline .g{stroke:#c9d1d9;stroke-width:.5}.timeline .bg{fill:#fff}.timeline .row{fill:#eef1f4}\
.timeline .F0{fill:#2f6fb7}.timeline .F1{fill:#6ba4dd}.timeline .I0{fill:#c8742a}.timeline .I1{fill:#e5a566}\
.timeline .W0{fill:#3f8f57}.timeline .W1{fill:#7fc093}.timeline .B0{fill:#b5483f}.timeline .B1{fill:#dd8078}\
.timeline .S0,.timeline .T0{fill:#7a4fa3}.timeline .S1,.timeline .T1{fill:#a885c7}\
.timeline .m{fill:none;stroke-width:1.3}.timeline .m0{stroke:#2f6fb7}.timeline .m1{stroke:#c8742a}\
.timeline .m2{stroke:#3f8f57}.timeline .pair{fill:none;stroke:#1c2733;stroke-width:.8}\
@media(prefers-color-scheme:dark){.timeline text{fill:#e6edf3}.timeline .bg{fill:#0d1117}\
.timeline .row{fill:#1b222c}.timeline .g{stroke:#3a4450}.timeline .pair{stroke:#e6edf3}}";

/// Geometry of one picture.
struct Canvas<'a> {
    orders: &'a RankOrders,
    timeline: &'a Timeline,
    held: Held<'a>,
    row: f64,
    text: String,
}

/// The picture. `unit` names what a time of 1 is, for the axis.
#[must_use]
pub fn render(orders: &RankOrders, timeline: &Timeline, title: &str, unit: &str, held: Held) -> String {
    let row = (900.0 / timeline.ranks.len().max(1) as f64).clamp(13.0, 26.0);
    let mut canvas = Canvas { orders, timeline, held, row, text: String::new() };
    canvas.open(title);
    canvas.legend();
    for rank in 0..timeline.ranks.len() {
        canvas.rank(rank);
    }
    canvas.numbers();
    canvas.axis(unit);
    canvas.memory();
    canvas.text.push_str("</svg>\n");
    canvas.text
}

impl Canvas<'_> {
    fn x(&self, time: f64) -> f64 {
        LEFT + PLOT * time / self.timeline.makespan.max(f64::MIN_POSITIVE)
    }

    fn y(&self, rank: usize) -> f64 {
        TOP + self.row * rank as f64
    }

    fn bottom(&self) -> f64 {
        self.y(self.timeline.ranks.len())
    }

    fn add(&mut self, piece: std::fmt::Arguments) {
        // Writing to a String cannot fail.
        let _ = self.text.write_fmt(piece);
    }

    fn open(&mut self, title: &str) {
        let (width, height) = (LEFT + PLOT + RIGHT, self.bottom() + 34.0 + MEMORY + 40.0);
        let title = escaped(title);
        self.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
             <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n<text class=\"t\" x=\"{LEFT}\" y=\"26\">{title}</text>\n",
        ));
    }

    fn legend(&mut self) {
        let mut used: Vec<OpKind> =
            self.timeline.ranks.iter().flat_map(|rank| &rank.spans).map(|s| s.op.kind).collect();
        used.sort_unstable();
        used.dedup();
        let mut x = LEFT;
        for kind in used {
            let (letter, name) = (kind.letter(), legend_name(kind));
            self.add(format_args!(
                "<rect class=\"{letter}0\" x=\"{x:.0}\" y=\"42\" width=\"14\" height=\"12\"/>\
                 <text x=\"{:.0}\" y=\"52\">{letter} {name}</text>\n",
                x + 19.0
            ));
            x += 48.0 + 6.2 * name.len() as f64;
        }
        if self.orders.chunks() > 1 {
            self.add(format_args!("<text x=\"{x:.0}\" y=\"52\">paler: every second chunk</text>\n"));
        }
        self.add(format_args!(
            "<text class=\"r\" x=\"{:.0}\" y=\"66\">rank</text><text x=\"{:.0}\" y=\"66\">idle</text>\n",
            LEFT - 8.0,
            LEFT + PLOT + 8.0
        ));
    }

    /// One row: the operations of each colour as one path, so that large pictures stay small files.
    fn rank(&mut self, rank: usize) {
        let line = &self.timeline.ranks[rank];
        let (y, height) = (self.y(rank), self.row - 2.0);
        let idle =
            100.0 * (self.timeline.makespan - line.busy) / self.timeline.makespan.max(f64::MIN_POSITIVE);
        let (before, after, middle) = (LEFT - 8.0, LEFT + PLOT + 8.0, y + self.row / 2.0 + 3.0);
        self.add(format_args!(
            "<rect class=\"row\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{PLOT}\" height=\"{height:.1}\"/>\
             <text class=\"r\" x=\"{before:.0}\" y=\"{middle:.1}\">{rank}</text>\
             <text x=\"{after:.0}\" y=\"{middle:.1}\">{idle:.1} %</text>\n",
        ));
        for (class, path) in self.paths(&line.spans, y, height) {
            self.add(format_args!("<path class=\"{class}\" d=\"{path}\"/>\n"));
        }
    }

    fn paths(&self, spans: &[OpSpan], y: f64, height: f64) -> BTreeMap<String, String> {
        let mut paths: BTreeMap<String, String> = BTreeMap::new();
        let mut place = |class: String, from: f64, until: f64, y: f64, height: f64| {
            let _ = write!(
                paths.entry(class).or_default(),
                "M{from:.1} {y:.1}h{0:.1}v{height:.1}h-{0:.1}z",
                (until - from).max(0.1)
            );
        };
        let mut at = 0;
        while at < spans.len() {
            let span = spans[at];
            let (from, until) = (self.x(span.start), self.x(span.end));
            // Neighbours are told apart by a thin gap where there is room for one.
            let gap = if until - from > 3.0 { 0.5 } else { 0.0 };
            let mate = spans.get(at + 1).filter(|_| span.op.paired);
            if let Some(mate) = mate {
                place(class(self.orders, &span), from, until - gap, y, height / 2.0);
                place(class(self.orders, mate), from, until - gap, y + height / 2.0, height / 2.0);
                place("pair".into(), from, until - gap, y, height);
                at += 1;
            } else {
                place(class(self.orders, &span), from, until - gap, y, height);
            }
            at += 1;
        }
        paths
    }

    fn numbers(&mut self) {
        let mut left = MOST_NUMBERS;
        for rank in 0..self.timeline.ranks.len() {
            let y = self.y(rank) + self.row / 2.0 + 2.0;
            let spans = self.timeline.ranks[rank].spans.clone();
            for span in spans.iter().filter(|span| !span.op.paired) {
                let number = span.op.microbatch.to_string();
                let (from, until) = (self.x(span.start), self.x(span.end));
                if until - from < 4.0 + 5.2 * number.len() as f64 || left == 0 {
                    continue;
                }
                left -= 1;
                self.add(format_args!(
                    "<text class=\"n\" x=\"{:.1}\" y=\"{y:.1}\">{number}</text>\n",
                    (from + until) / 2.0
                ));
            }
        }
    }

    fn axis(&mut self, unit: &str) {
        let (bottom, makespan) = (self.bottom(), self.timeline.makespan);
        let step = round_step(makespan / 10.0);
        let mut tick = 0.0;
        while step > 0.0 && tick <= makespan * 1.0001 {
            let x = self.x(tick);
            self.add(format_args!(
                "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 4.0,
                bottom + 16.0,
                rounded(tick, step)
            ));
            tick += step;
        }
        let unit = escaped(unit);
        self.add(format_args!(
            "<text x=\"{:.0}\" y=\"{:.1}\">{unit}</text>\n",
            LEFT + PLOT + 18.0,
            bottom + 16.0
        ));
    }

    /// What the first, the fullest and the last rank hold.
    fn memory(&mut self) {
        let ranks = self.timeline.ranks.len();
        let peaks: Vec<f64> =
            (0..ranks).map(|rank| self.held.peak(self.orders, self.timeline, rank)).collect();
        let worst = (0..ranks).rev().max_by(|&a, &b| peaks[a].total_cmp(&peaks[b])).unwrap_or(0);
        let mut shown = vec![0, worst, ranks.saturating_sub(1)];
        shown.dedup();
        if shown.first() == shown.last() {
            shown.truncate(shown.len().saturating_sub(1).max(1));
        }
        let top = self.bottom() + 34.0;
        let most = peaks.get(worst).copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let label = match self.held {
            Held::Chunks => format!("activations held, microbatch-chunks (most {most})"),
            Held::Bytes(_) => format!("activations held (most {} GiB)", gib(Bytes(most))),
        };
        self.add(format_args!("<text x=\"{LEFT}\" y=\"{:.1}\">{label}</text>\n", top + 6.0));
        for (at, rank) in shown.into_iter().enumerate() {
            let path = self.curve(rank, top + 14.0, most);
            self.add(format_args!(
                "<path class=\"m m{at}\" d=\"{path}\"/><text x=\"{:.0}\" y=\"{:.1}\">rank {rank}</text>\
                 <path class=\"m m{at}\" d=\"M{:.0} {:.1}h14\"/>\n",
                LEFT + 330.0 + 90.0 * at as f64,
                top + 6.0,
                LEFT + 310.0 + 90.0 * at as f64,
                top + 2.0
            ));
        }
    }

    /// A step line, at most one step per pixel: the highest of the steps that fall on it.
    fn curve(&self, rank: usize, top: f64, most: f64) -> String {
        let height = |held: f64| top + MEMORY * (1.0 - held / most);
        let mut path = format!("M{LEFT} {:.1}", height(0.0));
        let (mut column, mut held, mut highest) = (f64::NEG_INFINITY, 0.0f64, 0.0f64);
        for (time, now) in self.held.over_time(self.orders, self.timeline, rank) {
            let x = self.x(time).round();
            if x > column {
                let _ = write!(path, "V{:.1}V{:.1}H{x:.0}", height(highest), height(held));
                (column, highest) = (x, now);
            }
            (held, highest) = (now, highest.max(now));
        }
        let _ = write!(path, "V{:.1}V{:.1}", height(highest), height(held));
        path
    }
}

fn class(orders: &RankOrders, span: &OpSpan) -> String {
    format!("{}{}", span.op.kind.letter(), chunk(orders, span) % 2)
}

fn legend_name(kind: OpKind) -> &'static str {
    match kind {
        OpKind::F => "forward",
        OpKind::I => "input gradient",
        OpKind::W => "weight gradient",
        OpKind::B => "backward",
        OpKind::S => "logits",
        OpKind::T => "logits' gradient",
    }
}

/// 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    if !(step > 0.0 && step.is_finite()) {
        return 0.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power >= step * 0.999);
    digit.unwrap_or(10.0) * power
}

/// The tick without the digits below its step.
fn rounded(tick: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    format!("{tick:.decimals$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
