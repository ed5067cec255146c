//! Meeting points of the vocabulary passes during a simulation.

use super::engine::Input;
use super::orders::{RankOrders, Vocabulary};

/// A value every rank contributes to.
#[derive(Clone, Copy, Default)]
struct Meeting {
    arrived: u32,
    time: f64,
}

/// Per microbatch: the last stage's output, the ranks that met before an interlaced `S`, and the ranks that have
/// finished `S` and `T`. Empty where the output layer is whole.
pub(super) struct Gates {
    vocabulary: Vocabulary,
    ranks: u32,
    units: u32,
    outputs: Vec<Option<f64>>,
    starts: Vec<Meeting>,
    s: Vec<Meeting>,
    t: Vec<Meeting>,
    /// Per rank, one more than the microbatch it has announced for an interlaced `S`.
    announced: Vec<u32>,
}

impl Gates {
    pub(super) fn new(orders: &RankOrders) -> Gates {
        let vocabulary = orders.vocabulary();
        let units = orders.microbatches() * orders.slices();
        let meetings = if vocabulary == Vocabulary::Whole { 0 } else { units as usize };
        Gates {
            vocabulary,
            ranks: orders.ranks(),
            units,
            outputs: vec![None; meetings],
            starts: vec![Meeting::default(); meetings],
            s: vec![Meeting::default(); meetings],
            t: vec![Meeting::default(); meetings],
            announced: vec![0; orders.ranks() as usize],
        }
    }

    /// Microbatches, or slices, of a pipeline.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// What the last stage's backward waits for.
    pub(super) fn backward(&self, microbatch: u32) -> Result<f64, Input> {
        match self.vocabulary {
            Vocabulary::Whole => Ok(0.0),
            Vocabulary::TwoBarriers => self.complete(&self.t, microbatch).ok_or(Input::AllT { microbatch }),
            Vocabulary::OneBarrier | Vocabulary::Interlaced => self.all_s(microbatch),
        }
    }

    pub(super) fn all_s(&self, microbatch: u32) -> Result<f64, Input> {
        self.complete(&self.s, microbatch).ok_or(Input::AllS { microbatch })
    }

    pub(super) fn output(&self, microbatch: u32) -> Result<f64, Input> {
        self.outputs[microbatch as usize].ok_or(Input::Output { microbatch })
    }

    fn complete(&self, meetings: &[Meeting], microbatch: u32) -> Option<f64> {
        let meeting = meetings[microbatch as usize];
        (meeting.arrived == self.ranks).then_some(meeting.time)
    }

    /// A rank stands before `S` since `ready`. For an interlaced pass it has to wait until all do; true when it was
    /// the last.
    pub(super) fn arrive(&mut self, rank: usize, microbatch: u32, ready: f64) -> Result<bool, Input> {
        if self.vocabulary != Vocabulary::Interlaced {
            return Ok(false);
        }
        let start = &mut self.starts[microbatch as usize];
        let news = self.announced[rank] != microbatch + 1;
        if news {
            self.announced[rank] = microbatch + 1;
            start.arrived += 1;
            start.time = start.time.max(ready);
        }
        if start.arrived < self.ranks { Err(Input::AllS { microbatch }) } else { Ok(news) }
    }

    /// When all ranks stood before an interlaced `S`.
    pub(super) fn meeting(&self, microbatch: u32) -> Option<f64> {
        (self.vocabulary == Vocabulary::Interlaced).then(|| self.starts[microbatch as usize].time)
    }

    /// The last stage's forward reaches every rank at `time`; true where somebody listens.
    pub(super) fn finish_output(&mut self, microbatch: u32, time: f64) -> bool {
        match self.outputs.get_mut(microbatch as usize) {
            Some(output) => {
                *output = Some(time);
                true
            }
            None => false,
        }
    }

    pub(super) fn finish_s(&mut self, microbatch: u32, end: f64, barrier: f64) -> bool {
        let ranks = self.ranks;
        self.s[microbatch as usize].join(end, barrier, ranks)
    }

    pub(super) fn finish_t(&mut self, microbatch: u32, end: f64, barrier: f64) -> bool {
        let ranks = self.ranks;
        self.t[microbatch as usize].join(end, barrier, ranks)
    }
}

impl Meeting {
    /// One more rank; true when it was the last.
    fn join(&mut self, end: f64, barrier: f64, ranks: u32) -> bool {
        self.arrived += 1;
        self.time = self.time.max(end + barrier);
        self.arrived == ranks
    }
}
