//! One condition on a layout, as the command line writes it.

use cluster_profiles::Cluster;
use cost_models::order::RankGroup;
use cost_models::rules::Axis;
use cost_models::schedule::Schedule;
use cost_models::{ParallelConfig, RankOrder, Recompute};

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// An axis of the layout.
    Axis(Axis),
    /// Data-parallel ranks: replicas times shards.
    Dp,
    /// The schedule's name.
    Schedule,
    /// What is recomputed.
    Recompute,
    /// The order of the ranks.
    RankOrder,
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
    /// Micro batches differ between the ranks of a data-parallel group.
    UnequalMicroBatches,
    /// Shards of state differ between the ranks of a data-parallel group.
    UnevenState,
}

/// How the last two are written.
const UNEQUAL: [(&str, Term); 2] =
    [("unequal-micro-batches", Term::UnequalMicroBatches), ("uneven-state", Term::UnevenState)];

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

/// Shorter names.
const ALIASES: [(&str, Axis); 5] = [
    ("zero", Axis::Zero),
    ("micro_batch", Axis::MicroBatch),
    ("mbs", Axis::MicroBatch),
    ("microbatches", Axis::Microbatches),
    ("sp", Axis::SequenceParallel),
];

impl Field {
    /// Fields with numbers.
    pub const NUMBERS: [Self; Axis::ALL.len() + 1] = {
        let mut fields = [Self::Dp; Axis::ALL.len() + 1];
        let mut index = 0;
        while index < Axis::ALL.len() {
            fields[index] = Self::Axis(Axis::ALL[index]);
            index += 1;
        }
        fields
    };
    /// Fields with names.
    pub const NAMES: [Self; 3] = [Self::Schedule, Self::Recompute, Self::RankOrder];

    /// The name it has in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Axis(axis) => axis.name(),
            Self::Dp => "dp",
            Self::Schedule => "schedule",
            Self::Recompute => "recompute",
            Self::RankOrder => "rank_order",
        }
    }

    /// Every name.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        Self::NUMBERS.iter().chain(&Self::NAMES).map(|field| field.name()).collect()
    }

    /// The smallest number it can have.
    #[must_use]
    pub const fn smallest(self) -> u64 {
        match self {
            Self::Axis(Axis::Zero | Axis::SequenceParallel) => 0,
            _ => 1,
        }
    }

    /// Its number in a layout.
    #[must_use]
    pub fn number(self, parallel: &ParallelConfig) -> u64 {
        match self {
            Self::Axis(axis) => axis.get(parallel),
            Self::Dp => u64::from(parallel.dp_replicate) * u64::from(parallel.dp_shard),
            Self::Schedule | Self::Recompute | Self::RankOrder => 0,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let name = name.trim().replace('-', "_");
        let known = Self::NUMBERS.into_iter().chain(Self::NAMES).find(|field| field.name() == name);
        let alias = || ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, axis)| Self::Axis(*axis));
        known.or_else(alias)
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
        if let Some((_, term)) = UNEQUAL.iter().find(|(name, _)| *name == text) {
            return Ok(term.clone());
        }
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
            Self::Name(Field::RankOrder, names) => {
                names.iter().any(|name| name == parallel.rank_order.name())
            }
            Self::Name(_, names) => names.iter().any(|name| recompute_matches(name, parallel.recompute)),
            Self::CrossNode(field) => crosses(*field, parallel, cluster),
            Self::UnequalMicroBatches => parallel.has_unequal_micro_batches(),
            Self::UnevenState => parallel.has_uneven_state(),
        }
    }
}

fn cross_node(axis: &str) -> Option<Term> {
    let field = Field::parse(axis)?;
    let grouped = matches!(field, Field::Axis(Axis::Tp | Axis::Cp | Axis::Ep | Axis::Pp));
    grouped.then_some(Term::CrossNode(field))
}

/// Any layers or modules in host memory.
pub(crate) const ANY_OFFLOAD: &str = "offload";

/// `full` and `offload` stand for any number of layers; `full:3` for exactly three.
pub(crate) fn recompute_matches(name: &str, recompute: Recompute) -> bool {
    match recompute {
        Recompute::Full { layers: Some(_) } => name == "full" || name == recompute.to_string(),
        Recompute::Offload { .. } => name == ANY_OFFLOAD || name == recompute.to_string(),
        Recompute::Modules(_) => {
            (name == ANY_OFFLOAD && recompute.is_moving()) || name.parse() == Ok(recompute)
        }
        _ => name == recompute.to_string(),
    }
}

fn named(field: Field, operator: &str, value: &str) -> Result<Term, String> {
    if operator != "=" && operator != "==" {
        return Err(format!("{} is only compared with =", field.name()));
    }
    let names: Vec<String> = value.split('|').map(|name| name.trim().to_owned()).collect();
    for name in &names {
        match field {
            Field::RankOrder => name.parse::<RankOrder>().map(drop)?,
            Field::Recompute => name
                .parse::<Recompute>()
                .map(drop)
                .or_else(|error| if name == ANY_OFFLOAD { Ok(()) } else { Err(error) })?,
            _ => name.parse::<Schedule>().map(drop).map_err(|error| error.to_string())?,
        }
    }
    Ok(Term::Name(field, names))
}

fn numbers(field: Field, text: &str) -> Result<Vec<u64>, String> {
    text.split('|').map(|value| number(field, value.trim())).collect()
}

fn number(field: Field, text: &str) -> Result<u64, String> {
    let value = match (field, text) {
        (Field::Axis(Axis::SequenceParallel), "true" | "on" | "yes") => 1,
        (Field::Axis(Axis::SequenceParallel), "false" | "off" | "no") => 0,
        _ => text.parse().map_err(|_| format!("`{text}` is no number"))?,
    };
    if value < field.smallest() {
        return Err(format!("{} is at least {}", field.name(), field.smallest()));
    }
    Ok(value)
}

/// Whether the groups of an axis leave the NVLink domain.
fn crosses(field: Field, parallel: &ParallelConfig, cluster: &Cluster) -> bool {
    let group = match field {
        Field::Axis(Axis::Tp) => RankGroup::Tp,
        Field::Axis(Axis::Cp) => RankGroup::Cp,
        Field::Axis(Axis::Ep) => RankGroup::Ep,
        _ => RankGroup::Pp,
    };
    !parallel.group_shape(group, cluster.smallest_domain()).is_local()
}
