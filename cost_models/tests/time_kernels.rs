//! Laws of kernel and collective times.

use cluster_profiles::{Bytes, BytesPerSecond, Cluster, FlopsPerSecond, Gpu, GroupShape, Seconds, catalog};
use cost_models::Runtime;
use cost_models::comm::{Collective, Dispatch, Fabric, distinct_destinations};
use cost_models::compute::{
    AttentionShape, ExpertShape, Format, Product, attention_burst, expert_products, experts_burst,
    fused_attention, gemm, gemm_burst, linear_attention, unfused_attention,
};
use cost_models::runtime::{AttentionKernel, ExpertDispatcher, SharedTraits};
use proptest::prelude::*;

const COLLECTIVES: [Collective; 4] =
    [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll];

fn shared() -> SharedTraits {
    Runtime::named("megatron-core").unwrap().shared
}

fn gpus() -> Vec<Gpu> {
    catalog::gpu_names().iter().map(|name| catalog::gpu(name).unwrap()).collect()
}

fn cluster() -> Cluster {
    catalog::cluster("dgx-h100").unwrap().resized(1024).unwrap()
}

/// The same GPU, `factor` times as fast in everything.
fn faster(gpu: &Gpu, factor: f64) -> Gpu {
    let mut gpu = gpu.clone();
    let kernels = &mut gpu.kernels;
    let rates = [&mut kernels.gemm_16bit.rate, &mut kernels.attention.rate];
    for rate in rates.into_iter().chain(kernels.gemm_8bit.iter_mut().map(|curve| &mut curve.rate)) {
        *rate = FlopsPerSecond(rate.get() * factor);
    }
    kernels.stream_bandwidth = BytesPerSecond(kernels.stream_bandwidth.get() * factor);
    gpu
}

/// A causal attention under a sliding window.
fn attention(batch: f64, seq: f64, window: f64) -> AttentionShape {
    let keys = window - window * window / (2.0 * seq);
    AttentionShape { batch, seq, calls: 1.0, keys, heads: 16.0, kv_heads: 4.0, qk_dim: 128.0, v_dim: 128.0 }
}

