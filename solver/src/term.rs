//! One condition on a layout, as the command line writes it.

use cluster_profiles::Cluster;
use cost_models::{ParallelConfig, Recompute};

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Field {
    Tp,
    Pp,
    Vpp,
    Cp,
    Ep,
    Etp,
    Dp,
    DpReplicate,
    DpShard,
    Zero,
    MicroBatch,
    Microbatches,
    SequenceParallel,
    Schedule,
    Recompute,
}

/// A condition on a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// A number passes a test.
    Number(Field, Test),
    /// A name is one of these.
    Name(Field, Vec<String>),
    /// The groups of an axis leave the NVLink domain (the node, unless racks share NVLink).
    CrossNode(Field),
}

/// A test of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// Equal to one of these.
    OneOf(Vec<u64>),
    /// Equal to none of these.
    NoneOf(Vec<u64>),
    /// Below.
    Below([u64; 1]),
    /// Above.
    Above([u64; 1]),
    /// At most.
    AtMost([u64; 1]),
    /// At least.
    AtLeast([u64; 1]),
}

const NAMES: [(Field, &[&str]); 15] = [
    (Field::Tp, &["tp"]),
    (Field::Pp, &["pp"]),
    (Field::Vpp, &["vpp"]),
    (Field::Cp, &["cp"]),
    (Field::Ep, &["ep"]),
    (Field::Etp, &["etp"]),
    (Field::Dp, &["dp"]),
    (Field::DpReplicate, &["dp_replicate"]),
    (Field::DpShard, &["dp_shard"]),
    (Field::Zero, &["zero_stage", "zero"]),
    (Field::MicroBatch, &["micro_batch_size", "micro_batch", "mbs"]),
    (Field::Microbatches, &["num_microbatches", "microbatches"]),
    (Field::SequenceParallel, &["sequence_parallel", "sp"]),
    (Field::Schedule, &["schedule"]),
    (Field::Recompute, &["recompute"]),
];

impl Field {
    /// Fields with numbers.
    pub const NUMBERS: [Self; 13] = [
        Self::Tp,
        Self::Pp,
        Self::Vpp,
        Self::Cp,
        Self::Ep,
        Self::Etp,
        Self::Dp,
        Self::DpReplicate,
        Self::DpShard,
        Self::Zero,
        Self::MicroBatch,
        Self::Microbatches,
        Self::SequenceParallel,
    ];
    /// Fields with names.
    pub const NAMES: [Self; 2] = [Self::Schedule, Self::Recompute];

    /// The name it has in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(field, _)| *field == self).map_or("", |(_, names)| names[0])
    }

    /// Every name.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        NAMES.iter().map(|(_, names)| names[0]).collect()
    }

    /// The smallest number it can have.
    #[must_use]
    pub const fn smallest(self) -> u64 {
        match self {
            Self::Zero | Self::SequenceParallel => 0,
            _ => 1,
        }
    }

    /// Its number in a layout.
    #[must_use]
    pub fn number(self, parallel: &ParallelConfig) -> u64 {
        match self {
            Self::Tp => parallel.tp.into(),
            Self::Pp => parallel.pp.into(),
            Self::Vpp => parallel.vpp.into(),
            Self::Cp => parallel.cp.into(),
            Self::Ep => parallel.ep.into(),
            Self::Etp => parallel.etp.into(),
            Self::Dp => u64::from(parallel.dp_replicate) * u64::from(parallel.dp_shard),
            Self::DpReplicate => parallel.dp_replicate.into(),
            Self::DpShard => parallel.dp_shard.into(),
            Self::Zero => parallel.zero_stage.into(),
            Self::MicroBatch => parallel.micro_batch_size,
            Self::Microbatches => parallel.num_microbatches,
            Self::SequenceParallel => parallel.sequence_parallel.into(),
            Self::Schedule | Self::Recompute => 0,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let name = name.trim().replace('-', "_");
        NAMES.iter().find(|(_, names)| names.contains(&name.as_str())).map(|(field, _)| *field)
    }
}

impl Test {
    /// Whether a number passes.
    #[must_use]
    pub fn holds(&self, value: u64) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::NoneOf(values) => !values.contains(&value),
            Self::Below([limit]) => value < *limit,
            Self::Above([limit]) => value > *limit,
            Self::AtMost([limit]) => value <= *limit,
            Self::AtLeast([limit]) => value >= *limit,
        }
    }

    /// The numbers it names.
    #[must_use]
    pub fn numbers(&self) -> &[u64] {
        match self {
            Self::OneOf(values) | Self::NoneOf(values) => values,
            Self::Below(limit) | Self::Above(limit) | Self::AtMost(limit) | Self::AtLeast(limit) => limit,
        }
    }

    fn new(operator: &str, values: Vec<u64>) -> Option<Self> {
        let one = || <[u64; 1]>::try_from(values.as_slice()).ok();
        match operator {
            "=" | "==" => Some(Self::OneOf(values)),
            "!=" => Some(Self::NoneOf(values)),
            "<" => one().map(Self::Below),
            ">" => one().map(Self::Above),
            "<=" => one().map(Self::AtMost),
            ">=" => one().map(Self::AtLeast),
            _ => None,
        }
    }
}

