//! Input that is cut, foreign, in other units or absurd: an error with the line, or the right answer.

mod profiling;

use profiling::{Bench, nccl_tests};
use std::fmt::Write;

const GPU: &str = "NVIDIA H100 80GB HBM3";

fn table() -> String {
    let points: Vec<(f64, f64)> = (10..30).map(|p| (2f64.powi(p), 20e-6 + 2f64.powi(p) / 200e9)).collect();
    nccl_tests("all_reduce", 1, 8, GPU, &points)
}

fn refused(text: impl AsRef<[u8]>) -> String {
    Bench::new().write("all_reduce.log", text).refused("nccl-tests all_reduce.log")
}

/// Number of the line that holds the row of `size`.
fn line_of(text: &str, size: u64) -> usize {
    text.lines().position(|line| line.trim_start().starts_with(&format!("{size} "))).unwrap() + 1
}

#[test]
fn a_log_that_is_cut_inside_a_row_is_refused_with_its_line() {
    let text = table();
    let at = text.find("\n     1048576").unwrap();
    let message = refused(&text[..at + 60]);
    assert!(message.contains(&format!("line {}: ", line_of(&text, 1 << 20))), "{message}");
    assert!(message.contains("cut"), "{message}");
}

#[test]
fn a_log_that_is_cut_between_rows_keeps_what_it_has_and_says_so() {
    let text = table();
    let at = text.find("\n     1048576").unwrap();
    let bench = Bench::new();
    bench.write("all_reduce.log", &text[..=at]);
    let answer = bench.import("nccl-tests all_reduce.log");
    assert_eq!(answer["curves"][0]["sizes"], 10);
    assert!(answer["notes"].to_string().contains("may be cut"), "{}", answer["notes"]);
}

#[test]
fn a_log_of_another_tool_is_refused_and_the_right_kind_named() {
    let message =
        refused("# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n8     12.1\n");
    assert!(message.contains("profile import osu"), "{message}");
    assert!(refused("hello\nworld\n").contains("kinds: "));
    assert!(refused("").contains("no header line"));
    assert!(refused([0xff, 0xfe, 0x00, 0x0a]).contains("line 1: no UTF-8"));
}

