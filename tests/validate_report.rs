//! The reports of a validation: the keys other programs read, the same bytes every time, and text that is safe in a page.

#![allow(clippy::expect_used, reason = "a test stops at the first thing that is not as it should be")]

use meshwright::report::{html, validation_flags, validation_json, validation_text};
use meshwright::validate::{Models, Selection, Summary, Validation, validate, validate_flags};
use serde_json::Value;
use std::collections::BTreeMap;

const MODELS: &str = r#"{"m": {"layers": 8, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 32000}}"#;
const KEYS: &[&str] = &[
    "rows",
    "step_time_median_error",
    "step_time_p90_error",
    "step_time_bias",
    "memory_median_error",
    "memory_p90_error",
    "oom_recall",
    "false_oom_rate",
    "oom_balanced_accuracy",
    "kendall_tau",
    "mean_regret",
    "median_regret",
    "groups",
];

/// Six layouts of one job, an out-of-memory run, one that cannot be read, and two of another source.
fn table() -> String {
    let header = "id,source_key,kind,quality,core,model,seq_len,gpu,n_gpus,runtime,tp,pp,cp,ep,mbs,gbs,precision,step_s,\
                  time_scored,oom,peak_mem_gb,mem_unit,mem_quantity";
    let mut lines = vec![header.to_owned()];
    for (index, (tp, pp, mbs)) in
        [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2)].iter().enumerate()
    {
        let step = 0.5 + index as f64 / 10.0;
        lines.push(format!(
            "A-{index},A,throughput+memory,A,1,m,2048,h100-sxm-80gb,8,megatron-core,{tp},{pp},1,1,{mbs},64,bf16,{step},1,0,{},GiB,allocated",
            4 + index
        ));
    }
    lines.push("A-oom,A,oom,A,1,m,2048,h100-sxm-80gb,8,megatron-core,1,1,1,1,64,512,bf16,,0,1,,,".to_owned());
    lines.push(
        "<script>&\"',A,throughput,A,1,m,2048,nonsense,8,megatron-core,1,1,1,1,1,64,bf16,1,1,0,,,".to_owned(),
    );
    lines.push("B-<b>,B,throughput,B,1,m,2048,a100-sxm-80gb,8,fsdp1,1,1,1,1,1,64,bf16,2,1,,,,".to_owned());
    lines.push("B-2,B,throughput,B,0,m,2048,a100-sxm-80gb,16,fsdp1,1,1,1,1,1,64,bf16,2,1,,,,".to_owned());
    lines.join("\n") + "\n"
}

fn validated(selection: Selection) -> (Validation, Summary) {
    let models = Models::read("models.json", MODELS).expect("the models are sound");
    let validation =
        validate("runs.csv", table().as_bytes(), &models, selection).expect("the table is sound");
    let summary = Summary::of(&validation.runs);
    (validation, summary)
}

fn document(rows: bool) -> Value {
    let (validation, summary) = validated(Selection::Core);
    serde_json::to_value(validation_json::document(&validation, &summary, rows, BTreeMap::new()))
        .expect("it is JSON")
}

#[test]
fn the_keys_that_other_programs_read_are_there() {
    let document = document(false);
    let mut parts = vec![&document["overall"], &document["sources"]["A"], &document["sources"]["B"]];
    parts.extend([&document["gpus"]["h100-sxm-80gb"], &document["gpus"]["a100-sxm-80gb"]]);
    for part in parts {
        for key in KEYS {
            assert!(part.get(key).is_some(), "{key} in {part}");
        }
    }
    assert!(document.get("rows").is_none());
    assert_eq!(document["rows_skipped"], 1);
    assert_eq!(document["overall"]["rows"], 8);
    assert_eq!(document["overall"]["groups"], 1);
}

#[test]
fn rows_have_prediction_measurement_breakdown_and_basis() {
    let document = document(true);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8);
    let row = &rows[0];
    assert_eq!(row["measured_step_time_seconds"], 0.5);
    let estimate = &row["estimate"];
    let parts = estimate["time_seconds"].as_object().expect("a breakdown");
    let sum: f64 = parts.values().filter_map(Value::as_f64).sum();
    let total = estimate["step_time_seconds"].as_f64().expect("a step time");
    assert!((sum - total).abs() < 1e-9 * total);
    let error = row["step_time_error"].as_f64().expect("an error");
    assert!((error - (total / 0.5 - 1.0)).abs() < 1e-12);
    assert!(!estimate["basis"].as_array().expect("a basis").is_empty());
    assert!(rows.iter().all(|row| row["id"] != "B-2"), "core rows only");
}

