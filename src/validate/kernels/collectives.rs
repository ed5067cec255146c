//! `collectives.csv`: NCCL inside one node.

use super::{Kernels, Measured, Work};
use crate::validate::fields::Fields;
use cluster_profiles::{Bytes, GroupShape};
use cost_models::comm::Collective;

pub(super) fn read(kernels: &Kernels, fields: &mut Fields) -> Result<Measured, String> {
    let gpu = kernels.hardware.gpu(fields.text("gpu"))?;
    let op = fields.text("op");
    let collective = collective(op)?;
    let ranks = fields.required_count("num_gpus", 1 << 16) as u32;
    let bytes = Bytes(2.0 * fields.required_count("elements", 1 << 40) as f64);
    let measured = fields.positive("latency_ms", 1e6).unwrap_or(0.0) * 1e-3;
    let cluster = kernels.hardware.cluster_of(gpu, "")?;
    let group = GroupShape { ranks, per_domain: ranks, domains: 1 };
    let work = Work::Collective(collective, bytes, group, Box::new(cluster));
    Ok(Measured { gpu: gpu.name.clone(), group: op.to_owned(), work, measured })
}

/// The collective of an operation's name.
pub(super) fn collective(op: &str) -> Result<Collective, String> {
    match op {
        "all_reduce" => Ok(Collective::AllReduce),
        "all_gather" => Ok(Collective::AllGather),
        "reduce_scatter" => Ok(Collective::ReduceScatter),
        "alltoall" | "all_to_all" => Ok(Collective::AllToAll),
        "sendrecv" | "send_recv" => Ok(Collective::SendRecv),
        _ => Err("not a collective or a send".to_owned()),
    }
}
