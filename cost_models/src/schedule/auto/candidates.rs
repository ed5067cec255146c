//! The other schedules of the list as candidates.

use super::super::orders::{RankOrders, Vocabulary};
use super::super::placement::Placement;
use super::super::registry::{Generator, Schedule};
use super::super::shape::ScheduleShape;
use super::super::{ScheduleKind, generate_for};
use super::{Objective, ScheduleError, Search};

/// How many of them get their gaps filled: the best.
const FILLED: usize = 4;

/// Every schedule of the same stages that keeps the rules and the limit; the best also with filled gaps.
pub(super) fn handcrafted(search: &mut Search) -> Result<(), ScheduleError> {
    let mut nearest: Vec<(f64, RankOrders, String)> = Vec::new();
    let effort = search.effort;
    let kinds = ScheduleKind::ALL.iter().copied().filter(|&kind| is_written(kind));
    for (schedule, shape) in kinds.flat_map(|kind| forms(search, kind)).collect::<Vec<_>>() {
        let costs = search.costs_of(shape.slices.unwrap_or(1));
        let Ok(orders) = generate_for(schedule, &shape, costs) else { continue };
        let Some((orders, origin)) = of_whole_vocabulary(orders, schedule) else { continue };
        let Some(time) = search.consider(orders.clone(), origin.as_str()) else { continue };
        if search.is_optimal() {
            return Ok(());
        }
        nearest.push((time, orders, origin));
        nearest.sort_by(|a, b| a.0.total_cmp(&b.0));
        nearest.truncate(FILLED);
    }
    // These are looked at whatever the effort.
    search.effort = effort;
    for (_, orders, name) in &nearest {
        search.fill(orders, name)?;
    }
    Ok(())
}

/// The schedules that are searched with an aim and memory of their own, for a makespan no longer than theirs.
pub(super) fn searched(search: &mut Search) {
    if search.options.objective != Objective::Makespan {
        return;
    }
    // The synchronous form of zb-2p has its order.
    let kinds = [ScheduleKind::Zb1p, ScheduleKind::Zb2p, ScheduleKind::VZb];
    for kind in kinds {
        if search.is_optimal() {
            return;
        }
        if !suits_search(search, kind) {
            continue;
        }
        if let Ok(orders) = generate_for(kind, &shape(search), search.costs) {
            search.consider(orders, kind.name());
        }
    }
}

/// Orders that are written down, or laid out in blocks for unit times: they take no search.
fn is_written(kind: ScheduleKind) -> bool {
    let definition = kind.definition();
    let searched = matches!(definition.orders, Generator::Searched(_));
    definition.synchronous && (!searched || matches!(kind, ScheduleKind::VHalf | ScheduleKind::VMin))
}

fn suits_search(search: &Search, kind: ScheduleKind) -> bool {
    let own = kind.definition().placement;
    // A wave of one turn is a V.
    let suits = |searched: Placement| own == searched || (own == Placement::Wave && searched == Placement::V);
    search.placements().into_iter().any(suits)
}

/// A schedule with every number of slices, group size and split of the output layer that it may make use of.
fn forms(search: &Search, kind: ScheduleKind) -> Vec<(Schedule, ScheduleShape)> {
    if !suits_search(search, kind) {
        return Vec::new();
    }
    let definition = kind.definition();
    if definition.default_slices.is_some() {
        let cut = |slices| (kind.into(), shape(search).with_slices(slices));
        return search.slices().map(cut).collect();
    }
    let mut splits = vec![definition.vocabulary];
    if kind.takes_vocabulary() {
        splits.extend([Vocabulary::OneBarrier, Vocabulary::TwoBarriers]);
    }
    let shapes = if definition.grouped { grouped(search) } else { vec![shape(search)] };
    let with = |vocabulary| shapes.iter().map(move |&shape| (Schedule { kind, vocabulary }, shape));
    splits.into_iter().flat_map(with).collect()
}

fn shape(search: &Search) -> ScheduleShape {
    let sizes = search.sizes;
    ScheduleShape {
        chunks: Some(sizes.v),
        times: sizes.times,
        group_rule: sizes.group_rule,
        ..ScheduleShape::new(sizes.p, sizes.m)
    }
}

/// The shape with every group size worth a look.
fn grouped(search: &Search) -> Vec<ScheduleShape> {
    let sizes = search.sizes;
    let groups = [None, sizes.group, Some(sizes.p), Some(sizes.p.div_ceil(2))];
    let mut shapes: Vec<ScheduleShape> = Vec::new();
    for group_size in groups {
        let shape = ScheduleShape { group_size, ..shape(search) };
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

/// The order with the output layer on the last stage, which takes no longer than one with passes beside the same stages.
fn of_whole_vocabulary(orders: RankOrders, schedule: Schedule) -> Option<(RankOrders, String)> {
    if orders.vocabulary() == Vocabulary::Whole {
        let slices = orders.slices();
        let cut = if slices > 1 { format!(", {slices} slices a sequence") } else { String::new() };
        return Some((orders, format!("{schedule}{cut}")));
    }
    let mut parts = orders.into_parts();
    parts.vocabulary = Vocabulary::Whole;
    parts.orders.iter_mut().for_each(|order| order.retain(|op| !op.kind.is_vocabulary()));
    Some((RankOrders::new(parts).ok()?, format!("{schedule} without its passes")))
}
