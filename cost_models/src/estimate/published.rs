//! What published runs say of predictions like one: how many there are, and how far off predictions of runs that the fit had
//! not seen were.
//!
//! The table is `cost_models/published.toml`, which `meshwright fit` writes.

use crate::run::TrainingRun;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static TABLE: LazyLock<Published> = LazyLock::new(|| Published::read(include_str!("../../published.toml")));

/// Half-width of an interval that a table without it would leave open.
const WIDEST: f64 = 0.5;
/// Runs of up to so many times the GPUs of the largest published one count as alike.
const REACH: u64 = 2;

/// Published runs by what they were run with.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Half-width for runs that no published one is like: 95 % of the errors before anything was fitted to step times.
    pub unlike: f64,
    /// The sets of runs that are alike.
    pub regimes: Vec<Regime>,
}

/// Published runs of one engine, with or without routed experts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regime {
    /// Engine.
    pub engine: String,
    /// Whether the models route tokens to experts.
    pub experts: bool,
    /// Most GPUs of a run.
    pub largest: u64,
    /// Half-width, relative, of an interval that holds 90 % of the runs the fit had not seen.
    pub half_width: f64,
    /// Runs by GPU kind.
    pub gpus: BTreeMap<String, u32>,
    /// Runs by the axes they use.
    pub axes: BTreeMap<String, u32>,
}

/// How published runs support a prediction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Support {
    /// Runs with this engine, GPU kind and kind of model.
    pub runs: u32,
    /// Runs with this engine and kind of model that use an axis, for every axis the layout uses.
    pub axes: BTreeMap<String, u32>,
}

impl Published {
    /// The embedded table.
    #[must_use]
    pub fn table() -> &'static Self {
        &TABLE
    }

    fn read(text: &str) -> Self {
        toml::from_str(text).unwrap_or(Self { unlike: WIDEST, regimes: Vec::new() })
    }

    /// The runs of an engine with or without experts.
    #[must_use]
    pub fn regime(&self, engine: &str, experts: bool) -> Option<&Regime> {
        self.regimes.iter().find(|regime| regime.engine == engine && regime.experts == experts)
    }

    /// What supports the prediction of `run`.
    #[must_use]
    pub fn support(&self, run: &TrainingRun) -> Support {
        let used = axes(run).into_iter().filter(|(_, used)| *used).map(|(axis, _)| axis);
        let regime = self.regime(&run.runtime.name, run.model.is_moe());
        let with = |axis: &str| regime.and_then(|regime| regime.axes.get(axis)).copied().unwrap_or(0);
        Support {
            runs: regime.map_or(0, |regime| regime.on(&run.cluster.gpu().name)),
            axes: used.map(|axis| (axis.to_owned(), with(axis))).collect(),
        }
    }

    /// Relative half-width of the interval of `run`.
    #[must_use]
    pub fn half_width(&self, run: &TrainingRun) -> f64 {
        let regime = self.regime(&run.runtime.name, run.model.is_moe());
        let alike = |regime: &&Regime| {
            regime.on(&run.cluster.gpu().name) > 0
                && run.parallel.world_size() <= regime.largest.saturating_mul(REACH)
        };
        regime.filter(alike).map_or(self.unlike, |regime| regime.half_width)
    }
}

impl Regime {
    /// Runs on a GPU kind.
    #[must_use]
    pub fn on(&self, gpu: &str) -> u32 {
        self.gpus.get(gpu).copied().unwrap_or(0)
    }
}

/// The axes of a layout, and whether it uses them.
#[must_use]
pub fn axes(run: &TrainingRun) -> [(&'static str, bool); 7] {
    let parallel = run.parallel;
    [
        ("tp", parallel.tp > 1),
        ("pp", parallel.pp > 1),
        ("cp", parallel.cp > 1),
        ("ep", parallel.ep > 1),
        ("dp", parallel.dp() > 1),
        ("zero3", parallel.zero_stage == 3 && parallel.dp_shard > 1),
        ("recompute", parallel.recompute != crate::parallel::Recompute::None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() -> Result<(), toml::de::Error> {
        let table: Published = toml::from_str(include_str!("../../published.toml"))?;
        assert_eq!(&table, Published::table());
        let wide = table.unlike;
        assert!((0.05..1.0).contains(&wide), "{wide}");
        for regime in &table.regimes {
            assert!(crate::runtime::names().contains(&regime.engine), "{}", regime.engine);
            assert!((0.0..=1.0).contains(&regime.half_width), "{}", regime.half_width);
            let runs: u32 = regime.gpus.values().sum();
            assert!(runs > 0 && regime.axes.values().all(|with| *with <= runs));
        }
        Ok(())
    }
}
