//! The `autohaap` command: see [`autohaap_cli::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    autohaap_cli::run(std::env::args_os()).into()
}
