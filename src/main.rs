//! The `meshwright` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    meshwright::cli::main()
}
