//! A model file of our own: compact keys, or an explicit list of layers.

use super::compact::{block, frame};
use super::fields::{Fields, LAYERS, Limit, shorten};
use super::{CustomLayer, Layer, ModelError, ModelSpec};
use serde_json::{Map, Value};

/// Keys of a model file; those of a layer are the same, without the first line.
const KEYS: &[&str] = &[
    "name",
    "title",
    "source",
    "family",
    "aliases",
    "note",
    "params_total",
    "params_active_excl_embed",
    "layers",
    "hidden",
    "vocab",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "activation",
    "tied_embeddings",
    "pos",
    "max_positions",
    "rotary_base",
    "norm",
    "norms",
    "bias",
    "experts",
    "topk",
    "moe_ffn",
    "shared_expert_ffn",
    "dense_layers",
    "moe_every",
    "dense_ffn",
    "shared_gate",
    "expert_bias",
    "router_bias",
    "sigmoid_router",
    "group_limit",
    "mtp_layers",
    "attention",
    "q_lora",
    "kv_lora",
    "qk_nope",
    "qk_rope",
    "v_head",
    "index_topk",
    "index_heads",
    "index_dim",
    "window",
    "chunk",
    "full_every",
    "linear_k_heads",
    "linear_v_heads",
    "linear_k_dim",
    "linear_v_dim",
    "linear_conv",
    "linear_kind",
    "qk_norm",
    "sinks",
    "output_gate",
    "shared_kv",
    "embedding_norm",
    "head_bias",
];
/// Keys that only a layer of an explicit list has.
const LAYER_KEYS: &[&str] = &[
    "count",
    "mtp",
    "parameters",
    "forward_seconds",
    "input_gradient_seconds",
    "weight_gradient_seconds",
    "activation_bytes",
    "output_bytes",
];

/// Reads a model file.
///
/// # Errors
/// [`ModelError::Faults`] with every unknown key and every missing or senseless value.
pub(super) fn read(origin: &str, name: &str, map: &Map<String, Value>) -> Result<ModelSpec, ModelError> {
    let fields = Fields::new(map, "");
    refuse_unknown(&fields, &[KEYS]);
    let name = fields.text("name").unwrap_or(name).to_owned();
    if fields.value("layers").is_some_and(Value::is_array) {
        return read_layers(origin, &name, fields);
    }
    let faults = fields.into_faults();
    match ModelSpec::from_compact(&name, &Value::Object(map.clone())) {
        Ok(model) => model.checked(origin, faults),
        Err(ModelError::Faults { faults: found, .. }) => Err(ModelError::Faults {
            origin: origin.to_owned(),
            faults: faults.into_iter().chain(found).collect(),
        }),
        Err(other) => Err(other),
    }
}

fn refuse_unknown(fields: &Fields, known: &[&[&str]]) {
    for key in fields.keys() {
        if known.iter().any(|list| list.contains(&key.as_str())) {
            continue;
        }
        let all = known.iter().copied().flatten();
        let nearest = all.map(|name| (strsim::levenshtein(key, name), name)).min();
        let hint =
            nearest.filter(|(distance, _)| *distance <= 3).map(|(_, name)| format!(", did you mean {name}?"));
        let shown: String = key.chars().take(60).collect();
        fields.fault(format!("{shown} is no key of a model file{}", hint.unwrap_or_default()));
    }
}

/// A model as a list of layers. With `vocab`, embedding, final norm and head stand around them.
fn read_layers(origin: &str, name: &str, fields: Fields) -> Result<ModelSpec, ModelError> {
    let mut layers = Vec::new();
    let mut faults = Vec::new();
    for (index, entry) in fields.list("layers").unwrap_or_default().iter().enumerate() {
        let Value::Object(map) = entry else {
            faults.push(format!("layers[{index}] is {}, expected a table", shorten(entry)));
            continue;
        };
        let part = Fields::within(map, &format!("layers[{index}]."), &fields);
        push_layers(&part, &mut layers);
        faults.extend(part.into_faults());
    }
    let whole = fields.has("vocab") || layers.iter().any(|layer| !matches!(layer, Layer::Custom(_)));
    let model = if whole { around(frame(name, &fields), layers) } else { bare(name, &fields, layers) };
    let found = fields.into_faults();
    model.checked(origin, found.into_iter().chain(faults).collect())
}

/// `count` layers like this entry.
fn push_layers(part: &Fields, layers: &mut Vec<Layer>) {
    refuse_unknown(part, &[&KEYS[KEYS.len().min(9)..], LAYER_KEYS]);
    let count = if part.states("count") { part.size("count", LAYERS) } else { 1 };
    if layers.len() as u64 + count > LAYERS.0 {
        part.fault(format!("count is {count}, expected at most {} layers in all", LAYERS.0));
        return;
    }
    for _ in 0..count {
        let layer = if part.states("forward_seconds") {
            Layer::Custom(custom(part))
        } else {
            let block = block(part, layers.len() as u64);
            if part.states("mtp") && part.flag("mtp", false) {
                Layer::Mtp(block)
            } else {
                Layer::Block(block)
            }
        };
        layers.push(layer);
    }
}

fn custom(part: &Fields) -> CustomLayer {
    CustomLayer {
        parameters: part.count("parameters", Limit(1_000_000_000_000_000)),
        forward_seconds: part.quantity("forward_seconds"),
        input_gradient_seconds: part.quantity("input_gradient_seconds"),
        weight_gradient_seconds: part.quantity("weight_gradient_seconds"),
        activation_bytes: part.quantity("activation_bytes"),
        output_bytes: part.quantity("output_bytes"),
    }
}

fn around(mut model: ModelSpec, layers: Vec<Layer>) -> ModelSpec {
    let (mtp, trunk): (Vec<Layer>, Vec<Layer>) = layers.into_iter().partition(|l| matches!(l, Layer::Mtp(_)));
    model.layers = std::iter::once(Layer::Embedding)
        .chain(trunk)
        .chain([Layer::FinalNorm])
        .chain(mtp)
        .chain([Layer::Head])
        .collect();
    model
}

/// A model of measured layers only.
fn bare(name: &str, fields: &Fields, layers: Vec<Layer>) -> ModelSpec {
    ModelSpec {
        name: name.to_owned(),
        family: fields.text("family").unwrap_or("custom").to_owned(),
        layers,
        ..ModelSpec::default()
    }
}