#[test]
fn overall_is_the_mean_over_sources_of_their_medians() {
    let (_, summary) = validated(Selection::Core);
    let medians: Vec<f64> = summary.sources.values().filter_map(|s| s.step_time_median_error).collect();
    assert_eq!(medians.len(), 2);
    assert_eq!(summary.overall.step_time_median_error, Some(f64::midpoint(medians[0], medians[1])));
}

#[test]
fn all_takes_rows_outside_the_core_too() {
    assert_eq!(validated(Selection::All).0.runs.len(), validated(Selection::Core).0.runs.len() + 1);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let render = || {
        let (validation, summary) = validated(Selection::All);
        let document = validation_json::document(&validation, &summary, true, BTreeMap::new());
        let json = serde_json::to_string(&document).expect("it is JSON");
        let text = validation_text::render(&validation, &summary, true, 5);
        (json, text, html::validate(&validation, &summary))
    };
    assert_eq!(render(), render());
}

#[test]
fn the_page_escapes_what_it_quotes_and_needs_no_network() {
    let (validation, summary) = validated(Selection::Core);
    let page = html::validate(&validation, &summary);
    assert!(page.contains("B-&lt;b&gt;") && page.contains("&lt;script&gt;&amp;&quot;'"));
    // Attributes stand in double quotes, and the page has one script of its own.
    assert_eq!(page.matches("<script").count(), 1);
    for foreign in ["B-<b>", "http:", "https:", "src=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("data-tip=\"A-0 "), "a point says which run it is");
    for tag in ["svg", "figure", "table", "div", "details", "ul", "body", "html"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn the_text_names_the_worst_rows_and_what_was_skipped() {
    let (validation, summary) = validated(Selection::Core);
    let text = validation_text::render(&validation, &summary, false, 2);
    assert!(text.contains("10 rows: 8 scored, 1 not selected, 1 skipped"), "{text}");
    assert!(text.contains("column gpu: `nonsense`"), "{text}");
    assert!(text.contains("constant MFU per GPU and precision instead"));
    assert!(text.lines().all(|line| !line.ends_with(' ')));
}

#[test]
fn runs_given_by_flags_are_scored_by_memory() {
    let run = r#"{"id":"a","gpu":"h100","env":"dev","n_gpus":8,"mem_max_allocated_bytes":2e9,"mem_allocated_bytes":1e9,
        "env_vars":{},"args":{"--num-layers":4,"--hidden-size":512,"--num-attention-heads":8,"--seq-length":1024,
        "--max-position-embeddings":1024,"--micro-batch-size":4,"--global-batch-size":32,"--bf16":true}}"#;
    let broken = r#"{"id":"b","gpu":"h100","n_gpus":8,"mem_max_allocated_bytes":"much","args":{}}"#;
    let lines = format!("{}\n{broken}\n\nnonsense\n", run.replace('\n', " "));
    let validation = validate_flags(lines.as_bytes()).expect("the catalogue is sound");
    assert_eq!((validation.runs.len(), validation.unread.len()), (1, 2));
    assert_eq!(validation.unread.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4]);
    let document = serde_json::to_value(validation_flags::document(&validation, true)).expect("it is JSON");
    for key in KEYS.iter().chain(&["static_median_error", "activations_median_error"]) {
        assert!(
            document["overall"].get(key).is_some() && document["sources"]["CI"].get(key).is_some(),
            "{key}"
        );
    }
    let row = &document["rows"][0];
    let number = |key: &str| row[key].as_f64().expect("a number");
    assert!((number("predicted_peak_bytes") / 2e9 - 1.0 - number("peak_error")).abs() < 1e-12);
    assert!(number("predicted_peak_bytes") > number("predicted_static_bytes"));
    let text = validation_flags::render(&validation, true, 1);
    assert!(text.contains("1 scored, 2 skipped") && text.contains("worst by peak"), "{text}");
}
