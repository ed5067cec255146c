//! The zero-bubble fork of Megatron-LM (sail-sg): its flags beside Megatron-LM's own.
//!
//! Names are those of the fork's README: `--zero-bubble-max-pending-backward` is the memory limit in microbatches (one
//! pipeline length as 1F1B, two for a schedule without bubbles), `--zero-bubble-v-schedule-mem-setup` that of V schedules.

use super::{Flag, Megatron, flags, folder};
use crate::launch::{Exported, LaunchError, Launcher, Setting};
use crate::plan::Plan;
use cost_models::model::Layer;
use cost_models::{ModelSpec, ParallelConfig, Workload};

/// The launcher.
#[derive(Debug)]
pub struct ZeroBubble;

impl Launcher for ZeroBubble {
    fn name(&self) -> &'static str {
        "zero-bubble"
    }

    fn summary(&self) -> &'static str {
        "the zero-bubble fork of Megatron-LM: the same flags, and those of its schedules (ZB-1P, ZB-2P, ZB-V, V-Half, V-Min)"
    }

    fn runtime(&self) -> &'static str {
        "zero-bubble"
    }

    fn refuses(&self, model: &ModelSpec, workload: &Workload) -> Vec<String> {
        Megatron.refuses(model, workload)
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        // Everything but the schedule is Megatron-LM's.
        let mut plain = plan.clone();
        plain.parallel.schedule = if plan.parallel.vpp > 1 { "interleaved-1f1b" } else { "1f1b" }.to_owned();
        let own = schedule(&plan.parallel);
        match flags(&plain) {
            Ok(flags) if reasons.is_empty() => {
                let mut flags: Vec<Flag> = flags;
                flags.retain(|flag| own.is_empty() || !SPLITS.contains(&flag.name));
                flags.extend(own);
                Ok(folder(plan, &flags))
            }
            other => {
                reasons.extend(other.err().map(|error| error.reasons).unwrap_or_default());
                Err(LaunchError { launcher: self.name(), reasons })
            }
        }
    }

    fn settings(&self, parallel: &ParallelConfig, seq_len: u64) -> Vec<Setting> {
        let own = schedule(parallel).into_iter().map(|flag| (flag.name, flag.values.join(" ")));
        Megatron.settings(parallel, seq_len).into_iter().chain(own).collect()
    }
}

/// Flags of Megatron-LM that the fork's schedules decide themselves.
const SPLITS: &[&str] = &["--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout"];

/// What the fork cannot split: it deals blocks out evenly, the first and the last stage may have one less.
fn unfit(plan: &Plan) -> Vec<String> {
    let blocks = |stage: &cost_models::Stage| {
        let layers = plan.inputs.model.layers.get(stage.layer_range()).unwrap_or(&[]);
        layers.iter().filter(|layer| matches!(layer, Layer::Block(_))).count()
    };
    let counts: Vec<usize> = plan.stages.0.iter().map(blocks).collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    let last = counts.len().saturating_sub(1);
    let even = counts
        .iter()
        .enumerate()
        .all(|(index, &count)| count == most || count + 1 == most && (index == 0 || index == last));
    let mut reasons = Vec::new();
    if !even {
        reasons.push(format!("stages of {counts:?} blocks: it deals them out evenly, one less at the ends"));
    }
    if plan.parallel.pp > 1
        && schedule(&plan.parallel).is_empty()
        && !PLAIN.contains(&&*plan.parallel.schedule)
    {
        reasons.push(format!("schedule {}", plan.parallel.schedule));
    }
    reasons
}

/// Schedules that need no flag of the fork.
const PLAIN: &[&str] = &["1f1b", "interleaved-1f1b"];

/// The fork's flags for a schedule; none for Megatron-LM's own.
fn schedule(parallel: &ParallelConfig) -> Vec<Flag> {
    let pending = |lengths: u32| {
        vec![
            Flag::switch("--enable-zero-bubble"),
            Flag::value("--zero-bubble-max-pending-backward", lengths * parallel.pp),
        ]
    };
    let vee = |memory: &str| {
        vec![
            Flag::switch("--zero-bubble-v-schedule"),
            Flag::value("--zero-bubble-v-schedule-mem-setup", memory),
        ]
    };
    if parallel.pp == 1 {
        return Vec::new();
    }
    let mut flags = match parallel.schedule.as_str() {
        "zb-h1" | "zb-1p" => pending(1),
        "zb-h2" | "zb-2p" => pending(2),
        "zb-v" | "v-zb" => vee("zb"),
        "v-half" => vee("half"),
        "v-min" => vee("min"),
        _ => return Vec::new(),
    };
    flags.extend([
        Flag::switch("--enable-zb-runtime"),
        Flag::switch("--allow-padding-num-layers"),
        Flag::switch("--enable-optimizer-post-validation"),
    ]);
    flags
}
