//! The modules that a search moves to host memory and repeats together, for all layers alike.
//!
//! Moved is any set of: the core attention with the projection behind it (apart, the output would be copied and not be freed),
//! the projections in front of it, the norms that are modules of their own, the experts' first product, the experts' activation. With
//! each, nothing else is repeated or what costs least for its bytes: the norms, the experts' activation and the up projections of
//! latent attention where there are experts, the MLP where there are none. Moved are they in all layers of a stage, or, where
//! there are no experts, in the first half.

use cost_models::ModelSpec;
use cost_models::model::{Attention, Block, Layer, Mlp};
use cost_models::modules::{Module, ModuleChoice, ModuleSet};

/// Per cent of a stage's modules that are moved.
const SHARES: &[u8] = &[50, 100];
/// The same where there are experts, and so many more sets of modules.
const WHOLE: &[u8] = &[100];

/// Every choice that is looked at for a model; none that moves nothing.
#[must_use]
pub fn module_choices(model: &ModelSpec) -> Vec<ModuleChoice> {
    let blocks = || model.layers.iter().filter_map(block);
    let routed = blocks().any(|block| matches!(block.mlp, Mlp::Moe { .. }));
    let latent = blocks().any(|block| matches!(block.attention, Attention::Latent { .. }));
    let softmax = blocks().any(|block| !matches!(block.attention, Attention::Linear { .. }));
    let mut groups: Vec<&[Module]> = Vec::new();
    if softmax {
        groups.extend([&[Module::CoreAttn, Module::AttnProj][..], &[Module::QkvLinear]]);
    }
    if routed {
        let norms: &[Module] = if latent { &[Module::AttnNorm, Module::MlpNorm] } else { &[Module::MlpNorm] };
        groups.extend([norms, &[Module::ExpertFc1], &[Module::MoeAct]]);
    }
    let repeated = if routed {
        let up = latent.then_some(Module::MlaUpProj);
        [Module::Layernorm, Module::MoeAct].into_iter().chain(up).collect()
    } else {
        ModuleSet::from_iter([Module::Mlp])
    };
    let moved = |bits: usize| -> ModuleSet {
        let chosen = groups.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
        chosen.flat_map(|(_, modules)| modules.iter().copied()).collect()
    };
    let sets = (1..1usize << groups.len()).map(moved);
    let repeats = [ModuleSet::EMPTY, repeated];
    let shares = if routed { WHOLE } else { SHARES };
    sets.flat_map(|moved| {
        let of = move |&percent: &u8| repeats.map(|repeated| ModuleChoice { repeated, moved, percent });
        shares.iter().flat_map(of)
    })
    .collect()
}

fn block(layer: &Layer) -> Option<&Block> {
    match layer {
        Layer::Block(block) | Layer::Mtp(block) => Some(block),
        _ => None,
    }
}
