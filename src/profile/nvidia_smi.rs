//! `nvidia-smi topo -m`: how the GPUs and interfaces of one node hang together.

use super::findings::{Fabric, Findings, Origin};
use super::source::Input;
use crate::error::AppError;
use std::collections::BTreeSet;

const TOOL: &str = "nvidia-smi";
/// Ways between two devices, from near to far, as the legend has them.
const WAYS: [&str; 6] = ["PIX", "PXB", "PHB", "NODE", "SYS", "SOC"];

/// Imports a file.
///
/// # Errors
/// There is no matrix, a row has fewer cells than the header, or a cell is no way between devices.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let (mut names, mut first): (Vec<String>, u64) = (Vec::new(), 0);
    let mut rows: Vec<Vec<String>> = Vec::new();
    while let Some(line) = lines.next_line()? {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let device =
            |word: &String| word.starts_with("GPU") || word.starts_with("NIC") || word.starts_with("mlx");
        if names.is_empty() {
            if words.first().is_some_and(|w| w == "GPU0") {
                names = words.into_iter().take_while(device).collect();
                first = lines.number();
            }
            continue;
        }
        if rows.len() == names.len() || words.first() != names.get(rows.len()) {
            continue;
        }
        if words.len() <= names.len() {
            let (have, want) = (words.len() - 1, names.len());
            return Err(lines.fault(format!("{have} cells where the header names {want} devices: cut")));
        }
        let cells = words[1..=names.len()].to_vec();
        let known = |cell: &String| cell == "X" || WAYS.contains(&cell.as_str()) || bonded(cell).is_some();
        if let Some(cell) = cells.iter().find(|cell| !known(cell)) {
            return Err(lines.fault(format!("`{cell}` is no way between devices")));
        }
        rows.push(cells);
    }
    if names.is_empty() {
        let message = "no output of `nvidia-smi topo -m`: there is no header that starts with GPU0";
        return Err(input.whole(message, super::other_tool(input, TOOL)));
    }
    if rows.len() < names.len() {
        return Err(lines.fault(format!(
            "{} rows for {} devices: the matrix is cut",
            rows.len(),
            names.len()
        )));
    }
    let origin = Origin {
        tool: TOOL.to_owned(),
        file: input.name(),
        lines: Some((first, lines.number())),
        date: None,
    };
    tell(&names, &rows, &origin, found);
    Ok(())
}

/// `NV18`: eighteen bonded NVLinks.
fn bonded(cell: &str) -> Option<u32> {
    cell.strip_prefix("NV").and_then(|count| count.parse().ok()).filter(|count| (1..=64).contains(count))
}

fn tell(names: &[String], rows: &[Vec<String>], origin: &Origin, found: &mut Findings) {
    let gpus: Vec<usize> = (0..names.len()).filter(|i| names[*i].starts_with("GPU")).collect();
    let nics: Vec<usize> = (0..names.len()).filter(|i| !names[*i].starts_with("GPU")).collect();
    found.node_gpus.push((gpus.len() as u32, origin.clone()));
    if !nics.is_empty() {
        found.nics.push((nics.len() as u32, origin.clone()));
    }
    let domain = |gpu: usize| {
        gpus.iter().filter(|other| **other == gpu || bonded(&rows[gpu][**other]).is_some()).count()
    };
    let smallest = gpus.iter().map(|gpu| domain(*gpu)).min().unwrap_or(1);
    let linked = smallest > 1;
    let links =
        |gpu: &usize| gpus.iter().filter_map(|other| bonded(&rows[*gpu][*other])).collect::<Vec<u32>>();
    found.fabric = Some(Fabric {
        pair: if linked { gpus.iter().flat_map(links).min().unwrap_or(0) } else { 0 },
        all: if linked { gpus.iter().map(|gpu| links(gpu).iter().sum()).min().unwrap_or(0) } else { 0 },
        origin: origin.clone(),
    });
    if linked && smallest < gpus.len() {
        found.domain = Some((smallest as u32, origin.clone()));
        found.note(format!(
            "NVLink joins {smallest} of the {} GPUs of a node: that is the domain",
            gpus.len()
        ));
    }
    let counts: BTreeSet<u32> =
        gpus.iter().flat_map(|g| gpus.iter().filter_map(|o| bonded(&rows[*g][*o]))).collect();
    if counts.len() > 1 {
        found.note(format!("pairs of GPUs have different numbers of NVLinks: {counts:?}"));
    }
    near_interfaces(names, rows, &gpus, &nics, found);
    found.note("topo -m has no rates and no host names: rates are nominal, not measured");
}

/// Interfaces that GPUs share, and GPUs without one nearby.
fn near_interfaces(
    names: &[String],
    rows: &[Vec<String>],
    gpus: &[usize],
    nics: &[usize],
    found: &mut Findings,
) {
    let distance =
        |gpu: usize, nic: usize| WAYS.iter().position(|way| *way == rows[gpu][nic]).unwrap_or(WAYS.len());
    for nic in nics {
        let nearest =
            |gpu: &&usize| nics.iter().map(|n| distance(**gpu, *n)).min() == Some(distance(**gpu, *nic));
        let users: Vec<&str> = gpus
            .iter()
            .filter(nearest)
            .filter(|g| distance(**g, *nic) <= 1)
            .map(|g| names[*g].as_str())
            .collect();
        if users.len() > 1 && nics.len() < gpus.len() {
            found.note(format!("{} share {}", users.join(" and "), names[*nic]));
        }
    }
    let far: Vec<&str> = gpus
        .iter()
        .filter(|gpu| !nics.is_empty() && nics.iter().all(|nic| distance(**gpu, *nic) >= 4))
        .map(|gpu| names[*gpu].as_str())
        .collect();
    if !far.is_empty() {
        found.note(format!("{} reach every interface over the other socket (SYS)", far.join(", ")));
    }
}
