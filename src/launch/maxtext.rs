//! MaxText (August 2026): the mesh axes of a plan inside a slice (ici) and across slices (dcn), as overrides.

use super::layers::Job;
use super::{Exported, LaunchError, LaunchFile, Launcher};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Workload};

/// The launcher.
#[derive(Debug)]
pub struct MaxText;

impl Launcher for MaxText {
    fn name(&self) -> &'static str {
        "maxtext"
    }

    fn summary(&self) -> &'static str {
        "MaxText (August 2026): mesh axes inside and across nodes as overrides of base.yml"
    }

    fn runtime(&self) -> &'static str {
        "jax"
    }

    fn refuses(&self, _: &ModelSpec, workload: &Workload) -> Vec<String> {
        let known = workload.precision == Precision::Bf16;
        if known {
            Vec::new()
        } else {
            vec![format!("{} (only bf16 overrides are written)", workload.precision)]
        }
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["cp>1", "vpp>1"]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = Vec::new();
        let axes = axes(plan, &mut reasons);
        reasons.extend(unfit(plan));
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
        if !reasons.is_empty() {
            return Err(LaunchError { launcher: self.name(), reasons });
        }
        let text = overrides(plan, &axes);
        let job = Job {
            environment: vec![("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92".to_owned())],
            prepare: "mapfile -t overrides < overrides.txt\nexport JAX_COORDINATOR_ADDRESS=\"$MASTER_ADDR:$MASTER_PORT\"\n".to_owned(),
            command: "-m MaxText.train \"${MAXTEXT_CONFIG:?set MAXTEXT_CONFIG to base.yml}\" \"${overrides[@]}\" \"$@\"".to_owned(),
        };
        Ok(Exported { files: vec![LaunchFile::data("overrides.txt", text)], job })
    }
}

/// An axis: its name, inside a node and across nodes.
type Axis = (&'static str, u64, u64);

/// Degrees of the axes, innermost first. The expert axis takes its ranks from the shards, then from the replicas: MaxText
/// splits the batch over all three.
fn degrees(p: &ParallelConfig, reasons: &mut Vec<String>) -> [(&'static str, u64); 5] {
    let (replicas, shards) = (u64::from(p.dp_replicate), u64::from(p.dp_shard));
    let (data, fsdp) = if p.zero_stage >= 3 { (replicas, shards) } else { (replicas * shards, 1) };
    let experts = u64::from(p.ep.max(1));
    let from_shards = (1..=experts.min(fsdp))
        .rev()
        .find(|n| experts.is_multiple_of(*n) && fsdp.is_multiple_of(*n))
        .unwrap_or(1);
    let rest = experts / from_shards;
    if !data.is_multiple_of(rest) {
        reasons
            .push(format!("ep {experts} with {} data-parallel ranks: expert ranks come from those", p.dp()));
    }
    let (fsdp, data) = (fsdp / from_shards, (data / rest).max(1));
    [("tensor", p.tp.into()), ("expert", experts), ("fsdp", fsdp), ("data", data), ("pipeline", p.pp.into())]
}

/// What still fits a node goes inside it, from the innermost axis out.
fn axes(plan: &Plan, reasons: &mut Vec<String>) -> Vec<Axis> {
    let mut room = u64::from(plan.inputs.cluster.main().node.gpus);
    let mut axes = Vec::new();
    for (name, degree) in degrees(&plan.parallel, reasons) {
        let inside = (1..=degree.min(room))
            .rev()
            .find(|n| degree.is_multiple_of(*n) && room.is_multiple_of(*n))
            .unwrap_or(1);
        room /= inside;
        axes.push((name, inside, degree / inside));
    }
    if room != 1 {
        reasons.push("axes that do not fill a node".to_owned());
    }
    axes
}

fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    if p.cp > 1 {
        reasons.push(format!("context parallelism of {} is not written", p.cp));
    }
    if p.vpp > 1 {
        reasons.push(format!(
            "{} chunks with schedule {}: its pipeline repeats whole rounds",
            p.vpp, p.schedule
        ));
    }
    if matches!(p.recompute, Recompute::Full { layers: Some(_) }) {
        reasons.push("recompute of a part of the layers".to_owned());
    }
    reasons
}

fn overrides(plan: &Plan, axes: &[Axis]) -> String {
    let p = &plan.parallel;
    let workload = &plan.inputs.workload;
    let per_device = workload.global_batch as f64 / p.world_size() as f64;
    let accumulation = if p.pp > 1 { 1 } else { p.num_microbatches };
    let mut lines: Vec<String> = axes
        .iter()
        .flat_map(|(name, inside, across)| {
            [format!("ici_{name}_parallelism={inside}"), format!("dcn_{name}_parallelism={across}")]
        })
        .collect();
    lines.push(format!("per_device_batch_size={}", per_device / accumulation as f64));
    lines.push(format!("gradient_accumulation_steps={accumulation}"));
    lines.push(format!("max_target_length={}", workload.seq_len));
    let policy = match p.recompute {
        Recompute::None | Recompute::Offload { .. } | Recompute::Modules(_) => "minimal",
        Recompute::Selective => "save_qkv_proj",
        Recompute::Full { .. } => "full",
    };
    lines.push(format!("remat_policy={policy}"));
    if p.pp > 1 {
        lines.push(format!("num_pipeline_microbatches={}", p.num_microbatches));
    }
    lines.push("steps=100".to_owned());
    lines.join("\n") + "\n"
}
