//! Hugging Face configurations: published parameter counts, every family against the library's own count, and faults.

#![allow(clippy::unwrap_used)]

use cost_models::ModelSpec;
use cost_models::model::{Attention, Layer, Mlp, ModelError, load};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// The sizes of a published configuration.
fn config(name: &str) -> Value {
    let text = std::fs::read_to_string(data().join("configs").join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn read(value: &Value) -> Result<ModelSpec, ModelError> {
    load("folder/some-model/config.json", &value.to_string())
}

fn published(name: &str) -> ModelSpec {
    read(&config(name)).unwrap()
}

fn faults(value: &Value) -> Vec<String> {
    match read(value) {
        Err(ModelError::Faults { faults, .. }) => faults,
        other => panic!("expected faults, got {other:?}"),
    }
}

/// Totals of the model cards' safetensors index (text part, MTP apart).
#[test]
fn totals_are_exact_where_the_model_card_gives_them() {
    for (name, total, mtp) in [
        ("Qwen--Qwen3-8B", 8_190_735_360, 0),
        ("Qwen--Qwen3-32B", 32_762_123_264, 0),
        ("Qwen--Qwen3-30B-A3B", 30_532_122_624, 0),
        ("Qwen--Qwen3-235B-A22B", 235_093_634_560, 0),
        ("meta-llama--Meta-Llama-3.1-8B", 8_030_261_248, 0),
        ("meta-llama--Meta-Llama-3.1-70B", 70_553_706_496, 0),
        ("meta-llama--Meta-Llama-3.1-405B", 405_853_388_800, 0),
        ("mistralai--Mixtral-8x7B-v0.1", 46_702_792_704, 0),
        ("mistralai--Mixtral-8x22B-v0.1", 140_620_634_112, 0),
        ("deepseek-ai--DeepSeek-V3", 671_026_419_200, 11_610_068_224),
        ("XiaomiMiMo--MiMo-7B-Base", 7_833_409_536 - 210_790_400, 210_790_400),
    ] {
        let model = published(name);
        assert_eq!((model.parameters_total(), model.parameters_mtp()), (total, mtp), "{name}");
    }
}

/// Billions that name or report give: total and active. A maker's active figure may leave the vocabulary out.
#[test]
fn the_others_are_within_two_percent_of_what_their_makers_say() {
    for (name, total, active) in [
        ("MiniMaxAI--MiniMax-M2.5", 229.0, 10.0),
        ("Qwen--Qwen3-VL-30B-A3B-Instruct", 30.5, 3.3),
        ("Qwen--Qwen3.5-35B-A3B", 35.0, 3.0),
        ("google--gemma-4-26B-A4B", 25.2, 3.8),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 107.8, 17.0),
        ("moonshotai--Kimi-K2-Instruct", 1026.4, 32.6),
        ("openai--gpt-oss-120b", 116.83, 5.13),
        ("zai-org--GLM-5", 744.0, 40.0),
    ] {
        let model = published(name);
        let error = model.parameters_total() as f64 / (total * 1e9) - 1.0;
        assert!(error.abs() < 0.02, "{name} has {}", model.parameters_total());
        let with = model.parameters_active() as f64 / 1e9;
        let matrices = if model.tied_embeddings { 1 } else { 2 };
        let without = with - (matrices * model.hidden * model.vocab) as f64 / 1e9;
        let half: f64 = if f64::fract(active) == 0.0 { 0.5 } else { 0.05 };
        assert!((without - half..=with + half).contains(&active), "{name}: ours {without} to {with} B");
    }
}

/// Small configurations of every family, counted by instantiating Hugging Face transformers 5.24 on the meta device
/// (parameters, and the correction biases that it keeps as buffers).
#[test]
fn every_family_counts_what_the_library_counts() {
    let text = std::fs::read_to_string(data().join("family_parameters.json")).unwrap();
    let cases: Value = serde_json::from_str(&text).unwrap();
    for (name, case) in cases.as_object().unwrap() {
        let model = read(&case["config"]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(model.parameters_total(), case["parameters"].as_u64().unwrap(), "{name}");
    }
}

#[test]
fn every_layer_has_its_own_kind() {
    let qwen = published("Qwen--Qwen3.5-35B-A3B");
    let linear = qwen.blocks().filter(|(_, b)| matches!(b.attention, Attention::Linear { .. })).count();
    assert_eq!((qwen.blocks().count(), linear, qwen.mtp_blocks().count()), (40, 30, 1));

    let deepseek = published("deepseek-ai--DeepSeek-V3");
    let dense: Vec<usize> =
        deepseek.blocks().filter(|(_, b)| matches!(b.mlp, Mlp::Dense { .. })).map(|(i, _)| i).collect();
    assert_eq!(dense, [1, 2, 3]);
    assert!(matches!(deepseek.layers[62], Layer::FinalNorm));
    assert!(matches!(deepseek.layers[63], Layer::Mtp(_)));

    let scout = published("meta-llama--Llama-4-Scout-17B-16E-Instruct");
    let chunks: Vec<bool> = scout
        .blocks()
        .take(8)
        .map(|(_, b)| matches!(b.attention, Attention::Standard { window: Some(8192), chunked: true, .. }))
        .collect();
    assert_eq!(chunks, [true, true, true, false, true, true, true, false]);
}

#[test]
fn parts_around_the_language_model_are_named() {
    assert_eq!(published("Qwen--Qwen3-VL-30B-A3B-Instruct").left_out, ["vision_config"]);
    assert_eq!(published("google--gemma-4-26B-A4B").left_out, ["vision_config"]);
    let scout = published("meta-llama--Llama-4-Scout-17B-16E-Instruct");
    assert_eq!(scout.left_out, ["everything outside text_config"]);
    assert!(published("Qwen--Qwen3-8B").left_out.is_empty());
}

/// Gemma 3 text parts leave out what equals the library's defaults, and tie their embeddings.
#[test]
fn a_text_part_may_rely_on_the_defaults_of_its_family() {
    let value = json!({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}});
    let model = read(&value).unwrap();
    assert_eq!(model.parameters_total(), 3_880_263_168);
    let sliding = |(_, b): &(usize, &cost_models::model::Block)| {
        matches!(b.attention, Attention::Standard { window: Some(1024), .. })
    };
    assert_eq!(model.blocks().filter(sliding).count(), 29);
}

/// An omni model keeps its language model two objects deep.
#[test]
fn nested_parts_are_found() {
    let mut text = config("Qwen--Qwen3-30B-A3B");
    text["model_type"] = json!("qwen3_omni_moe_text");
    text.as_object_mut().unwrap().remove("tie_word_embeddings");
    let value = json!({"model_type": "qwen3_omni_moe", "tie_word_embeddings": false,
        "talker_config": {"model_type": "t"}, "thinker_config": {"audio_config": {}, "text_config": text}});
    let model = read(&value).unwrap();
    assert_eq!(model.parameters_total(), 30_532_122_624);
    assert_eq!(model.left_out, ["talker_config", "audio_config"]);
}

/// MiniMax-01 in the older form, with a list of numbers: lightning attention in seven of eight blocks.
#[test]
fn lightning_attention_follows_its_list() {
    let kinds: Vec<u64> = (0..80).map(|index| u64::from(index % 8 == 7)).collect();
    let value = json!({"model_type": "minimax_text_01", "attn_type_list": kinds, "head_dim": 128,
        "hidden_size": 6144, "intermediate_size": 9216, "num_attention_heads": 64, "num_key_value_heads": 8,
        "num_experts_per_tok": 2, "num_hidden_layers": 80, "num_local_experts": 32, "vocab_size": 200_064});
    let model = read(&value).unwrap();
    let named = cost_models::model::catalog::get("minimax-text-01").unwrap();
    assert_eq!(model.layers, named.layers);
}

#[test]
fn the_folder_names_a_config_json() {
    assert_eq!(published("Qwen--Qwen3-8B").name, "some-model");
    assert_eq!(published("Qwen--Qwen3-8B").family, "qwen3");
}

#[test]
fn a_class_name_serves_where_the_type_is_missing() {
    let mut value = config("Qwen--Qwen3-8B");
    value.as_object_mut().unwrap().remove("model_type");
    assert_eq!(read(&value).unwrap().parameters_total(), 8_190_735_360);
}

#[test]
fn an_unknown_architecture_is_named_with_the_keys_it_lacks() {
    let value = json!({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "hidden_size": 4096,
        "num_hidden_layers": 64, "vocab_size": 32768, "state_size": 128});
    let error = read(&value).unwrap_err();
    let text = error.to_string();
    for part in ["Mamba2ForCausalLM", "num_attention_heads", "num_key_value_heads", "intermediate_size"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("hidden_size"));
    assert!(error.hint().unwrap().contains("llama"));
    assert!(matches!(read(&json!({})), Err(ModelError::UnknownArchitecture { .. })));
}

#[test]
fn all_faults_come_at_once_with_key_and_value() {
    let mut value = config("Qwen--Qwen3-235B-A22B");
    value["num_hidden_layers"] = json!(1e12);
    value["hidden_size"] = json!(-4096);
    value["num_key_value_heads"] = json!(7);
    value["num_experts_per_tok"] = json!(129);
    value["tie_word_embeddings"] = json!("no");
    value["hidden_act"] = json!("sine");
    value.as_object_mut().unwrap().remove("vocab_size");
    let text = faults(&value).join("\n");
    for part in [
        "num_hidden_layers is 1000000000000",
        "hidden_size is -4096",
        "num_key_value_heads is 7, which does not divide num_attention_heads 64",
        "num_experts_per_tok is 129, more than num_experts 128",
        "tie_word_embeddings is \"no\"",
        "hidden_act is \"sine\"",
        "vocab_size is missing",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
}

/// Every size of a configuration that its family always states is missed when it is gone, and refused when negative.
#[test]
fn each_size_is_missed_and_checked() {
    let always = ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"];
    for (name, own) in [
        ("meta-llama--Meta-Llama-3.1-8B", vec!["intermediate_size"]),
        ("Qwen--Qwen3-30B-A3B", vec!["num_experts", "num_experts_per_tok", "moe_intermediate_size"]),
        (
            "deepseek-ai--DeepSeek-V3",
            vec![
                "kv_lora_rank",
                "q_lora_rank",
                "qk_nope_head_dim",
                "qk_rope_head_dim",
                "v_head_dim",
                "n_routed_experts",
                "n_shared_experts",
                "first_k_dense_replace",
                "intermediate_size",
            ],
        ),
        (
            "openai--gpt-oss-120b",
            vec!["num_local_experts", "sliding_window", "head_dim", "num_key_value_heads"],
        ),
        ("MiniMaxAI--MiniMax-M2.5", vec!["num_local_experts", "intermediate_size", "head_dim"]),
        ("zai-org--GLM-5", vec!["index_topk", "index_n_heads", "index_head_dim"]),
    ] {
        for key in always.into_iter().chain(own) {
            let mut value = config(name);
            value[key] = json!(-1);
            let text = faults(&value).join("\n");
            assert!(text.contains(&format!("{key} is -1")), "{name}: {text}");
            value.as_object_mut().unwrap().remove(key);
            let text = faults(&value).join("\n");
            assert!(text.contains(&format!("{key} is missing")), "{name}: {text}");
        }
    }
    let mut value = config("Qwen--Qwen3-30B-A3B");
    value["intermediate_size"] = json!(-1);
    assert!(faults(&value).join("\n").contains("intermediate_size is -1"));
}

#[test]
fn contradictions_are_faults() {
    let change = |name: &str, path: &[&str], new: Value| {
        let mut value = config(name);
        let mut slot = &mut value;
        for key in path {
            slot = &mut slot[*key];
        }
        *slot = new;
        faults(&value).join("\n")
    };
    let types = change("openai--gpt-oss-120b", &["layer_types"], json!(["full_attention"]));
    assert!(types.contains("layer_types has 1 entries, expected num_hidden_layers 36"), "{types}");
    let kind = change("google--gemma-4-26B-A4B", &["text_config", "layer_types"], json!(vec!["full"; 30]));
    assert!(kind.contains("layer_types[29] is \"full\""), "{kind}");
    let nested = change("google--gemma-4-26B-A4B", &["text_config", "num_key_value_heads"], json!(0));
    assert!(nested.contains("text_config.num_key_value_heads is 0"), "{nested}");
    let heads = change("meta-llama--Meta-Llama-3.1-8B", &["num_attention_heads"], json!(6000));
    assert!(heads.contains("num_attention_heads is 6000, more than hidden_size 4096"), "{heads}");
    let groups = change("deepseek-ai--DeepSeek-V3", &["topk_group"], json!(9));
    assert!(groups.contains("topk_group is 9, more than n_group 8"), "{groups}");
    let width = change("zai-org--GLM-5", &["qk_head_dim"], json!(100));
    assert!(width.contains("qk_head_dim is 100, but qk_nope_head_dim + qk_rope_head_dim is 256"), "{width}");
}

#[test]
fn sizes_that_only_together_are_absurd_are_refused() {
    let mut value = config("Qwen--Qwen3-235B-A22B");
    value["num_hidden_layers"] = json!(10_000);
    value["num_experts"] = json!(65_536);
    value["moe_intermediate_size"] = json!(1 << 24);
    assert!(faults(&value).join("\n").contains("parameters, expected at most"));
}

#[test]
fn broken_texts_are_syntax_errors_with_the_line() {
    for (text, part) in [
        ("{\"hidden_size\": 1,\n \"hidden_size\": 2}", "`hidden_size` stands twice"),
        ("{\n\"hidden_size\": NaN}", "line 2"),
        ("{", "EOF"),
        ("layers = [", "layers"),
        ("", "is empty"),
        ("\u{feff}{\"a\": 1e999}", "out of range"),
        ("not a model", "line 1"),
    ] {
        match load("x", text) {
            Err(ModelError::Syntax { message, .. }) => assert!(message.contains(part), "{message}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(load("x", &deep), Err(ModelError::Syntax { .. })));
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(17 << 20));
    assert!(load("x", &long).unwrap_err().to_string().contains("bytes, expected at most"));
}

/// Values that a configuration may hold by mistake.
fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u64..300).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        prop::collection::vec(any::<i64>().prop_map(Value::from), 0..4).prop_map(Value::from),
    ]
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data().join("configs"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

proptest! {
    /// Whatever stands in one to three keys: a model with sound sizes, or an error. Never a panic.
    #[test]
    fn any_damage_ends_in_a_model_or_an_error(
        name in prop::sample::select(names()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), junk()), 1..4),
    ) {
        let mut value = config(&name);
        let nested = value.get("text_config").is_some();
        let map = if nested { value["text_config"].as_object_mut() } else { value.as_object_mut() }.unwrap();
        let keys: Vec<String> = map.keys().cloned().collect();
        for (index, junk) in damage {
            map.insert(index.get(&keys).clone(), junk);
        }
        if let Ok(model) = read(&value) {
            prop_assert!(model.faults().is_empty());
            prop_assert!(model.parameters_active() <= model.parameters_total());
            prop_assert!(model.flops_per_token(4096, true).training().is_finite());
        }
    }

    #[test]
    fn any_text_ends_in_an_error_or_a_model(text in ".{0,200}") {
        let _ = load("x.json", &text);
        let _ = load("x.json", &format!("{{{text}}}"));
    }
}

/// The base of the rotary frequencies stands at the top, in `rope_parameters`, or there by kind of attention.
#[test]
fn the_rotary_base_is_found_wherever_it_is_kept() {
    let mut value = config("Qwen--Qwen3-8B");
    let base = |value: &Value| read(value).unwrap().rotary_base;
    for key in ["rope_theta", "rope_parameters"] {
        value.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(base(&value), None);
    value["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 10_000_000});
    assert_eq!(base(&value), Some(10_000_000));
    value["rope_parameters"] = json!({
        "full_attention": {"rope_theta": 1_000_000.0}, "sliding_attention": {"rope_theta": 10_000.0},
    });
    assert_eq!(base(&value), Some(1_000_000));
    value["rope_theta"] = json!(500_000.0);
    assert_eq!(base(&value), Some(500_000));
    value["rope_theta"] = json!(-3);
    assert_eq!(faults(&value).len(), 1);
}
