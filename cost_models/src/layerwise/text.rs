//! Layer strategies as people write them: `0-15:tp=8,zero=3;16-79:tp=4,zero=2,recompute=full`.

use super::{LayerStrategies, Sharding, Strategy, StrategyRun};
use crate::parallel::Recompute;
use std::fmt;
use std::str::FromStr;

/// Most runs in a text.
const MOST_RUNS: usize = 1 << 16;

impl fmt::Display for StrategyRun {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [first, last] = self.layers;
        match first == last {
            true => write!(f, "{first}:{}", self.strategy),
            false => write!(f, "{first}-{last}:{}", self.strategy),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "tp={},zero={}", self.tp, self.sharding.zero_stage())?;
        match self.recompute {
            Recompute::None => Ok(()),
            other => write!(f, ",recompute={other}"),
        }
    }
}

impl fmt::Display for LayerStrategies {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, run) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(";")?;
            }
            run.fmt(f)?;
        }
        Ok(())
    }
}

impl FromStr for LayerStrategies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> =
            text.split(';').map(str::trim).filter(|part| !part.is_empty()).take(MOST_RUNS + 1).collect();
        if parts.is_empty() || parts.len() > MOST_RUNS {
            return Err(format!("{} strategies, expected 1 to {MOST_RUNS}", parts.len()));
        }
        parts.into_iter().map(run).collect::<Result<_, _>>().map(Self)
    }
}

fn run(text: &str) -> Result<StrategyRun, String> {
    let fault = |what: &str| format!("`{text}`: {what}; write for example 0-15:tp=8,zero=3,recompute=full");
    let (layers, terms) = text.split_once(':').ok_or_else(|| fault("no `:` after the blocks"))?;
    let (first, last) = layers.split_once('-').unwrap_or((layers, layers));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| fault("blocks are FIRST-LAST"));
    let layers = [number(first)?, number(last)?];
    let mut strategy = Strategy { tp: 1, sharding: Sharding::Zero2, recompute: Recompute::None };
    let mut seen: Vec<&str> = Vec::new();
    for term in terms.split(',').map(str::trim) {
        let (key, value) = term.split_once('=').ok_or_else(|| fault("terms are KEY=VALUE"))?;
        let (key, value) = (key.trim(), value.trim());
        if seen.contains(&key) {
            return Err(fault(&format!("{key} twice")));
        }
        seen.push(key);
        match key {
            "tp" => strategy.tp = value.parse().map_err(|_| fault("tp is a number"))?,
            "zero" => {
                let stage = value.parse().ok().and_then(Sharding::of_stage);
                strategy.sharding = stage.ok_or_else(|| fault("zero is 0, 2 or 3"))?;
            }
            "recompute" => strategy.recompute = value.parse().map_err(|error: String| fault(&error))?,
            other => return Err(fault(&format!("no term `{other}`"))),
        }
    }
    match seen.contains(&"tp") && seen.contains(&"zero") {
        true => Ok(StrategyRun { layers, strategy }),
        false => Err(fault("tp and zero are needed")),
    }
}
