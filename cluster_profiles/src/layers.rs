//! Layers and optimizers measured on a cluster's own GPUs: they stand above the kernel curves.

use crate::kernels::Provenance;
use crate::read::Section;
use crate::units::{Bytes, Seconds};
use crate::write::Toml;
use serde::{Deserialize, Serialize};

/// What kind of layer was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// A transformer block.
    Block,
    /// Final projection and loss.
    Head,
    /// The embedding.
    Embedding,
}

impl LayerKind {
    /// The name used in profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Head => "head",
            Self::Embedding => "embedding",
        }
    }
}

impl std::str::FromStr for LayerKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Block, Self::Head, Self::Embedding]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| "unknown layer, use block, head or embedding".to_owned())
    }
}

/// One microbatch through one layer on one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLayer {
    /// What kind of layer.
    pub kind: LayerKind,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Query heads (of a block).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// Key-value heads (of a block).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<u32>,
    /// Width of the MLP, or of an expert (of a block).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn: Option<u32>,
    /// Routed experts (of a block that has some), each with as many rows as every other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<u32>,
    /// Experts that a token visits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topk: Option<u32>,
    /// Vocabulary (of head and embedding).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab: Option<u32>,
    /// Tokens of a whole sequence.
    pub seq_len: u32,
    /// Sequences.
    pub micro_batch: u32,
    /// Ranks the layer's weights were split over.
    pub tp: u32,
    /// Ranks the sequence was split over.
    pub cp: u32,
    /// Ranks the experts were split over.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ep: u32,
    /// Format of the computation: `bf16`, `fp32` and so on.
    pub precision: String,
    /// Forward, collectives left out.
    pub forward: Seconds,
    /// Gradient of the input, likewise; the whole backward where the two were not told apart.
    pub input_gradient: Seconds,
    /// Gradient of the weights.
    pub weight_gradient: Seconds,
    /// What the collectives of its tensor- or context- or expert-parallel group add to the forward, none of them overlapped and the
    /// sequence not split over tensor-parallel ranks: transfer, waiting for each other, work of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed_forward: Option<Seconds>,
    /// The same of the backward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed_backward: Option<Seconds>,
    /// Memory allocated between forward and backward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Bytes>,
    /// Where it was measured.
    pub provenance: Provenance,
}

/// An optimizer step that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredOptimizer {
    /// Its name, such as `adamw`.
    pub name: String,
    /// Parameters it updated.
    pub parameters: f64,
    /// Its duration.
    pub time: Seconds,
    /// Where it was measured.
    pub provenance: Provenance,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_one(degree: &u32) -> bool {
    *degree == 1
}

/// Longest layer that a profile may state, in seconds.
const LONGEST: f64 = 3600.0;

impl MeasuredLayer {
    pub(crate) fn read(section: &Section) -> Self {
        let size = 1..=1 << 24;
        let exposed = |key: &'static str| section.has(key).then(|| section.seconds(key, 0.0..=LONGEST));
        Self {
            kind: section.parsed("kind", str::parse).unwrap_or(LayerKind::Block),
            hidden: section.count("hidden", size.clone()),
            heads: section.optional_count("heads", size.clone()),
            kv_heads: section.optional_count("kv_heads", size.clone()),
            ffn: section.optional_count("ffn", size.clone()),
            experts: section.optional_count("experts", size.clone()),
            topk: section.optional_count("topk", size.clone()),
            vocab: section.optional_count("vocab", size.clone()),
            seq_len: section.count("seq_len", size.clone()),
            micro_batch: section.count("micro_batch", size.clone()),
            tp: section.count("tp", 1..=65_536),
            cp: section.count("cp", 1..=65_536),
            ep: section.optional_count("ep", 1..=65_536).unwrap_or(1),
            precision: section.text("precision"),
            forward: section.seconds("forward", 1e-9..=LONGEST),
            input_gradient: section.seconds("input_gradient", 0.0..=LONGEST),
            weight_gradient: section.seconds("weight_gradient", 0.0..=LONGEST),
            exposed_forward: exposed("exposed_forward"),
            exposed_backward: exposed("exposed_backward"),
            saved: section.has("saved").then(|| section.bytes("saved", 0.0..=1e15)),
            provenance: section.section("provenance", Provenance::read),
        }
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        toml.table("[layers]");
        toml.text("kind", self.kind.name());
        let sizes = [
            ("hidden", Some(self.hidden)),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("ffn", self.ffn),
            ("experts", self.experts),
            ("topk", self.topk),
            ("vocab", self.vocab),
            ("seq_len", Some(self.seq_len)),
            ("micro_batch", Some(self.micro_batch)),
            ("tp", Some(self.tp)),
            ("cp", Some(self.cp)),
            ("ep", (self.ep > 1).then_some(self.ep)),
        ];
        sizes.into_iter().for_each(|(key, size)| toml.optional_number(key, size.map(f64::from)));
        toml.text("precision", &self.precision);
        toml.seconds("forward", self.forward);
        toml.seconds("input_gradient", self.input_gradient);
        toml.seconds("weight_gradient", self.weight_gradient);
        let exposed =
            [("exposed_forward", self.exposed_forward), ("exposed_backward", self.exposed_backward)];
        for (key, seconds) in exposed.into_iter().filter_map(|(key, seconds)| Some((key, seconds?))) {
            toml.seconds(key, seconds);
        }
        if let Some(saved) = self.saved {
            toml.bytes("saved", saved);
        }
        self.provenance.write(toml);
    }
}

impl MeasuredOptimizer {
    pub(crate) fn read(section: &Section) -> Self {
        Self {
            name: section.text("name"),
            parameters: section.number("parameters", 1.0..=1e13),
            time: section.seconds("time", 1e-9..=LONGEST),
            provenance: section.section("provenance", Provenance::read),
        }
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        toml.table("[optimizers]");
        toml.text("name", &self.name);
        toml.number("parameters", self.parameters);
        toml.seconds("time", self.time);
        self.provenance.write(toml);
    }
}
