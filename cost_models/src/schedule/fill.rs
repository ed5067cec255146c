//! Bubble filling (DiffusionPipe, arXiv:2405.01248): frozen work, such as encoders, in the idle time of a step.

use super::timeline::Timeline;

/// A piece of work that no rank's operations depend on within the step and that does not depend on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FillItem {
    /// Seconds it takes on any rank, without interruption.
    pub seconds: f64,
    /// The item of the list that has to end before it starts, on whichever rank that ran: an earlier layer of the
    /// same encoder.
    pub after: Option<usize>,
}

/// Where an item runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filling {
    /// Position in the list of items.
    pub item: usize,
    /// The rank.
    pub rank: usize,
    /// Its start.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

/// What fits into the idle intervals, and what does not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filled {
    /// Items that run inside the step.
    pub placed: Vec<Filling>,
    /// Items that have to run before or after it.
    pub left: Vec<usize>,
}

/// Idle intervals of every rank between the start of the step and its end, from a recorded timeline.
pub fn idle_intervals(timeline: &Timeline) -> Vec<Vec<(f64, f64)>> {
    let ends = |rank: usize| {
        let spans = &timeline.ranks[rank].spans;
        let mut gaps = Vec::new();
        let mut now = 0.0;
        for span in spans {
            if span.start > now {
                gaps.push((now, span.start));
            }
            now = span.end.max(now);
        }
        let until = timeline.makespan - timeline.optimizer;
        if until > now {
            gaps.push((now, until));
        }
        gaps
    };
    (0..timeline.ranks.len()).map(ends).collect()
}

/// Places items, in order, each into the idle interval in which it ends first. Moves no operation, so the step keeps its
/// length. Items of negative or not finite length, or that follow one that found no place, are left.
pub fn fill_bubbles(timeline: &Timeline, items: &[FillItem]) -> Filled {
    let mut gaps = idle_intervals(timeline);
    let mut ends: Vec<Option<f64>> = vec![None; items.len()];
    let mut filled = Filled::default();
    for (index, item) in items.iter().enumerate() {
        let ready = match item.after {
            None => Some(0.0),
            Some(before) => ends.get(before).copied().flatten(),
        };
        let usable = item.seconds.is_finite() && item.seconds >= 0.0;
        let place = ready.filter(|_| usable).and_then(|ready| earliest(&gaps, ready, item.seconds));
        let Some((rank, gap, start)) = place else {
            filled.left.push(index);
            continue;
        };
        let end = start + item.seconds;
        split(&mut gaps[rank], gap, start, end);
        ends[index] = Some(end);
        filled.placed.push(Filling { item: index, rank, start, end });
    }
    filled
}

/// Rank, interval and start with the earliest end for work of `seconds` that may start at `ready`.
fn earliest(gaps: &[Vec<(f64, f64)>], ready: f64, seconds: f64) -> Option<(usize, usize, f64)> {
    let mut best: Option<(usize, usize, f64)> = None;
    for (rank, gaps) in gaps.iter().enumerate() {
        let fits = |&(_, &(from, until)): &(usize, &(f64, f64))| from.max(ready) + seconds <= until;
        if let Some((gap, &(from, _))) = gaps.iter().enumerate().find(fits) {
            let start = from.max(ready);
            if best.is_none_or(|(_, _, earliest)| start < earliest) {
                best = Some((rank, gap, start));
            }
        }
    }
    best
}

fn split(gaps: &mut Vec<(f64, f64)>, gap: usize, start: f64, end: f64) {
    let (from, until) = gaps[gap];
    let parts = [(from, start), (end, until)];
    gaps.splice(gap..=gap, parts.into_iter().filter(|(from, until)| until > from));
}
