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
//!
//! # The format of a cluster profile
//!
//! Every quantity is a string with its unit, and every figure has its source. Rates are per GPU and direction. What is
//! marked optional may be left out. Unknown keys are refused; all faults are reported at once, with line and column.
//!
//! ```
//! let profile = r#"
//! name = "lab"
//! aliases = ["our-lab"]                # optional
//! title = "Two nodes of H100 and one of L40S"
//! source = "imported from nccl-tests logs"    # optional: the profile as a whole
//! oversubscription = 2                 # optional: downlinks over uplinks of a leaf switch, 1 for a full fat tree
//! nodes_per_leaf = 2                   # optional: successive nodes that share a leaf switch
//!
//! [[groups]]                           # equal nodes, in rank order
//! gpu = "h100-sxm-80gb"                # a catalogue name, a path to a GPU profile, or a table [groups.gpu]
//! nodes = 2
//! hosts = ["a0", "a1"]                 # optional: node0, node1, ... where absent
//! dollars_per_gpu_hour = 2.5           # optional, with price_source
//! price_source = "contract"
//!
//! [groups.node]
//! gpus = 8                             # of a node
//! domain = 8                           # GPUs that reach each other over `intra`; more than `gpus` in an NVLink rack
//! nics = 8                             # network interfaces (rails) of a node
//! intra = { kind = "nvlink", latency = "3 us", bandwidth = "450 GB/s", source = "datasheet" }
//! inter = { kind = "infiniband", latency = "9.4 us", bandwidth = "400 Gb/s", source = "datasheet" }
//! host = { kind = "pcie", latency = "10 us", bandwidth = "52 GB/s", source = "nvbandwidth" }
//! memory = "2 TB"                      # of the host; optional
//!
//! [[groups]]
//! gpu = "l40s"
//! nodes = 1
//! hosts = ["b0"]
//!
//! [groups.node]
//! gpus = 8
//! domain = 8
//! nics = 2
//! intra = { kind = "pcie", latency = "5 us", bandwidth = "32 GB/s", source = "datasheet" }
//! inter = { kind = "ethernet", latency = "20 us", bandwidth = "50 Gb/s", source = "datasheet" }
//! host = { kind = "pcie", latency = "10 us", bandwidth = "26 GB/s", source = "nvbandwidth" }
//!
//! [[leaves]]                           # optional: takes the place of nodes_per_leaf ([[domains]]: of node.domain)
//! name = "rack-a"
//! hosts = ["a0", "a1"]
//!
//! [[links]]                            # optional: what differs from its tier
//! between = ["a1", "rack-a"]           # host and leaf, host and domain, leaf and "spine", or two hosts
//! rail = 3                             # optional: one network interface
//! broken = true                        # or bandwidth = "...", latency = "..."
//! source = "ibdiagnet"
//!
//! [matrix]                             # optional: measured between hosts, row to column
//! hosts = ["a0", "a1"]
//! bandwidth_gb_per_second = [[0, 47.5], [48.1, 0]]
//! latency_us = [[0, 8], [8.5, 0]]      # optional
//! source = "pairwise send_recv"
//!
//! [measured]                           # optional: bus bandwidth over the whole cluster at once
//! all_reduce = "280 GB/s"
//! all_gather = "270 GB/s"
//! reduce_scatter = "271 GB/s"
//! source = "start-up test"
//!
//! [[collectives]]                      # optional: measured on groups of one shape, stands above the model
//! op = "all_reduce"                    # all_gather, reduce_scatter, all_to_all, send_recv
//! ranks = 16
//! per_domain = 8                       # members that share an NVLink domain
//! latency = "40 us"
//! bandwidth = "360 GB/s"               # busbw of nccl-tests
//! points = [["1 KiB", "39 us"], ["1 GiB", "5.9 ms"]]     # optional: time by size of the full tensor
//! regimes = [                          # optional, read where there are no points: a line per range of sizes
//!     { from = "1 KiB", latency = "39 us", bandwidth = "12 GB/s" },
//!     { from = "4 MiB", latency = "90 us", bandwidth = "360 GB/s" },
//! ]
//! provenance = { basis = "measured", from = "all_reduce_perf.log" }
//!
//! [[layers]]                           # optional: measured layers, stand above the kernel curves
//! kind = "block"                       # head, embedding (with vocab)
//! hidden = 4096
//! heads = 32
//! kv_heads = 8
//! ffn = 14336                          # of an expert, with experts = 128, topk = 8 and, split, ep = 4
//! seq_len = 8192
//! micro_batch = 1
//! tp = 1
//! cp = 1
//! precision = "bf16"
//! forward = "5.1 ms"                   # without collectives
//! input_gradient = "5.6 ms"            # or the whole backward
//! weight_gradient = "4.4 ms"
//! exposed_forward = "0.9 ms"           # optional: what its group's collectives add, nothing overlapped
//! exposed_backward = "1.1 ms"          # the same of the backward
//! saved = "130 MB"                     # optional: kept for the backward
//! provenance = { basis = "measured", from = "probe.json" }
//!
//! [[optimizers]]                       # optional: a measured optimizer step
//! name = "adamw"
//! parameters = 1e9
//! time = "9 ms"
//! provenance = { basis = "measured", from = "probe.json" }
//! "#;
//! let cluster = cluster_profiles::catalog::cluster_from_toml("lab.toml", profile)?;
//! assert_eq!(cluster.gpu_count(), 24);
//!
//! // Written by an importer and read again, it is the same to the bit.
//! let again = cluster_profiles::catalog::cluster_from_toml("again", &cluster.to_toml()?)?;
//! assert_eq!(again, cluster);
//!
//! let topology = cluster_profiles::Topology::new(&cluster)?;
//! let hosts = topology.host("a1").zip(topology.host("b0"));
//! let path = hosts.map(|(a, b)| topology.path(a, b));
//! // Half of 50 Gb/s: with an oversubscription of 2 the uplinks carry half of what the nodes can send.
//! assert_eq!(path.map(|p| p.bandwidth.get()), Some(3.125e9));
//! # Ok::<(), cluster_profiles::ProfileError>(())
//! ```
//!
//! A GPU profile is a file like those of `gpus/`: identity, memory, rates by precision, and the kernel curves whose
//! formulas stand at [`GemmCurve`], [`AttentionCurve`] and [`CollectiveCurve`], each with a [`Provenance`]. `memory` is
//! what a process sees, which is less than the maker's figure.

pub mod anomalies;
pub mod catalog;
mod cluster;
mod error;
mod faults;
pub mod fit;
mod gpu;
mod hosts;
mod kernels;
mod layers;
mod links;
mod measured;
mod precision;
mod profile;
pub mod quantity;
mod read;
pub mod summary;
pub mod topology;
mod units;
mod write;

pub use cluster::{Cluster, GroupShape, Link, NodeGroup, NodeShape};
pub use error::ProfileError;
pub use gpu::{Figure, Gpu, Rates};
pub use kernels::{AttentionCurve, Basis, CollectiveCurve, GemmCurve, KernelCurves, Provenance};
pub use layers::{LayerKind, MeasuredLayer, MeasuredOptimizer};
pub use links::{HostMatrix, HostSet, LinkOverride};
pub use measured::{Collective, MeasuredCollective, MeasuredCollectives, Regime};
pub use precision::Precision;
pub use profile::Loader;
pub use topology::{HostId, Topology};
pub use units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};
