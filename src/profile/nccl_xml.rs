//! The topology that NCCL writes with `NCCL_TOPO_DUMP_FILE`: GPUs, NVLinks, PCIe switches and interfaces of one node.

use super::findings::{Findings, LinkFact, LinkPlace, Origin};
use super::source::Input;
use crate::error::AppError;
use cluster_profiles::BytesPerSecond;
use roxmltree::{Document, Node};

const TOOL: &str = "nccl-topology";
/// Deepest nesting that is read.
const DEEPEST: usize = 128;
/// Rate of one NVLink per direction, by compute capability from which on it holds.
const NVLINK: [(u32, f64); 3] = [(100, 50e9), (70, 25e9), (60, 20e9)];

/// Imports a file.
///
/// # Errors
/// It is no such XML, or is cut.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let text = input.text()?;
    if is_too_deep(&text) {
        let message = format!("elements lie more than {DEEPEST} deep: no topology of a node");
        return Err(input.whole(message, super::other_tool(input, TOOL)));
    }
    let document = Document::parse(&text).map_err(|error| {
        let hint = super::other_tool(input, TOOL);
        input.hinted(u64::from(error.pos().row), format!("no XML, or cut: {error}"), Some(hint))
    })?;
    let root = document.root_element();
    check(input, &document)?;
    let gpus: Vec<Node> = root.descendants().filter(|n| n.has_tag_name("gpu")).collect();
    if !root.has_tag_name("system") || gpus.is_empty() {
        return Err(
            input.whole("no topology of NCCL: expected <system> with <gpu>", super::other_tool(input, TOOL))
        );
    }
    let last = text.lines().count() as u64;
    let origin = Origin { tool: TOOL.to_owned(), file: input.name(), lines: Some((1, last)), date: None };
    found.node_gpus.push((gpus.len() as u32, origin.clone()));
    nvlinks(&gpus, &origin, found);
    pcie(&gpus, &origin, found);
    interfaces(input, &root, gpus.len(), &origin, found)?;
    found.note("NCCL's topology has nominal rates and no host names");
    Ok(())
}

/// Whether elements are nested deeper than any topology: the parser recurses.
fn is_too_deep(text: &str) -> bool {
    let mut depth = 0_usize;
    text.split('<').skip(1).any(|tag| {
        if tag.starts_with('/') {
            depth = depth.saturating_sub(1);
        } else if !tag.starts_with(['?', '!']) && !tag.split('>').next().is_some_and(|t| t.ends_with('/')) {
            depth += 1;
        }
        depth > DEEPEST
    })
}

/// Refuses attributes that are numbers and no sizes: NaN, infinite, negative.
fn check(input: &Input, document: &Document) -> Result<(), AppError> {
    for node in document.descendants() {
        for key in ["count", "link_speed", "link_width", "speed", "sm"] {
            let word = node.attribute(key).and_then(|value| value.split_whitespace().next());
            let Some(value) = word.and_then(|word| word.parse::<f64>().ok()) else { continue };
            if !(value.is_finite() && value >= 0.0) {
                let line = document.text_pos_at(node.range().start).row;
                let name = node.tag_name().name();
                return Err(
                    input.fault(u64::from(line), format!("{key} of <{name}> is {value}: no measurement"))
                );
            }
        }
    }
    Ok(())
}

fn number(node: &Node, key: &str) -> Option<f64> {
    node.attribute(key)?.split_whitespace().next()?.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0)
}

fn fact(kind: &str, bandwidth: Option<f64>, origin: &Origin) -> LinkFact {
    let bandwidth = bandwidth.filter(|rate| (1e6..=1e15).contains(rate)).map(BytesPerSecond);
    LinkFact {
        kind: Some(kind.to_owned()),
        bandwidth,
        latency: None,
        per_nic: false,
        nominal: true,
        origin: origin.clone(),
    }
}

fn nvlinks(gpus: &[Node], origin: &Origin, found: &mut Findings) {
    let links = |gpu: &Node| -> f64 {
        gpu.children().filter(|n| n.has_tag_name("nvlink")).filter_map(|n| number(&n, "count")).sum()
    };
    let counts: Vec<f64> = gpus.iter().map(links).collect();
    let (least, most) =
        (counts.iter().copied().fold(f64::MAX, f64::min), counts.iter().copied().fold(0.0, f64::max));
    if most <= 0.0 {
        return;
    }
    if least < most {
        found.contradictions.push(format!("GPUs of one node have {least} to {most} NVLinks ({origin})"));
    }
    let capability = gpus.iter().find_map(|gpu| number(gpu, "sm")).unwrap_or(0.0) as u32;
    let each = NVLINK.iter().find(|(from, _)| capability >= *from).map(|(_, rate)| *rate);
    found.link_facts.push((LinkPlace::Intra, fact("nvlink", each.map(|rate| rate * least), origin)));
}

/// Slowest PCIe link between a GPU and its processor: `32.0 GT/s PCIe` x 16 lanes, 128 of 130 bits.
fn pcie(gpus: &[Node], origin: &Origin, found: &mut Findings) {
    let rate = |node: &Node| {
        Some(number(node, "link_speed")? * number(node, "link_width")? / 8.0 * 128.0 / 130.0 * 1e9)
    };
    let up = |gpu: &Node| {
        gpu.ancestors().filter(|n| n.has_tag_name("pci")).filter_map(|n| rate(&n)).reduce(f64::min)
    };
    if let Some(slowest) = gpus.iter().filter_map(up).reduce(f64::min) {
        found.link_facts.push((LinkPlace::Host, fact("pcie", Some(slowest), origin)));
    }
}

fn interfaces(
    input: &Input,
    root: &Node,
    gpus: usize,
    origin: &Origin,
    found: &mut Findings,
) -> Result<(), AppError> {
    let nets: Vec<Node> = root.descendants().filter(|n| n.has_tag_name("net")).collect();
    if nets.is_empty() {
        return Ok(());
    }
    let mut rates = Vec::new();
    for net in &nets {
        // NCCL's unit is megabits per second.
        let rate = number(net, "speed").filter(|mbps| *mbps <= 1e8).ok_or_else(|| {
            let name = net.attribute("name").unwrap_or("net");
            input.whole(
                format!("<net name=\"{name}\"> has no speed in Mb/s"),
                "dump it again with NCCL_TOPO_DUMP_FILE",
            )
        })?;
        rates.push(rate * 0.125e6);
    }
    let slowest = rates.iter().copied().fold(f64::MAX, f64::min);
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    if fastest > slowest {
        found.contradictions.push(format!(
            "interfaces of one node have {:.0} to {:.0} Gb/s ({origin}); the least is used",
            slowest / 0.125e9,
            fastest / 0.125e9
        ));
    }
    found.nics.push((nets.len() as u32, origin.clone()));
    let per_gpu = slowest * nets.len() as f64 / gpus as f64;
    found.link_facts.push((LinkPlace::Inter, LinkFact { kind: None, ..fact("", Some(per_gpu), origin) }));
    let without_direct = nets.iter().filter(|net| net.attribute("gdr") == Some("0")).count();
    if without_direct > 0 {
        found.note(format!(
            "{without_direct} interfaces do without GPUDirect RDMA: their traffic passes host memory"
        ));
    }
    Ok(())
}
