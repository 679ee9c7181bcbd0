//! Progress bars on standard error; silent where that is no terminal, and never on standard output.
use crate::output::print_error_line;
use forebay_node::failure::Result;
use forebay_node::server_process::ServerProcess;
use forebay_node::spec::ServerSpec;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar over `total` bytes; zero if it is not known yet.
pub fn bytes(label: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = "{msg:22} {bar:30} {bytes:>10} of {total_bytes:10} {bytes_per_sec:>14} {eta:>4}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(label.to_string());
    bar
}

/// Starts a server, and shows how far it is.
///
/// # Errors
/// What the server says.
pub fn start_server(spec: &ServerSpec, limit: Duration) -> Result<ServerProcess> {
    let bar = step();
    let server = ServerProcess::start(
        spec,
        limit,
        |line| print_error_line(line),
        |step| bar.set_message(step.to_string()),
    );
    bar.finish_and_clear();
    server
}

/// What is being done, without knowing how much of it there is.
fn step() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
