//! How long communication takes: collectives inside a domain and across domains, sends, and expert dispatch.
//!
//! A group is known by its [`cluster_profiles::GroupShape`]: how many members it has and how many of them share one NVLink domain. Groups
//! of one axis run at the same time, so the members of a domain share its network interfaces: a group with `i` members
//! in a domain has the bandwidth of `i` interfaces, never more.

mod collective;
mod dispatch;
mod level;

pub use cluster_profiles::Collective;
pub use collective::{Fabric, Way};
pub use dispatch::{Dispatch, distinct_destinations};
