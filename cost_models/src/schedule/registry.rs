//! What a schedule is made of, and the generator all share. The list of schedules is in `mod.rs`.

use std::fmt;
use std::str::FromStr;

use super::ScheduleKind;
use super::costs::OpCosts;
use super::error::ScheduleError;
use super::op::Op;
use super::orders::{OrderParts, RankOrders, Vocabulary};
use super::placement::Placement;
use super::shape::{Rules, ScheduleShape, Sizes, check_sizes};

/// What a schedule's file says about it.
pub struct Definition {
    /// Its name on the command line and in plans.
    pub name: &'static str,
    /// One line for catalogues.
    pub summary: &'static str,
    /// Where the order comes from, and what was inferred.
    pub source: &'static str,
    /// How stages lie on ranks.
    pub placement: Placement,
    /// Whether the backward is split into `I` and `W`.
    pub splits_backward: bool,
    /// Whether forwards run combined with backwards, so that the expert all-to-alls of one travel while the other computes.
    pub combines: bool,
    /// Whether training is as without a pipeline. Where false the schedule works on stale weights.
    pub synchronous: bool,
    /// Copies of its weights a rank keeps to train as the schedule prescribes.
    pub weight_versions: fn(&Sizes, u32) -> u32,
    /// How many chunks of a rank keep their activations in host memory.
    pub offloaded_chunks: fn(&Sizes) -> u32,
    /// Stages on a rank when the shape leaves it open.
    pub default_chunks: u32,
    /// Slices of a sequence when the shape leaves it open; `None` where sequences stay whole.
    pub default_slices: Option<u32>,
    /// Whether the size of microbatch groups changes the order.
    pub grouped: bool,
    /// Microbatches after which the order repeats: p, or a group of microbatches by its owner's rule.
    pub round: fn(&Sizes) -> u32,
    /// Split of the output layer the schedule is made for.
    pub vocabulary: Vocabulary,
    /// Whether its authors' runtime lets the next step start before this one has ended everywhere (optimizer
    /// post-validation): a step then takes
    /// [`Timeline::staggered_step`](super::Timeline::staggered_step). Runtimes with
    /// [`synchronous_steps`](crate::runtime::TimeTraits::synchronous_steps) do not.
    pub staggered: bool,
    /// Orders with the output layer split over the ranks, where there are.
    pub vocabulary_orders: Option<VocabularyOrders>,
    /// The schedule's own rules on sizes.
    pub rules: fn(&Sizes, &mut Rules),
    /// The orders.
    pub orders: Generator,
}

/// All ranks' orders with this split of the output layer.
pub type VocabularyOrders = fn(&Sizes, Vocabulary) -> Vec<Vec<Op>>;

/// How a schedule's orders come about.
pub enum Generator {
    /// Every rank's order from the sizes alone.
    PerRank(fn(&Sizes, u32) -> Vec<Op>),
    /// All ranks together.
    Whole(fn(&Sizes) -> Vec<Vec<Op>>),
    /// By search over the real costs.
    Searched(fn(&Sizes, &OpCosts) -> Result<RankOrders, ScheduleError>),
}

impl Definition {
    /// Whether the orders follow from the sizes, whatever the operations cost.
    #[must_use]
    pub const fn is_fixed(&self) -> bool {
        !matches!(self.orders, Generator::Searched(_))
    }

    /// The fields most schedules share; the rest is to be filled in.
    pub const LOOPED: Definition = Definition {
        name: "",
        summary: "",
        source: "",
        placement: Placement::Loop,
        splits_backward: false,
        combines: false,
        synchronous: true,
        weight_versions: |_, _| 1,
        offloaded_chunks: |_| 0,
        default_chunks: 1,
        default_slices: None,
        grouped: false,
        round: |sizes| sizes.p,
        vocabulary: Vocabulary::Whole,
        staggered: false,
        vocabulary_orders: None,
        rules: |_, _| {},
        orders: Generator::PerRank(|_, _| Vec::new()),
    };
}

