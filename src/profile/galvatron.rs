//! Galvatron's profiles: layer times (`computation_profiling_*.json`) and bandwidths (`allreduce_bandwidth_*`,
//! `p2p_bandwidth_*`, `sp_time_*`).

use super::Hints;
use super::findings::{Findings, Group, LinkFact, LinkPlace, Origin};
use super::source::{self, Input};
use crate::error::AppError;
use cluster_profiles::{Basis, BytesPerSecond, Collective, LayerKind, MeasuredLayer, Provenance, Seconds};
use cost_models::ModelSpec;
use cost_models::model::{Attention, Layer, Mlp};
use serde_json::Value;

const TOOL: &str = "galvatron";
/// Longest forward of a layer that is believed, in milliseconds.
const LONGEST_MS: f64 = 3.6e6;

/// Imports a file.
///
/// # Errors
/// It is no JSON object of these keys, a value is no time or rate, or the model is not named.
pub fn import(input: &Input, hints: &Hints, found: &mut Findings) -> Result<(), AppError> {
    if !input.is_json()? {
        return Err(input.whole("no JSON", super::other_tool(input, TOOL)));
    }
    let text = input.text()?;
    let document: serde_json::Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| input.json(&error))?;
    let lines: Vec<&str> = text.lines().collect();
    let line_of = |key: &str| {
        lines.iter().position(|line| line.contains(&format!("\"{key}\""))).map_or(1, |i| i as u64 + 1)
    };
    let mut used = 0;
    for (key, value) in &document {
        let line = line_of(key);
        let origin = Origin {
            tool: TOOL.to_owned(),
            file: input.name(),
            lines: Some((line, line)),
            date: source::date(&input.name()),
        };
        let Some(entry) = Entry::of(key) else { continue };
        let number = value.as_f64().filter(|v| v.is_finite() && *v > 0.0);
        let number = number.ok_or_else(|| input.fault(line, format!("{key} is {value}: no measurement")))?;
        entry.believable(number).map_err(|message| input.fault(line, format!("{key}: {message}")))?;
        entry.take(number, input, line, hints, &origin, found)?;
        used += 1;
    }
    if used == 0 {
        let message =
            "none of Galvatron's keys, such as layertype_0_bsz8_seq4096 or allreduce_size_8_consec_1";
        return Err(input.whole(message, super::other_tool(input, TOOL)));
    }
    Ok(())
}

/// A key and what it is of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    /// Milliseconds of a layer's forward per sequence.
    Layer { batch: u32, seq: u32 },
    /// Bus bandwidth in GB/s of a large all_reduce.
    Bandwidth { ranks: u32, contiguous: bool },
    /// GB/s between pipeline neighbours.
    PointToPoint,
    /// Milliseconds of a collective on so many MiB.
    Time { op: Collective, ranks: u32, mebibytes: u32 },
}

