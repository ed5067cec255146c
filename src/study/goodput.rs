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
//!
//! A failed node is replaced after `T` seconds. A job that waits stands still as long, once for every failure:
//! `stretch (1 + T / M)`. One that goes on without it has `T / M` nodes missing on average (Little's law), each a share `s`
//! of its speed: `stretch / (1 - s T / M)`; where that is not above 0, nodes fail faster than they are replaced.

use crate::report::number::seconds;
use cluster_profiles::Seconds;
use serde::{Deserialize, Serialize};

/// What a study says about failures, as far as it does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FailureKeys {
    /// Mean time between failures of one GPU, in seconds; without it nothing fails.
    pub mtbf_gpu: Option<f64>,
    /// Bytes a second that the job writes of a checkpoint, all GPUs together.
    pub storage_bandwidth: Option<f64>,
    /// Bytes of a checkpoint for every parameter; those of weights and optimizer if none.
    pub bytes_per_parameter: Option<f64>,
    /// Whether training goes on while a snapshot is written.
    pub asynchronous: bool,
    /// Seconds of training between checkpoints; the best if none.
    pub interval: Option<f64>,
    /// Seconds from a failure until training goes on, with a spare at hand.
    pub restart: Option<f64>,
    /// Seconds until a failed node is replaced, without a spare.
    pub replacement: Option<f64>,
    /// Whether the other nodes go on until then.
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
    /// Share of the speed that a missing node takes while the job goes on without it; none where the job waits.
    pub lost_speed: Option<f64>,
}

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// Seconds of training between checkpoints.
    pub interval: f64,
    /// Share of the time that becomes progress; 0 where the job never finishes ([`LEAST_FRACTION`]).
    pub fraction: f64,
}

