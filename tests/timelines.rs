//! Pictures and traces of simulated schedules.

use cost_models::schedule::*;
use meshwright::report::timeline::Held;
use meshwright::report::{timeline_svg, timeline_text, timeline_trace};

fn recorded(kind: ScheduleKind, shape: ScheduleShape) -> (RankOrders, Timeline) {
    let orders = generate(kind, &shape).unwrap();
    let timeline = record(&orders, &OpCosts::uniform(orders.stages(), 1.0, 1.0, 1.0)).unwrap();
    (orders, timeline)
}

#[test]
fn text_of_1f1b() {
    let (orders, timeline) = recorded(ScheduleKind::OneFOneB, ScheduleShape::new(3, 3));
    let text = timeline_text::render(&orders, &timeline, 30, 16);
    let expected = "\
rank 0 |F0F1F2........B0--..B1--..B2--| 40.0 % idle
rank 1 |..F0F1....B0--F2B1--..B2--....| 40.0 % idle
rank 2 |....F0B0--F1B1--F2B2--........| 40.0 % idle
";
    assert_eq!(text, expected);
    let (orders, timeline) = recorded(ScheduleKind::Dualpipev, ScheduleShape::new(2, 4));
    let pairs = timeline_text::render(&orders, &timeline, (2.0 * timeline.makespan) as usize, 16);
    assert!(pairs.contains("|F0F1F2f0i0w0f1F3b1--"), "{pairs}");
}

#[test]
fn text_leaves_out_the_middle_of_many_ranks() {
    let (orders, timeline) = recorded(ScheduleKind::Gpipe, ScheduleShape::new(64, 8));
    let text = timeline_text::render(&orders, &timeline, 80, 10);
    assert_eq!(text.lines().count(), 11);
    assert!(text.contains("... 54 ranks ...") && text.contains("rank 63 |") && !text.contains("rank 20 |"));
}

/// Elements of the picture, by what opens them; every quote and tag is closed.
fn count(svg: &str, element: &str) -> usize {
    svg.matches(&format!("<{element} ")).count()
}

#[test]
fn picture_of_64_ranks() {
    let (orders, timeline) = recorded(ScheduleKind::Interleaved, ScheduleShape::new(64, 128).with_chunks(2));
    let svg = timeline_svg::render(&orders, &timeline, "64 ranks <wide> & \"deep\"", "s", Held::Chunks);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("64 ranks &lt;wide&gt; &amp; &quot;deep&quot;"));
    assert_eq!(svg.matches("class=\"row\"").count(), 64);
    assert!(svg.contains("class=\"F0\"") && svg.contains("class=\"F1\"") && svg.contains("class=\"B1\""));
    assert_eq!(svg.matches('"').count() % 2, 0);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    // A shape per operation: two a stage and microbatch.
    let shapes = svg.matches('z').count();
    assert!(shapes >= 2 * 64 * 2 * 128, "{shapes}");
    assert!(svg.len() < 4_000_000, "{} bytes", svg.len());
    let share = format!("{:.1} %", 100.0 * timeline.bubbles()[0] / timeline.makespan);
    assert!(svg.contains(&share));
    assert!(svg.contains("activations held"));
    assert_eq!(
        svg,
        timeline_svg::render(&orders, &timeline, "64 ranks <wide> & \"deep\"", "s", Held::Chunks)
    );
}

#[test]
fn small_pictures_carry_microbatch_numbers() {
    let (orders, timeline) = recorded(ScheduleKind::ZbV, ScheduleShape::new(4, 8));
    let svg = timeline_svg::render(&orders, &timeline, "zb-v", "units", Held::Chunks);
    let numbers = svg.matches("class=\"n\"").count();
    assert_eq!(numbers, 3 * 4 * 2 * 8);
    assert!(count(&svg, "path") > 4 * 3);
}

#[test]
fn trace_has_every_operation() {
    for kind in [ScheduleKind::Interleaved, ScheduleKind::Dualpipe] {
        let (orders, timeline) = recorded(kind, ScheduleShape::new(4, 8));
        let trace: serde_json::Value =
            serde_json::from_str(&timeline_trace::render(&orders, &timeline, 1000.0, Held::Chunks)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |ph: &'static str| events.iter().filter(move |event| event["ph"] == ph);
        assert_eq!(of("X").count(), orders.len());
        assert_eq!(of("M").count(), 4);
        let end = of("X").map(|event| event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap());
        assert!((end.fold(0.0, f64::max) - 1000.0 * timeline.makespan).abs() < 1e-6);
        assert!(of("C").all(|event| event["args"]["held"].as_f64().unwrap() >= 0.0));
    }
}
