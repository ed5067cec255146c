//! How many members of a group share an NVLink domain.

use super::brute::{Random, groups, layout};
use cost_models::order::{GridSizes, RankGroup, orders_cost_the_same};
use cost_models::{ParallelConfig, RankOrder};
use std::collections::BTreeMap;

/// Ranks of every domain that each group touches.
fn shares(parallel: &ParallelConfig, group: RankGroup, domain: u32) -> Vec<Vec<u32>> {
    let share = |ranks: Vec<u64>| {
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        ranks.iter().for_each(|rank| *counts.entry(rank / u64::from(domain)).or_default() += 1);
        counts.into_values().collect()
    };
    groups(parallel, group).into_iter().map(share).collect()
}

/// Whether every axis fills whole domains or a part of one that divides it.
fn nests(parallel: &ParallelConfig, domain: u32) -> bool {
    let inner = [parallel.tp, parallel.tp * parallel.cp, parallel.etp, parallel.etp * parallel.ep];
    let block = parallel.tp * parallel.cp;
    let outer = match parallel.rank_order {
        RankOrder::DpInside => [parallel.dp_shard, parallel.dp_replicate, parallel.pp],
        RankOrder::PpInside => [parallel.pp, parallel.dp_shard, parallel.dp_replicate],
    };
    let rows = outer.iter().scan(block, |row, size| {
        *row *= size;
        Some(*row)
    });
    // The world alone may fill the last domain in part.
    let rows: Vec<u32> = rows.take(2).collect();
    inner.into_iter().chain(rows).all(|row| row.is_multiple_of(domain) || domain.is_multiple_of(row))
}

fn all_groups() -> impl Iterator<Item = RankGroup> {
    RankGroup::INSIDE.into_iter().chain([RankGroup::Pp])
}

#[test]
fn shapes_are_those_of_all_groups_one_by_one() {
    let mut random = Random(1);
    let (mut nested, mut cut) = (0, 0);
    while nested < 400 {
        let parallel = layout(&mut random, 6);
        let domain = [2, 4, 6, 8, 12, 16, 24, 72][random.below(8) as usize];
        let exact = nests(&parallel, domain);
        nested += u32::from(exact);
        for group in all_groups() {
            let shape = parallel.group_shape(group, domain);
            let shares = shares(&parallel, group, domain);
            let case = format!("{group:?} on {domain}: {shape:?} {parallel:?}");
            assert!(shares.iter().all(|own| own.iter().sum::<u32>() == shape.ranks), "{case}");
            // No group is said to have more members in a domain than the luckiest has.
            let most = shares.iter().flatten().max().copied().unwrap_or(0);
            assert!(shape.per_domain <= most, "{case}");
            if exact {
                let fills = |own: &Vec<u32>| own.iter().max() == Some(&shape.per_domain);
                assert!(shares.iter().all(|own| fills(own) && own.len() as u32 == shape.domains), "{case}");
                cut += u32::from(parallel.rank_order == RankOrder::PpInside && !shape.is_local());
            }
        }
    }
    assert!(cut > 200, "only {cut} groups leave a domain");
}

#[test]
fn orders_that_cost_the_same_have_the_same_shapes() {
    let mut random = Random(2);
    let (mut same, mut other) = (0, 0);
    for _ in 0..4000 {
        let parallel = layout(&mut random, 5);
        let domain = [2, 3, 4, 6, 8, 12, 16, 72][random.below(8) as usize];
        let shapes = RankOrder::ALL.map(|rank_order| {
            let parallel = ParallelConfig { rank_order, ..parallel.clone() };
            all_groups().map(|group| parallel.group_shape(group, domain)).collect::<Vec<_>>()
        });
        if orders_cost_the_same(&GridSizes::of(&parallel), domain) {
            same += 1;
            // A pipeline is local or not; nothing else is asked of its shape.
            let [a, b] = shapes.each_ref().map(|shapes| (&shapes[..8], shapes[8].is_local()));
            assert_eq!(a, b, "{domain} {parallel:?}");
        } else {
            other += u32::from(shapes[0] != shapes[1]);
        }
    }
    assert!(same > 500 && other > 500, "{same} {other}");
}
