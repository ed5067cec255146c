//! Which kind of GPU forms which stage, as an integer program.
//!
//! With y = 1 where stage s is of kind k, and n layers of it on that stage,
//!
//! ```text
//! minimise T
//!   T >= sum over j < s of lead_j + m w_s      w_s = sum over k of ( t_k n_sk + e_sk y_sk )
//!   sum over k of y_sk = 1                      every stage has a kind
//!   sum over s of y_sk = c_k                    every kind has its stages
//!   y_sk <= n_sk <= most_sk y_sk                layers fit
//!   sum of n_sk = L
//! ```
//!
//! `e` is what embedding and head add to the first and the last stage; a stage's lead is its whole work. Layers of the
//! body count as equal here; the exact split follows with the kinds in this order.

use crate::highs::{Mip, MipError, MipOptions};
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};

/// Stages to be given kinds and layers.
#[derive(Debug, Clone, PartialEq)]
pub struct StageKinds {
    /// Stages that every kind forms.
    pub counts: Vec<usize>,
    /// Layers.
    pub layers: u64,
    /// Microbatches.
    pub microbatches: f64,
    /// Seconds of a layer by kind.
    pub seconds: Vec<f64>,
    /// Seconds by kind that the first and the last stage have besides their layers.
    pub ends: Vec<(f64, f64)>,
    /// Most layers of a stage, by stage and kind.
    pub most: Vec<Vec<u64>>,
}

/// Kinds and layers of every stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// The kind of every stage.
    pub kinds: Vec<usize>,
    /// Its layers.
    pub layers: Vec<u64>,
    /// What the program minimised.
    pub seconds: f64,
}

impl StageKinds {
    /// Number of stages.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Seconds of a microbatch on a stage.
    fn work(&self, stage: usize, kind: usize, layers: u64) -> f64 {
        self.seconds[kind] * layers as f64 + self.extra(stage, kind)
    }

    fn extra(&self, stage: usize, kind: usize) -> f64 {
        let (first, last) = self.ends[kind];
        let own = |at: bool, seconds: f64| if at { seconds } else { 0.0 };
        own(stage == 0, first) + own(stage + 1 == self.stages(), last)
    }

    /// The bound of kinds and layers; infinite where they do not fit.
    #[must_use]
    pub fn value(&self, kinds: &[usize], layers: &[u64]) -> f64 {
        let (mut lead, mut most) = (0.0, 0.0f64);
        for (stage, (&kind, &own)) in kinds.iter().zip(layers).enumerate() {
            if own == 0 || own > self.most[stage][kind] {
                return f64::INFINITY;
            }
            let work = self.work(stage, kind, own);
            most = most.max(lead + self.microbatches * work);
            lead += work;
        }
        most
    }
}

/// The assignment with the least bound; none if nothing fits, or a limit came first.
///
/// # Errors
/// [`MipError`] if HiGHS fails.
pub fn assign(shape: &StageKinds, options: &MipOptions) -> Result<Option<Assigned>, MipError> {
    let (stages, kinds) = (shape.stages(), shape.counts.len());
    let mut variables = ProblemVariables::new();
    let mut grid = |integer: bool| -> Vec<Vec<Variable>> {
        let add = |variables: &mut ProblemVariables| {
            variables.add(if integer { variable().integer().min(0.0) } else { variable().binary() })
        };
        (0..stages).map(|_| (0..kinds).map(|_| add(&mut variables)).collect()).collect()
    };
    let (is, layers) = (grid(false), grid(true));
    let step = variables.add(variable().min(0.0));
    let work = |stage: usize| -> Expression {
        let part = |kind: usize| {
            shape.seconds[kind] * layers[stage][kind] + shape.extra(stage, kind) * is[stage][kind]
        };
        (0..kinds).map(part).sum()
    };
    let sum = |own: &mut dyn Iterator<Item = Variable>| own.sum::<Expression>();
    let mut constraints: Vec<Constraint> = Vec::new();
    for stage in 0..stages {
        constraints.push(constraint!(sum(&mut is[stage].iter().copied()) == 1));
        let before: Expression = (0..stage).map(work).sum();
        constraints.push(constraint!(step >= before + shape.microbatches * work(stage)));
        for kind in 0..kinds {
            let most = shape.most[stage][kind].min(shape.layers) as f64;
            constraints.push(constraint!(layers[stage][kind] <= most * is[stage][kind]));
            constraints.push(constraint!(layers[stage][kind] >= is[stage][kind]));
        }
    }
    for kind in 0..kinds {
        constraints.push(constraint!(sum(&mut is.iter().map(|own| own[kind])) == shape.counts[kind] as f64));
    }
    constraints.push(constraint!(sum(&mut layers.iter().flatten().copied()) == shape.layers as f64));
    let solution = Mip::minimise(variables, step).with_all(constraints).solve(options)?;
    Ok(solution.incumbent.map(|incumbent| {
        let kind_of =
            |own: &Vec<Variable>| (0..kinds).find(|&kind| incumbent.value(own[kind]) > 0.5).unwrap_or(0);
        let kinds: Vec<usize> = is.iter().map(kind_of).collect();
        let count =
            |(own, &kind): (&Vec<Variable>, &usize)| incumbent.value(own[kind]).round().max(0.0) as u64;
        let layers: Vec<u64> = layers.iter().zip(&kinds).map(count).collect();
        Assigned { seconds: shape.value(&kinds, &layers), kinds, layers }
    }))
}
