//! GPU kinds that take over the curves of a measured one.

use super::kernels::FittedCurve;
use super::parameters::Slot;
use cluster_profiles::Gpu;

/// Kind, the measured kind whose chip it shares (or is taken to share), and the curves it takes over.
const SIBLINGS: &[(&str, &str, &[&str])] = &[
    ("a100-sxm-40gb", "a100-sxm-80gb", &["kernels.gemm_16bit", "kernels.attention", "kernels.collective"]),
    (
        "h100-96gb-500w",
        "h100-sxm-80gb",
        &["kernels.gemm_16bit", "kernels.gemm_8bit", "kernels.attention", "kernels.collective"],
    ),
    ("h800", "h100-sxm-80gb", &["kernels.gemm_16bit", "kernels.gemm_8bit", "kernels.attention"]),
    (
        "b200-power-limited",
        "b200",
        &["kernels.gemm_16bit", "kernels.gemm_8bit", "kernels.attention", "kernels.collective"],
    ),
    ("gb300", "gb200", &["kernels.gemm_16bit", "kernels.gemm_8bit", "kernels.collective"]),
];

/// The fitted curves with those that siblings take over, under the siblings' names.
#[must_use]
pub fn with_siblings(curves: &[FittedCurve]) -> Vec<FittedCurve> {
    let mut all = curves.to_vec();
    for (name, measured, sections) in SIBLINGS {
        for curve in curves.iter().filter(|c| c.gpu == *measured && sections.contains(&c.section)) {
            let mut taken = curve.clone();
            (*name).clone_into(&mut taken.gpu);
            taken.parameters.iter_mut().for_each(|parameter| (*name).clone_into(&mut parameter.owner));
            all.push(taken);
        }
    }
    all
}

/// Sets the curves of `gpu`; those of other kinds are left out.
pub fn apply_curves(gpu: &mut Gpu, curves: &[FittedCurve]) {
    let (name, kernels) = (gpu.name.as_str(), &mut gpu.kernels);
    for parameter in curves.iter().filter(|curve| curve.gpu == name).flat_map(|curve| &curve.parameters) {
        if let Slot::Gpu(get) = parameter.slot {
            *get(kernels) = parameter.value;
        }
    }
}
