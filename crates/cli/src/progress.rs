//! Progress bars on standard error; silent where that is no terminal, and never on standard output.
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `total` bytes.
pub fn bytes(label: &str, total: u64) -> ProgressBar {
    bar(
        label,
        total,
        "{msg:22} {bar:30} {bytes:>10} of {total_bytes:10} {bytes_per_sec:>14} {eta:>4}",
    )
}

/// A bar over `total` things; zero if it is not known yet.
pub fn things(label: &str, total: u64) -> ProgressBar {
    bar(
        label,
        total,
        "{msg:22} {bar:30} {human_pos:>10} of {human_len:10} {eta:>4}",
    )
}

/// What is being done, without knowing how much of it there is.
pub fn step() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

fn bar(label: &str, total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(label.to_string());
    bar
}
