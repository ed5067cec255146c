//! torch's schedule CSV, there and back, and refused.

use cost_models::schedule::*;

#[test]
fn every_expressible_schedule_comes_back_the_same() {
    let mut written = 0;
    for &kind in ScheduleKind::ALL {
        let shape = ScheduleShape { allow_asynchronous: true, ..ScheduleShape::new(4, 8) };
        let orders = generate(kind, &shape).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let expressible =
            orders.pipelines() == 1 && orders.slices() == 1 && orders.vocabulary() == Vocabulary::Whole;
        match to_torch_csv(&orders) {
            Ok(text) => assert_eq!(from_torch_csv(&text).unwrap(), orders, "{kind}"),
            Err(error) => assert!(!expressible, "{kind}: {error}"),
        }
        written += u32::from(expressible);
    }
    assert!(written > 20);
}

/// The cells torch's own documentation shows.
#[test]
fn cells_are_torchs() {
    let orders = generate(ScheduleKind::Dualpipev, &ScheduleShape::new(2, 4)).unwrap();
    let text = to_torch_csv(&orders).unwrap();
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,"),
        "{first}"
    );
    let gpipe = generate(ScheduleKind::Gpipe, &ScheduleShape::new(2, 2)).unwrap();
    assert_eq!(to_torch_csv(&gpipe).unwrap(), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
}

#[test]
fn idle_and_communication_cells_are_skipped() {
    let text = "0UNSHARD,0F0,0SEND_F0,,,0RECV_B0,0B0,0REDUCE_GRAD\n,1RECV_F0,1F0,1B0,1SEND_B0,,1RESHARD\n";
    let orders = from_torch_csv(text).unwrap();
    assert_eq!(to_torch_csv(&orders).unwrap(), "0F0,0B0\n1F0,1B0\n");
}

#[test]
fn bad_files_are_refused_with_the_place_named() {
    let cases = [
        ("0F0,0B0\n1F0\n", "rank 1 lacks 1I0"),
        ("0F0,0B0,0B0\n", "runs 0B0 twice"),
        ("0F0,0I0\n", "lacks 0W0"),
        ("0B0,0F0\n", "runs 0B0 before"),
        ("0F0,xyz\n", "row 1, cell 2: 'xyz'"),
        ("0F0,0Q0\n", "row 1, cell 2"),
        ("0F0,0F\n", "row 1, cell 2"),
        ("0F0,(0B0)OVERLAP_F_B\n", "row 1, cell 2"),
        ("0S0\n", "row 1, cell 1"),
        ("99999999999F0\n", "row 1, cell 1"),
        ("0F4294967295\n", "rank 0 lacks 0F0"),
        ("65535F0\n", "no rank runs stage 0"),
        ("0F0\n0B0\n", "stage 0 is on rank 0 and on rank 1"),
        ("2F0,2B0\n", "no rank runs stage 0 of 3"),
        ("\n\n", "no operations"),
        ("", "no operations"),
    ];
    for (text, expected) in cases {
        let error = from_torch_csv(text).expect_err(text);
        assert!(
            error.to_string().contains(expected) || error.to_string().contains("more than"),
            "{text:?}: {error}"
        );
        assert!(!error.hint().is_empty());
    }
}
