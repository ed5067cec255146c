//! The catalogue: every entry reads, and its parameters are the published ones.

#![allow(clippy::unwrap_used)]

use cost_models::ModelSpec;
use cost_models::model::{ModelError, catalog};

/// Billions that the names and papers give, total and active, for entries without an exact published count.
/// Active ones leave a token's unvisited experts out, and count the embedding and the head.
const STATED: &[(&str, f64, Option<f64>)] = &[
    ("gpt-3-6.7b", 6.7, None),
    ("gpt-3-13b", 13.0, None),
    ("gpt-3-175b", 175.0, None),
    ("megatron-22b", 22.0, None),
    ("megatron-39b", 39.1, None),
    ("megatron-145b", 145.6, None),
    ("megatron-310b", 310.1, None),
    ("megatron-530b", 529.6, None),
    ("megatron-1t", 1008.0, None),
    ("opt-175b", 175.0, None),
    ("opt-66b", 66.0, None),
    ("llama-2-34b", 34.0, None),
    ("llama-4-scout", 107.8, Some(17.0)),
    ("llama-4-maverick", 400.0, Some(17.0)),
    ("qwen2-57b-a14b", 57.4, Some(14.0)),
    ("qwen3-next-80b-a3b", 80.0, Some(3.9)),
    ("qwen3.5-35b-a3b", 35.0, Some(3.0)),
    ("deepseek-v3.2", 671.0, Some(37.0)),
    ("kimi-k2", 1026.0, Some(32.6)),
    ("moonlight-16b-a3b", 16.0, Some(2.9)),
    ("glm-5", 744.0, Some(40.0)),
    ("glm-4.5", 355.0, Some(32.0)),
    ("glm-4.5-air", 106.0, Some(12.0)),
    ("minimax-m2", 229.0, Some(10.0)),
    ("minimax-text-01", 456.0, Some(45.9)),
    ("grok-1", 314.0, None),
    ("ernie-4.5-300b-a47b", 300.0, Some(47.0)),
    ("nemotron-3-8b", 8.5, None),
    ("nemotron-4-15b", 15.6, None),
    ("nemotron-4-340b", 341.0, None),
    ("falcon-40b", 41.3, None),
    ("falcon-180b", 180.0, None),
];

#[test]
fn every_entry_reads_under_its_own_name() {
    for name in catalog::names() {
        let model = catalog::get(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.name, name);
    }
    assert!(catalog::names().len() > 90);
}

#[test]
fn totals_are_the_published_ones() {
    for name in catalog::names() {
        let total = catalog::get(name).unwrap().parameters_total();
        let file = format!("{}/models/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();
        let published =
            text.lines().find_map(|line| line.strip_prefix("params_total = ")?.parse::<u64>().ok());
        match (published, STATED.iter().find(|(stated, _, _)| *stated == name)) {
            (Some(published), _) => assert_eq!(total, published, "{name}"),
            (None, Some((_, billions, _))) => {
                let error = total as f64 / (billions * 1e9) - 1.0;
                assert!(error.abs() < 0.02, "{name} has {total}, stated {billions} B");
            }
            (None, None) => panic!("{name}: no published count to compare {total} with"),
        }
    }
}

/// Some makers count the vocabulary's matrices as active, some do not: the stated figure lies between, up to rounding.
#[test]
fn active_parameters_are_the_published_ones() {
    for (name, _, active) in STATED {
        let Some(active) = active else { continue };
        let model = catalog::get(name).unwrap();
        let matrices = if model.tied_embeddings { 1 } else { 2 };
        let with = model.parameters_active() as f64 / 1e9;
        let without = with - (matrices * model.hidden * model.vocab) as f64 / 1e9;
        let half = if active.fract() == 0.0 { 0.5 } else { 0.05 };
        let (low, high) = (without - half, with + half);
        assert!((low..=high).contains(active), "{name}: {active} B stated, ours {without} to {with} B");
    }
}

#[test]
fn names_are_found_however_they_are_written() {
    for (asked, found) in [
        ("Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b"),
        ("llama_3_1_70b", "llama-3.1-70b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("GPT3-175B", "gpt-3-175b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ] {
        assert_eq!(catalog::get(asked).unwrap().name, found, "{asked}");
    }
}

#[test]
fn an_unknown_name_gets_the_nearest_ones() {
    let error = catalog::get("lama-3.1-70b").unwrap_err();
    assert_eq!(error.to_string(), "the catalogue has no model named `lama-3.1-70b`");
    assert!(error.hint().unwrap().contains("llama-3.1-70b"));
    for name in ["", "////", "x".repeat(100_000).as_str(), "\u{1F600}"] {
        assert!(matches!(catalog::get(name), Err(ModelError::Unknown { .. })));
    }
}

#[test]
fn no_name_or_alias_stands_twice() {
    let mut seen = std::collections::BTreeMap::new();
    for entry in catalog::list() {
        assert!(!entry.title.is_empty() && !entry.source.is_empty(), "{}", entry.name);
        for alias in entry.aliases.iter().chain([&entry.name]) {
            let key = alias.replace('.', "-");
            assert_eq!(seen.insert(key, entry.name.clone()), None, "{alias}");
            assert_eq!(catalog::get(alias).unwrap().name, entry.name);
        }
    }
}

#[test]
fn specs_survive_a_round_trip() {
    for name in ["deepseek-v3.2", "gpt-oss-20b", "llama-4-scout", "qwen3.5-35b-a3b"] {
        let model = catalog::get(name).unwrap();
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<ModelSpec>(&text).unwrap(), model);
    }
}
