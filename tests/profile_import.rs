//! What each tool prints, read into a profile.

mod profiling;

use profiling::Bench;
use serde_json::Value;

fn node(answer: &Value) -> &Value {
    &answer["cluster"]["groups"][0]["node"]
}

fn strings(value: &Value) -> String {
    value.to_string()
}

#[test]
fn nccl_tests_json_reads_as_its_text_does() {
    let bench = Bench::new();
    let rows: Vec<String> = (12..30)
        .map(|power| {
            let (size, time) = (1_u64 << power, 20.0 + (1_u64 << power) as f64 / 200e3);
            let algbw = size as f64 / time / 1e3;
            format!(
                r#"{{"size":{size},"count":{},"type":"float","redop":"sum","root":"    -1","out_of_place":{{"time":{time:.6},"alg_bw":{algbw:.6},"bus_bw":{:.6},"nwrong":0.0}},"in_place":{{"time":{time:.6},"alg_bw":{algbw:.6},"bus_bw":0.0,"nwrong":0.0}},"actual_iterations":20,"experiment_name":"reduce_scatter_perf"}}"#,
                size / 4,
                algbw * 0.875
            )
        })
        .collect();
    let devices: Vec<String> = (0..8)
        .map(|rank| format!(r#"{{"rank":{rank},"group":0,"pid":1,"hostname":"node-1","device":{rank},"device_hex":"0000:04:00","device_info":"NVIDIA H100 80GB HBM3"}}"#))
        .collect();
    let text = format!(
        r#"{{"version":2,"start_time":"2025-05-01 10:00:00","args":["./reduce_scatter_perf"],"config":{{"nthreads":1,"devices":[{}]}},"results":[{}],"average_bus_bandwidth":{{"bandwidth":1.0,"okay":"unchecked"}},"end_time":"2025-05-01 10:01:00"}}"#,
        devices.join(","),
        rows.join(",")
    );
    bench.write("out.json", &text);
    let answer = bench.import("nccl-tests out.json");
    assert_eq!(answer["curves"][0]["op"], "reduce_scatter");
    assert!(answer["curves"][0]["median_error"].as_f64().unwrap() < 0.01);
    assert!(strings(&answer["curves"][0]["from"]).contains("of 2025-05-01 10:00:00"));
    let cut = bench.write("cut.json", &text[..text.len() / 2]).refused("nccl-tests cut.json");
    assert!(cut.contains("line 1: no valid JSON") && cut.contains("cut"), "{cut}");
    let nan = text.replacen("\"time\":20.020480", "\"time\":\"nan\"", 1);
    assert!(bench.write("nan.json", nan).refused("nccl-tests nan.json").contains("results[0].time"));
}

#[test]
fn old_tables_and_rccl_read_by_their_own_header() {
    let bench = Bench::new();
    let ranks: String = (0..4)
        .map(|r| format!("#   Rank  {r} Pid  53347 on gpu-01 device  {r} [0x0{r}] AMD Instinct MI300X\n"))
        .collect();
    let mut text = format!(
        "# nThread 1 nGpus 4 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n#\n# Using devices\n{ranks}#\n#                                                     out-of-place                       in-place\n#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error\n#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    );
    for power in 10..21 {
        let (size, time) = (1_u64 << power, 30.0 + (1_u64 << power) as f64 / 100e3);
        let algbw = size as f64 / time / 1e3;
        text += &format!(
            "  {size} {} float {time:.2} {algbw:.2} {:.2} 0e+00 {time:.2} {algbw:.2} {:.2} 0e+00\n",
            size / 4,
            algbw * 0.75,
            algbw * 0.75
        );
    }
    text += "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n";
    bench.write("all_gather_perf.txt", text);
    let answer = bench.import("rccl-tests all_gather_perf.txt");
    assert_eq!(
        (answer["curves"][0]["op"].as_str(), answer["curves"][0]["ranks"].as_u64()),
        (Some("all_gather"), Some(4))
    );
    assert_eq!(answer["base"], "mi300x-8x");
}

#[test]
fn osu_needs_the_ranks_and_counts_gathered_tensors_whole() {
    let bench = Bench::new();
    let rows = "# OSU MPI-CUDA Allgather Latency Test v7.3\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n1024 20.0\n4096 22.0\n16384 30.0\n65536 60.0\n262144 180.0\n";
    bench.write("osu.txt", rows);
    assert!(bench.refused("osu osu.txt --base dgx-h100").contains("--ranks"));
    let answer = bench.import("osu osu.txt --base dgx-h100 --ranks 8 --per-node 8");
    let from = answer["cluster"]["collectives"][0]["regimes"][0]["from"].as_f64().unwrap();
    assert_eq!(from, 8192.0);
    bench.write("bw.txt", "# OSU MPI-CUDA Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1048576 45000.0\n4194304 48200.5\n");
    let answer = bench.import("osu bw.txt --base dgx-h100 --per-node 1");
    assert!((node(&answer)["inter"]["bandwidth"].as_f64().unwrap() - 48200.5e6).abs() < 1.0);
    bench.write("gib.txt", "# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MiB/s)\n1048576 45000.0\n");
    assert!(bench.refused("osu gib.txt --base dgx-h100").contains("line 2: (MiB/s)"));
    bench.write(
        "cut.txt",
        "# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1048576 45000.0\n2097152\n",
    );
    assert!(bench.refused("osu cut.txt --base dgx-h100").contains("line 4"));
}

#[test]
fn perftest_prints_mebibytes_whatever_it_calls_them() {
    let bench = Bench::new();
    let table = |unit: &str, value: &str| {
        format!(
            "                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_3\n #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n 2          5000             7.11               6.91   \t\t     3.623\n 8388608    5000             {value}           {value}            0.005\n"
        )
    };
    for (unit, value) in [("MB/sec", "46000.00"), ("MiB/sec", "46000.00"), ("Gb/sec", "385.88")] {
        bench.write("ib.txt", table(unit, value));
        let answer = bench.import("perftest ib.txt --base dgx-h100");
        let rate = node(&answer)["inter"]["bandwidth"].as_f64().unwrap();
        assert!((rate / (46000.0 * 1_048_576.0) - 1.0).abs() < 1e-3, "{unit}: {rate}");
    }
    bench.write("ib.txt", table("GB/sec", "46.0"));
    assert!(bench.refused("perftest ib.txt --base dgx-h100").contains("an unknown unit"));
    bench.write(
        "cut.txt",
        table("MB/sec", "46000.00").rsplit_once("46000.00").unwrap().0.trim_end().to_owned() + "\n",
    );
    assert!(bench.refused("perftest cut.txt --base dgx-h100").contains("line 5: 3 columns"));
}

const TOPO: &str = "\t\u{1b}[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\u{1b}[0m
GPU0\t X \tNV4\tSYS\tSYS\tPXB\tSYS\t0-31\t0
GPU1\tNV4\t X \tSYS\tSYS\tPXB\tSYS\t0-31\t0
GPU2\tSYS\tSYS\t X \tNV4\tSYS\tPXB\t32-63\t1
GPU3\tSYS\tSYS\tNV4\t X \tSYS\tPXB\t32-63\t1
NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\t\t
NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \t\t

Legend:
  X    = Self
";

#[test]
fn topo_m_shows_domains_and_shared_interfaces() {
    let bench = Bench::new();
    bench.write("topo.txt", TOPO);
    let answer = bench.import("nvidia-smi topo.txt --base h100-pcie-8x");
    assert_eq!((node(&answer)["gpus"].as_u64(), node(&answer)["domain"].as_u64()), (Some(4), Some(2)));
    assert_eq!(node(&answer)["nics"], 2);
    assert!(strings(&answer["notes"]).contains("GPU0 and GPU1 share NIC0"), "{}", answer["notes"]);
    let cut = TOPO.split("NIC1\tSYS").next().unwrap();
    assert!(
        bench
            .write("cut.txt", cut)
            .refused("nvidia-smi cut.txt --base dgx-h100")
            .contains("the matrix is cut")
    );
    let odd = TOPO.replace("PXB\tSYS\t0-31", "???\tSYS\t0-31");
    assert!(
        bench.write("odd.txt", odd).refused("nvidia-smi odd.txt --base dgx-h100").contains("line 2: `???`")
    );
}

#[test]
fn nccl_topology_gives_nvlink_pcie_and_interfaces() {
    let bench = Bench::new();
    let gpu = |dev: u32| {
        format!(
            "<pci busid=\"0000:0{dev}:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{dev}\" sm=\"90\" rank=\"{dev}\" gdr=\"1\"><nvlink target=\"0000:05:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
        )
    };
    let text = format!(
        "<system version=\"1\">\n<cpu numaid=\"0\">{}{}<nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" gdr=\"1\"/><net name=\"mlx5_1\" dev=\"1\" speed=\"400000\" gdr=\"1\"/></nic></cpu>\n</system>\n",
        gpu(0),
        gpu(1)
    );
    bench.write("topo.xml", &text);
    let answer = bench.import("nccl-topology topo.xml --base dgx-h100");
    assert_eq!(node(&answer)["intra"]["bandwidth"].as_f64(), Some(450e9));
    assert_eq!(node(&answer)["inter"]["bandwidth"].as_f64(), Some(50e9));
    assert!((node(&answer)["host"]["bandwidth"].as_f64().unwrap() / 63e9 - 1.0).abs() < 0.01);
    assert!(
        bench
            .write("cut.xml", &text[..text.len() - 20])
            .refused("nccl-topology cut.xml --base dgx-h100")
            .contains("line")
    );
}

fn ibnetdiscover() -> String {
    let mut text = "#\n# Topology file: generated on Wed Mar  5 10:00:00 2025\n#\n".to_owned();
    for leaf in 0..2 {
        text += &format!(
            "\nSwitch\t40 \"S-leaf{leaf}\"\t\t# \"MF0;leaf{leaf}:MQM8700/U1\" enhanced port 0 lid {leaf} lmc 0\n"
        );
        for host in 0..4 {
            let name = leaf * 4 + host;
            let speed = if name == 5 { "HDR" } else { "NDR" };
            text += &format!(
                "[{}]\t\"H-{name}\"[1](abc{name}) \t\t# \"node-{name} mlx5_0\" lid 1{name} 4x{speed}\n",
                host + 1
            );
        }
        text += &format!(
            "[37]\t\"S-spine\"[{}]\t\t# \"MF0;spine:MQM8700/U1\" lid 9 4xNDR\n[38]\t\"S-spine\"[{}]\t\t# \"MF0;spine:MQM8700/U1\" lid 9 4xNDR\n",
            leaf + 1,
            leaf + 9
        );
    }
    text += "\nSwitch\t40 \"S-spine\"\t\t# \"MF0;spine:MQM8700/U1\" enhanced port 0 lid 9 lmc 0\n[1]\t\"S-leaf0\"[37]\t\t# \"MF0;leaf0:MQM8700/U1\" lid 0 4xNDR\n[2]\t\"S-leaf1\"[37]\t\t# \"MF0;leaf1:MQM8700/U1\" lid 1 4xNDR\n";
    for name in 0..8 {
        text += &format!(
            "\nCa\t1 \"H-{name}\"\t\t# \"node-{name} mlx5_0\"\n[1](abc{name}) \t\"S-leaf{}\"[1]\t\t# lid 1 lmc 0 \"MF0;leaf:X/U1\" lid 1 4xNDR\n",
            name / 4
        );
    }
    text
}

#[test]
fn ibnetdiscover_gives_leaves_slow_cables_and_oversubscription() {
    let bench = Bench::new();
    bench.write("ib.txt", ibnetdiscover());
    let answer = bench.import("ibnetdiscover ib.txt --base dgx-h100");
    let leaves = answer["cluster"]["leaves"].as_array().unwrap();
    assert_eq!(leaves.len(), 2);
    assert_eq!(leaves[1]["hosts"], serde_json::json!(["node-4", "node-5", "node-6", "node-7"]));
    assert_eq!(
        answer["anomalies"],
        serde_json::json!(["node-5 NIC 0: link at 200 Gb/s where its peers have 400"])
    );
    assert_eq!(answer["cluster"]["oversubscription"].as_f64(), Some(2.0));
    let text = ibnetdiscover();
    let cut = &text[..text.find("\nCa\t1 \"H-6\"").unwrap()];
    assert!(
        bench
            .write("cut.txt", cut)
            .refused("ibnetdiscover cut.txt --base dgx-h100")
            .contains("have no block of their own")
    );
}

#[test]
fn slurm_topologies_name_leaves_and_blocks() {
    let bench = Bench::new();
    bench
        .write("topology.conf", "# comment\nSwitchName=leaf1 Nodes=n[01-04] LinkSpeed=100\nSwitchName=leaf2 \\\n  Nodes=n[05-08]\nSwitchName=spine Switches=leaf[1-2]\n")
        .write("topology.yaml", "- topology: a\n  cluster_default: true\n  block:\n    block_sizes: [4]\n    blocks:\n      - block: b1\n        nodes: n[1-4]\n      - block: b2\n        nodes: n[5-8]\n")
        .write("bad.conf", "SwitchName=leaf1 Nodes=n[01-\n")
        .write("odd.conf", "SwitchName=leaf1 Nodes=n1\nHello World\n");
    let answer = bench.import("slurm topology.conf --base dgx-h100");
    assert_eq!(answer["cluster"]["leaves"][1]["hosts"][0], "n05");
    assert_eq!(answer["cluster"]["groups"][0]["nodes"], 8);
    let answer = bench.import("slurm topology.yaml --base gb200-nvl72");
    assert_eq!(answer["cluster"]["domains"][0]["name"], "b1");
    assert!(bench.refused("slurm bad.conf --base dgx-h100").contains("line 1"));
    assert!(bench.refused("slurm odd.conf --base dgx-h100").contains("line 2: `Hello`"));
}

#[test]
fn logs_of_training_give_step_time_and_memory() {
    let bench = Bench::new();
    let mut megatron = String::new();
    for i in 1..=8 {
        let ms = if i == 1 { 9000.0 } else { 1234.5 };
        megatron += &format!(
            " [2025-03-01 12:00:0{i}] iteration {i:8}/     500 | consumed samples:  128 | elapsed time per iteration (ms): {ms:.1} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.5E-05 | global batch size:   128 | lm loss: nan |\n"
        );
    }
    megatron += "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1000.5 | max allocated: 40960.0 | reserved: 50000.0 | max reserved: 51200.0\n";
    bench.write("m.log", &megatron);
    let run = bench.import("megatron-log m.log --base dgx-h100")["runs"][0].clone();
    assert_eq!((run["step_time_seconds"].as_f64(), run["steps"].as_u64()), (Some(1.2345), Some(5)));
    assert_eq!(run["max_allocated_bytes"].as_f64(), Some(40960.0 * 1_048_576.0));
    let line: String = (1..6).map(|i| format!("\u{1b}[32m[titan] 2025-03-01 12:00:0{i},000 - root - INFO - step: {i}  loss: 10.2  memory: 40.50GiB(42.3%)  tps: 5,43{i}  tflops: 301.13  mfu: 30.4%\u{1b}[39m\n")).collect();
    bench.write("t.log", &line);
    let run = bench.import("torchtitan-log t.log --base dgx-h100")["runs"][0].clone();
    assert_eq!(run["tokens_per_second_per_gpu"].as_f64(), Some(5434.5));
    assert_eq!(run["max_reserved_bytes"].as_f64(), Some(40.5 * 1024.0 * 1_048_576.0));
    assert!(
        bench
            .write("nan.log", megatron.replacen("1234.5", "nan", 1))
            .refused("megatron-log nan.log --base dgx-h100")
            .contains("line 2: `nan`")
    );
    assert!(bench.refused("megatron-log t.log --base dgx-h100").contains("profile import torchtitan-log"));
    assert!(bench.refused("torchtitan-log m.log --base dgx-h100").contains("profile import megatron-log"));
}

#[test]
fn galvatron_files_give_layers_and_bandwidths() {
    let bench = Bench::new();
    bench
        .write("computation_profiling_bf16.json", "{\n\"layernum[2]_bsz8_seq4096\": 100.0,\n\"layertype_0_bsz8_seq4096\": 5.25,\n\"layertype_other_bsz8_seq4096\": 3.0\n}")
        .write("allreduce_bandwidth_2nodes_8gpus_per_node.json", "{\"allreduce_size_16_consec_1\": 160.4, \"allreduce_size_2_consec_0\": 40.2}")
        .write("bad.json", "{\n\"layertype_0_bsz8_seq4096\": \"nan\"\n}");
    let answer =
        bench.import("galvatron computation_profiling_bf16.json --base dgx-a100 --model llama-3.1-8b");
    let layer = &answer["cluster"]["layers"][0];
    assert!((layer["forward"].as_f64().unwrap() - 0.042).abs() < 1e-12, "{layer}");
    let answer = bench.import("galvatron allreduce_bandwidth_2nodes_8gpus_per_node.json --base dgx-a100");
    let shapes: Vec<(u64, u64)> = answer["cluster"]["collectives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["ranks"].as_u64().unwrap(), c["per_domain"].as_u64().unwrap()))
        .collect();
    assert_eq!(shapes, [(16, 8), (2, 1)]);
    assert!(bench.refused("galvatron bad.json --base dgx-a100 --model llama-3.1-8b").contains("line 2"));
}

#[test]
fn a_profiler_trace_gives_the_blocks_times() {
    let bench = Bench::new();
    let mut events = vec![
        r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","ts":0,"dur":100000,"pid":1,"tid":1}"#
            .to_owned(),
    ];
    for block in 0..32_u32 {
        let start = f64::from(block) * 1000.0;
        events.push(format!(r#"{{"ph":"X","cat":"python_function","name":"nn.Module: TransformerBlock_{block}","ts":{start},"dur":900,"pid":1,"tid":1}}"#));
        events.push(format!(r#"{{"ph":"X","cat":"cpu_op","name":"aten::linear","ts":{},"dur":50,"pid":1,"tid":1,"args":{{"Sequence number":{block},"Input Dims":[[1,4096,4096],[4096,4096]]}}}}"#, start + 10.0));
        events.push(format!(r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":{},"dur":5,"pid":1,"tid":1,"args":{{"correlation":{block}}}}}"#, start + 20.0));
        events.push(format!(r#"{{"ph":"X","cat":"kernel","name":"gemm","ts":{start},"dur":1500,"pid":0,"tid":7,"args":{{"correlation":{block}}}}}"#));
        let back = 50_000.0 + start;
        events.push(format!(r#"{{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: MmBackward0","ts":{back},"dur":100,"pid":1,"tid":2,"args":{{"Sequence number":{block}}}}}"#));
        events.push(format!(r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":{},"dur":5,"pid":1,"tid":2,"args":{{"correlation":{}}}}}"#, back + 20.0, 100 + block));
        events.push(format!(r#"{{"ph":"X","cat":"kernel","name":"gemm","ts":{back},"dur":3200,"pid":0,"tid":7,"args":{{"correlation":{}}}}}"#, 100 + block));
    }
    let text = format!("{{\"schemaVersion\":1,\"traceEvents\":[{}]}}", events.join(",\n"));
    bench.write("trace.json", &text);
    let answer = bench.import("torch-trace trace.json --base dgx-h100 --model llama-3.1-8b");
    let layer = &answer["cluster"]["layers"][0];
    assert_eq!((layer["seq_len"].as_u64(), layer["micro_batch"].as_u64()), (Some(4096), Some(1)));
    assert!((layer["forward"].as_f64().unwrap() - 1.5e-3).abs() < 1e-9, "{layer}");
    assert!((layer["input_gradient"].as_f64().unwrap() - 1.6e-3).abs() < 1e-9, "{layer}");
    assert!((answer["runs"][0]["step_time_seconds"].as_f64().unwrap() - 0.1).abs() < 1e-12);
    assert!(
        bench
            .write("cut.json", &text[..text.len() - 100])
            .refused("torch-trace cut.json --base dgx-h100")
            .contains("the file is cut")
    );
    // The plan says what it rests on.
    let words = "estimate --model llama-3.1-8b --cluster cluster.toml --gpus 8 --seq-len 4096 --global-batch 8 --format json";
    let estimate: Value = serde_json::from_str(&bench.run(words).stdout).unwrap();
    assert!(
        strings(&estimate["assumptions"]).contains("layers measured at 1 x 4096 tokens, tp 1, cp 1"),
        "{}",
        estimate["assumptions"]
    );
}

#[test]
fn a_matrix_with_planted_faults_is_told_in_words_and_written_down() {
    let bench = Bench::new();
    let mut csv = "from,to,rail,bandwidth_gb_per_second\n".to_owned();
    let mut state = 9_u64;
    let mut noise = || {
        // Twelve uniform numbers make a normal one.
        let sum: f64 = (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1_u64 << 53) as f64
            })
            .sum();
        1.0 + 0.05 * (sum - 6.0)
    };
    for from in 0..64 {
        for to in (0..64).filter(|to| *to != from) {
            for rail in 0..8 {
                let slow = |host, rail| matches!((host, rail), (17, 3) | (40, 6));
                let base: f64 = if slow(from, rail) || slow(to, rail) { 41.0 } else { 48.5 };
                let base = if (from / 16 == 2) != (to / 16 == 2) { base.min(36.0) } else { base };
                let rate =
                    if rail == 1 && matches!((from, to), (5, 9) | (9, 5)) { 0.0 } else { base * noise() };
                csv += &format!("node-{from},node-{to},{rail},{rate:.3}\n");
            }
        }
    }
    let leaves: String = (0..4)
        .map(|leaf| format!("SwitchName=leaf{leaf} Nodes=node-[{}-{}]\n", leaf * 16, leaf * 16 + 15))
        .collect();
    bench.write("pairs.csv", csv).write("topology.conf", leaves);
    bench.import("slurm topology.conf --base dgx-h100");
    let answer = bench.import("pairs pairs.csv --base cluster.toml");
    let anomalies: Vec<&str> =
        answer["anomalies"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(anomalies.len(), 4, "{anomalies:#?}");
    assert!(anomalies[0].starts_with("uplinks of leaf2: 36 GB/s where its peers have 4"), "{anomalies:#?}");
    assert!(anomalies[1].starts_with("node-17 NIC 3: 41 GB/s where its peers have 4"), "{anomalies:#?}");
    assert!(anomalies[3].starts_with("node-5 to node-9, NIC 1: dead"), "{anomalies:#?}");
    assert_eq!(answer["cluster"]["links"].as_array().unwrap().len(), 4);
    // Half of the hosts: a plan takes none with a slow interface and none behind the slow switch.
    let plan = bench.run(
        "plan --model llama-3.1-70b --cluster cluster.toml --gpus 256 --seq-len 8192 --global-batch 512 --fix \
         tp=8,pp=4,cp=1,schedule=1f1b --format json",
    );
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap_or_else(|_| panic!("{}", plan.stderr));
    let hosts: Vec<String> = serde_json::from_value(plan["placement"]["hosts"].clone()).unwrap();
    let number = |host: &String| host.trim_start_matches("node-").parse::<u32>().unwrap();
    assert_eq!(hosts.len(), 32);
    assert!(!hosts.iter().any(|host| number(host) == 17 || (32..48).contains(&number(host))), "{hosts:?}");
    // Without any topology the slow leaf shows as an island.
    let alone = bench.import("pairs pairs.csv --base dgx-h100");
    assert_eq!(alone["anomalies"].as_array().unwrap().len(), 4, "{}", alone["anomalies"]);
    assert_eq!(alone["cluster"]["leaves"].as_array().unwrap().len(), 2);
}

/// What the probe leaves for a GPT of four blocks on two processes.
fn probe(schema: &str, forward: f64) -> String {
    let layers: Vec<String> = ["block", "head", "embedding"]
        .iter()
        .map(|kind| format!(r#"{{"kind":"{kind}","seq_len":512,"micro_batch":1,"tp":1,"cp":1,"forward_seconds":{forward},"input_gradient_seconds":0.011,"weight_gradient_seconds":0.009,"spread":0.02,"saved_bytes":1000000}}"#))
        .chain(["block", "head", "embedding"].iter().map(|kind| {
            format!(r#"{{"kind":"{kind}","seq_len":512,"micro_batch":1,"tp":2,"cp":1,"forward_seconds":0.007,"input_gradient_seconds":0.006,"weight_gradient_seconds":0.005,"exposed_forward_seconds":0.003,"exposed_backward_seconds":0.004,"spread":0.02,"saved_bytes":600000}}"#)
        }))
        .collect();
    let curves: Vec<String> = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
        .iter()
        .map(|op| {
            let points: Vec<String> = (10..25)
                .map(|p| {
                    format!(
                        r#"{{"bytes":{},"seconds":{:e},"spread":0.03,"samples":20}}"#,
                        1_u64 << p,
                        1e-4 + f64::from(1 << p) / 1e9
                    )
                })
                .collect();
            format!(
                r#"{{"op":"{op}","ranks":2,"stride":1,"per_host":2,"all_groups":true,"points":[{}]}}"#,
                points.join(",")
            )
        })
        .collect();
    format!(
        r#"{{"schema":"{schema}","date":"2025-06-01 08:00:00","torch":"2.9.0","backend":"gloo","device":{{"type":"cpu","name":"AMD EPYC","memory_bytes":12000000000,"multiprocessors":1}},"dtype":"fp32","threads":1,"hosts":["box","box"],"model":{{"name":"gpt","hidden":256,"heads":8,"kv_heads":8,"head_dim":32,"ffn":1024,"gated":false,"vocab":1024,"layers":4}},"gemm":[{{"m":512,"n":256,"k":256,"seconds":0.002}}],"attention":[{{"seq_len":512,"batch":1,"heads":8,"kv_heads":8,"head_dim":32,"seconds":0.004,"backward_seconds":0.01}}],"norm":[{{"tokens":512,"hidden":256,"seconds":0.0002}}],"layers":[{}],"optimizer":[{{"name":"adamw","parameters":3000000,"seconds":0.006}}],"collectives":[{}],"pairs":[],"done":[],"complete":true}}"#,
        layers.join(","),
        curves.join(",")
    )
}

const GPT: &str =
    "layers = 4\nhidden = 256\nheads = 8\nkv_heads = 8\nffn = 1024\nvocab = 1024\nactivation = \"gelu\"\n";

#[test]
fn a_probed_machine_that_no_catalogue_has_is_planned_for() {
    let bench = Bench::new();
    bench.write("probe.json", probe("meshwright-probe-1", 0.013)).write("gpt.toml", GPT);
    let answer = bench.import("probe probe.json");
    assert_eq!(
        (node(&answer)["gpus"].as_u64(), answer["cluster"]["groups"][0]["hosts"][0].as_str()),
        (Some(2), Some("box"))
    );
    assert_eq!(answer["cluster"]["collectives"].as_array().unwrap().len(), 5);
    let words = "estimate --model gpt.toml --cluster cluster.toml --gpus 2 --runtime torch --seq-len 512 --global-batch 8 --precision fp32 --dp-replicate 2 --zero 0 --format json";
    let estimate = bench.run(words);
    let estimate: Value =
        serde_json::from_str(&estimate.stdout).unwrap_or_else(|_| panic!("{}", estimate.stderr));
    // Four microbatches through four blocks, embedding and head, as measured.
    let kernels: f64 = ["matmul", "attention", "other_kernels"]
        .iter()
        .map(|k| estimate["time_seconds"][k].as_f64().unwrap())
        .sum();
    let expected = 4.0 * 6.0 * (0.013 + 0.011 + 0.009);
    assert!((kernels / expected - 1.0).abs() < 0.01, "{kernels} {expected}");
    assert!(strings(&estimate["assumptions"]).contains("layers measured at 1 x 512 tokens"));
    let split = words.replace("--dp-replicate 2", "--tp 2 --sequence-parallel false");
    let split: Value = serde_json::from_str(&bench.run(&split).stdout).unwrap();
    // Eight microbatches through four blocks, embedding and head; the final norm was not measured and moves nothing.
    let traffic = split["time_seconds"]["tp"].as_f64().unwrap();
    assert!((traffic / (8.0 * 6.0 * 0.007) - 1.0).abs() < 1e-9, "{traffic}");
    assert!(strings(&split["assumptions"]).contains("layers measured at 1 x 512 tokens, tp 2"));
    // What a block keeps for its backward is what was seen to be kept.
    let kept = |estimate: &Value| estimate["memory"][0]["activations_bytes"].as_f64().unwrap();
    assert_eq!((kept(&estimate), kept(&split)), (4e6, 4.0 * 600_000.0));
    assert!(
        bench
            .write("old.json", probe("other-1", 0.013))
            .refused("probe old.json")
            .contains("schema is `other-1`")
    );
    assert!(
        bench
            .write("zero.json", probe("meshwright-probe-1", 0.0))
            .refused("probe zero.json")
            .contains("layers[0].forward_seconds")
    );
}

#[test]
fn several_probes_give_the_median_of_each_layer_and_name_the_odd_one() {
    let bench = Bench::new();
    for (file, forward) in [("a.json", 0.013), ("b.json", 0.040), ("c.json", 0.014)] {
        bench.write(file, probe("meshwright-probe-1", forward));
    }
    let answer = bench.import("probe a.json b.json c.json");
    let layers = answer["cluster"]["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 6);
    let block = &layers[0];
    assert_eq!((block["kind"].as_str(), block["forward"].as_f64()), (Some("block"), Some(0.014)));
    // 33, 60 and 34 ms in all: the median distance from 34 is that of the first.
    let (spread, from) =
        (block["provenance"]["median_error"].as_f64().unwrap(), strings(&block["provenance"]["from"]));
    assert!((spread - 1.0 / 34.0).abs() < 1e-9, "{spread}");
    assert!(from.contains("a.json") && from.contains("2 files more, median of all"), "{from}");
    let contradictions = strings(&answer["contradictions"]);
    assert!(contradictions.contains("block of 1 x 512 tokens: probe"), "{contradictions}");
    assert!(contradictions.contains("b.json") && contradictions.contains("82 % slower"), "{contradictions}");
    // What agrees is no contradiction, and a curve of three files is one curve.
    assert!(!contradictions.contains("tp 2") && !contradictions.contains("adamw"), "{contradictions}");
    assert_eq!(answer["cluster"]["collectives"].as_array().unwrap().len(), 5);
    // A file that is given later, over a profile made before, replaces what it measured anew.
    let later = bench.import("probe b.json --base cluster.toml");
    assert_eq!(later["cluster"]["layers"][0]["forward"].as_f64(), Some(0.040));
    assert_eq!(later["cluster"]["layers"].as_array().unwrap().len(), 6);
}

#[test]
fn the_script_holds_the_models_sizes_and_is_python() {
    let bench = Bench::new();
    bench.write("gpt.toml", GPT);
    let answer =
        bench.run("profile script --model gpt.toml --out probe.py --seq-len 512,1024 --tp 1,2,16 --cp 1,2");
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let script = bench.text("probe.py");
    // tp 16 does not divide eight heads.
    assert!(
        script.contains(r#""splits":[[1,1],[1,2],[2,1]]"#),
        "{}",
        script.lines().find(|l| l.contains("splits")).unwrap()
    );
    assert!(!script.contains("@SPEC@"));
    let python = std::process::Command::new("python3")
        .args(["-c", "import ast, sys; ast.parse(open('probe.py').read())"])
        .current_dir(bench.folder.path())
        .output();
    if let Ok(output) = python {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // Experts are split by the degrees that divide them, not by tensor parallelism.
    let moe = bench.run("profile script --model mixtral-8x7b --out moe.py --tp 1,2 --cp 1 --ep 1,2,3,8");
    assert_eq!(moe.code, 0, "{}", moe.stderr);
    let script = bench.text("moe.py");
    let spec = script.lines().find(|line| line.starts_with("SPEC = ")).unwrap();
    for part in [r#""experts":8,"topk":2,"shared_ffn":0"#, r#""splits":[[1,1]],"eps":[2,8]"#] {
        assert!(spec.contains(part), "{spec}");
    }
    let latent = bench.run("profile script --model deepseek-v3 --out latent.py");
    assert!(latent.code == 1 && latent.stderr.contains("no block with plain attention"), "{}", latent.stderr);
}
