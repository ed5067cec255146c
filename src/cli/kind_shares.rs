//! `--micro-batches h100-sxm-80gb=3,a100=1` and `--state-shares h100=1,a100=2`: what ranks take by kind of GPU.

use cluster_profiles::Cluster;
use cost_models::ParallelConfig;
use cost_models::shares::{KindShare, ranks_by_kind};

/// A number for every rank of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// Name of the GPU, or how it begins.
    gpu: String,
    number: u32,
}

/// Reads `GPU=NUMBER`.
///
/// # Errors
/// What it should be.
pub fn parse(text: &str) -> Result<Stated, String> {
    let fault = || format!("`{text}` is not GPU=NUMBER, such as h100-sxm-80gb=3");
    let (gpu, number) = text.split_once('=').ok_or_else(fault)?;
    let number: u32 = number.trim().parse().map_err(|_| fault())?;
    let gpu = gpu.trim().to_ascii_lowercase();
    if gpu.is_empty() || number == 0 || number > 1 << 20 {
        return Err(fault());
    }
    Ok(Stated { gpu, number })
}

/// The shares of a layout's ranks on a cluster: sequences of a microbatch (those of the layout where none are stated), and weights
/// of state (even ones where none are stated).
///
/// # Errors
/// Names that no kind or several have, kinds without a number, ranks over several kinds.
pub fn shares(
    micro_batches: &[Stated],
    state: &[Stated],
    cluster: &Cluster,
    parallel: &ParallelConfig,
) -> Result<Vec<KindShare>, Vec<String>> {
    let Some(kinds) = ranks_by_kind(cluster, parallel) else {
        let (tp, cp) = (parallel.tp, parallel.cp);
        return Err(vec![format!("a data-parallel rank of tp {tp} x cp {cp} has GPUs of several kinds")]);
    };
    let names: Vec<&str> = kinds.iter().map(|(name, _)| name.as_str()).collect();
    let sizes = numbers("--micro-batches", micro_batches, &names);
    let weights = numbers("--state-shares", state, &names);
    let (sizes, weights) = match (sizes, weights) {
        (Ok(sizes), Ok(weights)) => (sizes, weights),
        (sizes, weights) => return Err(faults_of(sizes).chain(faults_of(weights)).collect()),
    };
    let share = |(index, (gpu, ranks)): (usize, &(String, u32))| KindShare {
        gpu: gpu.clone(),
        ranks: *ranks,
        micro_batch_size: sizes.get(index).map_or(parallel.micro_batch_size, |size| u64::from(*size)),
        state: weights.get(index).copied().unwrap_or(1),
    };
    Ok(kinds.iter().enumerate().map(share).collect())
}

fn faults_of(numbers: Result<Vec<u32>, Vec<String>>) -> impl Iterator<Item = String> {
    numbers.err().into_iter().flatten()
}

/// The number of every kind; none where none is stated.
fn numbers(flag: &str, stated: &[Stated], names: &[&str]) -> Result<Vec<u32>, Vec<String>> {
    if stated.is_empty() {
        return Ok(Vec::new());
    }
    let mut numbers: Vec<Option<u32>> = vec![None; names.len()];
    let mut faults = Vec::new();
    for Stated { gpu, number } in stated {
        let exact = names.iter().position(|name| name == gpu);
        let alike: Vec<usize> =
            (0..names.len()).filter(|&own| names[own].starts_with(gpu.as_str())).collect();
        match exact.or((alike.len() == 1).then(|| alike[0])) {
            Some(index) if numbers[index].is_none() => numbers[index] = Some(*number),
            Some(index) => faults.push(format!("{flag} names {} twice", names[index])),
            None => {
                let which = if alike.is_empty() { "no kind" } else { "several kinds" };
                faults.push(format!("{flag} {gpu}: {which} of {} begins so", names.join(", ")));
            }
        }
    }
    let missing = names.iter().zip(&numbers).filter(|(_, number)| number.is_none());
    if faults.is_empty() {
        faults.extend(missing.map(|(gpu, _)| format!("{flag} does not say what {gpu} takes")));
    }
    if faults.is_empty() { Ok(numbers.into_iter().flatten().collect()) } else { Err(faults) }
}
