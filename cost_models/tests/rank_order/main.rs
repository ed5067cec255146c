//! Laws of the order of the axes: every group of ranks by brute force, and where its members and messages go.

#![allow(clippy::expect_used)]

mod brute;
mod shapes;
mod ways;

use brute::{Random, groups};
use cost_models::grid::{RankGrid, coordinates};
use cost_models::order::{GridAxis, RankGroup};
use cost_models::{ParallelConfig, RankOrder};

#[test]
fn an_order_is_called_after_its_axes() {
    for order in RankOrder::ALL {
        let names = order.axes().map(GridAxis::name).join("-");
        assert_eq!(order.name(), names);
        assert_eq!(names.parse(), Ok(order));
    }
    assert!("tp-pp-dp".parse::<RankOrder>().is_err());
}

/// Megatron-LM's `RankGenerator` (`megatron/core/parallel_state.py`, executed) for 64 ranks with tp 2, cp 2, pp 4: the groups of
/// rank 5.
#[test]
fn rank_five_is_where_megatron_puts_it() {
    let parallel = |rank_order, ep, etp| ParallelConfig {
        tp: 2,
        cp: 2,
        pp: 4,
        ep,
        etp,
        dp_shard: 4,
        rank_order,
        ..ParallelConfig::default()
    };
    let expect = |parallel: &ParallelConfig, group, ranks: &[u64]| {
        let found = groups(parallel, group).into_iter().find(|own| own.contains(&5)).expect("every rank");
        assert_eq!(found, ranks, "{group:?} {}", parallel.rank_order);
    };
    let inside = parallel(RankOrder::DpInside, 8, 1);
    expect(&inside, RankGroup::Tp, &[4, 5]);
    expect(&inside, RankGroup::Cp, &[5, 7]);
    expect(&inside, RankGroup::Shards, &[1, 3, 5, 7, 9, 11, 13, 15]);
    expect(&inside, RankGroup::Pp, &[5, 21, 37, 53]);
    expect(&inside, RankGroup::Ep, &[0, 1, 2, 3, 4, 5, 6, 7]);
    expect(&inside, RankGroup::ExpertShards, &[5, 13]);
    let outside = parallel(RankOrder::PpInside, 4, 1);
    expect(&outside, RankGroup::Tp, &[4, 5]);
    expect(&outside, RankGroup::Cp, &[5, 7]);
    expect(&outside, RankGroup::Shards, &[5, 7, 21, 23, 37, 39, 53, 55]);
    expect(&outside, RankGroup::Pp, &[1, 5, 9, 13]);
    expect(&outside, RankGroup::Ep, &[4, 5, 6, 7]);
    expect(&outside, RankGroup::ExpertShards, &[5, 21, 37, 53]);
    expect(&parallel(RankOrder::PpInside, 2, 2), RankGroup::Ep, &[5, 7]);
}

/// Coordinates by brute force: peeling off the sizes of the axes in the order's own spelling.
#[test]
fn coordinates_count_through_the_axes() {
    let mut random = Random(7);
    for _ in 0..200 {
        let parallel = brute::layout(&mut random, 6);
        let grid = RankGrid::of(&parallel);
        for rank in 0..parallel.world_size() {
            let dense = brute::dense(&parallel, rank);
            let experts = brute::experts(&parallel, rank);
            let at = coordinates(&parallel, rank);
            let dp = dense["shard"] + u64::from(parallel.dp_shard) * dense["replica"];
            let found = [at.tp, at.cp, at.dp, at.pp, at.ep].map(u64::from);
            assert_eq!(
                found,
                [dense["tp"], dense["cp"], dp, dense["pp"], experts["ep"]],
                "{parallel:?} {rank}"
            );
            let (pipeline_rank, index) = grid.place(rank);
            assert_eq!(grid.rank(pipeline_rank, index), rank);
            assert!(index < grid.stage_ranks());
        }
    }
}
