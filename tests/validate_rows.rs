//! Tables of runs: every blank has a rule, every fault a line, and nothing panics.

#![allow(clippy::expect_used, reason = "a test stops at the first thing that is not as it should be")]

use meshwright::validate::{
    Models, RunCase, Selection, Unread, ValidateError, Validation, read_cases, validate,
};
use proptest::prelude::*;

const MODELS: &str = r#"{
    "dense": {"layers": 16, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 32000},
    "sparse": {"layers": 16, "hidden": 2048, "heads": 16, "vocab": 32000, "experts": 8, "topk": 2, "moe_ffn": 4096},
    "hybrid": {"note": "not a plain transformer"}
}"#;

const HEADER: &str = "id,source_key,kind,quality,core,model,seq_len,gpu,n_gpus,framework,runtime,tp,pp,vpp,cp,ep,etp,\
                      dp,zero_stage,sp,recompute,mbs,gbs,precision,schedule,step_s,time_scored,oom,notes";

/// A complete row, with `changes` made to it.
fn row(changes: &[(&str, &str)]) -> String {
    let values = |column: &str| match column {
        "id" => "T-1",
        "source_key" => "T",
        "kind" => "throughput",
        "quality" => "A",
        "core" | "time_scored" | "mbs" | "cp" | "ep" => "1",
        "model" => "dense",
        "seq_len" => "4096",
        "gpu" => "h100-sxm-80gb",
        "n_gpus" => "16",
        "runtime" => "megatron-core",
        "tp" | "pp" => "2",
        "gbs" => "64",
        "precision" => "bf16",
        "step_s" => "1.5",
        "oom" => "0",
        _ => "",
    };
    let changed = |column: &str| changes.iter().find(|(name, _)| *name == column).map(|(_, value)| *value);
    let cells: Vec<&str> =
        HEADER.split(',').map(|column| changed(column).unwrap_or_else(|| values(column))).collect();
    cells.join(",")
}

fn read(rows: &[String]) -> Result<(Vec<RunCase>, Validation), ValidateError> {
    let table = format!("{HEADER}\n{}\n", rows.join("\n"));
    read_cases("runs.csv", table.as_bytes(), &Models::read("models.json", MODELS)?, Selection::Core)
}

fn case(changes: &[(&str, &str)]) -> RunCase {
    let (mut cases, validation) = read(&[row(changes)]).expect("the table is sound");
    assert!(validation.unread.is_empty(), "{:?}", validation.unread);
    cases.pop().expect("one run")
}

fn faults(changes: &[(&str, &str)]) -> Vec<Unread> {
    let (cases, validation) = read(&[row(changes)]).expect("the table is sound");
    assert!(cases.is_empty());
    validation.unread
}

fn assumed(case: &RunCase, text: &str) -> bool {
    case.assumptions.iter().any(|assumption| assumption.what.contains(text))
}

#[test]
fn a_blank_dp_is_what_the_other_degrees_leave() {
    let run = case(&[]);
    assert_eq!((run.parallel.dp(), run.parallel.num_microbatches), (4, 16));
    assert_eq!(run.parallel.world_size(), 16);
    assert_eq!(run.cluster.gpu_count(), 16);
}

#[test]
fn a_blank_expert_tensor_degree_is_tp_in_nemo_and_1_in_megatron_bridge() {
    let sparse = [("model", "sparse"), ("ep", "2"), ("pp", "1"), ("tp", "4")];
    let etp = |framework| case(&[&sparse[..], &[("framework", framework)]].concat()).parallel.etp;
    assert_eq!(etp("NeMo (DGX Cloud Benchmarking v24.11.1)"), 4);
    assert_eq!(etp("Megatron-Bridge (Megatron-Core) 26.06"), 1);
    assert_eq!(etp("NeMo AutoModel"), 1);
    assert_eq!(case(&[&sparse[..], &[("framework", "NeMo 24.07"), ("etp", "1")]].concat()).parallel.etp, 1);
}

#[test]
fn every_inference_is_recorded() {
    let run = case(&[("mbs", ""), ("precision", ""), ("gbs", "")]);
    for text in
        ["micro batch size 1", "precision bf16", "global batch", "GB/s per GPU between nodes", "ZeRO stage 1"]
    {
        assert!(assumed(&run, text), "{text} in {:?}", run.assumptions);
    }
    assert!(!run.recompute_stated);
    assert!(case(&[("recompute", "none")]).recompute_stated);
}

#[test]
fn network_rates_follow_the_generation() {
    let rate = |gpu| case(&[("gpu", gpu)]).cluster.main().node.inter.bandwidth.get();
    assert_eq!(rate("a100-sxm-80gb"), 25e9);
    assert_eq!(rate("h100-sxm-80gb"), 50e9);
    assert_eq!(rate("b200"), 50e9);
}

#[test]
fn a_row_without_flags_takes_those_of_the_nearest_earlier_release() {
    let bridge = |id: &'static str, release: &'static str, notes: &'static str| {
        row(&[("id", id), ("framework", release), ("notes", notes)])
    };
    let rows = [
        bridge(
            "old",
            "Megatron-Bridge 26.04",
            "recompute/offload from config A; cuda_graph=local:full_iteration",
        ),
        bridge("near", "Megatron-Bridge 26.06", "recompute/offload from config B; moe_a2a_overlap"),
        bridge("bare", "Megatron-Bridge 26.08", ""),
        bridge("later", "Megatron-Bridge 26.09", "recompute/offload from config C"),
    ];
    let (cases, _) = read(&rows).expect("the table is sound");
    let bare = &cases[2].runtime.facts;
    assert_eq!((bare.overlap.ep, bare.cuda_graph), (Some(true), None));
    assert!(assumed(&cases[2], "as in near"));
    assert!(!assumed(&cases[0], "as in"));
}

