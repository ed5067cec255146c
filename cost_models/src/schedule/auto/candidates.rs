//! Handcrafted schedules as candidates.

use super::super::orders::RankOrders;
use super::super::placement::Placement;
use super::super::registry::Generator;
use super::super::shape::ScheduleShape;
use super::super::{ScheduleKind, generate_for};
use super::{ScheduleError, Search};

/// How many of them get their gaps filled: the best.
const FILLED: usize = 4;

/// Every handcrafted schedule of the same stages that keeps the rules and the limit; the best also with filled gaps.
pub(super) fn handcrafted(search: &mut Search) -> Result<(), ScheduleError> {
    let mut nearest: Vec<(f64, RankOrders, &str)> = Vec::new();
    let effort = search.effort;
    for &kind in ScheduleKind::ALL {
        if !is_candidate(search, kind) {
            continue;
        }
        for shape in shapes(search, kind) {
            let Ok(orders) = generate_for(kind, &shape, search.costs) else { continue };
            let Some(time) = search.consider(orders.clone(), kind.name()) else { continue };
            if search.is_optimal() {
                return Ok(());
            }
            nearest.push((time, orders, kind.name()));
            nearest.sort_by(|a, b| a.0.total_cmp(&b.0));
            nearest.truncate(FILLED);
        }
    }
    // These are looked at whatever the effort.
    search.effort = effort;
    for (_, orders, name) in &nearest {
        search.fill(orders, name)?;
    }
    Ok(())
}

fn is_candidate(search: &Search, kind: ScheduleKind) -> bool {
    let definition = kind.definition();
    let searched = matches!(definition.orders, Generator::Searched(_)) && !is_block(kind);
    let elsewhere = !search.placements().iter().any(|&placement| suits(definition.placement, placement));
    let other = definition.default_slices.is_some() || definition.vocabulary != Default::default();
    !(searched || elsewhere || other) && definition.synchronous
}

/// A wave of one turn is a V.
fn suits(own: Placement, searched: Placement) -> bool {
    own == searched || (own == Placement::Wave && searched == Placement::V)
}

/// Blocks are laid out for unit times and do not search.
fn is_block(kind: ScheduleKind) -> bool {
    matches!(kind, ScheduleKind::VHalf | ScheduleKind::VMin)
}

/// The shape with every group size the schedule may make use of.
fn shapes(search: &Search, kind: ScheduleKind) -> Vec<ScheduleShape> {
    let sizes = search.sizes;
    let shape = ScheduleShape {
        chunks: Some(sizes.v),
        times: sizes.times,
        group_rule: sizes.group_rule,
        ..ScheduleShape::new(sizes.p, sizes.m)
    };
    if !kind.definition().grouped {
        return vec![shape];
    }
    let groups = [None, sizes.group, Some(sizes.p), Some(sizes.p.div_ceil(2))];
    let mut shapes: Vec<ScheduleShape> = Vec::new();
    for group_size in groups {
        let shape = ScheduleShape { group_size, ..shape };
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}
