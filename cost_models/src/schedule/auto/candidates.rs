//! Handcrafted schedules as candidates.

use super::super::placement::Placement;
use super::super::registry::Generator;
use super::super::{ScheduleKind, generate_for};
use super::super::shape::ScheduleShape;
use super::{Search, ScheduleError};

/// Every handcrafted schedule of the same stages that keeps the rules and the limit, as it is and with filled gaps.
pub(super) fn handcrafted(search: &mut Search) -> Result<(), ScheduleError> {
    for &kind in ScheduleKind::ALL {
        let definition = kind.definition();
        let searched = matches!(definition.orders, Generator::Searched(_)) && !is_block(kind);
        let elsewhere = !search.placements().iter().any(|&placement| suits(definition.placement, placement));
        let other = definition.default_slices.is_some() || definition.vocabulary != Default::default();
        if searched || elsewhere || other || !definition.synchronous {
            continue;
        }
        for shape in shapes(search) {
            if let Ok(orders) = generate_for(kind, &shape, search.costs) {
                search.consider_filled(orders, kind.name())?;
            }
        }
    }
    Ok(())
}

/// A wave of one turn is a V.
fn suits(own: Placement, searched: Placement) -> bool {
    own == searched || (own == Placement::Wave && searched == Placement::V)
}

/// Blocks are laid out for unit times and do not search.
fn is_block(kind: ScheduleKind) -> bool {
    matches!(kind, ScheduleKind::VHalf | ScheduleKind::VMin)
}

/// The shape with every group size a schedule may make use of.
fn shapes(search: &Search) -> Vec<ScheduleShape> {
    let sizes = search.sizes;
    let shape = ScheduleShape {
        chunks: Some(sizes.v),
        times: sizes.times,
        group_rule: sizes.group_rule,
        ..ScheduleShape::new(sizes.p, sizes.m)
    };
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
