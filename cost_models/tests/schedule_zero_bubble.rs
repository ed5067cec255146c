//! Closed forms of the schedules with a split backward, for p in 2..=16 and every m in p..=4p they allow.

mod schedule_support;

use cost_models::schedule::*;
use schedule_support::*;

#[test]
fn zb_h1() {
    for (p, m) in shapes() {
        for times @ [f, i, w] in [UNIT, UNEVEN] {
            let timeline = run(ScheduleKind::ZbH1, ScheduleShape::new(p, m), times, 0.0);
            close(timeline.makespan_bubble(), f64::from(p - 1) * (f + i - w), &format!("{p} {m}"));
            assert_eq!(timeline.peak_activations(), vec![p; p as usize], "{p} {m}");
        }
    }
}

#[test]
fn zb_h2() {
    for (p, m) in shapes().filter(|&(p, m)| m >= 2 * p - 1) {
        let timeline = run(ScheduleKind::ZbH2, ScheduleShape::new(p, m), UNIT, 0.0);
        close(timeline.makespan_bubble(), f64::from(p - 1), &format!("{p} {m}"));
        close(timeline.span_bubble(), 0.0, &format!("span {p} {m}"));
        assert_eq!(timeline.peak_activations(), vec![2 * p - 1; p as usize], "{p} {m}");
        let [f, i, w] = UNEVEN;
        let uneven = run(ScheduleKind::ZbH2, ScheduleShape::new(p, m), UNEVEN, 0.0);
        close(uneven.span_bubble(), f64::from(p - 1) * (f + i - 2.0 * w), &format!("uneven {p} {m}"));
    }
}

#[test]
fn interleaved_zero_bubble() {
    for (p, m) in shapes() {
        for v in 2..=4 {
            let shape = ScheduleShape::new(p, m).with_chunks(v);
            if ScheduleKind::InterleavedZb.check(&shape).is_err() {
                assert_ne!(m % (m / p), 0);
                continue;
            }
            let timeline = run(ScheduleKind::InterleavedZb, shape, UNIT, 0.0);
            close(timeline.makespan_bubble(), f64::from(p - 1), &format!("{p} {m} {v}"));
            let g = m / (m / p);
            assert_eq!(timeline.worst_peak(), (v - 1) * g + p, "{p} {m} {v}");
        }
    }
    let larger = run(ScheduleKind::InterleavedZb, ScheduleShape::new(8, 15), UNIT, 0.0);
    assert_eq!(larger.worst_peak(), 23);
}

#[test]
fn zb_v() {
    for (p, m) in shapes().filter(|&(p, m)| m >= 2 * p - 1) {
        let timeline = run(ScheduleKind::ZbV, ScheduleShape::new(p, m), UNIT, 0.0);
        close(timeline.makespan_bubble(), f64::from(p - 1), &format!("{p} {m}"));
        close(timeline.span_bubble(), 0.0, &format!("span {p} {m}"));
        assert_eq!(timeline.peak_activations(), vec![2 * p; p as usize], "{p} {m}");
    }
}

/// Corrected statement: with unequal times the fixed ZB-V order idles more than ZB-H2.
#[test]
fn zb_v_is_not_cost_aware() {
    let v = run(ScheduleKind::ZbV, ScheduleShape::new(4, 16), UNEVEN, 0.0);
    let h2 = run(ScheduleKind::ZbH2, ScheduleShape::new(4, 16), UNEVEN, 0.0);
    close(v.span_bubble(), 24.0, "zb-v");
    close(h2.span_bubble(), 18.0, "zb-h2");
}

/// Ranks run different numbers of pairs, so that savings leave them busy for different times; the formula is that of
/// the rank that idles most.
fn worst_bubble(timeline: &Timeline) -> f64 {
    timeline.bubbles().into_iter().fold(0.0, f64::max)
}

#[test]
fn dualpipe() {
    for (p, m) in shapes().filter(|&(p, m)| p % 2 == 0 && m % 2 == 0 && m >= 2 * p) {
        for saving in [0.0, 5.0, 10.0] {
            let timeline = run_paired(ScheduleKind::Dualpipe, ScheduleShape::new(p, m), [10.0; 3], saving);
            let expected = f64::from(p / 2 - 1) * (30.0 - saving + 20.0 - 30.0);
            close(worst_bubble(&timeline), expected, &format!("{p} {m} {saving}"));
            assert_eq!(timeline.worst_peak(), p + 1, "{p} {m}");
        }
    }
}

