//! Optimizer and parameter sharding, and what is overlapped.

use super::{FlagRule, fault, say};

pub(super) const RULES: &[FlagRule] = &[
    FlagRule {
        id: "S1",
        statement: "--overlap-param-gather needs --overlap-grad-reduce, and --use-distributed-optimizer or --use-megatron-fsdp",
        broken: |f| {
            let sharded =
                f.has("--use-distributed-optimizer") || f.fsdp() || f.is("--optimizer", "dist_muon");
            let mut lacking = Vec::new();
            if !f.has("--overlap-grad-reduce") {
                lacking.push("--overlap-grad-reduce");
            }
            if !sharded {
                lacking.push("--use-distributed-optimizer");
            }
            let wrong = f.has("--overlap-param-gather") && !lacking.is_empty();
            fault(
                wrong,
                || format!("{} lacking", lacking.join(" and ")),
                || Some(format!("add {}", lacking.join(" "))),
            )
        },
    },
    FlagRule {
        id: "S2",
        statement: "--use-torch-fsdp2 goes with pp 1, ep 1, untied embeddings and bf16, --no-gradient-accumulation-fusion, --ckpt-format torch_dist, and without --use-distributed-optimizer",
        broken: |f| {
            let p = f.parallel;
            let lacking = listed(&[
                (p.pp > 1, "pp above 1"),
                (p.ep > 1, "ep above 1"),
                (f.has("--use-distributed-optimizer"), "--use-distributed-optimizer"),
                (!f.has("--no-gradient-accumulation-fusion"), "gradient accumulation fusion"),
                (!f.has("--untie-embeddings-and-output-weights"), "tied embeddings"),
                (f.has("--fp16"), "--fp16"),
                (
                    !matches!(f.text("--ckpt-format"), None | Some("torch_dist" | "torch_dcp")),
                    "another --ckpt-format",
                ),
                (f.flags.variable(CONNECTIONS) == Some("1"), "CUDA_DEVICE_MAX_CONNECTIONS=1"),
            ]);
            fault(f.has("--use-torch-fsdp2") && !lacking.is_empty(), || lacking.clone(), || None)
        },
    },
    FlagRule {
        id: "S3",
        statement: "--use-megatron-fsdp goes with sgd or adam, --ckpt-format fsdp_dtensor and CUDA_DEVICE_MAX_CONNECTIONS above 1 or unset, and without a weight-hash check when parameters are sharded",
        broken: |f| {
            let sharded =
                matches!(f.text("--data-parallel-sharding-strategy"), None | Some("optim_grads_params"));
            let hash = f.text("--check-weight-hash-across-dp-replicas-interval").is_some();
            let lacking = listed(&[
                (!matches!(f.text("--optimizer"), None | Some("adam" | "sgd")), "another --optimizer"),
                (!f.is("--ckpt-format", "fsdp_dtensor"), "another --ckpt-format"),
                (f.flags.variable(CONNECTIONS) == Some("1"), "CUDA_DEVICE_MAX_CONNECTIONS=1"),
                (sharded && hash, "a weight-hash check"),
            ]);
            fault(
                f.has("--use-megatron-fsdp") && !lacking.is_empty(),
                || lacking.clone(),
                || say("--ckpt-format fsdp_dtensor, CUDA_DEVICE_MAX_CONNECTIONS=8"),
            )
        },
    },
    FlagRule {
        id: "S3a",
        statement: "--ckpt-format fsdp_dtensor is for --use-megatron-fsdp, torch_dcp for --use-torch-fsdp2 without tp and pp",
        broken: |f| {
            let p = f.parallel;
            let dtensor = f.is("--ckpt-format", "fsdp_dtensor") && !f.fsdp();
            let dcp =
                f.is("--ckpt-format", "torch_dcp") && (!f.has("--use-torch-fsdp2") || p.tp > 1 || p.pp > 1);
            fault(
                dtensor || dcp,
                || format!("--ckpt-format {}", f.text("--ckpt-format").unwrap_or_default()),
                || say("--ckpt-format torch_dist works"),
            )
        },
    },
    FlagRule {
        id: "S4",
        statement: "before Blackwell, tp or cp above 1 needs CUDA_DEVICE_MAX_CONNECTIONS=1",
        broken: |f| {
            let set = f.flags.variable(CONNECTIONS);
            let older = f.capability.is_some_and(|capability| capability < 100);
            let lifted =
                f.fsdp() || f.has("--use-torch-fsdp2") || f.has("--overlap-moe-expert-parallel-comm");
            let wrong =
                older && (f.parallel.tp > 1 || f.parallel.cp > 1) && !lifted && set.is_some_and(|n| n != "1");
            fault(
                wrong,
                || format!("CUDA_DEVICE_MAX_CONNECTIONS is {}", set.unwrap_or_default()),
                || say("CUDA_DEVICE_MAX_CONNECTIONS=1 works"),
            )
        },
    },
    FlagRule {
        id: "S5",
        statement: "--tp-comm-overlap needs sequence parallelism (which needs tp above 1)",
        broken: |f| {
            let wrong = f.has("--tp-comm-overlap") && !f.parallel.sequence_parallel;
            fault(wrong, || "--tp-comm-overlap without it".to_owned(), || say("add --sequence-parallel"))
        },
    },
    FlagRule {
        id: "S6",
        statement: "--overlap-moe-expert-parallel-comm needs ep above 1, the alltoall or flex dispatcher, 16-bit training, chunks where pp is above 1, and no full recompute, shared-expert overlap or more than one MTP layer",
        broken: |f| {
            let p = f.parallel;
            let modules = f.flags.words("--recompute-modules");
            let lacking = listed(&[
                (p.ep == 1, "ep 1"),
                (
                    !matches!(f.text("--moe-token-dispatcher-type"), Some("alltoall" | "flex")),
                    "the allgather dispatcher",
                ),
                (!f.has("--bf16") && !f.has("--fp16"), "fp32"),
                (p.pp > 1 && p.vpp == 1, "a pipeline without chunks"),
                (f.is("--recompute-granularity", "full"), "full recompute"),
                (modules.contains(&"moe"), "recompute of `moe`"),
                (f.has("--moe-shared-expert-overlap"), "--moe-shared-expert-overlap"),
                (f.flags.amount("--mtp-num-layers").is_some_and(|n| n > 1), "several MTP layers"),
            ]);
            fault(
                f.has("--overlap-moe-expert-parallel-comm") && !lacking.is_empty(),
                || lacking.clone(),
                || None,
            )
        },
    },
    FlagRule {
        id: "S7",
        statement: "--delay-wgrad-compute needs --overlap-moe-expert-parallel-comm and Transformer Engine's layers",
        broken: |f| {
            let wrong = f.has("--delay-wgrad-compute")
                && (!f.has("--overlap-moe-expert-parallel-comm") || f.is("--transformer-impl", "local"));
            fault(
                wrong,
                || "--delay-wgrad-compute without it".to_owned(),
                || say("add --overlap-moe-expert-parallel-comm"),
            )
        },
    },
    FlagRule {
        id: "S8",
        statement: "--optimizer-cpu-offload and 16- or 8-bit optimizer state need --use-precision-aware-optimizer, which needs adam and --use-distributed-optimizer",
        broken: |f| {
            let aware = f.has("--use-precision-aware-optimizer");
            let formats =
                ["--exp-avg-dtype", "--exp-avg-sq-dtype", "--main-params-dtype", "--main-grads-dtype"];
            let narrow = formats.iter().any(|flag| f.text(flag).is_some_and(|dtype| dtype != "fp32"));
            let lacking = listed(&[
                (!aware && f.has("--optimizer-cpu-offload"), "offload without it"),
                (!aware && narrow, "narrow state without it"),
                (
                    aware && !f.has("--use-distributed-optimizer") && !f.fsdp(),
                    "no --use-distributed-optimizer",
                ),
                (aware && !matches!(f.text("--optimizer"), None | Some("adam")), "another --optimizer"),
            ]);
            fault(
                !lacking.is_empty(),
                || lacking.clone(),
                || say("add --use-precision-aware-optimizer --use-distributed-optimizer"),
            )
        },
    },
    FlagRule {
        id: "S9",
        statement: "muon and its kin work with neither FSDP",
        broken: |f| {
            let emerging = !matches!(f.text("--optimizer"), None | Some("adam" | "sgd"));
            fault(
                emerging && (f.fsdp() || f.has("--use-torch-fsdp2")),
                || format!("--optimizer {}", f.text("--optimizer").unwrap_or_default()),
                || say("--use-distributed-optimizer instead of FSDP works"),
            )
        },
    },
    FlagRule {
        id: "S10",
        statement: "--fake-process-group has no flex dispatcher",
        broken: |f| {
            let wrong = f.has("--fake-process-group") && f.is("--moe-token-dispatcher-type", "flex");
            fault(
                wrong,
                || "--moe-token-dispatcher-type flex".to_owned(),
                || say("--moe-token-dispatcher-type alltoall works"),
            )
        },
    },
    FlagRule {
        id: "P7",
        statement: "--overlap-param-gather-with-optimizer-step needs the distributed optimizer, --overlap-param-gather, chunks, and --ckpt-format torch",
        broken: |f| {
            let lacking = listed(&[
                (!f.has("--use-distributed-optimizer"), "no --use-distributed-optimizer"),
                (!f.has("--overlap-param-gather"), "no --overlap-param-gather"),
                (f.parallel.vpp == 1, "no chunks"),
                (!f.is("--ckpt-format", "torch"), "distributed checkpoints"),
            ]);
            fault(
                f.has("--overlap-param-gather-with-optimizer-step") && !lacking.is_empty(),
                || lacking.clone(),
                || None,
            )
        },
    },
    FlagRule {
        id: "S12a",
        statement: "--num-distributed-optimizer-instances divides dp",
        broken: |f| {
            let instances = f.flags.count("--num-distributed-optimizer-instances")?;
            fault(
                f.dp() > 0 && !f.dp().is_multiple_of(instances),
                || format!("{instances} instances with dp {}", f.dp()),
                || {
                    crate::launch::nearest_divisors(
                        "--num-distributed-optimizer-instances",
                        instances,
                        f.dp(),
                    )
                },
            )
        },
    },
];

const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// The words of what holds, joined; empty if nothing does.
fn listed(conditions: &[(bool, &str)]) -> String {
    let held: Vec<&str> = conditions.iter().filter(|(held, _)| *held).map(|(_, what)| *what).collect();
    held.join(", ")
}