impl Term {
    /// Reads a term.
    ///
    /// # Errors
    /// What is wrong with it, quoting it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(axis) = text.strip_prefix("cross-node-") {
            return cross_node(axis).ok_or_else(|| format!("`{text}`: only tp, cp, ep and pp have groups"));
        }
        let is_operator = |c: char| "=<>!".contains(c);
        let start = text.find(is_operator).ok_or_else(|| format!("`{text}` is no condition"))?;
        let (name, rest) = text.split_at(start);
        let (operator, value) = rest.split_at(rest.find(|c| !is_operator(c)).unwrap_or(rest.len()));
        let field =
            Field::parse(name).ok_or_else(|| format!("`{text}`: there is no axis `{}`", name.trim()))?;
        if Field::NAMES.contains(&field) {
            return named(field, operator, value).map_err(|fault| format!("`{text}`: {fault}"));
        }
        let values = numbers(field, value).map_err(|fault| format!("`{text}`: {fault}"))?;
        let test =
            Test::new(operator, values).ok_or_else(|| format!("`{text}`: no test `{operator}{value}`"))?;
        Ok(Self::Number(field, test))
    }

    /// Whether a layout satisfies it.
    #[must_use]
    pub fn holds(&self, parallel: &ParallelConfig, cluster: &Cluster) -> bool {
        match self {
            Self::Number(field, test) => test.holds(field.number(parallel)),
            Self::Name(Field::Schedule, names) => names.contains(&parallel.schedule),
            Self::Name(_, names) => names.iter().any(|name| recompute_matches(name, parallel.recompute)),
            Self::CrossNode(field) => crosses(*field, parallel, cluster),
        }
    }
}

fn cross_node(axis: &str) -> Option<Term> {
    let field = Field::parse(axis)?;
    let grouped = matches!(field, Field::Tp | Field::Cp | Field::Ep | Field::Pp);
    grouped.then_some(Term::CrossNode(field))
}

/// `full` stands for any number of layers; `full:3` for exactly three.
pub(crate) fn recompute_matches(name: &str, recompute: Recompute) -> bool {
    match recompute {
        Recompute::Full { layers: Some(_) } => name == "full" || name == recompute.to_string(),
        _ => name == recompute.to_string(),
    }
}

fn named(field: Field, operator: &str, value: &str) -> Result<Term, String> {
    if operator != "=" && operator != "==" {
        return Err(format!("{} is only compared with =", field.name()));
    }
    let names: Vec<String> = value.split('|').map(|name| name.trim().to_owned()).collect();
    for name in &names {
        if field == Field::Recompute {
            name.parse::<Recompute>()?;
        } else {
            name.parse::<cost_models::schedule::Schedule>().map_err(|error| error.to_string())?;
        }
    }
    Ok(Term::Name(field, names))
}

fn numbers(field: Field, text: &str) -> Result<Vec<u64>, String> {
    text.split('|').map(|value| number(field, value.trim())).collect()
}

fn number(field: Field, text: &str) -> Result<u64, String> {
    let value = match (field, text) {
        (Field::SequenceParallel, "true" | "on" | "yes") => 1,
        (Field::SequenceParallel, "false" | "off" | "no") => 0,
        _ => text.parse().map_err(|_| format!("`{text}` is no number"))?,
    };
    if value < field.smallest() {
        return Err(format!("{} is at least {}", field.name(), field.smallest()));
    }
    Ok(value)
}

/// Whether the groups of an axis leave the NVLink domain, with ranks in the order tp, cp, dp, pp (experts: etp, ep).
fn crosses(field: Field, parallel: &ParallelConfig, cluster: &Cluster) -> bool {
    let (ranks, stride) = match field {
        Field::Tp => (parallel.tp, 1),
        Field::Cp => (parallel.cp, parallel.tp),
        Field::Ep => (parallel.ep, parallel.etp),
        _ => (parallel.pp, (parallel.world_size() / u64::from(parallel.pp.max(1))) as u32),
    };
    ranks > 1 && !cluster.group_shape(ranks, stride).is_local()
}