#[test]
fn a_run_that_cannot_be_read_names_line_column_and_value() {
    let expected = [
        ("gpu", "h1000"),
        ("model", "no-such-model"),
        ("model", "hybrid"),
        ("runtime", "no-such-engine"),
        ("precision", "fp12"),
        ("tp", "-2"),
        ("tp", "0"),
        ("tp", "1e99"),
        ("n_gpus", "17"),
        ("step_s", "NaN"),
        ("step_s", "inf"),
        ("step_s", "-1"),
        ("gbs", "3.5"),
        ("oom", "maybe"),
        ("schedule", "no-such-schedule"),
    ];
    for (column, value) in expected {
        let unread = if column == "schedule" {
            let table = format!("{HEADER}\n{}\n", row(&[(column, value)]));
            let models = Models::read("models.json", MODELS).expect("the models are sound");
            validate("runs.csv", table.as_bytes(), &models, Selection::Core)
                .expect("the table is sound")
                .unread
        } else {
            faults(&[(column, value)])
        };
        let fault = &unread[0].faults[0];
        assert_eq!(fault.line, 2, "{column}={value}");
        assert_eq!(unread[0].id, "T-1");
        let text = fault.to_string();
        assert!(column == "schedule" || fault.column == column, "{text}");
        assert!(text.contains(value) || text.contains("17"), "{text}");
    }
}

#[test]
fn all_faults_of_a_row_are_reported_together() {
    let unread = faults(&[("tp", "x"), ("pp", "y"), ("seq_len", "")]);
    assert_eq!(unread[0].faults.len(), 3);
}

#[test]
fn a_layer_time_and_a_frozen_model_are_no_steps() {
    assert!(faults(&[("kind", "layer-time")])[0].faults[0].to_string().contains("one layer"));
    assert!(faults(&[("notes", "LoRA fine-tuning")])[0].faults[0].to_string().contains("freezes"));
}

#[test]
fn only_trusted_rows_are_scored() {
    let rows = [row(&[("quality", "C")]), row(&[("core", "0")]), row(&[("quality", "B")])];
    let (cases, validation) = read(&rows).expect("the table is sound");
    assert_eq!((cases.len(), validation.rows_left_out), (1, 2));
}

#[test]
fn line_ends_and_a_byte_order_mark_do_not_matter() {
    let models = Models::read("models.json", MODELS).expect("the models are sound");
    let plain = format!("{HEADER}\n{}\n{}\n", row(&[]), row(&[("tp", "x")]));
    let windows = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    let read =
        |table: &str| read_cases("runs.csv", table.as_bytes(), &models, Selection::Core).expect("sound");
    let ((ours, first), (theirs, second)) = (read(&plain), read(&windows));
    assert_eq!((ours.len(), ours[0].row.line), (theirs.len(), theirs[0].row.line));
    assert_eq!(first.unread, second.unread);
    assert_eq!(first.unread[0].line, 3);
}

#[test]
fn a_file_that_is_broken_as_a_whole_is_an_error() {
    let models = Models::default();
    let error = |table: &[u8]| {
        read_cases("runs.csv", table, &models, Selection::Core)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(error(b"").contains("is empty"));
    assert!(error(b"\n\n").contains("empty"));
    assert!(error(b"id,model\n").contains("lacks the columns kind"));
    assert!(error(format!("{HEADER},tp\n").as_bytes()).contains("tp twice"));
    for models in ["", "[]", "nonsense", "{\"a\": NaN}"] {
        assert!(Models::read("models.json", models).is_err(), "{models}");
    }
}

#[test]
fn a_row_of_another_width_and_one_that_is_no_text_are_skipped() {
    let models = Models::read("models.json", MODELS).expect("the models are sound");
    let mut table = format!("{HEADER}\nshort,row\n{}\n", row(&[])).into_bytes();
    table.extend_from_slice(b"\xff\xfe,bad\n");
    let (cases, validation) =
        read_cases("runs.csv", &table, &models, Selection::Core).expect("the table is sound");
    assert_eq!((cases.len(), validation.unread.len()), (1, 2));
    assert!(validation.unread[0].faults[0].to_string().contains("fields"));
}

#[test]
fn unknown_columns_are_named() {
    let models = Models::default();
    let table = format!("{HEADER},step_ms\n");
    let (_, validation) = read_cases("runs.csv", table.as_bytes(), &models, Selection::Core).expect("sound");
    assert_eq!(validation.ignored_columns, ["step_ms"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_value_of_any_column_panics(column in 0..29_usize, value in "[-+.,\"\u{0}a-z0-9eE/:= é]{0,12}") {
        let name = HEADER.split(',').nth(column).unwrap_or("id");
        let table = format!("{HEADER}\n{}\n", row(&[(name, &value)]));
        let models = Models::read("models.json", MODELS).expect("the models are sound");
        let _ = validate("runs.csv", table.as_bytes(), &models, Selection::All);
    }

    #[test]
    fn no_number_in_any_column_panics(
        column in 0..29_usize,
        value in prop::sample::select(vec!["0", "1", "3", "7", "8", "64", "4096", "1048576", "16777216", "4294967296", "18446744073709551615", "1e18", "-1", "NaN", "inf", "1e-300"]),
    ) {
        let name = HEADER.split(',').nth(column).unwrap_or("id");
        let table = format!("{HEADER}\n{}\n", row(&[(name, value)]));
        let models = Models::read("models.json", MODELS).expect("the models are sound");
        let _ = validate("runs.csv", table.as_bytes(), &models, Selection::All);
    }
}
