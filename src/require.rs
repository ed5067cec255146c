//! What a plan must rest on: kinds of plans whose prediction rests on less are refused before the search.

use crate::inputs::Inputs;
use cluster_profiles::{Basis, Bytes, Cluster};
use cost_models::estimate::Published;
use serde::{Deserialize, Serialize};
use solver::Infeasible;

/// What the prediction of a plan must rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Require {
    /// Kernels, links and engine that were measured, or fitted to measurements.
    Measured,
    /// Published runs of the engine on this GPU kind, with every axis the layout uses.
    Validated,
}

/// Axes that published runs may lack, with the term that leaves each unused.
const AXES: [(&str, &str); 5] =
    [("tp", "tp>1"), ("pp", "pp>1"), ("cp", "cp>1"), ("ep", "ep>1"), ("recompute", "recompute=full")];

impl Require {
    /// The terms to forbid so that every layout meets the requirement.
    ///
    /// # Errors
    /// Why no layout on these inputs does, and what would.
    pub fn forbids(self, inputs: &Inputs) -> Result<Vec<&'static str>, Box<Infeasible>> {
        match self {
            Self::Measured => {
                let lacking = unmeasured(inputs);
                if lacking.is_empty() { Ok(Vec::new()) } else { Err(refusal(&lacking.join("; "))) }
            }
            Self::Validated => unvalidated(inputs),
        }
    }
}

/// Parts of a prediction on these inputs that no measurement stands behind.
fn unmeasured(inputs: &Inputs) -> Vec<String> {
    let mut lacking = Vec::new();
    for group in &inputs.cluster.groups {
        let kernels = &group.gpu.kernels;
        let low = kernels.gemm_8bit.as_ref().filter(|_| inputs.workload.precision.is_low());
        let parts = [
            ("matrix products", low.map_or(&kernels.gemm_16bit.provenance, |curve| &curve.provenance)),
            ("attention", &kernels.attention.provenance),
            ("element-wise kernels", &kernels.provenance),
            ("collectives inside a node", &kernels.collective.provenance),
        ];
        let assumed = parts.iter().filter(|(_, provenance)| provenance.basis == Basis::Assumed);
        lacking.extend(assumed.map(|(what, provenance)| {
            format!("{what} of {} are assumed ({})", group.gpu.name, provenance.from)
        }));
    }
    if inputs.runtime.time.provenance.basis == Basis::Assumed {
        lacking.push(format!("times of engine {} are assumed", inputs.runtime.name));
    }
    if spans_domains(&inputs.cluster) && !is_measured_across(&inputs.cluster) {
        let profile = "import nccl-tests logs with `meshwright profile import`";
        lacking.push(format!("links between nodes are datasheet figures: {profile}"));
    }
    lacking
}

fn spans_domains(cluster: &Cluster) -> bool {
    cluster.gpu_count() > u64::from(cluster.main().node.domain)
}

/// Whether the profile holds a collective measured over more than one NVLink domain.
fn is_measured_across(cluster: &Cluster) -> bool {
    cluster.measured.is_some() || cluster.collectives.iter().any(|curve| curve.per_domain < curve.ranks)
}

/// Terms for the axes that no published run of this engine and kind of model uses.
fn unvalidated(inputs: &Inputs) -> Result<Vec<&'static str>, Box<Infeasible>> {
    let (engine, experts) = (&inputs.runtime.name, inputs.model.is_moe());
    let kind = if experts { "models with experts" } else { "dense models" };
    let regime = Published::table().regime(engine, experts);
    let gpus = inputs.cluster.groups.iter().map(|group| group.gpu.name.as_str());
    let lacking: Vec<String> = gpus
        .filter(|gpu| regime.is_none_or(|regime| regime.on(gpu) == 0))
        .map(|gpu| format!("no published run of {kind} on {gpu} with {engine} was compared"))
        .collect();
    if !lacking.is_empty() {
        return Err(refusal(&lacking.join("; ")));
    }
    let unused = |axis: &str| regime.is_none_or(|regime| regime.axes.get(axis).is_none_or(|runs| *runs == 0));
    Ok(AXES.into_iter().filter(|(axis, _)| unused(axis)).map(|(_, term)| term).collect())
}

fn refusal(reason: &str) -> Box<Infeasible> {
    Box::new(Infeasible {
        binding_term: "requirement".to_owned(),
        shortfall_bytes: Bytes::ZERO,
        reason: format!("no layout rests on what --require asks for: {reason}"),
        leanest: None,
        nearest: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::AXES;
    use solver::Constraints;

    #[test]
    fn every_axis_can_be_forbidden() {
        for (axis, term) in AXES {
            assert!(Constraints::parse(&[], &[term]).is_ok(), "{axis}: {term}");
        }
    }
}
