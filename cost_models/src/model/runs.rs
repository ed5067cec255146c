//! Layers in a document: equal neighbours are written once, with their number.

use super::Layer;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most layers a document may describe.
const MOST_LAYERS: usize = 1 << 16;

/// Equal layers in a row.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    count: usize,
    layer: Layer,
}

pub(super) fn serialize<S: Serializer>(layers: &[Layer], serializer: S) -> Result<S::Ok, S::Error> {
    let runs = layers.chunk_by(|a, b| a == b).map(|run| Run { count: run.len(), layer: run[0] });
    serializer.collect_seq(runs)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Layer>, D::Error> {
    let runs = Vec::<Run>::deserialize(deserializer)?;
    let mut layers = Vec::new();
    for run in runs {
        if run.count == 0 || run.count > MOST_LAYERS - layers.len() {
            let message = format!("count is {}: a model has 1 to {MOST_LAYERS} layers in all", run.count);
            return Err(D::Error::custom(message));
        }
        layers.extend(std::iter::repeat_n(run.layer, run.count));
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use crate::model::{ModelSpec, catalog};

    #[test]
    fn every_model_of_the_catalogue_is_read_back_equal() {
        for name in catalog::names() {
            let model = catalog::get(name).expect("an entry of the catalogue");
            let text = serde_json::to_string(&model).expect("a document");
            let again: ModelSpec = serde_json::from_str(&text).expect("the same document");
            assert_eq!(model, again, "{name}");
        }
    }

    #[test]
    fn an_absurd_number_of_layers_is_refused() {
        let model = catalog::get("llama-3.1-8b").expect("an entry of the catalogue");
        let text = serde_json::to_string(&model).expect("a document");
        let absurd = text.replacen("\"count\":32", "\"count\":4000000000", 1);
        assert_ne!(text, absurd);
        assert!(serde_json::from_str::<ModelSpec>(&absurd).is_err());
    }
}
