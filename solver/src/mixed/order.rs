//! The order of kinds that the integer program finds for a layout.

use super::deal::{Deal, chain};
use super::kinds::Run;
use super::part::{Layout, Part};
use super::program::{StageKinds, assign};
use crate::bound::Layout as Bounds;
use crate::bytes::UnitBytes;
use crate::highs::MipOptions;
use std::ops::Range;
use std::time::Duration;

/// Branch-and-bound nodes that one answer may take.
const PATIENCE: u32 = 200;

/// The stages in the order that the program finds, where every one is of one kind.
pub fn ask(part: &Part, layout: &Layout, left: Option<Duration>) -> Option<Deal> {
    let mesh = &layout.mesh;
    let parallel = mesh.with(&layout.pipeline, part.leanest(mesh)?);
    let size = parallel.world_size() / u64::from(parallel.pp);
    let pure = part.kinds.iter().all(|kind| kind.gpus.is_multiple_of(size));
    if !pure || parallel.pp < 2 {
        return None;
    }
    let units = part.units;
    let times = part.times(mesh);
    let bytes = part.alone.iter().map(|alone| UnitBytes::new(alone, units, &parallel).ok());
    let bytes = bytes.collect::<Option<Vec<UnitBytes>>>()?;
    let body = units.leading()..units.len() - units.trailing();
    let count = body.len();
    let work = |kind: usize, units: Range<usize>| times[kind].work(&units, layout.pipeline.recompute);
    let most = |stage: usize, kind: usize| {
        let own = Bounds {
            mesh,
            pipeline: &layout.pipeline,
            times: &times[kind],
            bytes: &bytes[kind],
            body: count,
            order: None,
            lean: false,
        };
        let fits = |layers: usize| own.may_fit(&(body.start..body.start + layers), own.in_flight(stage));
        (1..=count).take_while(|layers| fits(*layers)).count() as u64
    };
    let kinds = 0..part.kinds.len();
    let shape = StageKinds {
        counts: part.kinds.iter().map(|kind| (kind.gpus / size) as usize).collect(),
        layers: count as u64,
        microbatches: mesh.num_microbatches as f64,
        seconds: kinds.clone().map(|kind| work(kind, body.clone()) / count.max(1) as f64).collect(),
        ends: kinds
            .clone()
            .map(|kind| (work(kind, 0..body.start), work(kind, body.end..units.len())))
            .collect(),
        most: (0..parallel.pp as usize)
            .map(|stage| kinds.clone().map(|kind| most(stage, kind)).collect())
            .collect(),
    };
    let options = MipOptions {
        time_limit: left,
        node_limit: Some(PATIENCE),
        relative_gap: 1e-3,
        ..MipOptions::default()
    };
    let assigned = assign(&shape, &options).ok()??;
    let stages: Vec<Vec<Run>> =
        assigned.kinds.into_iter().map(|kind| vec![Run { kind, gpus: size }]).collect();
    Some(chain(&stages))
}
