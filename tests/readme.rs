//! The README's console blocks: every `$ ` line is run, and the text below it must be what is printed.
//!
//! `UPDATE_README=1 cargo test --test readme` writes what is printed into the README.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const START: &str = "```console\n";
const END: &str = "```\n";

/// A command of a block: its lines as written, and the text below it.
#[derive(Default)]
struct Step {
    written: String,
    shown: String,
}

impl Step {
    fn command(&self) -> String {
        self.written.trim_start_matches("$ ").replace("\\\n", "")
    }
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.split_inclusive('\n') {
        match steps.last_mut() {
            Some(step) if step.written.ends_with("\\\n") => step.written.push_str(line),
            Some(step) if !line.starts_with("$ ") => step.shown.push_str(line),
            _ => steps.push(Step { written: line.to_owned(), ..Step::default() }),
        }
    }
    steps
}

/// What a command prints, stdout before stderr.
fn run(command: &str, folder: &Path) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_meshwright"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success(), "`{command}` failed:\n{text}");
    text
}

#[test]
fn the_readme_shows_what_its_commands_print() {
    let update = std::env::var_os("UPDATE_README").is_some();
    let readme = fs::read_to_string(README).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut updated = String::new();
    let mut rest = readme.as_str();
    let mut commands = 0;
    while let Some(start) = rest.find(START) {
        let (before, block) = rest.split_at(start + START.len());
        let length = block.find(END).expect("a console block ends");
        updated.push_str(before);
        for step in steps(&block[..length]) {
            let printed = run(&step.command(), folder.path());
            assert!(
                update || step.shown == printed,
                "below {}the README shows\n{}\nprinted was\n{printed}",
                step.written,
                step.shown
            );
            updated.push_str(&step.written);
            updated.push_str(&printed);
            commands += 1;
        }
        rest = &block[length..];
    }
    updated.push_str(rest);
    assert!(commands > 0, "the README shows no commands");
    if update {
        fs::write(README, updated).unwrap();
    }
}