#[test]
fn dualpipev() {
    for (p, m) in shapes().filter(|&(p, m)| m >= 2 * p) {
        for saving in [0.0, 5.0, 10.0] {
            let timeline = run_paired(ScheduleKind::Dualpipev, ScheduleShape::new(p, m), [10.0; 3], saving);
            let expected = f64::from(p - 1) * (30.0 - saving + 20.0 - 30.0);
            close(worst_bubble(&timeline), expected, &format!("{p} {m} {saving}"));
            assert_eq!(timeline.worst_peak(), 2 * p + 1, "{p} {m}");
        }
    }
}

/// Corrected statements: an engine that runs the pair as two operations halves the bubble, and unequal times leave
/// the closed form.
#[test]
fn dualpipes_closed_form_has_limits() {
    let orders = generate(ScheduleKind::Dualpipev, &ScheduleShape::new(4, 16)).unwrap();
    let mut parts = orders.into_parts();
    parts.orders.iter_mut().flatten().for_each(|op| op.paired = false);
    let apart = RankOrders::new(parts).unwrap();
    let timeline = simulate(&apart, &OpCosts::uniform(8, 1.0, 1.0, 1.0)).unwrap();
    close(timeline.makespan_bubble(), 3.0, "as two operations");
    let uneven = run_paired(ScheduleKind::Dualpipev, ScheduleShape::new(4, 16), UNEVEN, 0.0);
    close(uneven.makespan_bubble(), 72.0, "unequal times");
    let formula = 3.0 * (30.0 + 20.0 - 24.0);
    assert!(uneven.makespan_bubble() < formula);
}

#[test]
fn latency_of_zero_bubble_schedules() {
    for (p, m) in shapes() {
        for c in [0.1, 0.5] {
            let grown = |kind| {
                let at = |c| run(kind, ScheduleShape::new(p, m), UNIT, c).makespan;
                at(c) - at(0.0)
            };
            if m > p {
                close(grown(ScheduleKind::ZbH1), 4.0 * f64::from(p - 1) * c, &format!("zb-h1 {p} {m}"));
            }
            if m >= 2 * p - 1 {
                close(grown(ScheduleKind::ZbH2), f64::from(p - 1) * c, &format!("zb-h2 {p} {m}"));
            }
        }
    }
}

/// The published greedy's bubbles at unit times; the block's lifespan decides the peak.
#[test]
fn v_half_and_v_min() {
    for (p, m) in shapes().filter(|&(p, m)| m >= 2 * p) {
        let half = run(ScheduleKind::VHalf, ScheduleShape::new(p, m), UNIT, 0.0);
        close(
            half.makespan_bubble(),
            (6.0 * f64::from(p.div_ceil(2)) - 7.0).max(1.0),
            &format!("v-half {p} {m}"),
        );
        assert_eq!(half.worst_peak(), 2 * (p / 2) + 2, "v-half {p} {m}");
        let min = run(ScheduleKind::VMin, ScheduleShape::new(p, m), UNIT, 0.0);
        let form = if p % 3 == 0 { 4 * p - 7 } else { 4 * p - 5 };
        // For two ranks the gap filling finds one slot more.
        close(min.makespan_bubble(), if p == 2 { 2.0 } else { form.into() }, &format!("v-min {p} {m}"));
        assert_eq!(min.worst_peak(), 2 * ((p + 4) / 3), "v-min {p} {m}");
    }
}

#[test]
fn v_half_with_vocabulary_passes() {
    for (p, bubble, peak) in [(2, 8.0, 6), (4, 15.0, 8), (6, 22.0, 10), (8, 32.0, 12)] {
        for m in [2 * p, 4 * p] {
            let one = Schedule { kind: ScheduleKind::VHalf, vocabulary: Vocabulary::OneBarrier };
            let timeline = run_schedule(one, ScheduleShape::new(p, m), UNIT, 0.0);
            close(timeline.makespan_bubble(), bubble, &format!("{p} {m}"));
            assert_eq!(timeline.worst_peak(), peak, "{p} {m}");
            let two = Schedule { vocabulary: Vocabulary::TwoBarriers, ..one };
            assert_eq!(
                run_schedule(two, ScheduleShape::new(p, m), UNIT, 0.0).worst_peak(),
                peak + 2,
                "{p} {m}"
            );
        }
    }
}
