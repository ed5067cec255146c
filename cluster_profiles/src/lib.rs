//! Units, GPUs, links and cluster topology.
