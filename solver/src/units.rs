//! The pieces a model may be cut into.

use cost_models::model::Layer;
use cost_models::{ModelSpec, StageMap};
use std::ops::Range;

/// Contiguous layers that no engine separates: a block, the embedding, all multi-token-prediction blocks together, the head;
/// with what follows the last block the norm that stands between.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Its layers.
    pub layers: Range<usize>,
    /// Blocks among them whose activations can be recomputed.
    pub blocks: u32,
    /// Whether it is one of the blocks that are dealt out over stages (no end of the model).
    pub body: bool,
    /// Which of the kinds it is.
    pub kind: usize,
}

/// Units with equal layers.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitKind {
    /// The layers of one.
    pub layers: Range<usize>,
    /// How many there are.
    pub count: u32,
}

/// A model as units.
#[derive(Debug, Clone, PartialEq)]
pub struct Units {
    list: Vec<Unit>,
    kinds: Vec<UnitKind>,
}

impl Units {
    /// Cuts a model.
    #[must_use]
    pub fn new(model: &ModelSpec) -> Self {
        let mut units: Vec<Unit> = Vec::new();
        let (mut after_mtp, mut after_norm) = (false, false);
        for (index, layer) in model.layers.iter().enumerate() {
            let is_mtp = matches!(layer, Layer::Mtp(_));
            let joins = after_norm || (is_mtp && after_mtp);
            let body = matches!(layer, Layer::Block(_) | Layer::Custom(_));
            let blocks = u32::from(layer.can_recompute());
            match units.last_mut().filter(|_| joins) {
                Some(unit) => {
                    unit.layers.end = index + 1;
                    unit.blocks += blocks;
                    unit.body |= body;
                }
                None => units.push(Unit { layers: index..index + 1, blocks, body, kind: 0 }),
            }
            after_mtp = is_mtp;
            after_norm = matches!(layer, Layer::FinalNorm);
        }
        let kinds = kinds(model, &mut units);
        Self { list: units, kinds }
    }

    /// Units with equal layers, in the order in which they first occur.
    #[must_use]
    pub fn kinds(&self) -> &[UnitKind] {
        &self.kinds
    }

    /// The units in forward order.
    #[must_use]
    pub fn as_slice(&self) -> &[Unit] {
        &self.list
    }

    /// Number of units.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Units before the first block: the embedding.
    #[must_use]
    pub fn leading(&self) -> usize {
        self.list.iter().take_while(|unit| !unit.body).count()
    }

    /// Units after the last block: multi-token prediction, the head.
    #[must_use]
    pub fn trailing(&self) -> usize {
        self.list.iter().rev().take_while(|unit| !unit.body).count().min(self.len() - self.leading())
    }

    /// Whether all units between the ends of the model are alike, but for the last.
    #[must_use]
    pub fn has_equal_body(&self) -> bool {
        let body = &self.list[self.leading()..self.len() - self.trailing()];
        let alike = &body[..body.len().saturating_sub(1)];
        alike.windows(2).all(|pair| pair[0].kind == pair[1].kind)
    }

    /// The unit every stage of a map ends before; none if a stage ends inside a unit.
    #[must_use]
    pub fn ends_of(&self, stages: &StageMap) -> Option<Vec<usize>> {
        let mut end = 0;
        let ends = stages.0.iter().map(|stage| {
            if let Some([_, last]) = stage.layers {
                let next = last as usize + 1;
                end = self.list.iter().position(|unit| unit.layers.end == next)? + 1;
            }
            Some(end)
        });
        ends.collect()
    }

    /// The layers of some units; none if there is none.
    #[must_use]
    pub fn layers(&self, units: Range<usize>) -> Option<[u32; 2]> {
        let (first, last) = (self.list.get(units.start)?, self.list.get(units.end.checked_sub(1)?)?);
        (units.start < units.end).then(|| [first.layers.start as u32, last.layers.end as u32 - 1])
    }
}

/// Gives every unit its kind.
fn kinds(model: &ModelSpec, units: &mut [Unit]) -> Vec<UnitKind> {
    let mut kinds: Vec<UnitKind> = Vec::new();
    for unit in units {
        let layers = &model.layers[unit.layers.clone()];
        let known = kinds.iter().position(|kind| model.layers[kind.layers.clone()] == *layers);
        unit.kind = known.unwrap_or_else(|| {
            kinds.push(UnitKind { layers: unit.layers.clone(), count: 0 });
            kinds.len() - 1
        });
        kinds[unit.kind].count += 1;
    }
    kinds
}
