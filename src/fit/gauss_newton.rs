//! Least squares with robust weights: numbers that multiply predictions are found in a few steps from the slopes of
//! every term's logarithm.
//!
//! Each step takes the slope of every term by every number it depends on (by differences), weights each term by how
//! much its error still counts, adds the priors, and solves the normal equations for the logarithms of the numbers. A
//! step that does not improve the objective is halved.

/// A sum of robust errors, each of which depends on some of the numbers.
pub trait Residuals {
    /// Number of terms.
    fn terms(&self) -> usize;
    /// Terms that number `index` changes.
    fn terms_of(&self, index: usize) -> &[usize];
    /// Signed errors of some terms.
    fn errors_at(&self, terms: &[usize], values: &[f64]) -> Vec<f64>;
    /// Weight of a term.
    fn weight(&self, term: usize) -> f64;
    /// Loss of an error, and its slope divided by the error.
    fn loss(&self, error: f64) -> (f64, f64);
    /// Prior of number `index`: value, standard deviation of its logarithm, and bounds.
    fn prior(&self, index: usize) -> (f64, f64, (f64, f64));
    /// Weight of the priors' squares.
    fn prior_weight(&self) -> f64;
}

/// Relative change that slopes are taken over.
const DIFFERENCE: f64 = 0.01;
/// Largest change of a logarithm in one step.
const LARGEST_STEP: f64 = 0.3;
/// Halvings of a step that does not help.
const HALVINGS: usize = 4;
/// Improvement below which the search ends, relative.
const ENOUGH: f64 = 2e-4;

/// Minimises from `values`, in at most `steps` steps; returns the smallest objective found.
pub fn minimise(problem: &dyn Residuals, values: &mut [f64], steps: usize) -> f64 {
    let all: Vec<usize> = (0..problem.terms()).collect();
    let mut errors = problem.errors_at(&all, values);
    let mut best = objective(problem, &errors, values);
    for _ in 0..steps {
        let direction = direction(problem, &errors, values);
        let Some((trial, trial_errors, value)) = improved(problem, &all, values, &direction, best) else {
            break;
        };
        let gain = best - value;
        values.copy_from_slice(&trial);
        (errors, best) = (trial_errors, value);
        if gain < ENOUGH * best.abs() {
            break;
        }
    }
    best
}

fn objective(problem: &dyn Residuals, errors: &[f64], values: &[f64]) -> f64 {
    let fit: f64 =
        errors.iter().enumerate().map(|(term, &error)| problem.weight(term) * problem.loss(error).0).sum();
    let pull: f64 =
        values.iter().enumerate().map(|(index, value)| pull(problem, index, *value).powi(2)).sum();
    fit + problem.prior_weight() * pull
}

fn pull(problem: &dyn Residuals, index: usize, value: f64) -> f64 {
    let (prior, spread, _) = problem.prior(index);
    (value / prior).ln() / spread
}

/// The first of the full step and its halvings that improves the objective.
fn improved(
    problem: &dyn Residuals,
    all: &[usize],
    values: &[f64],
    direction: &[f64],
    best: f64,
) -> Option<(Vec<f64>, Vec<f64>, f64)> {
    let mut scale = 1.0;
    for _ in 0..=HALVINGS {
        let trial: Vec<f64> = values
            .iter()
            .zip(direction)
            .enumerate()
            .map(|(index, (value, step))| {
                let (low, high) = problem.prior(index).2;
                (value * (scale * step.clamp(-LARGEST_STEP, LARGEST_STEP)).exp()).clamp(low, high)
            })
            .collect();
        let errors = problem.errors_at(all, &trial);
        let value = objective(problem, &errors, &trial);
        if value < best {
            return Some((trial, errors, value));
        }
        scale *= 0.5;
    }
    None
}

