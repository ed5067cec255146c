//! Nodes of the search tree, in the order they are looked at.

use crate::by_order::compare_by_order;
use crate::mesh::{Mesh, Pipeline};
use crate::tables::Tables;
use std::cmp::Ordering;
use std::sync::Arc;

/// A set of layouts that nothing in it can beat the bound of.
#[derive(Debug, Clone)]
pub struct Node {
    /// No layout of the set has a smaller value.
    pub bound: f64,
    /// Position in the order of creation: equal bounds are looked at in it.
    pub order: u64,
    /// The layouts.
    pub kind: Kind,
}

/// The layouts of a node.
#[derive(Debug, Clone)]
pub enum Kind {
    /// All layouts of a mesh.
    Mesh(Mesh),
    /// Those of a mesh and its shardings that run this pipeline, bounded without looking at splits.
    Pipeline(Arc<Tables>, Pipeline),
    /// The same, bounded by the bound of their best split; and whether pipelines that move just more modules are nodes already.
    Splits(Arc<Tables>, Pipeline, bool),
}

impl Kind {
    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        match self {
            Self::Mesh(mesh) => mesh,
            Self::Pipeline(tables, _) | Self::Splits(tables, _, _) => &tables.mesh,
        }
    }

    const fn depth(&self) -> u8 {
        match self {
            Self::Mesh(_) => 0,
            Self::Pipeline(..) => 1,
            Self::Splits(..) => 2,
        }
    }
}

impl Ord for Node {
    /// The greatest node is the next: smallest bound, then the most specific, then the oldest.
    fn cmp(&self, other: &Self) -> Ordering {
        let bound = other.bound.total_cmp(&self.bound);
        bound.then(self.kind.depth().cmp(&other.kind.depth())).then(other.order.cmp(&self.order))
    }
}

compare_by_order!(Node);
