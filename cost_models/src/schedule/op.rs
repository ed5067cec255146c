//! One operation of a pipeline schedule.

use std::fmt;

/// What an operation computes. The letters are those of torch's schedule CSV; `S` and `T` are the passes of
/// vocabulary parallelism (arXiv:2411.05288).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OpKind {
    /// Forward of one stage for one microbatch.
    F,
    /// Gradient of the stage's input; what the previous stage waits for.
    I,
    /// Gradient of the stage's weights; nobody waits for it but the optimizer.
    W,
    /// Both gradients as one operation.
    B,
    /// This rank's slice of the output layer: logits and local softmax statistics.
    S,
    /// The rest of the output layer after the statistics were reduced.
    T,
}

impl OpKind {
    /// Every kind, in declaration order.
    pub const ALL: [OpKind; 6] = [OpKind::F, OpKind::I, OpKind::W, OpKind::B, OpKind::S, OpKind::T];

    /// The letter used in CSV files, timelines and messages.
    pub fn letter(self) -> char {
        match self {
            OpKind::F => 'F',
            OpKind::I => 'I',
            OpKind::W => 'W',
            OpKind::B => 'B',
            OpKind::S => 'S',
            OpKind::T => 'T',
        }
    }

    /// The kind written with this letter.
    pub fn from_letter(letter: char) -> Option<OpKind> {
        OpKind::ALL.into_iter().find(|kind| kind.letter() == letter)
    }

    /// Whether the operation is a pass of the vocabulary layer, which every rank runs.
    pub fn is_vocabulary(self) -> bool {
        matches!(self, OpKind::S | OpKind::T)
    }
}

/// An operation of one rank: eight bytes.
///
/// `stage` counts through the stages of one pipeline and, where a schedule runs two pipelines in opposite
/// directions, goes on with those of the second. `microbatch` counts within that pipeline; with sequence slices it
/// is `microbatch * slices + slice`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    /// What is computed.
    pub kind: OpKind,
    /// Whether this operation and the next one of the rank run as one atomic pair (a combined forward-backward).
    pub paired: bool,
    /// The stage; the rank's number for a vocabulary pass.
    pub stage: u16,
    /// The microbatch or slice.
    pub microbatch: u32,
}

impl Op {
    /// An unpaired operation.
    pub fn new(kind: OpKind, stage: u32, microbatch: u32) -> Op {
        Op { kind, paired: false, stage: u16::try_from(stage).unwrap_or(u16::MAX), microbatch }
    }

    /// Forward.
    pub fn f(stage: u32, microbatch: u32) -> Op {
        Op::new(OpKind::F, stage, microbatch)
    }

    /// Input gradient.
    pub fn i(stage: u32, microbatch: u32) -> Op {
        Op::new(OpKind::I, stage, microbatch)
    }

    /// Weight gradient.
    pub fn w(stage: u32, microbatch: u32) -> Op {
        Op::new(OpKind::W, stage, microbatch)
    }

    /// Full backward.
    pub fn b(stage: u32, microbatch: u32) -> Op {
        Op::new(OpKind::B, stage, microbatch)
    }

    /// The same operation, forming an atomic pair with the one that follows it.
    pub fn paired(self) -> Op {
        Op { paired: true, ..self }
    }
}

/// Written as in torch's schedule CSV, `2F0`.
impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}{}", self.stage, self.kind.letter(), self.microbatch)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}{}", if self.paired { "&" } else { "" })
    }
}
