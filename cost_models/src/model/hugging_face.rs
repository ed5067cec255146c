//! Reads a Hugging Face `config.json`.

use super::family::{self, Family};
use super::fields::{FFN, Fields, HEADS, LAYERS, Limit, TOKENS, VOCAB, WIDTH};
use super::{ModelError, ModelSpec};
use serde_json::{Map, Value};

/// Where multimodal configurations keep their language model.
const TEXT_PARTS: [&str; 5] = ["text_config", "llm_config", "language_config", "thinker_config", "llm"];
/// Beginnings of the keys of other parts.
const OTHER_PARTS: [&str; 12] = [
    "vision",
    "vit",
    "visual",
    "image",
    "audio",
    "speech",
    "video",
    "talker",
    "code2wav",
    "token2wav",
    "projector",
    "mm_",
];
/// What a plain decoder's configuration says.
const PLAIN: [&str; 6] = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
];

/// Sizes that mean the same in every family.
const COMMON_SIZES: [(&str, Limit); 9] = [
    ("hidden_size", WIDTH),
    ("num_hidden_layers", LAYERS),
    ("num_attention_heads", HEADS),
    ("num_key_value_heads", HEADS),
    ("head_dim", WIDTH),
    ("intermediate_size", FFN),
    ("moe_intermediate_size", FFN),
    ("vocab_size", VOCAB),
    ("max_position_embeddings", TOKENS),
];

/// Whether an object looks like a Hugging Face configuration.
pub(super) fn is_config(map: &Map<String, Value>) -> bool {
    ["model_type", "architectures", "text_config", "num_hidden_layers", "hidden_size"]
        .iter()
        .any(|key| map.contains_key(*key))
}

/// Reads a configuration; the language model is read, and other parts are named in [`ModelSpec::left_out`].
///
/// # Errors
/// [`ModelError::UnknownArchitecture`], or [`ModelError::Faults`] with every fault.
pub(super) fn read(origin: &str, name: &str, top: &Map<String, Value>) -> Result<ModelSpec, ModelError> {
    let mut left_out = Vec::new();
    let (text, prefix) = text_part(top, &mut left_out);
    let Some(found) = find_family(&text, top) else {
        return Err(unknown(origin, &text, top));
    };
    let fields = Fields::new(&text, &prefix);
    let model_type = fields.text("model_type").or_else(|| top.get("model_type")?.as_str());
    let mut model = (found.read)(&fields);
    name.clone_into(&mut model.name);
    model.family = model_type.map_or_else(|| found.model_types[0].to_owned(), str::to_owned);
    model.left_out = left_out;
    model.rotary_base = rotary_base(&fields);
    check_common_sizes(&fields);
    model.checked(origin, fields.into_faults())
}

/// `rope_theta`, which newer configurations keep in `rope_parameters`, there sometimes by kind of attention.
fn rotary_base(fields: &Fields) -> Option<u64> {
    let nested = || {
        let parameters = fields.value("rope_parameters")?;
        let full = parameters.get("full_attention").unwrap_or(parameters);
        full.get("rope_theta")
    };
    let value = fields.value("rope_theta|rotary_emb_base").or_else(nested)?;
    Some(fields.item("rope_theta", value, TOKENS))
}

/// Sizes are checked where they are stated, also those that this model has no use for.
fn check_common_sizes(fields: &Fields) {
    for (key, limit) in COMMON_SIZES {
        if fields.value(key).is_some_and(|value| !value.is_array()) {
            fields.optional_size(key, limit);
        }
    }
}

/// The language model's object with the path that leads to it. What it does not say of tied embeddings, the objects
/// around it say. Other parts are noted in `left_out`.
fn text_part(top: &Map<String, Value>, left_out: &mut Vec<String>) -> (Map<String, Value>, String) {
    let (mut map, mut prefix, mut tied) = (top, String::new(), None);
    loop {
        left_out
            .extend(map.iter().filter(|(key, value)| is_other_part(key, value)).map(|(key, _)| key.clone()));
        tied = map.get("tie_word_embeddings").or(tied);
        let Some((key, part)) = TEXT_PARTS.iter().find_map(|key| Some((key, map.get(*key)?.as_object()?)))
        else {
            break;
        };
        prefix = format!("{prefix}{key}.");
        map = part;
    }
    let mut text = map.clone();
    text.extend(tied.map(|tied| ("tie_word_embeddings".to_owned(), tied.clone())));
    if !prefix.is_empty() && left_out.is_empty() {
        left_out.push(format!("everything outside {}", prefix.trim_end_matches('.')));
    }
    (text, prefix)
}

fn is_other_part(key: &str, value: &Value) -> bool {
    key.ends_with("_config") && value.is_object() && OTHER_PARTS.iter().any(|start| key.starts_with(start))
}

/// By the type of the text part, else by the type of the whole, else by the name of the architecture.
fn find_family(text: &Map<String, Value>, top: &Map<String, Value>) -> Option<&'static Family> {
    let by_type = |map: &Map<String, Value>| family::by_model_type(map.get("model_type")?.as_str()?);
    match text.get("model_type") {
        Some(_) => by_type(text),
        None => by_type(top),
    }
    .or_else(|| family::by_architecture(architecture(text).or_else(|| architecture(top))?))
}

fn architecture(map: &Map<String, Value>) -> Option<&str> {
    map.get("architectures")?.as_array()?.first()?.as_str()
}

fn unknown(origin: &str, text: &Map<String, Value>, top: &Map<String, Value>) -> ModelError {
    let model_type = text.get("model_type").or_else(|| top.get("model_type")).and_then(Value::as_str);
    let name = match (architecture(top), model_type) {
        (Some(architecture), Some(model_type)) => format!("{architecture} ({model_type})"),
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) => "(neither architectures nor model_type is stated)".to_owned(),
    };
    ModelError::UnknownArchitecture {
        origin: origin.to_owned(),
        architecture: name.chars().take(120).collect(),
        missing: PLAIN.iter().filter(|key| !text.contains_key(**key)).map(|key| (*key).to_owned()).collect(),
        known: family::names(),
    }
}
