//! `meshwright simulate`: its JSON, its files, what it refuses.

use clap::Parser;
use cost_models::schedule::{RankOrders, ScheduleKind, from_torch_csv};
use meshwright::cli::simulate::{SimulateArgs, text};
use serde_json::Value;

#[derive(Parser)]
struct Verb {
    #[command(flatten)]
    simulate: SimulateArgs,
}

fn answer(line: &str) -> Result<String, String> {
    let words = std::iter::once("simulate").chain(line.split_whitespace());
    let verb = Verb::try_parse_from(words).map_err(|error| error.to_string())?;
    text(&verb.simulate).map_err(|error| meshwright::error::render(&error))
}

fn json(line: &str) -> Value {
    serde_json::from_str(&answer(&format!("{line} --format json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn json_of_1f1b() {
    let found = json("--schedule 1f1b --ranks 4 --microbatches 8 --times 1,1,1");
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    let expected = [
        "schedule",
        "ranks",
        "microbatches",
        "chunks",
        "makespan",
        "bubble",
        "span_bubble",
        "bubble_fraction",
        "peak_activations",
        "lower_bound",
    ];
    assert_eq!(keys, expected);
    assert_eq!(found["makespan"], 33.0);
    assert_eq!(numbers(&found["bubble"]), [9.0; 4]);
    assert_eq!(numbers(&found["span_bubble"]), [9.0, 6.0, 3.0, 0.0].map(|b: f64| b));
    assert_eq!(found["peak_activations"], serde_json::json!([4, 3, 2, 1]));
    assert_eq!(found["bubble_fraction"], 9.0 / 33.0);
    assert!(found["lower_bound"].as_f64().unwrap() <= 33.0);
}

#[test]
fn every_schedule_has_an_answer() {
    for &kind in ScheduleKind::ALL {
        let line = format!(
            "--schedule {kind} --ranks 4 --microbatches 8 --times 1,1.5,0.5 --p2p 0.1 --allow-stale-weights"
        );
        let found = json(&line);
        assert!(found["lower_bound"].as_f64().unwrap() <= found["makespan"].as_f64().unwrap(), "{kind}");
        let human = answer(&line).unwrap();
        assert!(human.contains("makespan") && human.contains("rank 3 |"), "{human}");
    }
    for name in ["1f1b-vocab1", "1f1b-vocab2", "v-half-vocab1", "v-half-vocab2"] {
        let line =
            format!("--schedule {name} --ranks 4 --microbatches 8 --times 1,1,1 --vocabulary-times 0.3,0.2");
        assert_eq!(json(&line)["schedule"], name);
    }
}

#[test]
fn slices_share_the_times_of_the_whole() {
    let whole = json("--schedule 1f1b --ranks 4 --microbatches 8 --times 1,1,1");
    let sliced = json("--schedule seq1f1b --ranks 4 --microbatches 8 --times 1,1,1 --slices 4");
    assert_eq!(numbers(&sliced["bubble"])[0], numbers(&whole["bubble"])[0] / 4.0);
    assert_eq!(numbers(&sliced["peak_activations"])[0], 7.0 / 4.0);
}

#[test]
fn auto_keeps_its_cap_and_beats_what_fits() {
    let found = json("--schedule auto --ranks 4 --microbatches 12 --times 1,1.2,0.8 --memory-cap 4");
    assert!(numbers(&found["peak_activations"]).iter().all(|&peak| peak <= 4.0));
    let other = json("--schedule zb-h1 --ranks 4 --microbatches 12 --times 1,1.2,0.8");
    assert!(found["makespan"].as_f64().unwrap() <= other["makespan"].as_f64().unwrap());
    let refused =
        answer("--schedule auto --ranks 4 --microbatches 12 --chunks 2 --times 1,1,1 --memory-cap 1")
            .unwrap_err();
    assert!(refused.contains("1 microbatch-chunks") && refused.contains("hint: raise the cap"), "{refused}");
}

/// Auto may cut sequences and hold weights twice, and says so; one to be written for torch does neither.
#[test]
fn auto_says_what_it_is_made_of() {
    let line = "--schedule auto --ranks 4 --microbatches 8 --times 1.70,1.06,0.02 --p2p 0.5 --chunks 1 --memory-cap 8";
    let found = json(line);
    let other = json(&line.replace("auto", "terapipe").replace("--memory-cap 8", ""));
    assert!(found["makespan"].as_f64().unwrap() <= other["makespan"].as_f64().unwrap(), "{found}");
    assert!(found["slices"].as_u64().unwrap() > 1 && found["found_as"].as_str().unwrap().contains("slices"));
    assert!(answer(line).unwrap().contains("for causal attention"));
    let whole = json(&format!("{line} --slices 1"));
    assert!(whole.get("slices").is_none() && whole["makespan"].as_f64() > found["makespan"].as_f64());
    let refused = answer(&format!("{line} --slices 40")).unwrap_err();
    assert!(refused.contains("slices = 40") && refused.contains("seq1f1b"), "{refused}");
    let path = std::env::temp_dir().join(format!("meshwright-auto-{}.csv", std::process::id()));
    answer(&format!("{line} --csv {}", path.display())).unwrap();
    from_torch_csv(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn files_are_written_and_read_back() {
    let folder = std::env::temp_dir().join(format!("meshwright-simulate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let line = "--schedule zb-v --ranks 4 --microbatches 8 --times 1,1,1";
    answer(&format!("{line} --svg {} --trace {} --csv {}", path("a.svg"), path("a.json"), path("a.csv")))
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("a.svg").contains("zb-v, 4 ranks x 2 chunks, 8 microbatches"));
    assert!(serde_json::from_str::<Value>(&read("a.json")).unwrap()["traceEvents"].is_array());
    let orders: RankOrders = from_torch_csv(&read("a.csv")).unwrap();
    assert_eq!(orders.microbatches(), 8);
    std::fs::remove_dir_all(&folder).unwrap();
    let missing = answer(&format!("{line} --svg {}", path("gone/a.svg"))).unwrap_err();
    assert!(missing.contains("gone") && missing.contains("hint: check that the folder exists"), "{missing}");
}

#[test]
fn bad_input_is_refused_with_the_rule_named() {
    let base = "--ranks 4 --microbatches 8";
    let cases = [
        ("--schedule nope --ranks 4 --microbatches 8 --times 1,1,1".to_owned(), "'nope' is not known"),
        ("--schedule 1f1b --ranks 0 --microbatches 8 --times 1,1,1".to_owned(), "ranks = 0"),
        ("--schedule 1f1b --ranks 4 --microbatches 0 --times 1,1,1".to_owned(), "microbatches = 0"),
        (
            "--schedule 1f1b --ranks 4000000000 --microbatches 4000000000 --times 1,1,1".to_owned(),
            "at most 32767 stages",
        ),
        ("--schedule zb-h2 --ranks 4 --microbatches 6 --times 1,1,1".to_owned(), "2p - 1 microbatches"),
        (
            "--schedule interleaved-1f1b --ranks 4 --microbatches 9 --times 1,1,1".to_owned(),
            "Megatron-LM needs a multiple",
        ),
        (format!("--schedule 1f1b {base} --times=-1,1,1"), "-1 is not a time"),
        (format!("--schedule 1f1b {base} --times 1,NaN,1"), "NaN is not a time"),
        (format!("--schedule 1f1b {base} --times 1e300,1,1"), "1e300: times lie between 0 and 1e18"),
        (format!("--schedule 1f1b {base} --times 1,1"), "2 numbers; give F,I,W"),
        (format!("--schedule 1f1b {base} --times 1,x,1"), "'x' is not a number"),
        (format!("--schedule 1f1b {base} --times 1,1,1 --p2p=-2"), "-2 is not a finite number of at least 0"),
        (format!("--schedule pipedream {base} --times 1,1,1"), "changes training"),
        (format!("--schedule 1f1b {base} --times 1,1,1 --chunks 2"), "one stage a rank"),
        (format!("--schedule chimera {base} --times 1,1,1 --csv x.csv"), "no second pipeline"),
    ];
    for (line, expected) in cases {
        let error = answer(&line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}