impl Entry {
    fn of(key: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0);
        if let Some(rest) = key.strip_prefix("layertype_0_bsz") {
            let (batch, seq) = rest.split_once("_seq")?;
            return Some(Self::Layer { batch: number(batch)?, seq: number(seq)? });
        }
        if key.strip_prefix("pp_size_").and_then(number).is_some() {
            return Some(Self::PointToPoint);
        }
        let ops = [("allreduce_size_", Collective::AllReduce), ("all2all_size_", Collective::AllToAll)];
        let (rest, op) = ops.into_iter().find_map(|(prefix, op)| Some((key.strip_prefix(prefix)?, op)))?;
        let (ranks, tail) = rest.split_once('_')?;
        let ranks = number(ranks).filter(|ranks| *ranks > 1)?;
        if let Some(consecutive) = tail.strip_prefix("consec_") {
            return Some(Self::Bandwidth { ranks, contiguous: consecutive == "1" });
        }
        let mebibytes = number(tail.strip_suffix("MB_time")?)?;
        Some(Self::Time { op, ranks, mebibytes })
    }

    /// Refuses what no link and no layer has.
    fn believable(self, value: f64) -> Result<(), String> {
        match self {
            Self::Bandwidth { .. } | Self::PointToPoint => source::believable(value * 1e9),
            Self::Layer { batch, .. } if value * f64::from(batch) > LONGEST_MS => {
                Err(format!("{value:e} ms a sequence is no time of a layer"))
            }
            Self::Time { mebibytes, .. } => {
                source::believable(f64::from(mebibytes) * 1_048_576.0 / (value * 1e-3))
            }
            Self::Layer { .. } => Ok(()),
        }
    }

    fn take(
        self,
        value: f64,
        input: &Input,
        line: u64,
        hints: &Hints,
        origin: &Origin,
        found: &mut Findings,
    ) -> Result<(), AppError> {
        let (nodes, per_node) = size_in_name(&input.name()).unwrap_or((1, hints.per_node.unwrap_or(8)));
        match self {
            Self::Layer { batch, seq } => {
                let model = hints.model.as_ref().ok_or_else(|| {
                    let hint = "name it: --model llama-3.1-8b".to_owned();
                    input.hinted(line, "whose layers are these? The file does not say", Some(hint))
                })?;
                let layer =
                    layer(model, batch, seq, value * 1e-3 * f64::from(batch), origin).ok_or_else(|| {
                        input.fault(
                            line,
                            format!("{} has no block with plain attention and a dense MLP", model.name),
                        )
                    })?;
                found.layers.push(layer);
                found.note("Galvatron times forwards only: a backward is taken as twice its forward, half of it for the weights");
            }
            Self::Bandwidth { ranks, contiguous } => {
                let world = nodes * per_node;
                let stride = if contiguous { 1 } else { (world / ranks).max(1) };
                let group = Group {
                    op: Collective::AllReduce,
                    ranks,
                    per_host: Some((per_node / stride).clamp(1, ranks)),
                };
                found.rates.push((group, BytesPerSecond(value * 1e9), origin.clone()));
            }
            Self::PointToPoint => {
                let place = if nodes > 1 { LinkPlace::Inter } else { LinkPlace::Intra };
                let bandwidth = Some(BytesPerSecond(value * 1e9));
                let (kind, latency, origin) = (None, None, origin.clone());
                let fact = LinkFact { kind, bandwidth, latency, per_nic: false, nominal: false, origin };
                found.link_facts.push((place, fact));
            }
            Self::Time { op, ranks, mebibytes } => {
                let group = Group { op, ranks, per_host: Some(per_node.min(ranks)) };
                found.time(group, origin, u64::from(mebibytes) << 20, value * 1e-3);
            }
        }
        Ok(())
    }
}

/// `allreduce_bandwidth_2nodes_8gpus_per_node.json`.
fn size_in_name(name: &str) -> Option<(u32, u32)> {
    let before = |word: &str| {
        let head = name.split_once(word)?.0;
        let digits = head.len() - head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        head[head.len() - digits..].parse::<u32>().ok().filter(|n| (1..=1 << 16).contains(n))
    };
    Some((before("nodes")?, before("gpus_per_node")?))
}

/// A block of `model` with a measured forward.
pub(super) fn layer(
    model: &ModelSpec,
    batch: u32,
    seq: u32,
    forward: f64,
    origin: &Origin,
) -> Option<MeasuredLayer> {
    let block = model.layers.iter().find_map(|layer| match layer {
        Layer::Block(block) => match (&block.attention, &block.mlp) {
            (Attention::Standard { heads, kv_heads, .. }, Mlp::Dense { ffn, .. }) => {
                Some((*heads, *kv_heads, *ffn))
            }
            _ => None,
        },
        _ => None,
    })?;
    let small = |value: u64| u32::try_from(value).ok();
    Some(MeasuredLayer {
        kind: LayerKind::Block,
        hidden: small(model.hidden)?,
        heads: small(block.0),
        kv_heads: small(block.1),
        ffn: small(block.2),
        experts: None,
        topk: None,
        vocab: None,
        seq_len: seq,
        micro_batch: batch,
        tp: 1,
        cp: 1,
        ep: 1,
        precision: "bf16".to_owned(),
        forward: Seconds(forward),
        input_gradient: Seconds(forward),
        weight_gradient: Seconds(forward),
        exposed_forward: None,
        exposed_backward: None,
        saved: None,
        provenance: Provenance { basis: Basis::Measured, from: origin.to_string(), median_error: None },
    })
}
