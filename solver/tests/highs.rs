//! Laws of the solver of mixed-integer programs, against brute force where the program is small.

use std::time::Duration;

use good_lp::{Expression, ProblemVariables, Variable, constraint, variable};
use proptest::prelude::*;
use solver::highs::{Mip, MipError, MipOptions, MipSolution, MipStatus};

/// Choose items for the largest value plus a constant; per resource a sum of weights and its limit.
fn knapsack(values: &[u32], resources: &[(Vec<u32>, u32)], constant: f64) -> (Mip, Vec<Variable>) {
    let mut variables = ProblemVariables::new();
    let items = variables.add_vector(variable().binary(), values.len());
    let sum = |weights: &[u32]| -> Expression {
        weights.iter().zip(&items).map(|(&w, &item)| f64::from(w) * item).sum()
    };
    let limits: Vec<_> =
        resources.iter().map(|(weights, limit)| constraint!(sum(weights) <= *limit)).collect();
    (Mip::maximise(variables, sum(values) + constant).with_all(limits), items)
}

fn brute_force(values: &[u32], weights: &[u32], limit: u32) -> u32 {
    let total = |of: &[u32], set: u32| {
        of.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, v)| v).sum::<u32>()
    };
    let sets = (0..1_u32 << values.len()).filter(|&set| total(weights, set) <= limit);
    sets.map(|set| total(values, set)).max().unwrap_or(0)
}

/// A knapsack with a resource per eight items, its numbers from a fixed recurrence: 60 items take hundreds of nodes, 250
/// are out of reach for a proof within seconds.
fn hard_knapsack(items: usize, constant: f64) -> (Mip, Vec<Variable>) {
    let mut state = 12_345_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        100 + u32::try_from(state >> 40).unwrap() % 900
    };
    let values: Vec<u32> = (0..items).map(|_| next()).collect();
    let resources: Vec<_> = (0..items / 8)
        .map(|_| {
            let weights: Vec<u32> = (0..items).map(|_| next()).collect();
            let limit = weights.iter().sum::<u32>() / 2;
            (weights, limit)
        })
        .collect();
    knapsack(&values, &resources, constant)
}

fn optimum(solution: &MipSolution) -> f64 {
    assert_eq!(solution.status, MipStatus::Optimal);
    solution.incumbent.as_ref().unwrap().objective
}

