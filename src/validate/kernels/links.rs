//! `links.csv`: published nccl-tests curves, one and two nodes.

use super::collectives::collective;
use super::{Kernels, Measured, Work};
use crate::validate::fields::Fields;
use cluster_profiles::{Bytes, GroupShape};

pub(super) fn read(kernels: &Kernels, fields: &mut Fields) -> Result<Measured, String> {
    let op = fields.text("op");
    let collective = collective(op)?;
    let gpu =
        kernels.hardware.gpu(fields.text("gpu")).map_err(|_| "GPU kind not stated exactly".to_owned())?;
    if fields.text("nodes").is_empty()
        || fields.text("n_ranks").is_empty()
        || fields.text("time_us").is_empty()
    {
        return Err("nodes, ranks or time not stated".to_owned());
    }
    let nodes = fields.required_count("nodes", 1 << 16) as u32;
    let ranks = fields.required_count("n_ranks", 1 << 16) as u32;
    let bytes = Bytes(fields.positive("bytes", 1e13).unwrap_or(0.0));
    let measured = fields.positive("time_us", 1e12).unwrap_or(0.0) * 1e-6;
    let cluster = kernels.hardware.cluster_of(gpu, fields.text("link"))?;
    let group = GroupShape { ranks, per_domain: ranks.div_ceil(nodes), domains: nodes };
    let work = Work::Collective(collective, bytes, group, Box::new(cluster));
    let group = format!("{op}, {nodes} node{}", if nodes == 1 { "" } else { "s" });
    Ok(Measured { gpu: gpu.name.clone(), group, work, measured })
}
