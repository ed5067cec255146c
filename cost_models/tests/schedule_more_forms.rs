//! Closed forms of the second reference table, for p in 2..=16 and every m in p..=4p a schedule allows.

mod schedule_support;

use cost_models::schedule::*;
use schedule_support::*;

fn vocabulary(kind: ScheduleKind, vocabulary: Vocabulary) -> Schedule {
    Schedule { kind, vocabulary }
}

/// Bubble with the given vocabulary costs.
fn run_passes(schedule: Schedule, p: u32, m: u32, [f, i, w]: [f64; 3], passes: VocabularyCosts) -> Timeline {
    let times = ChunkTimes { forward: f, input_grad: i, weight_grad: w };
    let orders = generate(schedule, &ScheduleShape { times, ..ScheduleShape::new(p, m) }).unwrap();
    let costs = OpCosts { vocabulary: passes, ..OpCosts::uniform(p, f, i, w) };
    simulate(&orders, &costs).unwrap_or_else(|error| panic!("{schedule} {p} {m}: {error}"))
}

#[test]
fn hanayo() {
    for (p, m) in shapes() {
        for waves in 1..=3 {
            let shape = ScheduleShape::new(p, m).with_chunks(2 * waves);
            for times @ [_, i, w] in [UNIT, UNEVEN] {
                let timeline = run(ScheduleKind::Hanayo, shape, times, 0.0);
                close(
                    timeline.makespan_bubble(),
                    2.0 * f64::from(p - 1) * (i + w),
                    &format!("{p} {m} {waves}"),
                );
                assert_eq!(timeline.worst_peak(), 2 * waves * m, "{p} {m} {waves}");
            }
            if m.is_multiple_of(p) {
                let units = run(ScheduleKind::Hanayo, shape.with_group_size(p), UNIT, 0.0);
                let expected = 4.0 * f64::from((p - 1) * (m / p));
                close(units.makespan_bubble(), expected, &format!("units {p} {m} {waves}"));
                assert_eq!(units.worst_peak(), 2 * waves * p);
            }
        }
    }
}

#[test]
fn bitpipe_and_chimera() {
    for (p, m) in shapes().filter(|&(p, m)| p % 2 == 0 && m % p == 0) {
        let n = f64::from(m / p);
        for times @ [f, i, w] in [UNIT, UNEVEN] {
            let bubble = f64::from(p - 2) * (n * (i + w) - (n - 1.0) * f);
            for (kind, base) in [(ScheduleKind::Bitpipe, p + p / 2 + 1), (ScheduleKind::Chimera, p / 2 + 1)] {
                let timeline = run(kind, ScheduleShape::new(p, m), times, 0.0);
                close(timeline.makespan_bubble(), bubble, &format!("{kind} {p} {m}"));
                let peaks: Vec<u32> = (0..p).map(|r| base + r.min(p - 1 - r)).collect();
                assert_eq!(timeline.peak_activations(), peaks, "{kind} {p} {m}");
            }
        }
    }
}

#[test]
fn latency_of_bidirectional_schedules() {
    for (p, n) in [(4, 1), (4, 2), (6, 2), (8, 4)] {
        let grown = |kind| {
            let at = |c| run(kind, ScheduleShape::new(p, n * p), UNIT, c).makespan;
            (at(0.25) - at(0.0)) / 0.25
        };
        let units = f64::from(n - 1);
        let p = f64::from(p);
        close(
            grown(ScheduleKind::Bitpipe),
            5.0 * p - 7.0 + (4.0 * p - 5.0) * units,
            &format!("bitpipe {p} {n}"),
        );
        close(
            grown(ScheduleKind::Chimera),
            3.0 * p - 5.0 + 2.0 * (p - 2.0) * units,
            &format!("chimera {p} {n}"),
        );
    }
}

#[test]
fn one_f_one_b_v() {
    for (p, m) in shapes() {
        let timeline = run(ScheduleKind::OneFOneBV, ScheduleShape::new(p, m), UNIT, 0.0);
        assert_eq!(timeline.worst_peak(), 2 * (2 * p / 3 + 1), "{p} {m}");
        let bubble = match (p, p % 3) {
            (2, _) => 4,
            (_, 1) => 5 * (p - 1),
            (_, 2) => 5 * p - 7,
            (3, _) => 8,
            (6, _) => 22,
            (9, _) => 36,
            (12, _) if m >= 2 * p => 52,
            (15, _) if m >= 2 * p => 67,
            _ => continue,
        };
        close(timeline.makespan_bubble(), bubble.into(), &format!("{p} {m}"));
    }
}

