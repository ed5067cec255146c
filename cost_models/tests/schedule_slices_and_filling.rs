//! Uneven slices are optimal, and bubble filling lengthens nothing.

mod schedule_support;

use cost_models::schedule::*;
use schedule_support::*;

fn forward_time(lengths: &[usize], ranks: u32, seconds: &dyn Fn(usize, usize) -> f64) -> f64 {
    let mut start = 0;
    let mut times = Vec::new();
    for &length in lengths {
        times.push(seconds(start, length));
        start += length;
    }
    times.iter().sum::<f64>() + f64::from(ranks - 1) * times.iter().copied().fold(0.0, f64::max)
}

/// Every way to cut `granules` into slices.
fn all_cuts(granules: usize) -> Vec<Vec<usize>> {
    (0..1u32 << (granules - 1))
        .map(|cuts| {
            let mut lengths = vec![1];
            for at in 0..granules - 1 {
                if cuts & (1 << at) != 0 { lengths.push(1) } else { *lengths.last_mut().unwrap() += 1 }
            }
            lengths
        })
        .collect()
}

#[test]
fn slice_lengths_are_optimal() {
    let mut random = random_numbers();
    for ranks in 1..=8 {
        for _ in 0..5 {
            let (fixed, attention) = (random(), 0.2 * random());
            // A slice costs its length, an overhead, and attention to all keys before its end.
            let seconds = |start: usize, length: usize| {
                fixed + length as f64 + attention * (length * (2 * start + length)) as f64
            };
            let found = slice_lengths(9, ranks, seconds).unwrap();
            assert_eq!(found.iter().sum::<usize>(), 9);
            let best = all_cuts(9)
                .iter()
                .map(|cut| forward_time(cut, ranks, &seconds))
                .fold(f64::INFINITY, f64::min);
            close(forward_time(&found, ranks, &seconds), best, &format!("{ranks} ranks"));
        }
    }
    let even = slice_lengths(8, 4, |_, length| 0.1 + length as f64).unwrap();
    assert!(even.windows(2).all(|pair| pair[0].abs_diff(pair[1]) <= 1), "{even:?}");
    let later_are_shorter =
        slice_lengths(16, 8, |start, length| (length * (1 + 2 * start + length)) as f64).unwrap();
    assert!(later_are_shorter.first() > later_are_shorter.last(), "{later_are_shorter:?}");
}

#[test]
fn unusable_slices_have_no_answer() {
    assert_eq!(slice_lengths(0, 2, |_, _| 1.0), None);
    assert_eq!(slice_lengths(4, 0, |_, _| 1.0), None);
    assert_eq!(slice_lengths(100_000, 2, |_, _| 1.0), None);
    assert_eq!(slice_lengths(4, 2, |_, _| f64::NAN), None);
}

#[test]
fn filling_keeps_the_step_and_overlaps_nothing() {
    let mut random = random_numbers();
    for kind in [ScheduleKind::Gpipe, ScheduleKind::OneFOneB, ScheduleKind::Interleaved, ScheduleKind::ZbV] {
        let orders = generate(kind, &ScheduleShape::new(4, 8)).unwrap();
        let timeline = record(&orders, &OpCosts::uniform(orders.stages(), 1.0, 1.1, 0.9)).unwrap();
        let items: Vec<FillItem> = (0..40)
            .map(|k| FillItem { seconds: 0.05 + random(), after: (k % 3 != 0).then(|| k - 1) })
            .collect();
        let filled = fill_bubbles(&timeline, &items);
        assert_eq!(filled.placed.len() + filled.left.len(), items.len());
        assert!(!filled.placed.is_empty());
        let mut busy: Vec<Vec<(f64, f64)>> =
            timeline.ranks.iter().map(|rank| rank.spans.iter().map(|s| (s.start, s.end)).collect()).collect();
        for filling in &filled.placed {
            assert!(filling.end <= timeline.makespan);
            if let Some(before) = items[filling.item].after {
                let end = filled.placed.iter().find(|other| other.item == before).unwrap().end;
                assert!(end <= filling.start);
            }
            busy[filling.rank].push((filling.start, filling.end));
        }
        for rank in &mut busy {
            rank.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(rank.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-12), "{kind}");
        }
        // What is left did not fit anywhere.
        let gaps = idle_intervals(&timeline).concat();
        let longest = gaps.iter().map(|(from, until)| until - from).fold(0.0, f64::max);
        let alone = fill_bubbles(&timeline, &[FillItem { seconds: longest, after: None }]);
        assert_eq!(alone.left, Vec::<usize>::new());
        let long = fill_bubbles(&timeline, &[FillItem { seconds: longest * 1.01, after: None }]);
        assert_eq!(long.left, [0]);
    }
}

#[test]
fn all_small_work_fills_the_whole_bubble() {
    let orders = generate(ScheduleKind::OneFOneB, &ScheduleShape::new(4, 8)).unwrap();
    let timeline = record(&orders, &OpCosts::uniform(4, 1.0, 1.0, 1.0)).unwrap();
    let filled = fill_bubbles(&timeline, &[FillItem { seconds: 0.5, after: None }; 72]);
    assert!(filled.left.is_empty(), "4 ranks idle 9 units each");
    assert_eq!(fill_bubbles(&timeline, &[FillItem { seconds: 0.5, after: None }; 73]).left.len(), 1);
    let bad = fill_bubbles(
        &timeline,
        &[FillItem { seconds: f64::NAN, after: None }, FillItem { seconds: 1.0, after: Some(9) }],
    );
    assert_eq!(bad.left, [0, 1]);
}
