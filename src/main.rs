//! The command line.

use clap::Parser;
use meshwright::cli::validate::{ValidateArgs, run};
use std::process::ExitCode;

#[derive(Parser)]
enum Verb {
    Validate(ValidateArgs),
}

fn main() -> ExitCode {
    let Verb::Validate(args) = Verb::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\n\nhint: {}", error.hint());
            ExitCode::FAILURE
        }
    }
}
