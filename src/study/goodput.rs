//! How much of the time a job trains, when its GPUs fail and it writes checkpoints.
//!
//! Failures come independently, exponentially distributed: n GPUs that each fail once in `mtbf_gpu` interrupt the job once in
//! `M = mtbf_gpu / n`. After `interval` seconds of training a checkpoint stops it for `pause` seconds. Daly's model of the
//! whole (J. T. Daly, FGCS 22 (2006), equation 20) gives the expected wall-clock time per second of training:
//!
//! ```text
//! stretch = M e^(R/M) (e^((interval + pause)/M) - 1) / interval
//! ```
//!
//! `R`: from a failure until training goes on. An asynchronous snapshot pauses only for the copy to the host, but what it
//! holds is safe only when it is written: on top of the interval, a failure loses the time of the write as well.

use serde::{Deserialize, Serialize};

/// What a study says about failures, as far as it does.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct FailureKeys {
    pub mtbf_gpu: Option<f64>,
    pub storage_bandwidth: Option<f64>,
    pub bytes_per_parameter: Option<f64>,
    pub asynchronous: bool,
    pub interval: Option<f64>,
    pub restart: Option<f64>,
    pub replacement: Option<f64>,
    pub elastic: bool,
}

/// A job that fails now and then. Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// Mean time between failures of the whole job.
    pub mtbf: f64,
    /// Writing a checkpoint.
    pub write: f64,
    /// Training stands still for a checkpoint.
    pub pause: f64,
    /// From a failure until training goes on.
    pub restart: f64,
    /// Until a failed node is replaced; 0 where spares are at hand.
    pub replacement: f64,
    /// Share of the speed that is lost while the job goes on without the failed node; 1 where it waits.
    pub lost_speed: f64,
}

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// Seconds of training between checkpoints.
    pub interval: f64,
    /// Share of the time that becomes progress.
    pub fraction: f64,
}

/// Longest interval that is looked at, in mean times between failures.
const LONGEST: f64 = 20.0;
/// Seconds from a failure until training goes on, where the study does not say: detection, requeueing, loading. Assumed.
pub const DEFAULT_RESTART: f64 = 600.0;

impl Failures {
    /// Training that is lost with a failure besides what the interval says: the snapshot under way.
    fn exposed(&self) -> f64 {
        (self.write - self.pause).max(0.0)
    }

    /// Share of the time that becomes progress with this interval.
    #[must_use]
    pub fn fraction(&self, interval: f64) -> f64 {
        if !self.mtbf.is_finite() {
            return interval / (interval + self.pause);
        }
        if interval <= 0.0 {
            return 0.0;
        }
        let m = self.mtbf;
        let again = (self.restart + self.exposed()) / m;
        let stretch = m * again.exp() * ((interval + self.pause) / m).exp_m1() / interval;
        // While a node is missing the job waits, or goes on slower.
        let degraded = 1.0 + self.replacement * self.lost_speed / m;
        1.0 / (stretch * degraded)
    }

    /// The interval that loses least. The loss falls, then rises: golden section search over its logarithm. Asynchronous
    /// snapshots are not begun before the last is written.
    #[must_use]
    pub fn best_interval(&self) -> f64 {
        let least = self.exposed().max(1.0);
        if !self.mtbf.is_finite() {
            return f64::INFINITY;
        }
        let (mut low, mut high) = (least.ln(), (LONGEST * self.mtbf).max(2.0 * least).ln());
        let ratio = (5f64.sqrt() - 1.0) / 2.0;
        for _ in 0..100 {
            let (left, right) = (high - ratio * (high - low), low + ratio * (high - low));
            if self.fraction(left.exp()) >= self.fraction(right.exp()) { high = right } else { low = left }
        }
        (0.5 * (low + high)).exp()
    }

    /// The best interval, or the one asked for, and what it gives.
    #[must_use]
    pub fn goodput(&self, interval: Option<f64>) -> Goodput {
        let interval = interval.unwrap_or_else(|| self.best_interval());
        let fraction = if interval.is_finite() { self.fraction(interval) } else { 1.0 };
        Goodput { interval, fraction: fraction.clamp(0.0, 1.0) }
    }
}

/// Young's interval: the square root of twice the pause times the mean time between failures (CACM 17 (1974)).
#[must_use]
pub fn young(pause: f64, mtbf: f64) -> f64 {
    (2.0 * pause * mtbf).sqrt()
}

