//! Closed forms of pipeline makespans, in any unit of time.

/// 1F1B with stage times `(forward, backward)` and a latency `hop` between ranks:
/// `(m - 1) max(F + B) + sum(F + B) + 2 (p - 1)(1 + m/p) hop`. Exact for equal stages and free hops (or where the
/// slowest stage is the last), never below the simulated time otherwise; with hops it is within two of them.
#[must_use]
pub fn one_f_one_b_upper(stages: &[(f64, f64)], microbatches: f64, hop: f64) -> f64 {
    let whole = |(forward, backward): &(f64, f64)| forward + backward;
    let slowest = stages.iter().map(whole).fold(0.0, f64::max);
    let p = stages.len() as f64;
    let hops = 2.0 * (p - 1.0) * (1.0 + microbatches / p.max(1.0));
    (microbatches - 1.0) * slowest + stages.iter().map(whole).sum::<f64>() + hops * hop
}