/// Solves the weighted normal equations for the change of every logarithm.
fn direction(problem: &dyn Residuals, errors: &[f64], values: &[f64]) -> Vec<f64> {
    let n = values.len();
    let slopes: Vec<Vec<f64>> = (0..n).map(|index| slopes(problem, errors, values, index)).collect();
    let weights: Vec<f64> = errors
        .iter()
        .enumerate()
        .map(|(term, &error)| problem.weight(term) * problem.loss(error).1)
        .collect();
    let mut matrix = vec![vec![0.0; n]; n];
    let mut right = vec![0.0; n];
    for a in 0..n {
        for &term in problem.terms_of(a) {
            right[a] -= weights[term] * slopes[a][term] * errors[term];
        }
        for b in 0..=a {
            let shorter = if problem.terms_of(a).len() < problem.terms_of(b).len() { a } else { b };
            let sum: f64 =
                problem.terms_of(shorter).iter().map(|&t| weights[t] * slopes[a][t] * slopes[b][t]).sum();
            (matrix[a][b], matrix[b][a]) = (sum, sum);
        }
        let (_, spread, _) = problem.prior(a);
        let ridge = 2.0 * problem.prior_weight() / (spread * spread);
        matrix[a][a] += ridge;
        right[a] -= ridge * spread * pull(problem, a, values[a]);
    }
    solve(matrix, right)
}

fn slopes(problem: &dyn Residuals, errors: &[f64], values: &[f64], index: usize) -> Vec<f64> {
    let mut moved = values.to_vec();
    moved[index] *= 1.0 + DIFFERENCE;
    let touched = problem.terms_of(index);
    let mut slopes = vec![0.0; errors.len()];
    for (&term, error) in touched.iter().zip(problem.errors_at(touched, &moved)) {
        let slope = (error - errors[term]) / DIFFERENCE.ln_1p();
        slopes[term] = if slope.is_finite() { slope } else { 0.0 };
    }
    slopes
}

/// Cholesky solution of a symmetric positive definite system; a direction without curvature stays 0.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for column in 0..n {
        let pivot = matrix[column][column] - matrix[column][..column].iter().map(|x| x * x).sum::<f64>();
        let root = if pivot > 1e-15 { pivot.sqrt() } else { f64::INFINITY };
        matrix[column][column] = root;
        for row in column + 1..n {
            let dot: f64 = (0..column).map(|k| matrix[row][k] * matrix[column][k]).sum();
            matrix[row][column] = (matrix[row][column] - dot) / root;
        }
    }
    for row in 0..n {
        let dot: f64 = (0..row).map(|k| matrix[row][k] * right[k]).sum();
        right[row] = (right[row] - dot) / matrix[row][row];
    }
    for row in (0..n).rev() {
        let dot: f64 = (row + 1..n).map(|k| matrix[k][row] * right[k]).sum();
        right[row] = (right[row] - dot) / matrix[row][row];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_system_is_solved() {
        let matrix = vec![vec![4.0, 2.0, 0.5], vec![2.0, 5.0, 1.0], vec![0.5, 1.0, 3.0]];
        let expected = [1.0, -2.0, 0.5];
        let right: Vec<f64> =
            matrix.iter().map(|row| row.iter().zip(expected).map(|(a, x)| a * x).sum()).collect();
        let found = solve(matrix, right);
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-12);
        }
    }

    /// `y = a x^2 b`, where b only touches the second half.
    struct Line(Vec<usize>, Vec<usize>);

    impl Residuals for Line {
        fn terms(&self) -> usize {
            10
        }
        fn terms_of(&self, index: usize) -> &[usize] {
            if index == 0 { &self.0 } else { &self.1 }
        }
        fn errors_at(&self, terms: &[usize], values: &[f64]) -> Vec<f64> {
            let truth = |term: usize| if term < 5 { 3.0_f64 } else { 3.0 * 0.7 };
            let guess = |term: usize| if term < 5 { values[0] } else { values[0] * values[1] };
            terms.iter().map(|&term| (guess(term) / truth(term)).ln()).collect()
        }
        fn weight(&self, _: usize) -> f64 {
            0.1
        }
        fn loss(&self, error: f64) -> (f64, f64) {
            (error * error, 2.0)
        }
        fn prior(&self, _: usize) -> (f64, f64, (f64, f64)) {
            (1.0, 1.0, (0.1, 10.0))
        }
        fn prior_weight(&self) -> f64 {
            1e-9
        }
    }

    #[test]
    fn two_factors_are_told_apart() {
        let mut values = [1.0, 1.0];
        minimise(&Line((0..10).collect(), (5..10).collect()), &mut values, 20);
        assert!((values[0] - 3.0).abs() < 1e-4 && (values[1] - 0.7).abs() < 1e-4, "{values:?}");
    }
}
