//! Break-even between two clusters: the price of the second at which a token costs the same on both.

use super::gather::{Gathered, Outcome};
use super::switches::{columns_of, elsewhere, lines};
use crate::study::file::Study;
use serde::Serialize;

/// Two clusters (or GPU kinds) compared at every setting of the other axes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakEven {
    /// The one.
    pub one: String,
    /// The other.
    pub other: String,
    /// The comparisons.
    pub pairs: Vec<Pair>,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Values of the other axes.
    pub elsewhere: String,
    /// Dollars for a billion tokens on the one.
    pub dollars_one: f64,
    /// Dollars for a billion tokens on the other.
    pub dollars_other: f64,
    /// Dollars for a GPU and hour of the other at which both cost the same.
    pub break_even_price: f64,
    /// What it costs.
    pub price: f64,
}

/// Most comparisons of a pair that are kept.
const MOST: usize = 200;

/// The price of the other at which a token costs the same on both.
///
/// `price_one`: dollars for a GPU and hour of the one; the rates: tokens per second and GPU of either, failures taken off.
#[must_use]
pub fn break_even_price(price_one: f64, rate_one: f64, rate_other: f64) -> f64 {
    price_one * rate_other / rate_one
}

/// The comparisons of every axis along which the cluster or the GPU kind varies.
#[must_use]
pub fn break_even(study: &Study, gathered: &Gathered) -> Vec<BreakEven> {
    let mut list: Vec<BreakEven> = Vec::new();
    for (number, axis) in study.axes.iter().enumerate() {
        if !axis.keys.iter().any(|key| key == "cluster" || key == "gpu") {
            continue;
        }
        for line in lines(study, gathered, number) {
            for (at, one) in line.iter().enumerate() {
                for other in &line[at + 1..] {
                    add(study, number, one, other, &mut list);
                }
            }
        }
    }
    list
}

fn add(study: &Study, number: usize, one: &Outcome, other: &Outcome, list: &mut Vec<BreakEven>) {
    let prices = one.dollars_per_hour.zip(other.dollars_per_hour);
    let dollars = one.dollars_per_billion_tokens.zip(other.dollars_per_billion_tokens);
    let (Some((hour_one, hour_other)), Some((dollars_one, dollars_other))) = (prices, dollars) else {
        return;
    };
    let own = columns_of(study, number);
    let name = |outcome: &Outcome| outcome.values[own.clone()].join(", ");
    let (name_one, name_other) = (name(one), name(other));
    let known = list.iter().position(|pair| pair.one == name_one && pair.other == name_other);
    let at = known.unwrap_or_else(|| {
        list.push(BreakEven { one: name_one, other: name_other, pairs: Vec::new() });
        list.len() - 1
    });
    if list[at].pairs.len() < MOST {
        list[at].pairs.push(Pair {
            elsewhere: elsewhere(study, number, one),
            dollars_one,
            dollars_other,
            break_even_price: break_even_price(
                hour_one / one.gpus,
                one.tokens_per_second / one.gpus,
                other.tokens_per_second / other.gpus,
            ),
            price: hour_other / other.gpus,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::break_even_price;

    #[test]
    fn at_the_break_even_price_a_token_costs_the_same() {
        let (price, rate_one, rate_other) = (2.99, 1047.0, 2300.0);
        let other = break_even_price(price, rate_one, rate_other);
        assert!((price / rate_one - other / rate_other).abs() < 1e-15);
    }
}