/// Every kernel of one set of sizes, by name.
fn kernels(gpu: &Gpu, m: f64, n: f64, k: f64) -> Vec<(&'static str, Seconds)> {
    let shared = shared();
    let product = Product { m, n, k };
    let shape = attention(2.0, m, m);
    let experts = ExpertShape { rows: m, hidden: n, ffn: k, matrices: 3.0, experts: 8.0 };
    let flash = fused_attention(gpu, &shared, AttentionKernel::Flash2, 1.0, &shape);
    let stored = unfused_attention(gpu, &shared, AttentionKernel::Unfused, &shape);
    let linear = linear_attention(gpu, m, 16.0, 128.0, 128.0);
    vec![
        ("product", gemm(gpu, &shared, Format::Bits16, product, 2.0)),
        ("8-bit product", gemm(gpu, &shared, Format::Bits8, product, 8.0)),
        ("burst", gemm_burst(gpu, Format::Bits16, product)),
        ("attention burst", attention_burst(gpu, &shape)),
        ("flash forward", flash.forward),
        ("flash backward", flash.backward),
        ("unfused forward", stored.forward),
        ("unfused backward", stored.backward),
        ("linear", linear.forward),
        ("experts", expert_products(gpu, &shared, Format::Bits16, &experts, 2.0)),
        ("experts burst", experts_burst(gpu, Format::Bits16, &experts, m)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn times_are_finite_positive_and_a_faster_gpu_is_never_slower(
        m in 1u32..40_000, n in 1u32..40_000, k in 1u32..40_000, factor in 1.0f64..4.0,
    ) {
        for gpu in gpus() {
            let slow = kernels(&gpu, f64::from(m), f64::from(n), f64::from(k));
            let quick = kernels(&faster(&gpu, factor), f64::from(m), f64::from(n), f64::from(k));
            for ((name, slow), (_, quick)) in slow.into_iter().zip(quick) {
                prop_assert!(slow.get().is_finite() && slow.get() > 0.0, "{} {name} {slow:?}", gpu.name);
                prop_assert!(quick <= slow * (1.0 + 1e-12), "{} {name} {quick:?} {slow:?}", gpu.name);
            }
        }
    }

    #[test]
    fn a_collective_grows_with_its_bytes_and_shrinks_with_its_links(
        bytes in 1.0f64..1e10, ranks in 2u32..64, stride in prop::sample::select(vec![1u32, 2, 4, 8]), factor in 1.0f64..4.0,
    ) {
        let (cluster, shared) = (cluster(), shared());
        let mut quick = cluster.clone();
        quick.groups[0].node.inter.bandwidth = cluster.main().node.inter.bandwidth * factor;
        quick.groups[0].node.intra.bandwidth = cluster.main().node.intra.bandwidth * factor;
        let group = cluster.group_shape(ranks, stride);
        for collective in COLLECTIVES {
            let time = |cluster: &Cluster, bytes: f64| Fabric::new(cluster, &shared).time(collective, Bytes(bytes), group);
            let once = time(&cluster, bytes);
            prop_assert!(once.get() > 0.0 && once.get().is_finite());
            prop_assert!(once <= time(&cluster, bytes * 1.5));
            prop_assert!(time(&quick, bytes) <= once);
        }
    }

    #[test]
    fn sending_one_copy_per_destination_is_never_slower(topk in 1u32..16, domains in 1u32..16, tokens in 1.0f64..1e5) {
        let (cluster, shared) = (cluster(), shared());
        let fabric = Fabric::new(&cluster, &shared);
        let time = |dispatcher| {
            let group = GroupShape { ranks: 8 * domains, per_domain: 8, domains };
            let dispatch = Dispatch { tokens, token_bytes: 14_336.0, topk: f64::from(topk), group_limit: None, group, dispatcher };
            dispatch.time(&fabric, false, Seconds(60e-6))
        };
        if domains > 1 {
            prop_assert!(time(ExpertDispatcher::DeepEp) <= time(ExpertDispatcher::AllToAll) * 1.0001);
        }
        prop_assert!(time(ExpertDispatcher::DeepEp).get() > 0.0);
    }
}

#[test]
fn nothing_takes_no_time() {
    let (cluster, shared, gpu) = (cluster(), shared(), catalog::gpu("h100-sxm-80gb").unwrap());
    let fabric = Fabric::new(&cluster, &shared);
    for collective in COLLECTIVES {
        assert_eq!(fabric.time(collective, Bytes::ZERO, cluster.group_shape(8, 1)), Seconds::ZERO);
        assert_eq!(fabric.time(collective, Bytes(1e9), cluster.group_shape(1, 1)), Seconds::ZERO);
    }
    assert_eq!(fabric.send(Bytes::ZERO, false), Seconds::ZERO);
    let empty = Product { m: 0.0, n: 4096.0, k: 4096.0 };
    assert_eq!(gemm(&gpu, &shared, Format::Bits16, empty, 2.0), Seconds::ZERO);
    let none = attention(0.0, 4096.0, 4096.0);
    assert_eq!(fused_attention(&gpu, &shared, AttentionKernel::Cudnn, 1.0, &none).forward, Seconds::ZERO);
}

/// 256 experts on 8 nodes, 8 picks: 5.25 nodes on average, and no more than there are.
#[test]
fn picks_meet_on_the_same_node() {
    assert!((distinct_destinations(8.0, 8.0) - 5.251).abs() < 1e-3);
    assert!((distinct_destinations(1.0, 8.0) - 1.0).abs() < 1e-12);
    assert!(distinct_destinations(64.0, 8.0) < 8.0);
    assert_eq!(distinct_destinations(0.0, 8.0), 0.0);
}

/// Members of a domain share its interfaces: a group of every eighth rank has one interface each, a group of
/// neighbours the domain's eight (Galvatron's profile of two nodes has 8 to 45 GB/s in that order).
#[test]
fn strided_groups_have_only_their_own_interfaces() {
    let (cluster, shared) = (cluster(), shared());
    let fabric = Fabric::new(&cluster, &shared);
    let bandwidth = |ranks, stride| {
        fabric.remote_bandwidth(Collective::AllGather, cluster.group_shape(ranks, stride)).get()
    };
    assert!((bandwidth(16, 4) / bandwidth(8, 8) - 2.0).abs() < 1e-9);
    assert!(bandwidth(16, 1) > bandwidth(16, 2));
    let time = |stride| fabric.time(Collective::AllReduce, Bytes(1e9), cluster.group_shape(8, stride));
    assert!(time(1) < time(4) && time(4) < time(8));
}

/// A query meets as many keys as a count over the whole sequence says, with a sliding window and without.
#[test]
fn a_window_saves_its_share() {
    let model = cost_models::model::catalog::get("gpt-oss-20b").unwrap();
    let mut windows = std::collections::BTreeSet::new();
    for (_, block) in model.blocks() {
        let cost_models::model::Attention::Standard { window, .. } = block.attention else { continue };
        let most = window.unwrap_or(8192);
        let counted: f64 = (1..=8192_u64).map(|i| i.min(most) as f64).sum::<f64>() / 8192.0;
        let keys = block.attention.visible_keys(8192, true);
        assert!((keys - counted).abs() < 1.0, "{keys} {counted}");
        windows.insert(most);
    }
    assert_eq!(windows.len(), 2);
}
