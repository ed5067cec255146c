//! Batch sizes over a training by goodput: throughput times statistical efficiency.
//!
//! A step on a batch of `B` tokens makes the progress of `B phi / (phi + B)` tokens, where `phi` is the gradient noise scale in
//! tokens (McCandlish et al., arXiv 1812.06162, equation 2.11); so the progress per second is
//! `throughput(B) phi / (phi + B)`. As the noise scale grows over a training, larger batches become the best, and with them
//! other layouts (as COPUS changes them together, arXiv 2604.26687).

use super::gather::{Gathered, Outcome};
use super::switches::{columns_of, elsewhere, lines};
use crate::study::file::{BatchSchedule, Study};
use serde::Serialize;

/// A batch size that is possible, and how fast it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    /// Tokens of a step.
    pub batch_tokens: f64,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// The layout.
    pub layout: String,
}

/// A part of the training with one batch size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// Progress at its beginning, in tokens.
    pub from_tokens: f64,
    /// Progress at its end.
    pub to_tokens: f64,
    /// Batch, speed, layout.
    pub speed: Speed,
    /// Whether the layout differs from that of the phase before.
    pub switches_layout: bool,
    /// Seconds it takes.
    pub seconds: f64,
}

/// The phases of a training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchPlan {
    /// Values of the other axes.
    pub elsewhere: String,
    /// The phases.
    pub phases: Vec<Phase>,
    /// Seconds of all phases.
    pub seconds: f64,
    /// The best single batch size, in tokens.
    pub fixed_batch_tokens: f64,
    /// Seconds with it.
    pub fixed_seconds: f64,
}

/// Steps in which a training is looked at.
const STEPS: u32 = 2000;

impl Speed {
    /// Progress in tokens per second at this noise scale.
    #[must_use]
    pub fn goodput(&self, noise_scale: f64) -> f64 {
        self.tokens_per_second * noise_scale / (noise_scale + self.batch_tokens)
    }
}

impl BatchSchedule {
    /// Noise scale after so many tokens: linear between the given points, constant outside.
    #[must_use]
    pub fn at(&self, tokens: f64) -> f64 {
        let after = self.noise_scale.iter().position(|[at, _]| *at > tokens);
        match after {
            Some(0) => self.noise_scale[0][1],
            Some(next) => {
                let ([x0, y0], [x1, y1]) = (self.noise_scale[next - 1], self.noise_scale[next]);
                y0 + (y1 - y0) * (tokens - x0) / (x1 - x0)
            }
            None => self.noise_scale.last().map_or(0.0, |[_, scale]| *scale),
        }
    }

    fn end(&self) -> f64 {
        self.noise_scale.last().map_or(0.0, |[tokens, _]| *tokens)
    }
}

/// The best batch at every point of a training up to `tokens`, and the best single one.
#[must_use]
pub fn schedule(
    noise: &BatchSchedule,
    speeds: &[Speed],
    tokens: f64,
    elsewhere: String,
) -> Option<BatchPlan> {
    let step = tokens / f64::from(STEPS);
    let mut fixed = vec![0.0; speeds.len()];
    let mut phases: Vec<Phase> = Vec::new();
    for number in 0..STEPS {
        let from = step * f64::from(number);
        let scale = noise.at(from + 0.5 * step).max(1.0);
        for (seconds, speed) in fixed.iter_mut().zip(speeds) {
            *seconds += step / speed.goodput(scale);
        }
        let best = speeds.iter().max_by(|a, b| a.goodput(scale).total_cmp(&b.goodput(scale)))?;
        let seconds = step / best.goodput(scale);
        match phases.last_mut() {
            Some(phase) if phase.speed == *best => {
                phase.to_tokens = from + step;
                phase.seconds += seconds;
            }
            last => {
                let switches_layout = last.is_some_and(|phase| phase.speed.layout != best.layout);
                phases.push(Phase {
                    from_tokens: from,
                    to_tokens: from + step,
                    speed: best.clone(),
                    switches_layout,
                    seconds,
                });
            }
        }
    }
    let (at, fixed_seconds) = fixed.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    Some(BatchPlan {
        elsewhere,
        seconds: phases.iter().map(|phase| phase.seconds).sum(),
        phases,
        fixed_batch_tokens: speeds[at].batch_tokens,
        fixed_seconds: *fixed_seconds,
    })
}

/// The schedules of a study with an axis of batch sizes.
pub(super) fn of_study(study: &Study, gathered: &Gathered) -> Vec<BatchPlan> {
    let Some(noise) = &study.batch_schedule else { return Vec::new() };
    let batches = |key: &String| key == "global_batch" || key == "batch_tokens";
    let Some(number) = study.axes.iter().position(|axis| axis.keys.iter().any(batches)) else {
        return Vec::new();
    };
    debug_assert!(!columns_of(study, number).is_empty());
    let speed = |outcome: &&Outcome| Speed {
        batch_tokens: outcome.step_time_seconds * outcome.tokens_per_second_per_gpu * outcome.gpus,
        tokens_per_second: outcome.tokens_per_second,
        layout: outcome.layout.clone(),
    };
    let tokens = |point| study.values(point).get("tokens").and_then(|value| value.number());
    lines(study, gathered, number)
        .iter()
        .filter_map(|line| {
            let first = line.first()?;
            let speeds: Vec<Speed> = line.iter().map(speed).collect();
            let tokens = tokens(first.point).unwrap_or_else(|| noise.end());
            schedule(noise, &speeds, tokens, elsewhere(study, number, first))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds() -> Vec<Speed> {
        [(1e6, 1e6, "a"), (4e6, 1.5e6, "a"), (1.6e7, 1.8e6, "b")]
            .map(|(batch_tokens, tokens_per_second, layout)| Speed {
                batch_tokens,
                tokens_per_second,
                layout: layout.to_owned(),
            })
            .to_vec()
    }

    fn growing() -> BatchSchedule {
        BatchSchedule { noise_scale: vec![[0.0, 1e5], [1e12, 1e8]] }
    }

    #[test]
    fn a_schedule_is_no_slower_than_any_fixed_batch() {
        let plan = schedule(&growing(), &speeds(), 1e12, String::new()).expect("has batches");
        assert!(plan.seconds <= plan.fixed_seconds);
        assert!(plan.phases.len() > 1 && plan.phases.iter().any(|phase| phase.switches_layout));
        let whole: f64 = plan.phases.iter().map(|phase| phase.to_tokens - phase.from_tokens).sum();
        assert!((whole / 1e12 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn batches_grow_with_the_noise_scale_and_switch_where_goodputs_cross() {
        let speeds = speeds();
        let plan = schedule(&growing(), &speeds, 1e12, String::new()).expect("has batches");
        for pair in plan.phases.windows(2) {
            assert!(pair[0].speed.batch_tokens < pair[1].speed.batch_tokens);
            let scale = growing().at(pair[1].from_tokens);
            let (old, new) = (pair[0].speed.goodput(scale), pair[1].speed.goodput(scale));
            assert!((old / new - 1.0).abs() < 0.02, "{old} and {new} cross");
        }
    }

    #[test]
    fn without_noise_small_batches_win_and_with_much_the_fastest() {
        let constant = |scale: f64| BatchSchedule { noise_scale: vec![[0.0, scale]] };
        let best = |scale: f64| {
            schedule(&constant(scale), &speeds(), 1e9, String::new()).expect("has batches").phases[0]
                .speed
                .batch_tokens
        };
        assert_eq!((best(10.0), best(1e15)), (1e6, 1.6e7));
    }
}
