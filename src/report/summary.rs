//! A plan or an estimate, as a person wants to read it in a terminal.

use super::layout::{degrees, particulars};
use super::number::{gib, grouped, parameters, seconds, signed, significant};
use crate::plan::Plan;
use crate::room::tightest;
use cluster_profiles::{Bytes, Cluster, Seconds};
use cost_models::RankMemory;
use solver::{Alternative, Certificate, Minimised, Status};
use std::fmt::Write;

/// The whole text, with a final newline.
#[must_use]
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    for part in [header(plan), layout(plan), prediction(plan), proof(plan)] {
        out.push_str(&part);
        out.push('\n');
    }
    out.push_str(&limits(plan));
    out
}

fn header(plan: &Plan) -> String {
    let inputs = &plan.inputs;
    let cluster = &inputs.cluster;
    let gpus = hardware(cluster);
    let active = match plan.parameters_active == plan.parameters_total {
        true => String::new(),
        false => format!(", {} active", parameters(plan.parameters_active)),
    };
    format!(
        "{} ({}{active}) on {gpus} ({}, {}), {}, {} sequences of {} tokens\n",
        inputs.model.name,
        parameters(plan.parameters_total),
        cluster.name,
        nodes(cluster),
        inputs.workload.precision,
        grouped(inputs.workload.global_batch),
        grouped(inputs.workload.seq_len),
    )
}

/// How many nodes there are.
#[must_use]
pub fn nodes(cluster: &Cluster) -> String {
    match cluster.node_count() {
        1 => "1 node".to_owned(),
        count => format!("{} nodes", grouped(count)),
    }
}

/// The GPUs by kind, in rank order: `32 x H100-SXM-80GB + 16 x L40S`.
#[must_use]
pub fn hardware(cluster: &Cluster) -> String {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for group in &cluster.groups {
        let gpus = u64::from(group.nodes) * u64::from(group.node.gpus);
        match kinds.iter_mut().find(|(title, _)| *title == group.gpu.title) {
            Some((_, count)) => *count += gpus,
            None => kinds.push((&group.gpu.title, gpus)),
        }
    }
    let shown = kinds.into_iter().map(|(title, count)| format!("{} x {title}", grouped(count)));
    shown.collect::<Vec<_>>().join(" + ")
}

fn layout(plan: &Plan) -> String {
    let mut text = format!("  {}\n", degrees(&plan.parallel));
    for (what, how) in particulars(plan) {
        let _ = writeln!(text, "  {what:<7} {how}");
    }
    text.push_str(&super::shares::lines(plan));
    text.push_str(&super::hosts::lines(plan));
    text
}

fn prediction(plan: &Plan) -> String {
    let estimate = &plan.estimate;
    let room = tightest(&plan.run(), estimate, plan.inputs.memory_limit_bytes);
    let (heaviest, capacity) = (room.memory, room.capacity);
    let mut text = format!(
        "  step    {} ({})      {} tokens/s/GPU      MFU {} %      peak {} of {} GiB on pipeline rank {}\n",
        seconds(estimate.step_time_seconds),
        estimate.step_time_interval_seconds.map(seconds).join(" - "),
        grouped(estimate.tokens_per_second_per_gpu.round() as u64),
        significant(estimate.model_flops_utilization * 100.0),
        gib(heaviest.peak_bytes),
        gib(capacity),
        heaviest.rank,
    );
    if !estimate.fits {
        let over = heaviest.peak_bytes - room.limit;
        let _ = writeln!(text, "          DOES NOT FIT: {} GiB above the limit", gib(over));
    }
    text.push_str(&time_line(plan));
    text.push_str(&memory_line(&heaviest));
    for warning in &estimate.warnings {
        let _ = writeln!(text, "  warning {warning}");
    }
    text
}

fn time_line(plan: &Plan) -> String {
    let total = plan.estimate.step_time_seconds.get();
    let (scale, unit) = if total >= 1.0 { (1.0, "s") } else { (1e3, "ms") };
    let parts: Vec<String> = plan
        .estimate
        .time_seconds
        .parts()
        .iter()
        .filter(|(_, time)| time.get() > total * 5e-4)
        .map(|(name, time)| format!("{} {}", name.replace('_', " "), significant(time.get() * scale)))
        .collect();
    format!("  time    {}  {unit}\n", parts.join("   "))
}

