//! The `forebay` binary; everything is in the library beside it.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(forebay_cli::run())
}