/// Adds the modules of the listed schedules, the enum of their kinds and its list.
macro_rules! schedules {
    ($($kind:ident = $file:ident,)*) => {
        $(mod $file;)*

        /// A pipeline schedule.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ScheduleKind {
            $(#[doc = concat!("See `schedule/", stringify!($file), ".rs`.")] $kind,)*
        }

        impl ScheduleKind {
            /// Every schedule.
            pub const ALL: &'static [ScheduleKind] = &[$(ScheduleKind::$kind),*];

            /// What its file says about it.
            pub fn definition(self) -> &'static $crate::schedule::Definition {
                match self {
                    $(ScheduleKind::$kind => &$file::DEFINITION,)*
                }
            }
        }
    };
}

impl ScheduleKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Whether training is as without a pipeline.
    pub fn is_synchronous(self) -> bool {
        self.definition().synchronous
    }

    /// Stages of one pipeline on a rank for this shape.
    pub fn chunks(self, shape: &ScheduleShape) -> u32 {
        shape.chunks.unwrap_or(self.definition().default_chunks)
    }

    /// Whether the output layer may be split over the ranks with the suffixes `-vocab1` and `-vocab2`.
    pub fn takes_vocabulary(self) -> bool {
        self.definition().vocabulary_orders.is_some()
    }

    /// Checks a shape without generating anything.
    ///
    /// # Errors
    /// Every rule the shape breaks, with the rule named.
    pub fn check(self, shape: &ScheduleShape) -> Result<Sizes, ScheduleError> {
        let definition = self.definition();
        let v = self.chunks(shape);
        let q = shape.slices.or(definition.default_slices).unwrap_or(1);
        let mut rules = Rules::new(definition.name);
        check_sizes(shape, v, q, &mut rules);
        let sliced = definition.default_slices.is_some();
        rules.require(
            sliced || q == 1,
            "slices",
            q,
            "this schedule does not cut sequences",
            "use seq1f1b or terapipe",
        );
        let allowed = definition.synchronous || shape.allow_asynchronous;
        let rule = "works on stale weights, which changes training";
        rules.require(
            allowed,
            "schedule",
            definition.name,
            rule,
            "opt in explicitly, or use a synchronous schedule",
        );
        let usual = [Vocabulary::Whole, definition.vocabulary].contains(&shape.vocabulary);
        let split = self.takes_vocabulary() && shape.vocabulary != Vocabulary::Interlaced;
        let hint = "use 1f1b-vocab1, 1f1b-vocab2, v-half-vocab1 or v-half-vocab2";
        let rule = "this schedule has no order with such passes";
        rules.require(usual || split, "vocabulary", format_args!("{:?}", shape.vocabulary), rule, hint);
        rules.finish()?;
        let sizes = Sizes {
            p: shape.ranks,
            m: shape.microbatches,
            v,
            q,
            group: shape.group_size,
            group_rule: shape.group_rule,
            memory_limit: shape.memory_limit,
            times: shape.times,
        };
        let mut rules = Rules::new(definition.name);
        (definition.rules)(&sizes, &mut rules);
        rules.finish()?;
        Ok(sizes)
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// A schedule and its split of the output layer: what a name such as `1f1b-vocab2` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Schedule {
    /// The order.
    pub kind: ScheduleKind,
    /// The output layer.
    pub vocabulary: Vocabulary,
}

