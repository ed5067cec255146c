//! Reads a model from a text, whichever of the accepted formats it is in.

use super::{ModelError, ModelSpec, file, hugging_face, json};
use serde_json::{Map, Value};

/// Reads a model: a Hugging Face `config.json`, or a model file of our own in JSON or TOML. `origin` is the path or
/// name the text comes from; it names the model and stands in errors.
///
/// A model file has compact keys, such as `layers`, `hidden`, `heads`, `kv_heads`, `ffn`, `vocab`, `experts`, `topk`
/// (the table stands at [`ModelSpec::from_compact`]):
///
/// ```
/// let text = r#"
///     layers = 32
///     hidden = 4096
///     heads = 32
///     kv_heads = 8
///     ffn = 14336
///     vocab = 128256
/// "#;
/// let model = cost_models::model::load("llama-3-8b.toml", text)?;
/// assert_eq!(model.name, "llama-3-8b");
/// assert_eq!(model.parameters_total(), 8_030_261_248);
/// # Ok::<(), cost_models::model::ModelError>(())
/// ```
///
/// Or it lists its layers: each entry has sizes of its own (keys it leaves out are those of the whole file), or measured
/// times and bytes for one sequence, and stands for `count` layers. With `vocab`, embedding, final norm and head are
/// added around them.
///
/// ```
/// let text = r#"
///     hidden = 1024
///     heads = 8
///     ffn = 4096
///     vocab = 32000
///
///     [[layers]]
///     count = 4
///
///     [[layers]]
///     count = 2
///     experts = 16
///     topk = 2
///     moe_ffn = 1024
///
///     [[layers]]
///     parameters = 2_000_000
///     forward_seconds = 1.5e-3
///     input_gradient_seconds = 1.6e-3
///     weight_gradient_seconds = 1.2e-3
///     activation_bytes = 3.0e8
///     output_bytes = 8.0e6
/// "#;
/// let model = cost_models::model::load("irregular.toml", text)?;
/// assert_eq!(model.layers.len(), 1 + 4 + 2 + 1 + 2);
/// # Ok::<(), cost_models::model::ModelError>(())
/// ```
///
/// # Errors
/// [`ModelError::Syntax`] with line and column, [`ModelError::UnknownArchitecture`], or [`ModelError::Faults`] with
/// every fault at once.
pub fn load(origin: &str, text: &str) -> Result<ModelSpec, ModelError> {
    let text = text.trim_start_matches('\u{feff}');
    let name = name_of(origin);
    if !text.trim_start().starts_with('{') {
        return file::read(origin, &name, &toml_map(origin, text)?);
    }
    match json::parse(origin, text)? {
        Value::Object(map) if !hugging_face::is_config(&map) && map.contains_key("layers") => {
            file::read(origin, &name, &map)
        }
        Value::Object(map) => hugging_face::read(origin, &name, &map),
        other => Err(ModelError::Faults {
            origin: origin.to_owned(),
            faults: vec![format!("is {}, expected an object", super::fields::shorten(&other))],
        }),
    }
}

/// A TOML document as a JSON object.
pub(super) fn toml_map(origin: &str, text: &str) -> Result<Map<String, Value>, ModelError> {
    let fail = |message| ModelError::Syntax { origin: origin.to_owned(), message };
    if text.trim().is_empty() {
        return Err(fail("is empty".to_owned()));
    }
    toml::from_str(text).map_err(|error| fail(error.to_string().trim_end().to_owned()))
}

/// The file's stem, or the folder's name for a `config.json`.
fn name_of(origin: &str) -> String {
    let path = std::path::Path::new(origin);
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let folder = path.parent().and_then(|folder| folder.file_name()).and_then(|folder| folder.to_str());
    match (stem, folder) {
        (Some("config"), Some(folder)) => folder.to_owned(),
        (Some(stem), _) if path.extension().is_some_and(|ending| ending == "json" || ending == "toml") => {
            stem.to_owned()
        }
        _ => path.file_name().and_then(|file| file.to_str()).unwrap_or(origin).to_owned(),
    }
}
