//! The architectures a table of runs names.

use super::ValidateError;
use cost_models::ModelSpec;
use cost_models::model::{Activation, Attention, Block, Layer, Mlp};
use std::collections::BTreeMap;

/// Models by name; one that cannot be planned keeps the reason.
#[derive(Debug, Default)]
pub struct Models(BTreeMap<String, Result<ModelSpec, String>>);

impl Models {
    /// Reads one JSON object: a name, and under it the compact description of a model.
    ///
    /// # Errors
    /// [`ValidateError::Models`] if the text is no such object. A model with faults is no error: the rows that name it
    /// are reported.
    pub fn read(origin: &str, text: &str) -> Result<Self, ValidateError> {
        let refuse = |reason: String| ValidateError::Models { origin: origin.to_owned(), reason };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        let serde_json::Value::Object(entries) = value else {
            return Err(refuse("its top level is not an object".to_owned()));
        };
        let read = |name: &String, value| {
            let model = ModelSpec::from_compact(name, value).map_err(|error| error.to_string())?;
            Ok(completed(name, model))
        };
        Ok(Self(entries.iter().map(|(name, value)| (name.clone(), read(name, value))).collect()))
    }

    /// The model called `name`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self, name: &str) -> Result<&ModelSpec, String> {
        match self.0.get(name) {
            Some(Ok(model)) => Ok(model),
            Some(Err(reason)) => Err(format!("cannot be planned: {reason}")),
            None => Err("is not in the file of models".to_owned()),
        }
    }

    /// How many there are, and how many of them can be planned.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.values().filter(|model| model.is_ok()).count())
    }
}

/// Traits of well-known architectures that the compact keys of the published file do not state: gpt-oss clamps and
/// biases its gated activation, has sinks and a 128-token window on every second block (its config.json);
/// DeepSeek-V3 routes each token to 4 of 8 groups of experts (`topk_group`).
fn completed(name: &str, mut model: ModelSpec) -> ModelSpec {
    let mut block_index = 0;
    for layer in &mut model.layers {
        let (Layer::Block(block) | Layer::Mtp(block)) = layer else { continue };
        if name.starts_with("gpt-oss") {
            complete_gpt_oss(block, block_index);
        }
        if let (true, Mlp::Moe { group_limit, .. }) = (name.starts_with("deepseek-v3"), &mut block.mlp) {
            *group_limit = group_limit.or(Some(4));
        }
        block_index += 1;
    }
    model
}

fn complete_gpt_oss(block: &mut Block, index: usize) {
    if let Mlp::Moe { activation, expert_bias, .. } = &mut block.mlp {
        *activation = Activation::ClampedSwiglu;
        *expert_bias = true;
    }
    if let Attention::Standard { window, sinks, .. } = &mut block.attention {
        *sinks = true;
        if index.is_multiple_of(2) && window.is_none() {
            *window = Some(128);
        }
    }
}
