//! `gemm.csv`: matrix products.

use super::{Kernels, Measured, Work};
use crate::validate::fields::Fields;
use cost_models::compute::{Format, Product};

pub(super) fn read(kernels: &Kernels, fields: &mut Fields) -> Result<Measured, String> {
    let dtype = fields.text("dtype");
    let format = format(dtype)?;
    let gpu = kernels.hardware.gpu(fields.text("gpu"))?;
    let mut size = |column| fields.required_count(column, 1 << 30) as f64;
    let product = Product { m: size("m"), n: size("n"), k: size("k") };
    let measured = fields.positive("latency_ms", 1e6).unwrap_or(0.0) * 1e-3;
    let work = Work::Gemm(format, product);
    Ok(Measured { gpu: gpu.name.clone(), group: dtype.to_owned(), work, measured })
}

/// The width of a dtype's name.
pub(super) fn format(dtype: &str) -> Result<Format, String> {
    match dtype {
        "bfloat16" | "float16" => Ok(Format::Bits16),
        "fp8" => Ok(Format::Bits8),
        other => Err(format!("dtype {other} is not modelled")),
    }
}
