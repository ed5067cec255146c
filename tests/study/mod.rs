//! What the tests of studies share.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A small study: 24 points with prices, some of which no layout fits.
pub const SMALL: &str = r#"
name = "small"
title = "Llama-3.1-8B, small"

[base]
model = "llama-3.1-8b"
cluster = "dgx-h100"
tokens = 1e12
offload = "never"
failures.mtbf_gpu = "5 years"
failures.storage_bandwidth = "10 GB/s"

[[axes]]
key = "gpus"
values = [1, 8, 16]

[[axes]]
key = "seq_len"
values = [2048, 4096]

[[axes]]
key = "global_batch"
values = [16, 32]

[[axes]]
key = "cluster.dollars_per_gpu_hour"
values = [2.0, 3.5]
"#;

/// The files of a finished study.
pub const RESULTS: [&str; 3] = ["results.csv", "results.parquet", "decisions.json"];

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path
}

pub fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

pub fn meshwright(arguments: &[&str], folder: &Path) -> Output {
    command(arguments, folder).output().expect("the binary runs")
}

pub fn start(arguments: &[&str], folder: &Path) -> Child {
    let mut command = command(arguments, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

pub fn done(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

/// Header and rows of a table.
pub fn table(path: &Path) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_path(path).expect("results");
    let header = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| row.expect("a row").iter().map(str::to_owned).collect()).collect();
    (header, rows)
}

pub fn assert_same_results(one: &Path, other: &Path) {
    for name in RESULTS {
        let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read(one) == read(other), "{name} differs");
    }
}
