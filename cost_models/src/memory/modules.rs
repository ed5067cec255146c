//! The set of modules that selective recompute drops.

use crate::runtime::{RecomputeModule, Runtime};

/// A set of [`RecomputeModule`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Modules(u16);

impl Modules {
    /// Nothing is recomputed.
    pub(super) const NONE: Self = Self(0);

    /// What selective recompute means for a runtime: its profile's modules and those a run names.
    pub(super) fn of(runtime: &Runtime) -> Self {
        let named = runtime.facts.recompute_modules;
        let facts = [
            (named.norms, RecomputeModule::Layernorm),
            (named.expert_activation, RecomputeModule::Activation),
            (named.latent_up_projection, RecomputeModule::MlaUpProjection),
        ];
        let facts = facts.into_iter().filter(|(set, _)| *set).map(|(_, module)| module);
        let profile = runtime.memory.activations.selective.iter().copied();
        Self(profile.chain(facts).fold(0, |set, module| set | 1 << module as u16))
    }

    pub(super) const fn contains(self, module: RecomputeModule) -> bool {
        self.0 & (1 << module as u16) != 0
    }
}