impl From<ScheduleKind> for Schedule {
    fn from(kind: ScheduleKind) -> Schedule {
        Schedule { kind, vocabulary: kind.definition().vocabulary }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.vocabulary {
            Vocabulary::TwoBarriers => "-vocab1",
            Vocabulary::OneBarrier => "-vocab2",
            Vocabulary::Whole | Vocabulary::Interlaced => "",
        };
        out.pad(&format!("{}{suffix}", self.kind.name()))
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(name: &str) -> Result<Schedule, ScheduleError> {
        let (base, vocabulary) = match (name.strip_suffix("-vocab1"), name.strip_suffix("-vocab2")) {
            (Some(base), _) => (base, Some(Vocabulary::TwoBarriers)),
            (_, Some(base)) => (base, Some(Vocabulary::OneBarrier)),
            _ => (name, None),
        };
        let found = ScheduleKind::ALL.iter().copied().find(|kind| kind.name() == base);
        let fits = |kind: &ScheduleKind| vocabulary.is_none() || kind.takes_vocabulary();
        let kind = found.filter(fits).ok_or_else(|| unknown(name))?;
        Ok(Schedule { kind, vocabulary: vocabulary.unwrap_or(kind.definition().vocabulary) })
    }
}

fn unknown(name: &str) -> ScheduleError {
    let names: Vec<&str> = ScheduleKind::ALL.iter().map(|kind| kind.name()).collect();
    let hint = format!("one of {}; 1f1b and v-half also with -vocab1 or -vocab2", names.join(", "));
    ScheduleError::Unknown { name: name.into(), hint }
}

impl serde::Serialize for Schedule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Schedule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Schedule, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse()
            .map_err(|error: ScheduleError| serde::de::Error::custom(format!("{error}; {}", error.hint())))
    }
}

/// The orders of a schedule. Schedules found by search (`auto`, `zb-1p`, ...) assume the shape's times for every
/// stage and free hops; [`generate_for`] gives them real costs.
///
/// # Errors
/// The rules the shape breaks.
pub fn generate(schedule: impl Into<Schedule>, shape: &ScheduleShape) -> Result<RankOrders, ScheduleError> {
    let schedule = schedule.into();
    let stages = shape.ranks.saturating_mul(schedule.kind.chunks(shape)).min(32_768);
    let times = shape.times;
    let costs = OpCosts::uniform(stages, times.forward, times.input_grad, times.weight_grad);
    generate_for(schedule, shape, &costs)
}

/// The orders of a schedule, laid out for these costs where the schedule can be.
///
/// # Errors
/// The rules the shape breaks, and unusable costs.
pub fn generate_for(
    schedule: impl Into<Schedule>,
    shape: &ScheduleShape,
    costs: &OpCosts,
) -> Result<RankOrders, ScheduleError> {
    let Schedule { kind, vocabulary } = schedule.into();
    let own = kind.definition().vocabulary;
    let vocabulary = if vocabulary == Vocabulary::Whole { shape.vocabulary } else { vocabulary };
    let vocabulary = if vocabulary == Vocabulary::Whole { own } else { vocabulary };
    let sizes = kind.check(&ScheduleShape { vocabulary, ..*shape })?;
    if let Some(split) = kind.definition().vocabulary_orders.filter(|_| vocabulary != own) {
        return assemble(kind, &sizes, vocabulary, split(&sizes, vocabulary));
    }
    let orders = match &kind.definition().orders {
        Generator::PerRank(order) => (0..sizes.p).map(|rank| order(&sizes, rank)).collect(),
        Generator::Whole(orders) => orders(&sizes),
        Generator::Searched(search) => {
            costs.check(sizes.p * sizes.v, sizes.q)?;
            return search(&sizes, costs);
        }
    };
    assemble(kind, &sizes, vocabulary, orders)
}

fn assemble(
    kind: ScheduleKind,
    sizes: &Sizes,
    vocabulary: Vocabulary,
    orders: Vec<Vec<Op>>,
) -> Result<RankOrders, ScheduleError> {
    let placement = kind.definition().placement;
    let stages = sizes.p * sizes.v;
    let parts = OrderParts {
        ranks: sizes.p,
        stages,
        microbatches: sizes.m / placement.pipelines(),
        slices: sizes.q,
        vocabulary,
        placement: placement.ranks_of_stages(sizes.p, stages),
        orders,
    };
    Ok(RankOrders::new(parts)?)
}