fn memory_line(memory: &RankMemory) -> String {
    let parts: Vec<String> = memory
        .terms()
        .iter()
        .filter(|(_, bytes)| bytes.get() > 0.0)
        .map(|(name, bytes)| format!("{name} {}", gib(*bytes)))
        .collect();
    format!("  memory  {}  GiB, rank {}\n", parts.join("   "), memory.rank)
}

/// The pipeline rank with the highest peak.
#[must_use]
pub fn heaviest(memory: &[RankMemory]) -> RankMemory {
    memory.iter().copied().fold(RankMemory::default(), |worst, rank| {
        if rank.peak_bytes > worst.peak_bytes { rank } else { worst }
    })
}

fn proof(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(certificate) = &plan.certificate {
        let _ = writeln!(text, "  {}", certificate_sentence(certificate));
        if let Some(Minimised { unit, value, bound }) = &certificate.minimised {
            let (value, bound) = (significant(*value), significant(*bound));
            let alike = alike(certificate);
            let _ = writeln!(text, "  {value} {unit} a step; none{alike} takes less than {bound}");
        }
    }
    for (index, alternative) in plan.alternatives.iter().take(3).enumerate() {
        let lead = if index == 0 { "next  " } else { "      " };
        let _ =
            writeln!(text, "  {lead}  {}", alternative_line(alternative, plan.estimate.step_time_seconds));
    }
    text.push_str(&assumed_line(plan));
    text
}

/// Which kinds of time rest on assumed numbers, and how much of the step that is; nothing if none does.
fn assumed_line(plan: &Plan) -> String {
    let share = plan.estimate.basis.iter().find(|part| part.basis == "assumed").map(|part| part.share);
    let kinds: Vec<&str> = plan
        .estimate
        .assumptions
        .iter()
        .filter(|assumption| assumption.basis == "assumed")
        .filter_map(|assumption| assumption.what.split_once(':'))
        .map(|(kind, _)| kind)
        .collect();
    match share {
        Some(share) if share >= 5e-4 => format!(
            "  assumed {} ({} % of the step), not measured: `meshwright explain` says what from\n",
            kinds.join(", ").replace('_', " "),
            significant(share * 100.0)
        ),
        _ => String::new(),
    }
}

/// What the launcher's limits cost.
fn limits(plan: &Plan) -> String {
    let (Some(limits), Some(launcher)) = (&plan.launcher_limits, &plan.inputs.launcher) else {
        return String::new();
    };
    if limits.slower < 5e-4 {
        return format!("  limits  those of {launcher} cost nothing\n\n");
    }
    let mut text = format!(
        "  limits  those of {launcher} cost {} %: without them {} with\n          {}\n",
        significant(limits.slower * 100.0),
        seconds(limits.step_time_seconds),
        degrees(&limits.parallel),
    );
    for limit in &limits.limits {
        let _ = writeln!(text, "          {limit}");
    }
    text.push('\n');
    text
}

/// How close to optimal the plan is, in one line.
#[must_use]
pub fn certificate_sentence(certificate: &Certificate) -> String {
    let considered = grouped(certificate.considered);
    let chunks = if certificate.unbalanced_gap.is_some() { ", chunks balanced" } else { "" };
    let (simulated, alike) = (certificate.simulated, alike(certificate));
    match certificate.status {
        Status::Optimal => {
            format!("optimal among {considered} layouts{alike} ({simulated} simulated{chunks})")
        }
        Status::Feasible => format!(
            "best found among {considered} layouts{alike}; none of them is more than {} % better",
            significant(certificate.gap * 100.0)
        ),
    }
}

/// Which layouts a certificate is about, where those with strategies by layer were not searched.
const fn alike(certificate: &Certificate) -> &'static str {
    if certificate.layers_alike { " with layers alike" } else { "" }
}

/// What is known of layouts that the search leaves out; none where it leaves out none.
#[must_use]
pub fn unbalanced_sentence(certificate: &Certificate) -> Option<String> {
    let gap = significant(certificate.unbalanced_gap? * 100.0);
    Some(format!("unequal chunks were not searched; by the bounds none is more than {gap} % better"))
}

fn alternative_line(alternative: &Alternative, best: Seconds) -> String {
    let slower = (alternative.step_time_seconds / best - 1.0) * 100.0;
    format!(
        "{} ({} %)  {}  {}",
        seconds(alternative.step_time_seconds),
        signed(slower),
        degrees(&alternative.parallel),
        alternative.why
    )
}

/// Bytes above `limit`, or nothing.
#[must_use]
pub fn shortfall(memory: &[RankMemory], limit: Bytes) -> Bytes {
    (heaviest(memory).peak_bytes - limit).max(Bytes::ZERO)
}
