//! The fitted numbers as the embedded profiles hold them.

use super::kernels::curve_numbers;
use super::parameters::{Parameter, Slot, step_parameters};
use super::write::literal;
use cluster_profiles::{Basis, Gpu, KernelCurves, Provenance, catalog};
use cost_models::{Runtime, runtime};

/// A fitted number of the embedded profiles.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Committed {
    /// GPU kind, engine or `shared`, and the key.
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// What it was fitted to, or taken from.
    pub from: String,
    /// `fitted`, `assumed` ...
    pub basis: &'static str,
    /// Median error on what it was fitted to.
    pub median_error: Option<f64>,
}

/// Every fitted number: those of all engines, of each engine, of each GPU kind.
///
/// # Errors
/// A profile of the catalogue that cannot be read.
pub fn committed() -> Result<Vec<Committed>, String> {
    let mut list = Vec::new();
    for parameter in step_parameters() {
        list.push(of_step(parameter)?);
    }
    for name in catalog::gpu_names() {
        let gpu = catalog::gpu(&name).map_err(|error| error.to_string())?;
        for mut parameter in curve_numbers(&gpu) {
            let kernels = gpu.kernels.clone();
            let provenance = provenance(&kernels, parameter.section).clone();
            parameter.value = value(&parameter, &gpu);
            list.push(line(&parameter, &provenance));
        }
    }
    Ok(list)
}

fn of_step(mut parameter: Parameter) -> Result<Committed, String> {
    let engine = |name: &str| Runtime::named(name).map_err(|error| error.to_string());
    let provenance = match parameter.slot {
        Slot::Shared(get) => {
            let mut shared = engine(runtime::DEFAULT)?.shared;
            parameter.value = *get(&mut shared);
            shared.provenance
        }
        Slot::Engine(get) => {
            let mut time = engine(&parameter.owner)?.time;
            parameter.value = *get(&mut time);
            time.provenance
        }
        Slot::Gpu(_) => {
            let gpu = catalog::gpu(&parameter.owner).map_err(|error| error.to_string())?;
            parameter.value = value(&parameter, &gpu);
            gpu.kernels.provenance
        }
    };
    Ok(line(&parameter, &provenance))
}

fn value(parameter: &Parameter, gpu: &Gpu) -> f64 {
    match parameter.slot {
        Slot::Gpu(get) => *get(&mut gpu.kernels.clone()),
        _ => parameter.value,
    }
}

fn provenance<'a>(kernels: &'a KernelCurves, section: &str) -> &'a Provenance {
    match section {
        "kernels.gemm_16bit" => &kernels.gemm_16bit.provenance,
        "kernels.gemm_8bit" => {
            kernels.gemm_8bit.as_ref().map_or(&kernels.provenance, |curve| &curve.provenance)
        }
        "kernels.attention" => &kernels.attention.provenance,
        "kernels.collective" => &kernels.collective.provenance,
        _ => &kernels.provenance,
    }
}

fn line(parameter: &Parameter, provenance: &Provenance) -> Committed {
    Committed {
        name: parameter.name(),
        value: literal(parameter).trim_matches('"').to_owned(),
        from: provenance.from.clone(),
        basis: provenance.basis.name(),
        median_error: provenance.median_error.filter(|_| provenance.basis == Basis::Fitted),
    }
}

#[cfg(test)]
mod tests {
    use super::committed;
    use std::collections::BTreeMap;

    /// Few numbers: at most 20 for a GPU kind, at most 8 for an engine.
    #[test]
    fn there_are_few_numbers() {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for number in committed().unwrap() {
            let owner = number.name.split('.').next().unwrap().to_owned();
            *counts.entry(owner).or_default() += 1;
        }
        for (owner, count) in &counts {
            let limit = if owner == "shared" {
                24
            } else if cost_models::runtime::names().contains(owner) {
                8
            } else {
                20
            };
            assert!(*count <= limit, "{owner} has {count}");
        }
        assert!(counts.len() > 20);
    }
}
