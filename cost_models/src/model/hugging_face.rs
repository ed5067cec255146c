//! Reads a Hugging Face `config.json`.

use super::family::{self, Family};
use super::fields::Fields;
use super::{ModelError, ModelSpec};
use serde_json::{Map, Value};

/// Where multimodal configurations keep their language model.
const TEXT_PARTS: [&str; 5] = ["text_config", "llm_config", "language_config", "thinker_config", "llm"];
/// Objects that describe no part of the model.
const NO_PARTS: [&str; 5] =
    ["quantization_config", "generation_config", "compression_config", "rope_config", "task_specific_params"];
/// What a plain decoder's configuration says.
const PLAIN: [&str; 6] = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
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
    model.checked(origin, fields.into_faults())
}

/// The language model's object with the path that leads to it. What it does not say of tied embeddings, the object
/// around it says. Other parts are noted in `left_out`.
fn text_part(top: &Map<String, Value>, left_out: &mut Vec<String>) -> (Map<String, Value>, String) {
    let mut map = top.clone();
    let mut prefix = String::new();
    loop {
        let part = TEXT_PARTS.iter().find_map(|key| Some((*key, map.get(*key)?.as_object()?.clone())));
        let inner = part.as_ref().map(|(key, _)| *key);
        left_out.extend(
            map.iter().filter(|(key, value)| is_other_part(key, value, inner)).map(|(key, _)| key.clone()),
        );
        let Some((key, mut object)) = part else { return (map, prefix) };
        if let (false, Some(tied)) =
            (object.contains_key("tie_word_embeddings"), map.get("tie_word_embeddings"))
        {
            object.insert("tie_word_embeddings".to_owned(), tied.clone());
        }
        prefix = format!("{prefix}{key}.");
        map = object;
    }
}

fn is_other_part(key: &str, value: &Value, text: Option<&str>) -> bool {
    let is_part = key.ends_with("_config") && !NO_PARTS.contains(&key) && Some(key) != text;
    is_part
        && value
            .as_object()
            .is_some_and(|part| part.contains_key("hidden_size") || part.contains_key("model_type"))
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
