//! A deterministic search without derivatives: each number in turn is moved up or down by a factor that grows with
//! success and shrinks with failure.

/// A sum of terms, each of which depends on few of the numbers.
pub trait Objective: Sync {
    /// Terms that number `index` changes.
    fn terms_of(&self, index: usize) -> &[usize];
    /// Values of some terms.
    fn terms_at(&self, terms: &[usize], values: &[f64]) -> Vec<f64>;
    /// Combines all terms, and the numbers themselves, into what is minimised.
    fn combine(&self, terms: &[f64], values: &[f64]) -> f64;
    /// Number of terms.
    fn terms(&self) -> usize;
    /// Bounds of number `index`.
    fn bounds(&self, index: usize) -> (f64, f64);
}

/// First factor a number is moved by, less one.
const FIRST_STEP: f64 = 0.08;
/// Steps below this are not tried any more.
const LAST_STEP: f64 = 0.003;

/// Minimises `objective` from `values`; returns the smallest value found.
pub fn minimise(objective: &dyn Objective, values: &mut [f64], rounds: usize) -> f64 {
    let all: Vec<usize> = (0..objective.terms()).collect();
    let mut terms = objective.terms_at(&all, values);
    let mut best = objective.combine(&terms, values);
    let mut steps = vec![FIRST_STEP; values.len()];
    for _ in 0..rounds {
        let before = best;
        for index in 0..values.len() {
            if steps[index] < LAST_STEP {
                continue;
            }
            let start = values[index];
            let (low, high) = objective.bounds(index);
            let mut improved = false;
            for direction in [1.0 + steps[index], 1.0 / (1.0 + steps[index])] {
                values[index] = (start * direction).clamp(low, high);
                if values[index] == start {
                    continue;
                }
                let touched = objective.terms_of(index);
                let fresh = objective.terms_at(touched, values);
                let mut trial = terms.clone();
                touched.iter().zip(&fresh).for_each(|(&term, &value)| trial[term] = value);
                let value = objective.combine(&trial, values);
                if value < best {
                    (best, terms, improved) = (value, trial, true);
                    break;
                }
                values[index] = start;
            }
            steps[index] *= if improved { 1.3 } else { 0.5 };
        }
        if before - best < 1e-6 * before.abs() && steps.iter().all(|step| *step < 2.0 * LAST_STEP) {
            break;
        }
    }
    best
}