/// A job that makes less progress than this never finishes: an hour of training would take more than a year.
pub const LEAST_FRACTION: f64 = 1e-4;
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
        self.running() / self.stretch(interval)
    }

    /// Seconds for a second of training, all nodes there.
    fn stretch(&self, interval: f64) -> f64 {
        if !self.mtbf.is_finite() {
            return (interval + self.pause) / interval;
        }
        if interval <= 0.0 {
            return f64::INFINITY;
        }
        let m = self.mtbf;
        let again = (self.restart + self.exposed()) / m;
        m * again.exp() * ((interval + self.pause) / m).exp_m1() / interval
    }

    /// Share of the time that is not lost to missing nodes.
    fn running(&self) -> f64 {
        let missing = self.replacement / self.mtbf;
        match self.lost_speed {
            None => 1.0 / (1.0 + missing),
            Some(share) => (1.0 - share * missing).max(0.0),
        }
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
            if self.stretch(left.exp()) <= self.stretch(right.exp()) { high = right } else { low = left }
        }
        (0.5 * (low + high)).exp()
    }

    /// The best interval, or the one asked for, and what it gives.
    #[must_use]
    pub fn goodput(&self, interval: Option<f64>) -> Goodput {
        let interval = interval.unwrap_or_else(|| self.best_interval());
        let fraction = if interval.is_finite() { self.fraction(interval) } else { 1.0 };
        let finishes = fraction >= LEAST_FRACTION;
        Goodput { interval, fraction: if finishes { fraction.min(1.0) } else { 0.0 } }
    }

    /// Why a job with such failures never finishes.
    #[must_use]
    pub fn why_never(&self, interval: f64) -> String {
        let time = |value: f64| seconds(Seconds(value));
        let mut text = format!(
            "never finishes: it fails every {}, goes on {} after a failure and needs {} undisturbed from one checkpoint to the next",
            time(self.mtbf),
            time(self.restart + self.exposed()),
            time(interval + self.pause)
        );
        if self.replacement > 0.0 {
            text += &format!("; a failed node is replaced after {}", time(self.replacement));
        }
        text
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
            lost_speed: (self.elastic && missing < 1.0).then_some(missing),
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
        Failures { mtbf, write: pause, pause, restart: 300.0, replacement: 0.0, lost_speed: None }
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

    /// Seconds between failures, exponentially distributed, the same on every run.
    struct Clock {
        state: u64,
        mtbf: f64,
    }

    impl Clock {
        fn new(mtbf: f64) -> Self {
            Self { state: 0x9e37_79b9_7f4a_7c15, mtbf }
        }

        fn next(&mut self) -> f64 {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            let uniform = ((self.state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            -self.mtbf * uniform.ln()
        }
    }

    /// Progress over time of a job that is run failure by failure. A snapshot is safe `exposed` seconds after its pause; a
    /// failure throws the job back to the last that is; without a spare it waits for the node.
    fn simulated(failures: &Failures, interval: f64) -> f64 {
        let mut clock = Clock::new(failures.mtbf);
        let cycle = interval + failures.pause;
        let (mut now, mut done) = (0.0, 0.0);
        let mut next = clock.next();
        while done < 4e7 {
            // Whole cycles until the failure; the last counts only if its snapshot was written.
            let ended = next - failures.exposed();
            let safe = (ended / cycle).floor().max(0.0);
            done += safe * interval;
            now += next;
            next = clock.next();
            // A restart may be interrupted as well.
            while next < failures.restart {
                now += next + failures.replacement;
                next = clock.next();
            }
            now += failures.restart + failures.replacement;
            next -= failures.restart;
        }
        done / now
    }

    #[test]
    fn a_simulated_job_progresses_as_the_formula_says() {
        let synchronous = job(5000.0, 100.0);
        let waits = Failures { replacement: 7200.0, ..synchronous };
        let asynchronous = Failures { pause: 5.0, ..synchronous };
        for failures in [synchronous, waits, asynchronous] {
            let interval = failures.best_interval();
            let (forced, predicted) = (simulated(&failures, interval), failures.fraction(interval));
            assert!((forced / predicted - 1.0).abs() < 0.02, "simulated {forced}, predicted {predicted}");
        }
    }

    #[test]
    fn an_elastic_job_is_as_fast_as_the_nodes_it_has() {
        let failures = Failures { replacement: 40_000.0, lost_speed: Some(0.01), ..job(5000.0, 100.0) };
        // Nodes that are missing on average: every failure takes one away for the time of a replacement.
        let mut clock = Clock::new(failures.mtbf);
        let (mut now, mut missing) = (0.0, 0.0);
        while now < 1e9 {
            now += clock.next();
            missing += failures.replacement;
        }
        let speed = 1.0 - 0.01 * missing / now;
        let waits_for_none = Failures { replacement: 0.0, ..failures };
        let predicted = failures.fraction(3600.0) / waits_for_none.fraction(3600.0);
        assert!((speed / predicted - 1.0).abs() < 0.01, "simulated {speed}, predicted {predicted}");
    }

    #[test]
    fn a_job_that_fails_faster_than_it_restarts_never_finishes() {
        let hopeless = job(30.0, 600.0);
        assert_eq!(hopeless.goodput(None).fraction, 0.0);
        assert!(hopeless.why_never(100.0).starts_with("never finishes: it fails every 30.0 s"));
        let nodes_run_out = Failures { replacement: 1e6, lost_speed: Some(0.1), ..job(1e4, 10.0) };
        assert_eq!(nodes_run_out.goodput(None).fraction, 0.0);
        assert!(job(3600.0, 60.0).goodput(None).fraction > 0.5);
    }

    #[test]
    fn fewer_failures_faster_storage_and_going_on_never_hurt() {
        let base = job(20_000.0, 120.0);
        let goodput = |failures: Failures| failures.goodput(None).fraction;
        assert!(goodput(Failures { mtbf: 40_000.0, ..base }) > goodput(base));
        assert!(goodput(Failures { write: 60.0, pause: 60.0, ..base }) > goodput(base));
        assert!(goodput(Failures { pause: 5.0, ..base }) > goodput(base));
        let waits = Failures { replacement: 7200.0, ..base };
        assert!(goodput(Failures { lost_speed: Some(0.01), ..waits }) > goodput(waits));
        assert!(goodput(base) > goodput(waits));
        assert_eq!(goodput(Failures { mtbf: f64::INFINITY, ..base }), 1.0);
    }
}
