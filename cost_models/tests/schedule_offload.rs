//! Offload: copies fit their slots, peaks are those of the reference table, slow links are refused.

use cost_models::schedule::*;

fn recorded(p: u32, v: u32, g: u32) -> (RankOrders, Timeline) {
    let shape = ScheduleShape::new(p, 4 * p).with_chunks(v).with_group_size(g);
    let orders = generate(ScheduleKind::GeneralizedInterleaved, &shape).unwrap();
    let timeline = record(&orders, &OpCosts::uniform(p * v, 1.0, 1.0, 1.0)).unwrap();
    (orders, timeline)
}

/// Copy time over a chunk's compute time is `k`.
fn offload(p: u32, v: u32, g: u32, chunks: u32, k: f64) -> Result<OffloadPlan, ScheduleError> {
    let (orders, timeline) = recorded(p, v, g);
    plan_offload(&orders, &timeline, OffloadSpec { chunks, copy_seconds: 3.0 * k })
}

#[test]
fn copies_share_the_link_and_keep_their_deadlines() {
    for (p, v, g, chunks, k) in [(8, 4, 4, 2, 0.5), (8, 2, 4, 1, 0.5), (6, 3, 3, 1, 0.75), (8, 4, 8, 1, 1.0)]
    {
        let (orders, timeline) = recorded(p, v, g);
        let plan = plan_offload(&orders, &timeline, OffloadSpec { chunks, copy_seconds: 3.0 * k }).unwrap();
        assert!(!plan.copies.is_empty());
        for pair in 0..(p / 2) as usize {
            let ranks = [2 * pair, 2 * pair + 1];
            let own = plan.copies.iter().filter(|copy| ranks.contains(&copy.rank));
            // One direction of the shared link serves one rank at a time.
            for direction in [|copy: &Copies| copy.out, |copy: &Copies| copy.back] {
                let mut spans: Vec<(f64, f64)> = own.clone().map(direction).collect();
                spans.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(spans.windows(2).all(|two| two[0].1 <= two[1].0 + 1e-9));
            }
        }
        for copy in &plan.copies {
            let spans = &timeline.ranks[copy.rank].spans;
            let at = |kind: OpKind| {
                let same = |op: Op| {
                    (op.kind, op.stage, op.microbatch) == (kind, copy.forward.stage, copy.forward.microbatch)
                };
                *spans.iter().find(|span| same(span.op)).unwrap()
            };
            assert!(at(OpKind::F).end <= copy.out.0 + 1e-9 && copy.out.1 <= copy.back.0 + 1e-9);
            assert!(copy.back.1 <= at(OpKind::I).start + 1e-9);
        }
    }
}

fn worst(plan: &OffloadPlan) -> u32 {
    plan.peak_activations.iter().copied().max().unwrap()
}

/// (p, v, g, o, k, peak) of the reference table where the link is not crowded.
#[test]
fn peaks_of_the_reference_table() {
    let rows = [
        (8, 2, 4, 1, 0.25, 7),
        (8, 2, 4, 1, 0.5, 8),
        (8, 2, 4, 2, 0.25, 4),
        (8, 2, 8, 1, 0.25, 8),
        (8, 2, 8, 2, 0.1, 2),
        (8, 4, 4, 1, 0.5, 16),
        (8, 4, 4, 1, 1.0, 16),
        (8, 4, 4, 2, 0.5, 12),
        (8, 4, 4, 4, 0.25, 4),
        (8, 4, 8, 4, 0.1, 2),
        (6, 3, 3, 1, 0.5, 9),
    ];
    for (p, v, g, o, k, expected) in rows {
        let plan = offload(p, v, g, o, k).unwrap_or_else(|error| panic!("{p} {v} {g} {o} {k}: {error}"));
        assert_eq!(worst(&plan), expected, "{p} {v} {g} o {o} k {k}");
        let (orders, timeline) = recorded(p, v, g);
        let none = plan_offload(&orders, &timeline, OffloadSpec { chunks: 0, copy_seconds: 1.0 }).unwrap();
        assert_eq!(none.peak_activations, timeline.peak_activations());
    }
}

/// Near the rate limit warm-up copies pile up: more is held than with the authors' shortened copies, and still less than
/// without offload.
#[test]
fn crowded_links_hold_more() {
    let rows = [
        (8, 2, 4, 1, 0.75, 8),
        (8, 2, 4, 2, 0.4, 5),
        (8, 2, 8, 1, 0.6, 8),
        (8, 4, 8, 2, 0.5, 16),
        (6, 3, 3, 2, 0.5, 6),
    ];
    for (p, v, g, o, k, reference) in rows {
        let (held, without) = (worst(&offload(p, v, g, o, k).unwrap()), recorded(p, v, g).1.worst_peak());
        assert!(reference < held && held < without, "{p} {v} {g} o {o} k {k}: {held}");
    }
}

#[test]
fn links_that_are_too_slow_are_refused() {
    for (p, v, g, o, k) in
        [(8, 2, 4, 1, 1.2), (8, 4, 4, 3, 0.8), (8, 4, 4, 4, 0.6), (8, 2, 8, 2, 0.6), (6, 3, 3, 3, 0.6)]
    {
        assert!(2.0 * k * f64::from(o) > f64::from(v));
        let error = offload(p, v, g, o, k).unwrap_err();
        assert!(matches!(&error, ScheduleError::Offload { .. }), "{error}");
        assert!(error.to_string().contains("host link"), "{error}");
    }
}

#[test]
fn schedules_say_what_they_offload() {
    let shape = ScheduleShape::new(8, 16).with_chunks(5);
    let offloaded = |kind: ScheduleKind| (kind.definition().offloaded_chunks)(&kind.check(&shape).unwrap());
    assert_eq!(offloaded(ScheduleKind::PipeoffloadHalf), 3);
    assert_eq!(offloaded(ScheduleKind::PipeoffloadFull), 5);
    assert_eq!(offloaded(ScheduleKind::GeneralizedInterleaved), 0);
}