#[test]
fn generalized_interleaved() {
    for p in 2..=16 {
        for v in 2..=4 {
            for groups in 1..=4 {
                let shape = ScheduleShape::new(p, groups * p).with_chunks(v);
                let timeline = run(ScheduleKind::GeneralizedInterleaved, shape, UNIT, 0.0);
                close(timeline.makespan_bubble(), 2.0 * f64::from(p - 1), &format!("{p} {v} {groups}"));
                let peaks: Vec<u32> = (0..p).map(|r| (v - 1) * p + p - r).collect();
                assert_eq!(timeline.peak_activations(), peaks, "{p} {v} {groups}");
            }
            for g in p.div_ceil(2)..=p {
                let shape = ScheduleShape::new(p, 4 * g).with_chunks(v).with_group_size(g);
                let timeline = run(ScheduleKind::GeneralizedInterleaved, shape, UNIT, 0.0);
                let bubble = (p - g) * v + g + p - 2;
                close(timeline.makespan_bubble(), bubble.into(), &format!("g {g} of {p}, v {v}"));
                assert_eq!(timeline.worst_peak(), (v - 1) * g + p, "g {g} of {p}, v {v}");
            }
        }
    }
}

#[test]
fn latency_of_waves_and_groups() {
    for p in [4u32, 6, 8] {
        for c in [0.1, 0.25] {
            let grown = |kind, shape: ScheduleShape| {
                let at = |c| run(kind, shape, UNIT, c).makespan;
                (at(c) - at(0.0)) / c
            };
            for (waves, n) in [(1, 1), (1, 2), (2, 1), (2, 3)] {
                let shape = ScheduleShape::new(p, n * p).with_chunks(2 * waves);
                let expected = 4 * waves * (p - 1) * n + 2 * (p - 2);
                close(
                    grown(ScheduleKind::Hanayo, shape),
                    expected.into(),
                    &format!("hanayo {p} W {waves} n {n} {c}"),
                );
            }
            for v in [2, 3] {
                let shape = ScheduleShape::new(p, 4 * p).with_chunks(v);
                let expected = f64::from((v + 1) * p - 2);
                close(
                    grown(ScheduleKind::GeneralizedInterleaved, shape),
                    expected,
                    &format!("gis {p} v {v} {c}"),
                );
            }
            let half = grown(ScheduleKind::GeneralizedInterleavedHalf, ScheduleShape::new(p, 4 * p));
            close(half, f64::from(4 * p - 2), &format!("gis-half {p} {c}"));
        }
    }
}

#[test]
fn vocabulary_passes() {
    for p in 2..=16u32 {
        for m in 1..=4 * p {
            for (passes, times) in [(0.5, [1.0, 1.0, 1.0]), (2.0, [1.0, 1.0, 1.0]), (0.0, [1.0, 1.0, 1.0])] {
                let costs = VocabularyCosts { s: passes, t: passes / 2.0, ..VocabularyCosts::default() };
                for (split, extra) in [(Vocabulary::TwoBarriers, 2), (Vocabulary::OneBarrier, 1)] {
                    let schedule = vocabulary(ScheduleKind::OneFOneB, split);
                    let timeline = run_passes(schedule, p, m, times, costs);
                    close(
                        timeline.makespan_bubble(),
                        3.0 * f64::from(p - 1),
                        &format!("{schedule} {p} {m} {passes}"),
                    );
                    let peaks: Vec<u32> = (0..p).map(|r| m.min(p - r + extra)).collect();
                    assert_eq!(timeline.peak_activations(), peaks, "{schedule} {p} {m}");
                }
            }
        }
    }
}

#[test]
fn interlaced() {
    for (p, m) in shapes() {
        let costs = VocabularyCosts { s: 0.5, ..VocabularyCosts::default() };
        let timeline = run_passes(ScheduleKind::Interlaced.into(), p, m, UNIT, costs);
        close(timeline.makespan_bubble(), 3.0 * f64::from(p - 1), &format!("{p} {m}"));
        assert_eq!(timeline.worst_peak(), m.min(3 * p / 2), "{p} {m}");
    }
}

