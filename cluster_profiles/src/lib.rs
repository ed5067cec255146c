//! Units, GPUs, links and cluster topology: the hardware a training step runs on.
//!
//! [`Cluster`] is what the rest of meshwright plans for: groups of equal nodes, each node with GPUs of one kind
//! ([`Gpu`]), the links inside it and the links that leave it. Both come from TOML profiles, embedded in the binary
//! ([`catalog`]) or given as a path, and carry the source of every figure.
//!
//! ```
//! let cluster = cluster_profiles::catalog::cluster("dgx-h100")?.resized(64)?;
//! assert_eq!(cluster.gpu_count(), 64);
//! # Ok::<(), cluster_profiles::ProfileError>(())
//! ```

pub mod catalog;
mod cluster;
mod error;
mod gpu;
mod kernels;
mod precision;
pub mod quantity;
mod units;

pub use cluster::{Cluster, GroupShape, Link, MeasuredCollectives, NodeGroup, NodeShape};
pub use error::ProfileError;
pub use gpu::{Figure, Gpu, Rates};
pub use kernels::{AttentionCurve, Basis, CollectiveCurve, GemmCurve, KernelCurves, Provenance};
pub use precision::Precision;
pub use units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};
