//! Products and core attentions that were costed before.
//!
//! The layers of a model share many (the mixer of every block, the head of every multi-token-prediction block), and so do
//! contexts that differ in ep and etp only: a table of many contexts costs each once.

use super::passes::Passes;
use crate::compute::{AttentionShape, Format, ForwardBackward};
use std::cell::RefCell;

/// Costs known so far, for contexts with one GPU kind and engine.
#[derive(Debug, Default)]
pub struct Memo {
    linears: RefCell<Vec<(Linear, Passes)>>,
    attentions: RefCell<Vec<(AttentionShape, ForwardBackward)>>,
}

/// What a linear layer's time depends on: format, tokens, outputs, inputs.
pub(super) type Linear = (Format, f64, f64, f64);

impl Memo {
    /// The passes of a linear layer.
    pub(super) fn linear(&self, key: Linear, cost: impl FnOnce() -> Passes) -> Passes {
        known(&self.linears, key, cost)
    }

    /// The core of a softmax attention.
    pub(super) fn attention(
        &self,
        key: AttentionShape,
        cost: impl FnOnce() -> ForwardBackward,
    ) -> ForwardBackward {
        known(&self.attentions, key, cost)
    }
}

fn known<K: PartialEq, V: Copy>(list: &RefCell<Vec<(K, V)>>, key: K, cost: impl FnOnce() -> V) -> V {
    if let Some((_, value)) = list.borrow().iter().find(|(own, _)| *own == key) {
        return *value;
    }
    let value = cost();
    list.borrow_mut().push((key, value));
    value
}
