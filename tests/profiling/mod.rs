//! Writes what measurement tools print, and runs imports of it.
#![allow(dead_code)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A folder with files, and the binary run in it.
pub struct Bench {
    pub folder: tempfile::TempDir,
}

/// What an import printed.
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    /// `meshwright WORDS` in the folder.
    pub fn run(&self, words: &str) -> Answer {
        let output = Command::new(env!("CARGO_BIN_EXE_meshwright"))
            .args(words.split_whitespace())
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        Answer {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The JSON answer of `profile import WORDS --out cluster.toml`.
    pub fn import(&self, words: &str) -> serde_json::Value {
        let answer = self.run(&format!("profile import {words} --out cluster.toml --format json"));
        assert_eq!(answer.code, 0, "{words}: {}", answer.stderr);
        serde_json::from_str(&answer.stdout).unwrap()
    }

    /// The error of an import that must fail, and leave no profile.
    pub fn refused(&self, words: &str) -> String {
        let answer = self.run(&format!("profile import {words} --out refused.toml"));
        assert_eq!(answer.code, 1, "{words}: {}{}", answer.stdout, answer.stderr);
        assert!(!self.folder.path().join("refused.toml").exists());
        answer.stderr
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

/// A table of nccl-tests for `points` of (bytes, seconds), as `src/util.cu` prints it.
pub fn nccl_tests(op: &str, hosts: usize, per_host: usize, gpu: &str, points: &[(f64, f64)]) -> String {
    let ranks = hosts * per_host;
    let mut text = format!(
        "# Collective test starting: {op}_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup \
         iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
    );
    for rank in 0..ranks {
        let (host, device) = (rank / per_host, rank % per_host);
        writeln!(
            text,
            "#  Rank {rank:2} Group  0 Pid {:6} on node-{host} device {device:2} [0000:{:02x}:00] {gpu}",
            4000 + rank,
            4 + device
        )
        .unwrap();
    }
    text += "#\n#                                                              out-of-place                       in-place          \n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
    let reduces = op.contains("reduce");
    let factor = cluster_profiles::Collective::ALL
        .into_iter()
        .find(|c| c.name().replace('_', "") == op.replace('_', ""))
        .unwrap()
        .wire_factor(ranks as u32);
    for (size, time) in points {
        let algbw = size / time / 1e9;
        let cell = format!("{:>7.2}  {:>6.2}  {:>6.2}      0", time * 1e6, algbw, algbw * factor);
        let redop = if reduces { "sum" } else { "none" };
        writeln!(
            text,
            "{:>12}  {:>12}  {:>8}  {redop:>6}  {:>6}  {cell}  {cell}",
            *size as u64,
            (*size / 4.0) as u64,
            "float",
            -1
        )
        .unwrap();
    }
    text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 123.4 \n#\n"
}

/// The folder of reference data beside the repository, where there is one.
pub fn shared() -> Option<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder =
        ["../shared/data", "../../shared/data"].map(|p| root.join(p)).into_iter().find(|p| p.exists());
    if folder.is_none() {
        eprintln!("skipped: no ../shared/data here");
    }
    folder
}
