//! `attention_forward.csv`: causal attention, forward.

use super::{Kernels, Measured, Work};
use crate::validate::fields::Fields;
use cluster_profiles::Precision;
use cost_models::compute::AttentionShape;

/// Share of the peak rate above which a causal count of the arithmetic cannot be right.
const CREDIBLE: f64 = 0.95;

pub(super) fn read(kernels: &Kernels, fields: &mut Fields) -> Result<Measured, String> {
    let gpu = kernels.hardware.gpu(fields.text("gpu"))?;
    let engine = fields.text("engine");
    let mut size = |column| fields.required_count(column, 1 << 30) as f64;
    let (batch, seq, heads, kv_heads) =
        (size("batch_size"), size("seq_len"), size("num_heads"), size("num_kv_heads"));
    let width = size("head_dim");
    let measured = fields.positive("latency_ms", 1e6).unwrap_or(0.0) * 1e-3;
    if ![64.0, 128.0, 256.0].contains(&width) {
        return Err("head_dim other than 64, 128 and 256: the columns mean something else there".to_owned());
    }
    let keys = 0.5 * seq;
    let shape = AttentionShape { batch, seq, calls: 1.0, keys, heads, kv_heads, qk_dim: width, v_dim: width };
    let peak = gpu.peak_rate(Precision::Bf16);
    if shape.flops().get() > CREDIBLE * peak.get() * measured {
        return Err("above 95 % of the peak rate: not a full causal attention".to_owned());
    }
    if gpu.name.starts_with("a100") && engine != "sglang" {
        return Err("a100 under another engine than sglang, 0.7 times as long".to_owned());
    }
    let work = Work::Attention(shape);
    Ok(Measured { gpu: gpu.name.clone(), group: format!("head {width}"), work, measured })
}
