//! Repeated blocks on a V (arXiv:2405.15362, appendix A): the first rank's slots and how they shift from rank to rank.

use super::super::orders::RankOrders;
use super::super::shape::Sizes;
use super::super::v_block::{Block, PERIOD, RankBlock, squeeze};
use super::{ScheduleError, Search};

/// How many blocks are tried.
const MOST: usize = 96;
/// Blocks that a pilot leaves for the whole number of microbatches.
const FINALISTS: usize = 4;
/// Work of squeezing an order, in simulations.
const SQUEEZING: u64 = 30;

/// The blocks that use most of the memory allowed, squeezed and with gaps filled.
pub(super) fn repeated(search: &mut Search) -> Result<(), ScheduleError> {
    let p = search.sizes.p;
    let cap = search.cap(&vec![0; 2 * p as usize], 1);
    let chunk = cap.per_stage.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let room = (cap.limit.iter().copied().fold(f64::INFINITY, f64::min) / chunk).min(f64::from(2 * p)) as u32;
    let mut blocks: Vec<(u32, Block)> = all(p).map(|block| (block.steady_peak(), block)).collect();
    blocks.retain(|(peak, _)| *peak <= room);
    // The more memory a block uses, the shorter its bubble; the sort is stable.
    blocks.sort_by_key(|(peak, _)| std::cmp::Reverse(*peak));
    blocks.truncate(MOST);
    if let Some(pilot) = search.pilot() {
        let mut timed: Vec<(f64, (u32, Block))> = Vec::new();
        let reserve = search.effort / 2;
        for (peak, block) in blocks {
            if search.effort <= reserve {
                break;
            }
            let Some(orders) = squeezed(search, &block, &pilot) else { continue };
            timed.extend(search.pilot_time(&orders).map(|time| (time, (peak, block))));
        }
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        blocks = timed.into_iter().take(FINALISTS).map(|(_, block)| block).collect();
    }
    for (peak, block) in blocks {
        let Some(orders) = squeezed(search, &block, search.sizes) else { continue };
        search.consider_filled(orders, &format!("block of {peak} chunks"))?;
    }
    Ok(())
}

/// A block's order, squeezed; none when the search is done.
fn squeezed(search: &mut Search, block: &Block, sizes: &Sizes) -> Option<RankOrders> {
    if search.is_done() {
        return None;
    }
    let orders = block.orders(sizes).ok()?;
    search.spend(SQUEEZING * orders.len() as u64);
    squeeze(orders, sizes).ok()
}

/// Sound blocks whose forwards down the V and backwards down it shift alike by up to five slots a rank, by two rates
/// that change at a quarter, half, three quarters or the end of the ranks.
fn all(p: u32) -> impl Iterator<Item = Block> {
    let rates = (1..PERIOD).flat_map(|first| (1..=first).map(move |second| (first, second)));
    let turns = [p, p.div_ceil(4), p.div_ceil(2), (3 * p).div_ceil(4)];
    let distinct = (0..turns.len()).filter(move |&k| !turns[..k].contains(&turns[k])).map(move |k| turns[k]);
    let shapes = rates.flat_map(move |rate| distinct.clone().map(move |turn| (rate, turn)));
    let starts = (1..PERIOD).flat_map(|f| (1..PERIOD).flat_map(move |i| (1..PERIOD).map(move |j| [f, i, j])));
    shapes
        .filter(|&((first, second), turn)| first != second || turn != 0)
        .flat_map(move |shape| starts.clone().map(move |start| build(p, shape, start)))
        .filter(Block::is_sound)
}

/// The block with these residues on the first rank, every operation in the first slot after its input.
fn build(p: u32, ((first, second), turn): ((u32, u32), u32), [f, i, j]: [u32; 3]) -> Block {
    let down: Vec<u32> = (0..p).map(|r| first * r.min(turn) + second * r.saturating_sub(turn)).collect();
    let last = down[p as usize - 1];
    // Up the V one slot a rank: rank 0 comes p - 1 slots after the last rank.
    let forward_b = next(last + p, f);
    let input_b = next(forward_b + 1, i);
    let input_a = next(input_b + last + p, j);
    let rank = |r: u32| -> RankBlock {
        let at = down[r as usize];
        [at, forward_b - r, input_b + at, input_a - r]
    };
    Block((0..p).map(rank).collect())
}

/// The first slot from `least` on with this residue.
fn next(least: u32, residue: u32) -> u32 {
    least + (residue + PERIOD - least % PERIOD) % PERIOD
}
