//! What the project runs on itself. `cargo xtask layers` checks the layering that ARCHITECTURE.md describes.

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod layers;

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let result = match command.as_str() {
        "layers" => layers::check(),
        other => Err(anyhow::anyhow!("unknown task `{other}`; there is: layers")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "a command-line tool")]
            {
                eprintln!("xtask: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
