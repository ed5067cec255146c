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

/// Zero-bubble schedules with equal stages F, I, W, one chunk a rank, and a staggered start of the next step:
/// `memory` 1 (ZB-1P) leaves `(p - 1)(F + I - W)`, 2 (ZB-2P) leaves `(p - 1) max(0, F + I - 2W)`; with few microbatches
/// the way of the last one through the pipeline rules: `(m + p - 1)(F + I) + W` (Qi et al., arXiv 2401.10241).
#[must_use]
pub fn zero_bubble(times: (f64, f64, f64), ranks: f64, microbatches: f64, memory: f64) -> f64 {
    let (forward, input, weight) = times;
    let work = microbatches * (forward + input + weight);
    let bubble = (ranks - 1.0) * (forward + input - memory * weight).max(0.0);
    let chain = (microbatches + ranks - 1.0) * (forward + input) + weight;
    (work + bubble).max(if memory > 1.0 { chain } else { 0.0 })
}
