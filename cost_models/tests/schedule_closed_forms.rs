//! Bubbles and peaks of the reference tables, exactly, for p in 2..=16 and every m in p..=4p a schedule allows.

mod schedule_support;

use cost_models::schedule::*;
use schedule_support::*;

#[test]
fn gpipe_and_1f1b() {
    for (p, m) in shapes() {
        for times @ [f, i, w] in [UNIT, UNEVEN] {
            for kind in [ScheduleKind::Gpipe, ScheduleKind::OneFOneB] {
                let timeline = run(kind, ScheduleShape::new(p, m), times, 0.0);
                close(timeline.makespan_bubble(), f64::from(p - 1) * (f + i + w), &format!("{kind} {p} {m}"));
                let peaks: Vec<u32> =
                    (0..p).map(|r| if kind == ScheduleKind::Gpipe { m } else { m.min(p - r) }).collect();
                assert_eq!(timeline.peak_activations(), peaks, "{kind} {p} {m}");
            }
        }
    }
}

#[test]
fn one_f_one_b_keeps_its_bubble_below_p_microbatches() {
    for p in 2..=16 {
        for m in 1..p {
            let timeline = run(ScheduleKind::OneFOneB, ScheduleShape::new(p, m), UNIT, 0.0);
            close(timeline.makespan_bubble(), f64::from(p - 1) * 3.0, &format!("{p} {m}"));
        }
    }
}

#[test]
fn interleaved_with_either_launchers_groups() {
    for (p, m) in shapes() {
        for v in 2..=4 {
            for rule in [GroupRule::Megatron, GroupRule::Torch] {
                let shape = ScheduleShape { group_rule: rule, ..ScheduleShape::new(p, m).with_chunks(v) };
                if ScheduleKind::Interleaved.check(&shape).is_err() {
                    continue;
                }
                let g = if rule == GroupRule::Megatron { p } else { m / (m / p) };
                let timeline = run(ScheduleKind::Interleaved, shape, UNIT, 0.0);
                close(timeline.makespan_bubble(), f64::from(p - 1) * 3.0, &format!("{p} {m} {v} {rule:?}"));
                let peaks: Vec<u32> =
                    (0..p).map(|r| (m * v).min(2 * (p - 1 - r) + (v - 1) * g + 1)).collect();
                assert_eq!(timeline.peak_activations(), peaks, "{p} {m} {v} {rule:?}");
            }
        }
    }
}

#[test]
fn larger_groups_keep_the_bubble_and_hold_more() {
    for p in 2..=8 {
        let at =
            |g| run(ScheduleKind::Interleaved, ScheduleShape::new(p, 4 * p).with_group_size(g), UNIT, 0.0);
        let (small, large) = (at(p), at(2 * p));
        close(large.makespan_bubble(), small.makespan_bubble(), "bubble");
        assert!(large.worst_peak() > small.worst_peak());
    }
}

#[test]
fn looped_breadth_first() {
    for (p, m) in shapes() {
        for v in 1..=4 {
            let timeline = run(ScheduleKind::LoopedBfs, ScheduleShape::new(p, m).with_chunks(v), UNEVEN, 0.0);
            close(timeline.makespan_bubble(), f64::from(p - 1) * 30.0, &format!("{p} {m} {v}"));
            assert_eq!(timeline.peak_activations(), vec![m * v; p as usize]);
        }
    }
}

#[test]
fn latency_of_flushing_schedules() {
    for (p, m) in shapes() {
        for c in [0.1, 0.5] {
            let grown = |kind, v: u32| {
                let shape = ScheduleShape::new(p, m).with_chunks(v);
                run(kind, shape, UNIT, c).makespan - run(kind, shape, UNIT, 0.0).makespan
            };
            let once = 2.0 * f64::from(p - 1) * c;
            close(grown(ScheduleKind::Gpipe, 1), once, &format!("gpipe {p} {m}"));
            // Only where a chunk's microbatches outlast their way around the ranks: m tF >= p (tF + c).
            if f64::from(m) >= f64::from(p) * (1.0 + c) {
                close(grown(ScheduleKind::LoopedBfs, 2), once, &format!("bfs {p} {m}"));
            }
            if m.is_multiple_of(p) && p > 2 {
                let all = 2.0 * f64::from(2 * p - 1) * c;
                close(grown(ScheduleKind::Interleaved, 2), all, &format!("interleaved {p} {m}"));
            }
        }
    }
}

/// 1F1B pays for latency again with every p microbatches.
#[test]
fn latency_of_1f1b_grows_with_microbatches() {
    for p in 2..=16 {
        for c in [0.1, 0.5] {
            let at = |m| run(ScheduleKind::OneFOneB, ScheduleShape::new(p, m), UNIT, c).makespan;
            for m in p..=3 * p {
                let step = at(m + p) - at(m) - f64::from(p) * 3.0;
                close(step, 2.0 * f64::from(p - 1) * c, &format!("{p} {m} {c}"));
            }
        }
    }
}
