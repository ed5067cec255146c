//! A recorded timeline as text for a terminal.

use cost_models::schedule::{OpSpan, RankOrders, Timeline};

/// A line per rank, `width` columns for the step. An operation shows its letter (lower case for every second chunk) and,
/// where there is room, its microbatch; `.` is idle time. The share of idle time follows.
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
    for span in spans {
        let (from, until) = (column(span.start).min(width), column(span.end).min(width));
        for (cell, letter) in cells[from..until].iter_mut().zip(name(orders, span, until - from)) {
            *cell = letter;
        }
    }
    cells.into_iter().collect()
}

/// The letter, the microbatch if all its digits fit, and dashes.
fn name(orders: &RankOrders, span: &OpSpan, room: usize) -> impl Iterator<Item = char> {
    let letter = span.op.kind.letter();
    let letter = if chunk(orders, span) % 2 == 1 { letter.to_ascii_lowercase() } else { letter };
    let digits = span.op.microbatch.to_string();
    let shown = if digits.len() < room { digits } else { String::new() };
    std::iter::once(letter).chain(shown.chars().collect::<Vec<_>>()).chain(std::iter::repeat('-'))
}

/// Which of its rank's stages the operation belongs to.
pub(super) fn chunk(orders: &RankOrders, span: &OpSpan) -> u32 {
    u32::from(span.op.stage) / orders.ranks()
}
