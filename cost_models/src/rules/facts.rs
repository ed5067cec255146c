//! The integers the rules look at, taken from model, cluster and workload once.

use crate::model::{Attention, Block, Layer, Mlp, ModelSpec};
use crate::workload::Workload;
use cluster_profiles::Cluster;

/// What the rules need to know about a model, a cluster and a workload. Lists hold distinct values in rising order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// GPUs.
    pub world: u64,
    /// GPUs of a node.
    pub node: u64,
    /// GPUs of an NVLink domain.
    pub domain: u64,
    /// Sequences of a step.
    pub global_batch: u64,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Query heads.
    pub heads: Vec<u64>,
    /// Key-value heads (of softmax attention that is not latent).
    pub kv_heads: Vec<u64>,
    /// Key and value heads of linear attention.
    pub linear_heads: Vec<u64>,
    /// Inner widths that tensor parallelism splits: dense MLPs and shared experts.
    pub ffn: Vec<u64>,
    /// Inner widths of routed experts.
    pub expert_ffn: Vec<u64>,
    /// Experts of the layers that have any.
    pub experts: Vec<u64>,
    /// Whether experts have biases.
    pub expert_bias: bool,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Transformer blocks.
    pub blocks: u64,
    /// Blocks, embedding, head, MTP blocks: all that can be a stage of its own.
    pub units: u64,
    /// Multi-token-prediction blocks.
    pub mtp: u64,
    /// Whether head and embedding are one matrix.
    pub tied_embeddings: bool,
}

impl Facts {
    /// Takes the facts.
    #[must_use]
    pub fn new(model: &ModelSpec, cluster: &Cluster, workload: &Workload) -> Self {
        let nodes = || cluster.groups.iter().map(|group| &group.node);
        let mut facts = Self {
            world: cluster.gpu_count(),
            node: nodes().map(|node| u64::from(node.gpus)).min().unwrap_or(1),
            domain: nodes().map(|node| u64::from(node.domain)).min().unwrap_or(1),
            global_batch: workload.global_batch,
            seq_len: workload.seq_len,
            heads: Vec::new(),
            kv_heads: Vec::new(),
            linear_heads: Vec::new(),
            ffn: Vec::new(),
            expert_ffn: Vec::new(),
            experts: Vec::new(),
            expert_bias: false,
            hidden: model.hidden,
            blocks: 0,
            units: 0,
            mtp: 0,
            tied_embeddings: model.tied_embeddings,
        };
        model.layers.iter().for_each(|layer| facts.add_layer(layer));
        facts.sort();
        facts
    }

    fn add_layer(&mut self, layer: &Layer) {
        if !matches!(layer, Layer::FinalNorm) {
            self.units += 1;
        }
        match layer {
            Layer::Block(block) => {
                self.blocks += 1;
                self.add_block(block);
            }
            Layer::Mtp(block) => {
                self.mtp += 1;
                self.add_block(block);
            }
            Layer::Custom(_) => self.blocks += 1,
            Layer::Embedding | Layer::FinalNorm | Layer::Head => {}
        }
    }

    fn add_block(&mut self, block: &Block) {
        match block.attention {
            Attention::Standard { heads, kv_heads, .. } => {
                self.heads.push(heads);
                self.kv_heads.push(kv_heads);
            }
            Attention::Latent { heads, .. } => self.heads.push(heads),
            Attention::Linear { k_heads, v_heads, .. } => self.linear_heads.extend([k_heads, v_heads]),
        }
        match block.mlp {
            Mlp::Dense { ffn, .. } => self.ffn.push(ffn),
            Mlp::Moe { experts, ffn, shared_ffn, expert_bias, dense_ffn, .. } => {
                self.experts.push(experts);
                self.expert_ffn.push(ffn);
                self.ffn.extend([shared_ffn, dense_ffn].into_iter().filter(|&width| width > 0));
                self.expert_bias |= expert_bias;
            }
        }
    }

    fn sort(&mut self) {
        let lists = [
            &mut self.heads,
            &mut self.kv_heads,
            &mut self.linear_heads,
            &mut self.ffn,
            &mut self.expert_ffn,
            &mut self.experts,
        ];
        for list in lists {
            list.sort_unstable();
            list.dedup();
        }
    }

    /// Whether any layer routes tokens to experts.
    #[must_use]
    pub fn is_moe(&self) -> bool {
        !self.experts.is_empty()
    }
}
