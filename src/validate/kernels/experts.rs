//! `moe_forward.csv`: the fused experts of one layer, forward.

use super::gemm::format;
use super::{Kernels, Measured, Work};
use crate::validate::fields::Fields;
use cost_models::compute::ExpertShape;

/// Tokens per expert from which an engine runs a training-like grouped product.
const TRAINING_LIKE: f64 = 64.0;

pub(super) fn read(kernels: &Kernels, fields: &mut Fields) -> Result<Measured, String> {
    let gpu = kernels.hardware.gpu(fields.text("gpu"))?;
    let dtype = fields.text("moe_dtype");
    let format = format(dtype)?;
    let mut size = |column| fields.required_count(column, 1 << 30) as f64;
    let (tokens, topk, experts) = (size("num_tokens"), size("topk"), size("num_experts"));
    let (tp, ep) = (size("moe_tp_size"), size("moe_ep_size"));
    let (hidden, inner) = (size("hidden_size"), size("inter_size"));
    if tokens * topk / experts < TRAINING_LIKE {
        return Err("fewer than 64 tokens per expert".to_owned());
    }
    let rows = tokens * topk / ep;
    let shape = ExpertShape { rows, hidden, ffn: inner / tp, matrices: 3.0, experts: experts / ep };
    let measured = fields.positive("latency_ms", 1e6).unwrap_or(0.0) * 1e-3;
    let work = Work::Experts(format, shape, tokens);
    Ok(Measured { gpu: gpu.name.clone(), group: dtype.to_owned(), work, measured })
}