#[test]
fn two_bp() {
    for (p, m) in shapes() {
        for times @ [f, i, _] in [UNIT, UNEVEN] {
            let last = run(ScheduleKind::TwoBp, ScheduleShape::new(p, m), times, 0.0);
            close(last.makespan_bubble(), f64::from(p - 1) * (f + i), &format!("{p} {m}"));
            assert_eq!(last.peak_activations(), vec![m; p as usize]);
        }
        let every = run(ScheduleKind::TwoBp, ScheduleShape::new(p, m).with_group_size(p), UNIT, 0.0);
        close(every.makespan_bubble(), 2.0 * f64::from(p - 1), &format!("every p {p} {m}"));
        assert_eq!(every.worst_peak(), m.min(2 * p - 1), "{p} {m}");
        let delayed = |kind, delay| {
            let orders = generate(kind, &ScheduleShape::new(p, m)).unwrap();
            let split = delay_weight_gradients(orders, delay).unwrap();
            simulate(&split, &OpCosts::uniform(p, 1.0, 1.0, 1.0)).unwrap()
        };
        let gpipe = delayed(ScheduleKind::Gpipe, WeightDelay::Last);
        close(gpipe.makespan_bubble(), 2.0 * f64::from(p - 1), &format!("gpipe {p} {m}"));
        let filling = delayed(ScheduleKind::OneFOneB, WeightDelay::InCooldown);
        close(filling.makespan_bubble(), f64::from(p - 1), &format!("in cool-down {p} {m}"));
        assert_eq!((gpipe.worst_peak(), filling.worst_peak()), (m, m), "{p} {m}");
    }
}

#[test]
fn combined() {
    for (p, m) in shapes() {
        for v in [1, 2, 4] {
            let shape =
                ScheduleShape { group_rule: GroupRule::Torch, ..ScheduleShape::new(p, m).with_chunks(v) };
            if ScheduleKind::Combined.check(&shape).is_err() {
                continue;
            }
            let g = m / (m / p);
            let timeline = run(ScheduleKind::Combined, shape, UNIT, 0.0);
            close(timeline.makespan_bubble(), 3.0 * f64::from(p - 1), &format!("{p} {m} {v}"));
            assert_eq!(timeline.worst_peak(), (m * v).min(2 * (p - 1) + (v - 1) * g + 2), "{p} {m} {v}");
        }
    }
}

#[test]
fn sliced() {
    for (p, m) in shapes() {
        for q in 1..=4 {
            let shape = ScheduleShape::new(p, m).with_slices(q);
            let timeline = run(ScheduleKind::Seq1f1b, shape, UNIT, 0.0);
            close(timeline.makespan_bubble(), 3.0 * f64::from(p - 1), &format!("{p} {m} {q}"));
            assert_eq!(timeline.worst_peak(), (m * q).min(p - 1 + q), "{p} {m} {q}");
            let all = run(ScheduleKind::Terapipe, shape, UNIT, 0.0);
            assert_eq!(all.worst_peak(), m * q);
        }
    }
}

/// Forward of one sequence in uneven slices: sum + (p - 1) max.
#[test]
fn terapipe_forward() {
    for p in 2..=16u32 {
        for seed in 0..20u32 {
            let scale: Vec<f64> = (0..6).map(|k| 0.1 + f64::from((seed * 7 + k * 13) % 17)).collect();
            let longest = scale.iter().copied().fold(0.0, f64::max);
            let costs = OpCosts { slice_scale: scale.clone(), ..OpCosts::uniform(p, 1.0, 0.0, 0.0) };
            for m in [1, p, 2 * p + 1, 4 * p] {
                let shape = ScheduleShape::new(p, m).with_slices(6);
                let orders = generate(ScheduleKind::Terapipe, &shape).unwrap();
                let expected = f64::from(m) * scale.iter().sum::<f64>() + f64::from(p - 1) * longest;
                close(simulate(&orders, &costs).unwrap().makespan, expected, &format!("{p} {m} {seed}"));
            }
        }
    }
}

#[test]
fn zeropp_units() {
    for (p, m) in shapes().filter(|&(p, m)| m % p == 0) {
        for times @ [f, i, _] in [UNIT, UNEVEN] {
            let timeline = run(ScheduleKind::Zeropp, ScheduleShape::new(p, m), times, 0.0);
            close(timeline.makespan_bubble(), f64::from((p - 1) * (m / p)) * (f + i), &format!("{p} {m}"));
            assert_eq!(timeline.worst_peak(), 2 * p);
        }
    }
}

/// Asynchronous schedules need an opt-in and lose nothing in mid-stream.
#[test]
fn asynchronous() {
    for kind in [ScheduleKind::Pipedream, ScheduleKind::TwoBw, ScheduleKind::Paci] {
        assert!(!kind.is_synchronous());
        let shape = ScheduleShape::new(4, 8);
        let refused = generate(kind, &shape).unwrap_err().to_string();
        assert!(refused.contains("changes training"), "{refused}");
        let allowed = ScheduleShape { allow_asynchronous: true, ..shape };
        let step = steady_step(kind, &allowed, &OpCosts::uniform(4, 1.0, 1.0, 1.0)).unwrap();
        close(step, 24.0, kind.name());
    }
    let synchronous = ScheduleKind::ALL.iter().filter(|kind| kind.is_synchronous());
    assert_eq!(synchronous.count(), ScheduleKind::ALL.len() - 3);
}
