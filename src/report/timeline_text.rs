//! A recorded timeline as text for a terminal.

use super::timeline::chunk;
use cost_models::schedule::{OpSpan, RankOrders, Timeline};

/// A line per rank, `width` columns for the step. An operation shows its letter (lower case for every second chunk) and,
/// where there is room, its microbatch; a combined pair shows both of its operations; `.` is idle time. The share of
/// idle time follows.
///
/// At most `most_ranks` ranks are shown: the first and the last ones.
pub fn render(orders: &RankOrders, timeline: &Timeline, width: usize, most_ranks: usize) -> String {
    let width = width.max(10);
    let ranks = timeline.ranks.len();
    let label = ranks.saturating_sub(1).to_string().len();
    let mut text = String::new();
    let hidden = ranks.saturating_sub(most_ranks.max(2));
    let first = (ranks - hidden).div_ceil(2);
    for (rank, line) in timeline.ranks.iter().enumerate() {
        if hidden > 0 && rank == first {
            text.push_str(&format!("... {hidden} ranks ...\n"));
        }
        if hidden > 0 && (first..first + hidden).contains(&rank) {
            continue;
        }
        let cells = cells(orders, &line.spans, timeline.makespan, width);
        let idle = 100.0 * (timeline.makespan - line.busy) / timeline.makespan.max(f64::MIN_POSITIVE);
        text.push_str(&format!("rank {rank:>label$} |{cells}| {idle:4.1} % idle\n"));
    }
    text
}

fn cells(orders: &RankOrders, spans: &[OpSpan], makespan: f64, width: usize) -> String {
    let mut cells = vec!['.'; width];
    let column = |time: f64| ((time / makespan.max(f64::MIN_POSITIVE)) * width as f64).round() as usize;
    for (at, span) in spans.iter().enumerate() {
        if at > 0 && spans[at - 1].op.paired {
            continue;
        }
        let (from, until) = (column(span.start).min(width), column(span.end).min(width));
        let mate = spans.get(at + 1).filter(|_| span.op.paired);
        let label = label(orders, span, mate, until.saturating_sub(from));
        for (cell, letter) in cells[from..until].iter_mut().zip(label.chars().chain(std::iter::repeat('-'))) {
            *cell = letter;
        }
    }
    cells.into_iter().collect()
}

/// Letter and microbatch, of both operations for a combined pair; the letters alone where the digits do not fit.
fn label(orders: &RankOrders, span: &OpSpan, mate: Option<&OpSpan>, room: usize) -> String {
    let letter = |span: &OpSpan| match span.op.kind.letter() {
        letter if chunk(orders, span) % 2 == 1 => letter.to_ascii_lowercase(),
        letter => letter,
    };
    let both = || std::iter::once(span).chain(mate);
    let full: String = both().map(|span| format!("{}{}", letter(span), span.op.microbatch)).collect();
    if full.len() <= room { full } else { both().map(letter).collect() }
}