#[test]
fn a_small_knapsack_is_solved_to_optimality() {
    // Burkardt's collection KNAPSACK_01, P01: optimum 309, items 1 1 1 1 0 1 0 0 0 0.
    let values = [92, 57, 49, 68, 60, 43, 67, 84, 87, 72];
    let weights = vec![23, 31, 29, 44, 53, 38, 63, 85, 89, 82];
    let (mip, items) = knapsack(&values, &[(weights, 165)], 0.0);
    let solution = mip.solve(&MipOptions::default()).unwrap();
    assert_eq!(optimum(&solution), 309.0);
    assert_eq!((solution.bound, solution.gap()), (Some(309.0), Some(0.0)));
    let best = solution.incumbent.unwrap();
    let chosen: Vec<f64> = items.iter().map(|&item| best.value(item)).collect();
    assert_eq!(chosen, [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn knapsacks_agree_with_brute_force(items in prop::collection::vec((0_u32..50, 0_u32..50), 1..10), limit in 0_u32..200) {
        let (values, weights): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        let (mip, _) = knapsack(&values, &[(weights.clone(), limit)], 0.0);
        let solution = mip.solve(&MipOptions::default()).unwrap();
        let expected = f64::from(brute_force(&values, &weights, limit));
        prop_assert!((optimum(&solution) - expected).abs() < 1e-6);
        prop_assert!((solution.bound.unwrap() - expected).abs() < 1e-6);
    }
}

#[test]
fn the_constant_of_the_objective_counts_in_both_directions() {
    for constant in [-40.0, 0.0, 7.5] {
        let mut variables = ProblemVariables::new();
        let x = variables.add(variable().integer().clamp(2, 5));
        let low = Mip::minimise(variables.clone(), 3 * x + constant).solve(&MipOptions::default()).unwrap();
        let high = Mip::maximise(variables, 3 * x + constant).solve(&MipOptions::default()).unwrap();
        assert_eq!((optimum(&low), low.bound), (6.0 + constant, Some(6.0 + constant)));
        assert_eq!((optimum(&high), high.bound), (15.0 + constant, Some(15.0 + constant)));
        assert_eq!(low.incumbent.unwrap().eval(3 * x + constant), 6.0 + constant);
    }
}

#[test]
fn a_program_without_integers_has_its_optimum_as_bound() {
    let mut variables = ProblemVariables::new();
    let (x, y) = (variables.add(variable().min(0)), variables.add(variable().min(0)));
    let mip =
        Mip::maximise(variables, x + y).with(constraint!(2 * x + y <= 4)).with(constraint!(x + 2 * y <= 5));
    let solution = mip.solve(&MipOptions::default()).unwrap();
    assert!((optimum(&solution) - 3.0).abs() < 1e-9);
    assert_eq!(solution.gap(), Some(0.0));
}

#[test]
fn contradictory_constraints_are_infeasible() {
    let mut variables = ProblemVariables::new();
    let x = variables.add(variable().integer().clamp(0, 10));
    let mip = Mip::minimise(variables, x).with(constraint!(2 * x == 5));
    let solution = mip.solve(&MipOptions::default()).unwrap();
    assert_eq!(solution, MipSolution { status: MipStatus::Infeasible, incumbent: None, bound: None });
    assert_eq!(solution.gap(), None);
}

#[test]
fn an_objective_without_end_is_unbounded() {
    for definition in [variable().min(0), variable().integer().min(0)] {
        let mut variables = ProblemVariables::new();
        let (x, y) = (variables.add(definition), variables.add(variable().binary()));
        let mip = Mip::maximise(variables, x + y).with(constraint!(x >= y));
        let solution = mip.solve(&MipOptions::default()).unwrap();
        assert_eq!(solution.status, MipStatus::Unbounded);
        assert_eq!(solution.bound, None);
    }
}

#[test]
fn a_program_without_variables_is_its_constant() {
    let mip = Mip::minimise(ProblemVariables::new(), Expression::from(4.0));
    let solution = mip.solve(&MipOptions::default()).unwrap();
    assert_eq!((optimum(&solution), solution.bound), (4.0, Some(4.0)));
    let contradiction = constraint!(Expression::from(1.0) <= 0.0);
    let solution = mip.with(contradiction).solve(&MipOptions::default()).unwrap();
    assert_eq!(solution.status, MipStatus::Infeasible);
}

#[test]
fn the_gap_counts_the_constant_of_the_objective() {
    let options = MipOptions { relative_gap: 0.1, ..MipOptions::default() };
    let (mip, _) = hard_knapsack(250, -70_000.0);
    let gap = mip.solve(&options).unwrap().gap().unwrap();
    assert!(gap <= 0.1, "{gap}");
}

#[test]
fn limits_leave_an_incumbent_and_a_bound_that_encloses_the_optimum() {
    let time = MipOptions { time_limit: Some(Duration::from_millis(700)), ..MipOptions::default() };
    let nodes = MipOptions { node_limit: Some(1), ..MipOptions::default() };
    let time = (250, time, MipStatus::TimeLimit);
    let nodes = (60, nodes, MipStatus::NodeLimit);
    for (items, options, status) in [time, nodes] {
        let solution = hard_knapsack(items, 0.0).0.solve(&options).unwrap();
        assert_eq!(solution.status, status);
        let (objective, bound) = (solution.incumbent.as_ref().unwrap().objective, solution.bound.unwrap());
        assert!(0.0 < objective && objective < bound, "{objective} {bound}");
        assert!((solution.gap().unwrap() - (bound - objective) / objective).abs() < 1e-12);
        assert!(solution.gap().unwrap() < 0.2);
    }
}

#[test]
fn a_wide_gap_ends_the_search_early_and_is_reported() {
    let options = MipOptions { relative_gap: 0.1, ..MipOptions::default() };
    let solution = hard_knapsack(250, 0.0).0.solve(&options).unwrap();
    assert_eq!(solution.status, MipStatus::Optimal);
    let gap = solution.gap().unwrap();
    assert!(0.0 < gap && gap <= 0.1, "{gap}");
}

#[test]
fn initial_values_are_the_first_incumbent() {
    let options = MipOptions { time_limit: Some(Duration::ZERO), ..MipOptions::default() };
    let mut variables = ProblemVariables::new();
    let x = variables.add(variable().integer().clamp(0, 10).initial(3));
    let y = variables.add(variable().integer().clamp(0, 10).initial(2));
    let mip = Mip::maximise(variables, 5 * x + 4 * y)
        .with(constraint!(6 * x + 4 * y <= 26))
        .with(constraint!(x + 2 * y <= 7));
    let solution = mip.solve(&options).unwrap();
    let best = solution.incumbent.unwrap();
    assert_eq!((best.value(x), best.value(y), best.objective), (3.0, 2.0, 23.0));
}

#[test]
fn the_same_program_gives_the_same_solution_on_every_thread() {
    let options = MipOptions { node_limit: Some(5), random_seed: 7, ..MipOptions::default() };
    let solve = || {
        let (mip, items) = hard_knapsack(60, 0.0);
        let solution = mip.solve(&options).unwrap();
        let best = solution.incumbent.clone().unwrap();
        let values: Vec<u64> = items.iter().map(|&item| best.value(item).to_bits()).collect();
        (solution.status, best.objective.to_bits(), solution.bound.unwrap().to_bits(), values)
    };
    let first = solve();
    assert_eq!(first.0, MipStatus::NodeLimit);
    let (second, third) = std::thread::scope(|scope| {
        let handles = (scope.spawn(solve), scope.spawn(solve));
        (handles.0.join().unwrap(), handles.1.join().unwrap())
    });
    assert_eq!(first, second);
    assert_eq!(first, third);
}

#[test]
fn every_fault_of_a_program_is_named() {
    let mut others = ProblemVariables::new();
    let stranger = others.add_vector(variable(), 3)[2];
    let mut variables = ProblemVariables::new();
    let x = variables.add(variable().clamp(0.0, f64::NAN));
    let mip = Mip::minimise(variables, f64::INFINITY * x).with(constraint!(stranger + x <= f64::NAN));
    let Err(MipError::Invalid { faults, .. }) = mip.solve(&MipOptions::default()) else {
        panic!("accepted");
    };
    assert_eq!(faults.len(), 4, "{faults:?}");
    for (fault, word) in faults.iter().zip(["variable 0", "objective", "constraint 0", "constraint 0"]) {
        assert!(fault.starts_with(word), "{fault}");
    }
}

#[test]
fn a_number_beyond_highs_is_an_error() {
    let mut variables = ProblemVariables::new();
    let x = variables.add(variable().integer().clamp(0, 10));
    let mip = Mip::minimise(variables, x).with(constraint!(1e300 * x <= 1e300));
    let error = mip.solve(&MipOptions::default()).unwrap_err();
    assert!(matches!(error, MipError::Highs { variables: 1, constraints: 1, .. }), "{error}");
}

#[test]
fn options_out_of_range_are_refused() {
    for relative_gap in [-1.0, f64::NAN, f64::INFINITY] {
        let options = MipOptions { relative_gap, random_seed: u32::MAX, ..MipOptions::default() };
        let error = Mip::minimise(ProblemVariables::new(), 0.0).solve(&options).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("relative_gap") && text.contains("random_seed is 4294967295"), "{text}");
    }
}
