//! What if: a plan for every point of a grid over the inputs, and what follows from them.
//!
//! [`Study::read`] reads a study file ([`mod@file`]): keys ([`key`]) that every point has, axes ([`axis`]) along which others
//! vary, and points that are left out ([`filter`]). [`run()`] plans the points ([`work`] says which share a search) and writes
//! a line for each to the journal of a folder ([`journal`]), so that a run that is killed goes on where it was. [`Rows`] reads
//! them back, of one folder or of several shards, writes the tables ([`table`]), and [`decide()`] draws conclusions.

pub mod axis;
pub mod decide;
pub mod draft;
pub mod engine;
pub mod file;
pub mod filter;
pub mod goodput;
pub mod hardware;
pub mod journal;
pub mod key;
pub mod library;
pub mod merge;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod row;
pub mod run;
pub mod table;
pub mod value;
pub mod work;

pub use decide::{Decisions, decide};
pub use file::Study;
pub use merge::Rows;
pub use run::{Done, Unwatched, Watch, run};
