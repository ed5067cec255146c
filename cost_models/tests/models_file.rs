//! Model files of our own: compact keys and explicit layers, in TOML and JSON.

#![allow(clippy::unwrap_used)]

use cost_models::ModelSpec;
use cost_models::model::{Attention, Layer, Mlp, ModelError, load};

const COMPACT: &str = "layers = 4\nhidden = 256\nheads = 8\nkv_heads = 2\nffn = 512\nvocab = 1000\n";

fn faults(text: &str) -> String {
    match load("own.toml", text) {
        Err(ModelError::Faults { faults, .. }) => faults.join("\n"),
        other => panic!("expected faults, got {other:?}"),
    }
}

#[test]
fn toml_and_json_mean_the_same() {
    let toml = load("own.toml", COMPACT).unwrap();
    let json = r#"{"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 2, "ffn": 512, "vocab": 1000}"#;
    assert_eq!(load("own.json", json).unwrap(), toml);
}

#[test]
fn a_list_of_equal_layers_is_the_compact_model() {
    let listed = COMPACT.replace("layers = 4\n", "") + "[[layers]]\ncount = 3\n[[layers]]\n";
    assert_eq!(load("own.toml", &listed).unwrap(), load("own.toml", COMPACT).unwrap());
}

#[test]
fn layers_differ_from_the_whole_in_what_they_state() {
    let text = COMPACT.replace("layers = 4\n", "")
        + "[[layers]]\nwindow = 64\n[[layers]]\nexperts = 4\ntopk = 2\nmoe_ffn = 128\n[[layers]]\nmtp = true\n";
    let model = load("own.toml", &text).unwrap();
    assert_eq!(model.layers.len(), 6);
    assert!(matches!(
        model.layers[1],
        Layer::Block(b) if matches!(b.attention, Attention::Standard { window: Some(64), .. })
    ));
    assert!(matches!(model.layers[2], Layer::Block(b) if matches!(b.mlp, Mlp::Moe { experts: 4, .. })));
    assert!(matches!(model.layers[3], Layer::FinalNorm));
    assert!(matches!(model.layers[4], Layer::Mtp(_)));
}

#[test]
fn measured_layers_need_no_sizes() {
    let entry = "[[layers]]\ncount = 5\nparameters = 1000\nforward_seconds = 1e-3\ninput_gradient_seconds = 1e-3\n\
                 weight_gradient_seconds = 1e-3\nactivation_bytes = 1e6\noutput_bytes = 1e5\n";
    let model = load("own.toml", entry).unwrap();
    assert_eq!((model.layers.len(), model.parameters_total()), (5, 5000));
    let text = faults(&entry.replace("forward_seconds = 1e-3\ninput", "forward_seconds = -1.0\ninput"));
    assert!(text.contains("layers[0].forward_seconds is -1.0"), "{text}");
    let text = faults(&entry.replace("output_bytes = 1e5\n", ""));
    assert!(text.contains("layers[0].output_bytes is missing"), "{text}");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_one() {
    let text = faults(&(COMPACT.to_owned() + "kv_head = 2\nhiden = 3\n"));
    assert!(text.contains("kv_head is no key of a model file, did you mean kv_heads?"), "{text}");
    assert!(text.contains("hiden is no key of a model file, did you mean hidden?"), "{text}");
}

#[test]
fn wrong_sizes_are_refused_all_at_once() {
    let text = faults("layers = 0\nhidden = 250\nheads = 8\nffn = 1.5\nactivation = \"tanh\"\nbias = 1\n");
    for part in [
        "layers is 0",
        "hidden 250 is no multiple of heads 8",
        "ffn is 1.5",
        "vocab is missing",
        "tanh",
        "bias is 1",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let text = faults(&COMPACT.replace("kv_heads = 2", "kv_heads = 3"));
    assert!(text.contains("kv_heads is 3, which does not divide the 8 heads"), "{text}");
    let text = faults("hidden = 8\nvocab = 10\n[[layers]]\ncount = 20000\n");
    assert!(text.contains("count is 20000"), "{text}");
    assert!(faults("layers = []\n").contains("number of layers is 0"));
}

#[test]
fn toml_errors_show_the_line() {
    let Err(ModelError::Syntax { message, .. }) = load("own.toml", "layers = 4\nhidden 5\n") else {
        panic!()
    };
    assert!(message.contains("line 2"), "{message}");
}

#[test]
fn alternating_blocks_follow_full_every() {
    let model = load("own.toml", &(COMPACT.to_owned() + "window = 16\nfull_every = 2\n")).unwrap();
    let windows: Vec<bool> = model
        .blocks()
        .map(|(_, b)| matches!(b.attention, Attention::Standard { window: Some(16), .. }))
        .collect();
    assert_eq!(windows, [true, false, true, false]);
}

#[test]
fn experts_follow_dense_layers_and_moe_every() {
    let keys = "experts = 4\ntopk = 1\nmoe_ffn = 64\ndense_layers = 1\nmoe_every = 2\n";
    let model = load("own.toml", &(COMPACT.to_owned() + keys)).unwrap();
    let routes: Vec<bool> = model.blocks().map(|(_, b)| matches!(b.mlp, Mlp::Moe { .. })).collect();
    assert_eq!(routes, [false, false, true, false]);
    assert!(ModelSpec::is_moe(&model));
}
