//! Running the binary from outside.

#![allow(clippy::expect_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What the binary answers in a folder.
pub fn meshwright(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// The document on stdout of a run that succeeded.
pub fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}
