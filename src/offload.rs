//! Optimizer state and activations in host memory: which launchers can keep them there, and what that asks of a layout.

use crate::error::AppError;
use crate::inputs::Inputs;
use crate::launch;
use cost_models::Optimizer;
use serde::{Deserialize, Serialize};

/// What a plan may keep in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Nothing.
    Never,
    /// Master weights and moments of the optimizer, whose step then runs on the host.
    Optimizer,
    /// Saved activations of some layers, where that makes the fastest plan.
    Activations,
    /// Activations as above; the optimizer's state too where nothing fits without.
    Any,
}

impl Offload {
    /// Whether activations may be moved.
    #[must_use]
    pub const fn moves_activations(self) -> bool {
        matches!(self, Self::Activations | Self::Any)
    }
}

/// What is moved where nothing fits without and can be, in the order in which it is tried: whether the optimizer's state, and
/// what of the rest a search may move.
#[must_use]
pub fn spills(inputs: &Inputs, wish: Option<Offload>) -> Vec<(bool, Offload)> {
    let all: &[(bool, Offload)] = match wish {
        None => &[(false, Offload::Activations), (true, Offload::Optimizer), (true, Offload::Any)],
        Some(Offload::Any) => &[(true, Offload::Any)],
        Some(Offload::Never | Offload::Optimizer | Offload::Activations) => &[],
    };
    let (state, activations) = (fault(inputs).is_none(), activation_fault(inputs).is_none());
    let able = |(optimizer, offload): &&(bool, Offload)| {
        (state || !optimizer) && (activations || wish.is_some() || !offload.moves_activations())
    };
    all.iter().filter(able).copied().collect()
}

/// Why no activations of these inputs can be kept in host memory; none if some can.
#[must_use]
pub fn activation_fault(inputs: &Inputs) -> Option<String> {
    let able = match inputs.launcher.as_deref().and_then(launch::named) {
        Some(launcher) => launcher.offloads_activations(),
        None => cost_models::rules::engine(&inputs.runtime.name).offload,
    };
    let who = inputs.launcher.as_deref().unwrap_or(&inputs.runtime.name);
    (!able).then(|| format!("no activations are kept in host memory by {who}"))
}

/// Layouts whose optimizer cannot be kept in host memory, as a term that a search forbids: its state must be sharded.
pub const FORBIDS: &str = "zero=0";

/// Why the optimizer of these inputs cannot be kept in host memory; none if it can.
#[must_use]
pub fn fault(inputs: &Inputs) -> Option<String> {
    let able = match inputs.launcher.as_deref().and_then(launch::named) {
        Some(launcher) => launcher.offloads_optimizer(),
        None => launchers(&inputs.runtime.name).next().is_some(),
    };
    let adam = matches!(inputs.workload.optimizer, Optimizer::Adamw | Optimizer::AdamwBf16);
    let who = inputs.launcher.as_deref().unwrap_or(&inputs.runtime.name);
    match (able, adam) {
        (false, _) => Some(format!("no optimizer state is kept in host memory by {who}")),
        (true, false) => {
            Some(format!("only Adam runs on the host, not {}", inputs.workload.optimizer.name()))
        }
        (true, true) => None,
    }
}

fn launchers(runtime: &str) -> impl Iterator<Item = &'static str> + '_ {
    let able = launch::ALL.iter().filter(move |own| own.runtime() == runtime && own.offloads_optimizer());
    able.map(|launcher| launcher.name())
}

/// Whether a plan keeps optimizer state in host memory.
#[must_use]
pub fn is_used(inputs: &Inputs) -> bool {
    inputs.runtime.memory.state.optimizer_offload > 0.0
}

impl Inputs {
    /// The same with the optimizer's state in host memory.
    ///
    /// # Errors
    /// [`AppError::Usage`] where engine, launcher or optimizer cannot.
    pub fn offloaded(mut self) -> Result<Self, AppError> {
        if let Some(fault) = fault(&self) {
            return Err(AppError::usage(
                format!("--offload optimizer: {fault}"),
                "use --runtime megatron-core or --launcher megatron with --optimizer adamw",
            ));
        }
        self.runtime.memory.state.optimizer_offload = 1.0;
        Ok(self)
    }
}