#[test]
fn rates_in_other_units_are_refused() {
    // algbw in GiB/s: the row no longer agrees with its size and time.
    let text = table();
    let line = text.lines().find(|l| l.trim_start().starts_with("268435456 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let gib = format!("{:.2}", words[6].parse::<f64>().unwrap() / 1.0737);
    let message = refused(text.replace(words[6], &gib));
    assert!(message.contains("the units are not those of nccl-tests"), "{message}");
}

#[test]
fn carriage_returns_change_nothing() {
    let (plain, windows) = (Bench::new(), Bench::new());
    plain.write("all_reduce.log", table());
    windows.write("all_reduce.log", table().replace('\n', "\r\n"));
    let words = "nccl-tests all_reduce.log";
    assert_eq!(plain.import(words), windows.import(words));
    assert_eq!(plain.text("cluster.toml"), windows.text("cluster.toml"));
}

#[test]
fn decimal_commas_and_numbers_that_are_none_are_refused_with_their_line() {
    let text = table();
    let line = text.lines().nth(line_of(&text, 1 << 20) - 1).unwrap().to_owned();
    let time = line.split_whitespace().nth(5).unwrap().to_owned();
    for (bad, says) in [
        (time.replace('.', ","), "LC_ALL=C"),
        ("nan".into(), "no measurement"),
        ("inf".into(), "no measurement"),
    ] {
        let message = refused(text.replace(&line, &line.replacen(&time, &bad, 1)));
        assert!(message.contains(&format!("line {}: ", line_of(&text, 1 << 20))), "{message}");
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn pairs_with_decimal_commas_and_other_units_are_read_or_refused() {
    let bench = Bench::new();
    bench
        .write("comma.csv", "from;to;bandwidth_gb_per_second\na;b;48,5\nb;a;47,5\n")
        .write("bits.csv", "from,to,bandwidth (Gbit/s)\na,b,388\nb,a,380\n")
        .write("mib.csv", "from,to,bandwidth_mib_per_second\na,b,46253.2\nb,a,45299.5\n")
        .write("bare.csv", "from,to,bandwidth\na,b,48.5\n")
        .write("mixed.csv", "from,to,bandwidth_gb_per_second\na,b,48,5\n")
        .write("absurd.csv", "from,to,bandwidth_gb_per_second\na,b,1e9\n")
        .write("thousands.csv", "from;to;bandwidth_mb_per_second\na;b;48,500\nb;a;47,500\n")
        .write("nan.csv", "from,to,bandwidth_gb_per_second\na,b,48\nb,a,nan\n");
    let rate = |file: &str| {
        let answer = bench.import(&format!("pairs {file} --base dgx-h100"));
        answer["cluster"]["groups"][0]["node"]["inter"]["bandwidth"].as_f64().unwrap()
    };
    for file in ["comma.csv", "bits.csv", "mib.csv"] {
        assert!((rate(file) / 48e9 - 1.0).abs() < 0.02, "{file}: {}", rate(file));
    }
    for (file, says) in [
        ("bare.csv", "line 1: `bandwidth` has no unit"),
        ("mixed.csv", "line 2: 4 cells"),
        ("absurd.csv", "line 2: 1e9 is no rate"),
        ("nan.csv", "line 3: `nan` is no measurement"),
        ("thousands.csv", "line 2: `48,500` may be 48.500 or 48500"),
    ] {
        let message = bench.refused(&format!("pairs {file} --base dgx-h100"));
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_log_without_its_command_goes_by_its_name_or_by_its_large_rows() {
    let points: Vec<(f64, f64)> = (3..30).map(|p| (2f64.powi(p), 20e-6 + 2f64.powi(p) / 200e9)).collect();
    let bare = |op: &str| {
        let text = nccl_tests(op, 1, 8, GPU, &points);
        text.split_once('\n').unwrap().1.to_owned()
    };
    let bench = Bench::new();
    bench.write("run1.log", bare("all_reduce")).write("run2-AllGather.txt", bare("all_gather"));
    bench.write("all_reduce.log", bare("all_reduce")).write("all_gather.log", bare("all_gather"));
    bench.write("wrong_all_gather.log", bare("all_reduce")).write("x.log", bare("all_gather"));
    for files in ["run1.log run2-AllGather.txt", "all_reduce.log all_gather.log"] {
        let answer = bench.import(&format!("nccl-tests {files}"));
        let ops: Vec<&str> =
            answer["curves"].as_array().unwrap().iter().map(|c| c["op"].as_str().unwrap()).collect();
        assert_eq!(ops.len(), 2, "{ops:?}");
        assert!(answer["curves"].as_array().unwrap().iter().all(|c| c["sizes"] == 27), "{answer}");
    }
    assert!(bench.refused("nccl-tests x.log").contains("all_gather and alltoall print the same columns"));
    assert!(bench.refused("nccl-tests wrong_all_gather.log").contains("the file's name says all_gather"));
}

#[test]
fn rates_that_no_link_has_are_refused() {
    let points: Vec<(f64, f64)> = (26..34).map(|p| (2f64.powi(p), 1e-9 + 2f64.powi(p) / 20e12)).collect();
    assert!(refused(nccl_tests("all_reduce", 1, 8, GPU, &points)).contains("are the columns in MB/s?"));
    let bench = Bench::new();
    bench.write("pairs.csv", pairs(4, |_, _| Some(48_000.0)));
    let message = bench.refused("pairs pairs.csv --base dgx-h100");
    assert!(message.contains("48 TB/s") && message.contains("MB/s"), "{message}");
}

/// A list of pairs of `hosts` hosts.
fn pairs(hosts: usize, rate: impl Fn(usize, usize) -> Option<f64>) -> String {
    let mut text = "from,to,bandwidth_gb_per_second\n".to_owned();
    for from in 0..hosts {
        for to in (0..hosts).filter(|to| *to != from) {
            if let Some(rate) = rate(from, to) {
                writeln!(text, "node{from},node{to},{rate}").unwrap();
            }
        }
    }
    text
}

#[test]
fn pairs_that_are_missing_are_counted_and_pairs_that_say_nothing_refused() {
    let bench = Bench::new();
    bench
        .write("zero.csv", pairs(8, |_, _| Some(0.0)))
        .write("whole.csv", pairs(16, |_, _| Some(48.0)))
        .write("cut.csv", pairs(16, |from, to| (from * 16 + to < 106).then_some(48.0)))
        .write("one_way.csv", pairs(16, |from, to| (from < to).then_some(48.0)))
        .write("alone.csv", pairs(4, |_, _| Some(48.0)) + "node9,node9,48\n");
    let base = "--base dgx-h100";
    assert!(bench.refused(&format!("pairs zero.csv {base}")).contains("all 56 rates are 0"));
    assert!(bench.refused(&format!("pairs alone.csv {base}")).contains("no pair with node9"));
    let notes = |file: &str| bench.import(&format!("pairs {file} {base}"))["notes"].to_string();
    let cut = notes("cut.csv");
    assert!(cut.contains("141 of 240 pairs are missing"), "{cut}");
    assert!(cut.contains("never a sender: node7, node8"), "{cut}");
    for file in ["whole.csv", "one_way.csv"] {
        assert!(!notes(file).contains("missing"), "{file}");
    }
}

#[test]
fn half_the_hosts_slow_are_named_with_what_the_others_have() {
    let bench = Bench::new();
    bench.write(
        "half.csv",
        pairs(16, |from, to| {
            let noise = 1.0 + 0.03 * (((from * 7 + to * 13) % 11) as f64 / 5.0 - 1.0);
            Some(if from < 8 || to < 8 { 24.0 } else { 48.0 } * noise)
        }),
    );
    let anomalies = bench.import("pairs half.csv --base dgx-h100")["anomalies"].clone();
    let anomalies: Vec<&str> = anomalies.as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(anomalies.len(), 8, "{anomalies:?}");
    for (host, text) in anomalies.iter().enumerate() {
        assert!(
            text.starts_with(&format!("node{host}, all interfaces: 24 GB/s where its peers have 4")),
            "{text}"
        );
    }
}

/// `nvidia-smi topo -m` of four GPUs with `way` between them.
fn topology(way: &str) -> String {
    let mut text = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n".to_owned();
    for row in 0..4 {
        let cells: Vec<&str> = (0..4).map(|column| if column == row { " X " } else { way }).collect();
        writeln!(text, "GPU{row}\t{}\t0-31", cells.join("\t")).unwrap();
    }
    text
}

#[test]
fn a_topology_gives_nominal_rates_that_are_not_called_measured() {
    let bench = Bench::new();
    // NV12 to each of three is more than an A100 has: a switch shares twelve. NV4 to each of three are twelve as well.
    for (way, kind, rate) in [
        ("SYS", "pcie", None),
        ("NV12", "nvlink", Some(300e9)),
        ("NV4", "nvlink", Some(300e9)),
        ("NV1", "nvlink", Some(75e9)),
    ] {
        bench.write("topo.txt", topology(way));
        let answer = bench.import("nvidia-smi topo.txt --base dgx-a100");
        let node = &answer["cluster"]["groups"][0]["node"];
        assert_eq!(node["intra"]["kind"], kind, "{way}");
        let source = node["intra"]["source"].as_str().unwrap();
        assert!(!source.starts_with("measured"), "{way}: {source}");
        assert!(answer["holes"].to_string().contains("link inside the domain"), "{}", answer["holes"]);
        let have = node["intra"]["bandwidth"].as_f64().unwrap();
        match rate {
            Some(rate) => assert_eq!(have, rate, "{way}"),
            None => assert!(have <= 64e9, "{way}: {have}"),
        }
    }
}

#[test]
fn two_runs_of_one_file_that_disagree_are_a_contradiction() {
    let run = |rate: f64| {
        let points: Vec<(f64, f64)> = (10..30).map(|p| (2f64.powi(p), 20e-6 + 2f64.powi(p) / rate)).collect();
        nccl_tests("all_reduce", 1, 8, GPU, &points)
    };
    let bench = Bench::new();
    bench.write("two.log", run(270e9) + &run(115e9)).write("same.log", run(270e9) + &run(270e9));
    let two = bench.import("nccl-tests two.log")["contradictions"].to_string();
    assert!(two.contains("all_reduce over 8 ranks: ") && two.contains("two.log, lines"), "{two}");
    assert_eq!(bench.import("nccl-tests same.log")["contradictions"].as_array().unwrap().len(), 0);
}

#[test]
fn tags_of_mpirun_change_nothing() {
    let (plain, tagged) = (Bench::new(), Bench::new());
    plain.write("all_reduce.log", table());
    let lines: Vec<String> = table().lines().map(|line| format!("[1,0]<stdout>: {line}\n")).collect();
    tagged.write("all_reduce.log", lines.concat());
    let words = "nccl-tests all_reduce.log";
    assert_eq!(plain.import(words), tagged.import(words));
}

#[test]
fn a_test_that_failed_is_said() {
    let text = table();
    let at = text.find("\n     1048576").unwrap() + 1;
    let bench = Bench::new();
    let failure = "node-0: Test NCCL failure common.cu:1279 'unhandled cuda error'\n";
    bench.write("all_reduce.log", text[..at].to_owned() + failure);
    let answer = bench.import("nccl-tests all_reduce.log");
    assert_eq!(answer["curves"][0]["sizes"], 10);
    let says = format!("line {}: the test FAILED", line_of(&text, 1 << 20));
    assert!(answer["notes"].to_string().contains(&says), "{}", answer["notes"]);
}

/// Writes the rows of a log again and again, `lines` in all, and reads it with 600 MB of address space.
fn read_again_and_again(lines: usize) {
    use std::io::Write as _;
    let bench = Bench::new();
    let text = table();
    let (head, rows) = text.split_at(text.find("\n        1024").unwrap() + 1);
    let (rows, tail) = rows.split_at(rows.find('#').unwrap());
    let path = bench.folder.path().join("all_reduce.log");
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    file.write_all(head.as_bytes()).unwrap();
    for _ in 0..lines / rows.lines().count() {
        file.write_all(rows.as_bytes()).unwrap();
    }
    file.write_all(tail.as_bytes()).unwrap();
    file.flush().unwrap();
    let limited = std::process::Command::new("bash")
        .args(["-c", "ulimit -v 600000; exec \"$0\" profile import nccl-tests all_reduce.log --out c.toml --format json"])
        .arg(env!("CARGO_BIN_EXE_meshwright"))
        .current_dir(bench.folder.path())
        .output()
        .unwrap();
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&limited.stdout).unwrap();
    let curve = &answer["curves"][0];
    assert_eq!((curve["sizes"].as_u64(), curve["samples"].as_u64()), (Some(20), Some(lines as u64 / 20)));
    assert!(curve["median_error"].as_f64().unwrap() < 0.01, "{curve}");
    assert!(
        curve["from"].as_str().unwrap().contains(&format!("-{}", lines + head.lines().count())),
        "{curve}"
    );
}

#[test]
fn three_hundred_thousand_lines_are_read_in_bounded_memory() {
    read_again_and_again(300_000);
}

#[test]
#[ignore = "writes 900 MB: cargo test --release --test profile_faults -- --ignored"]
fn ten_million_lines_are_read_in_bounded_memory() {
    read_again_and_again(10_000_000);
}

#[test]
fn a_file_that_ends_inside_a_value_is_refused() {
    let bench = Bench::new();
    let osu = "# OSU MPI-CUDA Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1048576             24012.55\n4194304             2408";
    let csv = pairs(3, |_, _| Some(48.0));
    let perftest = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      5000             23000.10            230";
    bench.write("osu.txt", osu).write("pairs.csv", &csv[..csv.len() - 2]).write("ib.txt", perftest);
    let base = "--base dgx-h100";
    for (words, line) in [
        (format!("osu osu.txt --per-node 1 {base}"), 4),
        (format!("pairs pairs.csv {base}"), 7),
        (format!("perftest ib.txt {base}"), 2),
    ] {
        let message = bench.refused(&words);
        assert!(message.contains(&format!("line {line}: ")), "{words}: {message}");
    }
    // A job that is still running: its last line is left out.
    let line = "step: 5  loss: 10.2  memory: 40.50GiB(42.3%)  tps: 5,432  tflops: 301.13  mfu: 30.4%\n";
    bench.write("run.log", line.repeat(6) + "step: 7  loss: 10.1  memory: 40.50GiB(42.3%)  tps: 5,4");
    let answer = bench.import(&format!("torchtitan-log run.log {base}"));
    assert_eq!(answer["runs"][0]["tokens_per_second_per_gpu"].as_f64(), Some(5432.0));
    assert!(answer["notes"].to_string().contains("ends inside line 7"), "{}", answer["notes"]);
}

#[test]
fn bits_are_not_taken_for_bytes() {
    let bench = Bench::new();
    let rate = |unit: &str, value: f64| {
        bench.write("p.csv", format!("from,to,bandwidth ({unit})\na,b,{value}\nb,a,{value}\n"));
        let answer = bench.import("pairs p.csv --base dgx-h100");
        answer["cluster"]["groups"][0]["node"]["inter"]["bandwidth"].as_f64().unwrap()
    };
    for (unit, value) in
        [("Gb/s", 384.0), ("Gbps", 384.0), ("GB/s", 48.0), ("GBps", 48.0), ("Mbit/s", 384_000.0)]
    {
        assert!((rate(unit, value) / 48e9 - 1.0).abs() < 1e-9, "{unit}");
    }
    bench.write("p.csv", "from,to,bandwidth (gb/s)\na,b,48\nb,a,48\n");
    assert!(
        bench
            .refused("pairs p.csv --base dgx-h100")
            .contains("line 1: `bandwidth (gb/s)` does not tell bits from bytes")
    );
}

#[test]
fn rates_of_point_to_point_tests_that_no_link_has_are_refused() {
    let bench = Bench::new();
    bench
        .write("osu.txt", "# OSU MPI Bandwidth Test v7.3\n# Size  Bandwidth (MB/s)\n4194304  24012550.0\n")
        .write("kib.txt", "# OSU MPI Bandwidth Test v7.3\n# Size  Bandwidth (KB/s)\n4194304  2401.0\n")
        .write("ib.txt", "#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n65536 5000 23000100.0 23000100.0 0.3\n");
    for (words, says) in [
        ("osu osu.txt --base dgx-h100", "line 3: 24 TB/s is no rate of a link"),
        ("osu kib.txt --base dgx-h100", "line 2: (KB/s) is no unit of OSU"),
        ("perftest ib.txt --base dgx-h100", "line 2: 24 TB/s is no rate of a link"),
    ] {
        let message = bench.refused(words);
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn runs_of_one_file_say_how_many_and_how_far_apart() {
    let run = |rate: f64| {
        let points: Vec<(f64, f64)> = (10..30).map(|p| (2f64.powi(p), 20e-6 + 2f64.powi(p) / rate)).collect();
        nccl_tests("all_reduce", 1, 8, GPU, &points)
    };
    let bench = Bench::new();
    bench.write("three.log", run(190e9) + &run(200e9) + &run(210e9)).write("one.log", run(200e9));
    let curve = bench.import("nccl-tests three.log")["curves"][0].clone();
    assert_eq!(curve["samples"], 3);
    let spread = curve["spread"].as_f64().unwrap();
    assert!((0.001..0.06).contains(&spread), "{spread}");
    assert!(curve["from"].as_str().unwrap().contains("3 measurements of a size, spread"), "{curve}");
    let one = bench.import("nccl-tests one.log")["curves"][0].clone();
    assert_eq!((one["samples"].as_u64(), one["spread"].as_f64()), (Some(1), None));
}

#[test]
fn topologies_and_profiles_of_absurd_numbers_or_depth_are_refused() {
    let bench = Bench::new();
    let node = |speed: &str, count: &str| {
        format!(
            "<system version=\"1\">\n<cpu>\n<pci link_speed=\"{speed}\" link_width=\"16\">\n<gpu sm=\"90\">\n<nvlink count=\"{count}\"/>\n</gpu></pci></cpu></system>\n"
        )
    };
    bench
        .write("deep.xml", "<a>".repeat(200_000))
        .write("nan.xml", node("NaN", "18"))
        .write("negative.xml", node("32.0 GT/s PCIe", "-3"))
        .write("whole.xml", node("32.0 GT/s PCIe", "18"))
        .write("mb.json", "{\n\"allreduce_size_8_consec_1\": 160400\n}")
        .write("long.json", "{\n\"layertype_0_bsz8_seq4096\": 1e300\n}")
        .write(
            "fast.txt",
            "# OSU MPI Allreduce Latency Test v7.3\n# Size  Avg Latency(us)\n1048576  0.001\n",
        );
    for (words, says) in [
        ("nccl-topology deep.xml", "128 deep"),
        ("nccl-topology nan.xml", "line 3: link_speed of <pci> is NaN"),
        ("nccl-topology negative.xml", "line 5: count of <nvlink> is -3"),
        ("galvatron mb.json", "line 2: allreduce_size_8_consec_1: 160 TB/s is no rate of a link"),
        ("galvatron long.json --model llama-3.1-8b", "line 2: layertype_0_bsz8_seq4096: 1e300 ms"),
        ("osu fast.txt --ranks 8 --per-node 8", "line 3: 1835 TB/s is no rate of a link"),
    ] {
        let message = bench.refused(&format!("{words} --base dgx-h100"));
        assert!(message.contains(says), "{words}: {message}");
    }
    bench.import("nccl-topology whole.xml --base dgx-h100");
}
