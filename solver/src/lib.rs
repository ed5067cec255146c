//! Which layout to run, and a proof of how good it is.
//!
//! [`solve()`] answers a [`Problem`]: a model, a cluster, a workload, an engine, and what the plan is to be best at.
//!
//! ```
//! use cluster_profiles::{Precision, catalog};
//! use cost_models::{Optimizer, Runtime, Workload};
//! use solver::{Outcome, Problem, Silent, Status, solve};
//!
//! let model = cost_models::model::catalog::get("llama-3.1-8b")?;
//! let cluster = catalog::cluster("dgx-h100")?.resized(16)?;
//! let workload = Workload { global_batch: 64, seq_len: 4096, precision: Precision::Bf16, optimizer: Optimizer::Adamw,
//!     gradient_dtype: None, expert_imbalance: 1.0 };
//! let runtime = Runtime::named("megatron-core")?;
//! let Outcome::Solved(plan) = solve(&Problem::new(&model, &cluster, &workload, &runtime), &Silent)? else {
//!     panic!("8B fit on 16 GPUs")
//! };
//! assert_eq!(plan.parallel.world_size(), 16);
//! assert_eq!(plan.certificate.status, Status::Optimal);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How: a layout is chosen in three steps, each with a bound that no choice after it can beat.
//!
//! 1. [`space`] lists every [`mesh::Mesh`]: the degrees that fill GPUs and batch, by the rules of the engine
//!    ([`cost_models::rules`]) and what the caller fixed ([`constraint`]). A mesh is bounded by the work of a microbatch
//!    ([`times`]), and left out where not even the average rank can fit ([`bytes`]).
//! 2. A [`mesh::Pipeline`] adds schedule, chunks and recompute; [`bound`] knows the least time of any split of the layers.
//! 3. [`leaf`] splits the layers over the stages: all contiguous splits by rising bound ([`partition`], and once more as an
//!    integer program in [`ilp`]) for one stage per rank, all balanced ones ([`families`]) for several. [`judge`] takes
//!    the sharding with least traffic that fits, lets every stage choose what it repeats where the engine can ([`strategy`]), and
//!    simulates the step.
//!
//! Engines whose blocks may differ have a search of their own ([`layerwise`]).
//!
//! [`search`] looks at the nodes with the smallest bound first and stops when none is below the best value: that is the
//! [`Certificate`]. What it answers with is predicted in full ([`candidate`]). [`pareto`] repeats it under other limits. If
//! nothing fits, [`infeasible`] says which term is too large, and what would help.

mod any_split;
pub mod bound;
mod by_order;
pub mod bytes;
pub mod candidate;
pub mod certificate;
mod chain_costs;
mod choices;
pub mod constraint;
mod copy_bound;
pub mod divisors;
pub mod expand;
mod expand_mesh;
pub mod families;
pub mod family;
mod gauge;
pub mod highs;
pub mod ilp;
pub mod infeasible;
pub mod judge;
mod layer_works;
pub mod layerwise;
pub mod leaf;
mod loop_bound;
pub mod mesh;
pub mod mesh_layouts;
pub mod mixed;
pub mod module_choices;
pub mod node;
pub mod objective;
pub mod observer;
pub mod orders;
pub mod outside;
pub mod pareto;
pub mod partition;
pub mod placement;
pub mod problem;
pub mod relaxed;
pub mod schedule_ilp;
pub mod search;
pub mod solution;
pub mod solve;
pub mod space;
mod split_bound;
pub mod split_list;
pub mod splits;
pub mod strategy;
pub mod tables;
pub mod term;
pub mod times;
pub mod units;
mod within;

pub use certificate::{Certificate, Minimised, Status};
pub use constraint::{ConstraintError, Constraints};
pub use infeasible::Infeasible;
pub use objective::Objective;
pub use observer::{Observer, Progress, Silent};
pub use problem::{Problem, ProblemError};
pub use solution::{Alternative, Outcome, Solution};
pub use solve::solve;
