//! What rules look at.

use cost_models::rules::{ENGINES, Facts};
use cost_models::{ParallelConfig, RankOrder, Recompute};
use std::collections::{BTreeMap, BTreeSet};

struct Random(u64);

impl Random {
    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list[(self.0 >> 33) as usize % list.len()].clone()
    }

    fn facts(&mut self) -> Facts {
        let experts = self.pick(&[vec![], vec![8], vec![64]]);
        Facts {
            world: self.pick(&[16, 64, 96]),
            node: 8,
            domain: 8,
            global_batch: self.pick(&[32, 48, 128]),
            seq_len: 4096,
            heads: vec![32],
            kv_heads: vec![8],
            linear_heads: vec![],
            ffn: vec![14_336],
            expert_ffn: if experts.is_empty() { vec![] } else { vec![1408] },
            experts,
            expert_bias: self.pick(&[false, true]),
            hidden: 4096,
            blocks: self.pick(&[32, 30]),
            units: 34,
            mtp: self.pick(&[0, 1, 2]),
            tied_embeddings: self.pick(&[false, true]),
        }
    }

    fn mesh(&mut self) -> ParallelConfig {
        ParallelConfig {
            tp: self.pick(&[1, 2, 4]),
            pp: self.pick(&[1, 2, 4, 8]),
            cp: self.pick(&[1, 2]),
            ep: self.pick(&[1, 2, 8]),
            etp: self.pick(&[1, 2]),
            sequence_parallel: self.pick(&[false, true]),
            micro_batch_size: self.pick(&[1, 2]),
            num_microbatches: self.pick(&[4, 6, 16]),
            ..ParallelConfig::default()
        }
    }

    /// Another schedule, other chunks and another recompute.
    fn pipeline(&mut self, parallel: &ParallelConfig) -> ParallelConfig {
        let schedules = ["1f1b", "interleaved-1f1b", "combined-1f1b", "zb-h1", "gpipe", "dualpipev"];
        let recomputes = [
            Recompute::None,
            Recompute::Selective,
            Recompute::Full { layers: None },
            Recompute::Full { layers: Some(2) },
            Recompute::Offload { layers: 2 },
        ];
        ParallelConfig {
            schedule: self.pick(&schedules).to_owned(),
            vpp: self.pick(&[1, 2, 3, 4, 16]),
            recompute: self.pick(&recomputes),
            ..parallel.clone()
        }
    }

    /// The same data-parallel ranks with another sharding, and another order.
    fn sharding(&mut self, parallel: &ParallelConfig, dp: u32) -> ParallelConfig {
        let dp_replicate = self.pick(&[1, 2, dp]);
        ParallelConfig {
            zero_stage: self.pick(&[0, 1, 2, 3]),
            dp_replicate,
            dp_shard: dp / dp_replicate,
            rank_order: self.pick(&[RankOrder::DpInside, RankOrder::PpInside]),
            ..parallel.clone()
        }
    }
}

/// The search checks pipelines and shardings of a mesh apart.
#[test]
fn no_rule_looks_at_the_pipeline_and_at_the_sharding() {
    let mut random = Random(5);
    let mut by_pipeline: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut by_sharding = by_pipeline.clone();
    for _ in 0..4_000 {
        let engine = random.pick(&ENGINES.iter().collect::<Vec<_>>());
        let (facts, mesh, dp) = (random.facts(), random.mesh(), random.pick(&[2u32, 4, 8]));
        let base = random.pipeline(&mesh);
        let base = random.sharding(&base, dp);
        let broken = |parallel: &ParallelConfig| -> BTreeSet<String> {
            engine.broken(&facts, parallel).into_iter().map(|violation| violation.id).collect()
        };
        let own = broken(&base);
        let changed = |other: &ParallelConfig| -> Vec<String> {
            own.symmetric_difference(&broken(other)).cloned().collect()
        };
        by_pipeline.entry(engine.name).or_default().extend(changed(&random.pipeline(&base)));
        by_sharding.entry(engine.name).or_default().extend(changed(&random.sharding(&base, dp)));
    }
    let mut some = (BTreeSet::new(), BTreeSet::new());
    for (engine, pipeline) in &by_pipeline {
        let sharding = &by_sharding[engine];
        let both: Vec<&String> = pipeline.intersection(sharding).collect();
        assert!(both.is_empty(), "{engine}: {both:?}");
        some.0.extend(pipeline.iter().cloned());
        some.1.extend(sharding.iter().cloned());
    }
    for (seen, expected) in
        [(&some.0, ["P5", "P6", "P9", "S6", "E8", "E9"].as_slice()), (&some.1, &["E6", "E7", "E12"])]
    {
        assert!(expected.iter().all(|id| seen.contains(*id)), "{seen:?}");
    }
}