/// Daly's higher-order interval (FGCS 22 (2006), equation 37); the mean time between failures for very long pauses.
#[must_use]
pub fn daly(pause: f64, mtbf: f64) -> f64 {
    if pause >= 2.0 * mtbf {
        return mtbf;
    }
    let x = pause / (2.0 * mtbf);
    young(pause, mtbf) * (1.0 + x.sqrt() / 3.0 + x / 9.0) - pause
}

impl FailureKeys {
    /// The failures of a job, if the study says how often GPUs fail.
    #[must_use]
    pub fn of_job(&self, job: &Job) -> Option<Failures> {
        let mtbf = self.mtbf_gpu? / job.gpus;
        let bytes = self.bytes_per_parameter.unwrap_or(job.bytes_per_parameter) * job.parameters;
        let write = self.storage_bandwidth.map_or(0.0, |rate| bytes / rate);
        let copy = bytes / job.gpus / job.host_bandwidth;
        let missing = job.node_gpus / job.gpus;
        Some(Failures {
            mtbf,
            write,
            pause: if self.asynchronous { copy.min(write) } else { write },
            restart: self.restart.unwrap_or(DEFAULT_RESTART),
            replacement: self.replacement.unwrap_or(0.0),
            lost_speed: if self.elastic && missing < 1.0 { missing } else { 1.0 },
        })
    }
}

/// What of a job matters for its checkpoints.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// GPUs.
    pub gpus: f64,
    /// GPUs that one failure takes away.
    pub node_gpus: f64,
    /// Parameters.
    pub parameters: f64,
    /// Bytes of a parameter with its optimizer state.
    pub bytes_per_parameter: f64,
    /// Bytes per second from a GPU to its host.
    pub host_bandwidth: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(mtbf: f64, pause: f64) -> Failures {
        Failures { mtbf, write: pause, pause, restart: 300.0, replacement: 0.0, lost_speed: 1.0 }
    }

    #[test]
    fn the_best_interval_is_that_of_brute_force() {
        for (mtbf, pause) in [(3600.0, 10.0), (86_400.0, 60.0), (7200.0, 600.0), (1e6, 1.0)] {
            let failures = job(mtbf, pause);
            let found = failures.fraction(failures.best_interval());
            let forced = (1..200_000).map(|step| failures.fraction(f64::from(step))).fold(0.0, f64::max);
            assert!(found >= forced - 1e-9, "{mtbf} {pause}: {found} below {forced}");
        }
    }

    #[test]
    fn daly_and_young_come_near_the_best_where_pauses_are_short() {
        for (mtbf, pause) in [(3600.0, 1.0), (86_400.0, 60.0), (1e6, 100.0)] {
            let best = job(mtbf, pause).best_interval();
            assert!((daly(pause, mtbf) / best - 1.0).abs() < 0.005, "daly {} best {best}", daly(pause, mtbf));
            assert!((young(pause, mtbf) / best - 1.0).abs() < 0.05);
        }
        assert_eq!(daly(100.0, 10.0), 10.0);
    }

    #[test]
    fn a_simulated_job_progresses_as_the_formula_says() {
        let failures = job(5000.0, 100.0);
        let interval = failures.best_interval();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut failure_after = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let uniform = ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            -failures.mtbf * uniform.ln()
        };
        let (mut clock, mut done) = (0.0, 0.0);
        let mut next = failure_after();
        while done < 4e7 {
            if next >= interval + failures.pause {
                next -= interval + failures.pause;
                clock += interval + failures.pause;
                done += interval;
                continue;
            }
            clock += next;
            next = failure_after();
            // A restart may be interrupted as well.
            while next < failures.restart {
                clock += next;
                next = failure_after();
            }
            clock += failures.restart;
            next -= failures.restart;
        }
        let simulated = done / clock;
        let predicted = failures.fraction(interval);
        assert!((simulated / predicted - 1.0).abs() < 0.01, "simulated {simulated}, predicted {predicted}");
    }

    #[test]
    fn fewer_failures_faster_storage_and_going_on_never_hurt() {
        let base = job(20_000.0, 120.0);
        let goodput = |failures: Failures| failures.goodput(None).fraction;
        assert!(goodput(Failures { mtbf: 40_000.0, ..base }) > goodput(base));
        assert!(goodput(Failures { write: 60.0, pause: 60.0, ..base }) > goodput(base));
        assert!(goodput(Failures { pause: 5.0, ..base }) > goodput(base));
        let waits = Failures { replacement: 7200.0, ..base };
        assert!(goodput(Failures { lost_speed: 0.01, ..waits }) > goodput(waits));
        assert!(goodput(base) > goodput(waits));
        assert_eq!(goodput(Failures { mtbf: f64::INFINITY, ..base }), 1.0);
    }
}
