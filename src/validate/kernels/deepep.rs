//! `deepep.csv`: expert dispatch and combine.

use super::{Kernels, Measured, Work};
use crate::validate::fields::Fields;
use cluster_profiles::{GroupShape, Seconds};
use cost_models::comm::Dispatch;
use cost_models::runtime::ExpertDispatcher;

/// Multiprocessors that training engines give the kernels.
const TRAINING_SMS: u64 = 20;
/// Fixed time of one direction.
const LATENCY: Seconds = Seconds(60e-6);

pub(super) fn read(kernels: &Kernels, fields: &mut Fields) -> Result<Measured, String> {
    let gpu = kernels.hardware.gpu(fields.text("gpu"))?;
    let mut size = |column| fields.required_count(column, 1 << 30);
    let (nodes, hidden, tokens, topk) =
        (size("node_num"), size("hidden_size"), size("num_token"), size("num_topk"));
    let multiprocessors = [size("dispatch_sms"), size("combine_sms")];
    if multiprocessors != [TRAINING_SMS; 2] {
        return Err("other than 20 multiprocessors".to_owned());
    }
    let group = GroupShape { ranks: 8 * nodes as u32, per_domain: 8, domains: nodes as u32 };
    let dispatch = Dispatch {
        tokens: tokens as f64,
        token_bytes: 2.0 * hidden as f64,
        topk: topk as f64,
        group_limit: None,
        group,
        dispatcher: ExpertDispatcher::DeepEp,
    };
    let micros = |fields: &mut Fields, column| fields.positive(column, 1e9).unwrap_or(0.0);
    let measured = micros(fields, "dispatch_transmit_us") + micros(fields, "combine_transmit_us");
    let cluster = kernels.hardware.cluster_of(gpu, "")?;
    let work = Work::Dispatch(dispatch, LATENCY, Box::new(cluster));
    let group = format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
    Ok(Measured { gpu: gpu.name.clone(), group, work, measured: measured * 1e-6 })
}
