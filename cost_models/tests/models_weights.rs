//! Parameters and FLOPs of models: laws over random shapes, and published counts.

#![allow(clippy::unwrap_used)]

use cost_models::ModelSpec;
use cost_models::model::{Attention, Block, Layer, Mlp, ModelError, Role, Sharding};
use proptest::prelude::*;
use serde_json::{Value, json};

fn compact(value: Value) -> ModelSpec {
    ModelSpec::from_compact("test", &value).unwrap()
}

fn llama_8b() -> Value {
    json!({"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256})
}

fn with(mut value: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    value
}

#[test]
fn published_counts_are_exact() {
    let deepseek_v3 = json!({
        "layers": 61, "hidden": 7168, "heads": 128, "ffn": 18432, "vocab": 129280, "attention": "MLA",
        "q_lora": 1536, "kv_lora": 512, "qk_nope": 128, "qk_rope": 64, "v_head": 128, "experts": 256, "topk": 8,
        "moe_ffn": 2048, "shared_expert_ffn": 2048, "dense_layers": 3, "mtp_layers": 1, "router_bias": true
    });
    let mixtral = json!({"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000,
        "experts": 8, "topk": 2});
    let gpt2_xl = json!({"layers": 48, "hidden": 1600, "heads": 25, "ffn": 6400, "vocab": 50257, "bias": true,
        "activation": "gelu", "norm": "layernorm", "pos": "learned", "max_positions": 1024,
        "tied_embeddings": true});
    for (description, total) in [
        (llama_8b(), 8_030_261_248),
        (mixtral, 46_702_792_704),
        (deepseek_v3, 671_026_419_200),
        (gpt2_xl, 1_557_611_200),
    ] {
        assert_eq!(compact(description).parameters_total(), total);
    }
}

#[test]
fn qwen_biases_are_on_query_key_and_value() {
    let qwen = json!({"layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "ffn": 18944, "vocab": 152064,
        "bias": "qkv"});
    assert_eq!(compact(qwen).parameters_total(), 7_615_616_512);
}

#[test]
fn mtp_weights_stand_apart() {
    let plain = compact(llama_8b());
    let predicting = compact(with(llama_8b(), json!({"mtp_layers": 2})));
    assert_eq!(plain.parameters_mtp(), 0);
    assert_eq!(plain.parameters_total(), predicting.parameters_total());
    let block = plain.layers[1].parameters(&plain);
    assert_eq!(predicting.parameters_mtp(), 2 * (block + 2 * 4096 * 4096 + 3 * 4096));
}

#[test]
fn row_parallel_biases_and_latent_down_projections_stay_whole() {
    let block = Block {
        attention: Attention::Latent {
            heads: 16,
            q_rank: Some(64),
            kv_rank: 32,
            qk_nope_dim: 8,
            qk_rope_dim: 4,
            v_dim: 8,
            sparse_topk: None,
            index_heads: 0,
            index_dim: 0,
        },
        mlp: Mlp::swiglu(512),
        norms: 2,
        mlp_bias: true,
    };
    let model = ModelSpec { hidden: 128, ..ModelSpec::default() };
    let weights = Layer::Block(block).weights(&model);
    let whole: Vec<&str> =
        weights.iter().filter(|w| w.sharding == Sharding::Replicated).map(|w| w.name).collect();
    assert_eq!(
        whole,
        ["norms", "query-down", "query-latent-norm", "key-value-down", "key-value-latent-norm", "down-bias"]
    );
}

#[test]
fn every_fault_is_named_with_its_value() {
    let wrong =
        with(llama_8b(), json!({"hidden": -5, "ffn": null, "layers": 1e12, "norm": "batch", "bias": 3}));
    let Err(ModelError::Faults { faults, .. }) = ModelSpec::from_compact("test", &wrong) else {
        panic!("accepted")
    };
    let text = faults.join("\n");
    for part in
        ["hidden is -5", "ffn is missing", "layers is 1000000000000", "norm is \"batch\"", "bias is 3"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_note_is_not_a_model() {
    let error = ModelSpec::from_compact("nano", &json!({"note": "hybrid"})).unwrap_err();
    assert_eq!(error.to_string(), "nano: has no sizes, only a note: hybrid");
}

#[test]
fn attention_counts_half_the_square_under_a_causal_mask() {
    let model = compact(llama_8b());
    let causal = model.flops_per_token(8192, true);
    let full = model.flops_per_token(8192, false);
    assert_eq!(full.attention, 4.0 * 32.0 * 128.0 * 8192.0 * 32.0);
    assert_eq!(causal.attention * 2.0, full.attention);
    assert_eq!(full.head, 2.0 * 4096.0 * 128_256.0);
}

prop_compose! {
    fn shape()(
        layers in 1u64..5, kv_heads in 1u64..5, group in 1u64..5, head_dim in 1u64..33, ffn in 1u64..300,
        vocab in 1u64..1000, hidden in 1u64..100, experts in 1u64..9, topk_share in 0.0f64..1.0,
        tied in any::<bool>(), bias in any::<bool>(), window in 1u64..64,
    ) -> Value {
        let topk = ((experts as f64 * topk_share) as u64).max(1);
        json!({"layers": layers, "hidden": hidden, "heads": kv_heads * group, "kv_heads": kv_heads,
            "head_dim": head_dim, "ffn": ffn, "vocab": vocab, "experts": experts, "topk": topk, "moe_ffn": ffn,
            "tied_embeddings": tied, "bias": bias, "window": window, "mtp_layers": 1})
    }
}

proptest! {
    #[test]
    fn totals_are_sums_over_layers(value in shape()) {
        let model = compact(value);
        let sum: u64 = model.layers.iter().map(|layer| layer.parameters(&model)).sum();
        prop_assert_eq!(sum, model.parameters_total() + model.parameters_mtp());
        prop_assert!(model.parameters_active() <= model.parameters_total());
    }

    #[test]
    fn visiting_every_expert_makes_all_parameters_active(value in shape()) {
        let experts = value["experts"].clone();
        let model = compact(with(value, json!({"topk": experts})));
        prop_assert_eq!(model.parameters_active(), model.parameters_total());
    }

    #[test]
    fn matrix_flops_are_twice_the_active_matrix_weights(value in shape()) {
        let model = compact(value);
        let others: u64 = model.blocks().map(|(index, _)| {
            let layer = &model.layers[index];
            let vectors = layer.weights(&model).into_iter().filter(|w| w.role != Role::Matrix);
            layer.parameters_active(&model) - vectors.map(|w| w.parameters()).sum::<u64>()
        }).sum();
        prop_assert_eq!(model.flops_per_token(128, true).matmul, 2.0 * others as f64);
    }

    #[test]
    fn a_window_as_long_as_the_sequence_is_no_window(seq in 1u64..10_000, causal in any::<bool>()) {
        let full = Attention::standard(4, 2, 16);
        for chunked in [false, true] {
            let windowed = full.with_window(Some(seq), chunked);
            let (a, b) = (windowed.core_flops(seq, causal), full.core_flops(seq, causal));
            prop_assert!((a - b).abs() <= 1e-9 * b, "{} {}", a, b);
        }
    }
}
