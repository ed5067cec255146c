//! `--micro-batches h100-sxm-80gb=3,a100=1`: sequences of a microbatch by kind of GPU.

use cluster_profiles::Cluster;
use cost_models::ParallelConfig;
use cost_models::shares::{KindShare, ranks_by_kind};

/// Sequences on every rank of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// Name of the GPU, or how it begins.
    gpu: String,
    sequences: u64,
}

/// Reads `GPU=SEQUENCES`.
///
/// # Errors
/// What it should be.
pub fn parse(text: &str) -> Result<Stated, String> {
    let fault = || format!("`{text}` is not GPU=SEQUENCES, such as h100-sxm-80gb=3");
    let (gpu, sequences) = text.split_once('=').ok_or_else(fault)?;
    let sequences: u64 = sequences.trim().parse().map_err(|_| fault())?;
    let gpu = gpu.trim().to_ascii_lowercase();
    if gpu.is_empty() || sequences == 0 || sequences > 1 << 20 {
        return Err(fault());
    }
    Ok(Stated { gpu, sequences })
}

/// The shares of a layout's ranks on a cluster.
///
/// # Errors
/// Names that no kind or several have, kinds without a number, ranks over several kinds.
pub fn shares(
    stated: &[Stated],
    cluster: &Cluster,
    parallel: &ParallelConfig,
) -> Result<Vec<KindShare>, Vec<String>> {
    let Some(kinds) = ranks_by_kind(cluster, parallel) else {
        let (tp, cp) = (parallel.tp, parallel.cp);
        return Err(vec![format!("--micro-batches: a rank of tp {tp} x cp {cp} has GPUs of several kinds")]);
    };
    let mut sizes: Vec<Option<u64>> = vec![None; kinds.len()];
    let mut faults = Vec::new();
    for Stated { gpu, sequences } in stated {
        let exact = kinds.iter().position(|(name, _)| name == gpu);
        let begins =
            |(index, (name, _)): (usize, &(String, u32))| name.starts_with(gpu.as_str()).then_some(index);
        let alike: Vec<usize> = kinds.iter().enumerate().filter_map(begins).collect();
        match exact.or((alike.len() == 1).then(|| alike[0])) {
            Some(index) if sizes[index].is_none() => sizes[index] = Some(*sequences),
            Some(index) => faults.push(format!("--micro-batches names {} twice", kinds[index].0)),
            None => {
                let names: Vec<&str> = kinds.iter().map(|(name, _)| name.as_str()).collect();
                let which = if alike.is_empty() { "no kind" } else { "several kinds" };
                faults.push(format!("--micro-batches {gpu}: {which} of {} begins so", names.join(", ")));
            }
        }
    }
    for ((gpu, _), _) in kinds.iter().zip(&sizes).filter(|(_, size)| size.is_none()) {
        if faults.is_empty() {
            faults.push(format!("--micro-batches does not say how many sequences {gpu} takes"));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let share = |((gpu, ranks), size): ((String, u32), Option<u64>)| KindShare {
        gpu,
        ranks,
        micro_batch_size: size.unwrap_or(1),
    };
    Ok(kinds.into_iter().zip(sizes).map(share).collect())
}
