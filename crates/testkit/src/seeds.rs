//! The iteration counts and seeds of randomised tests.
//!
//! | variable | what it does |
//! |---|---|
//! | `SOAK` | the full counts; unset or `0`: the short ones |
//! | `SOAK_DIR` | a directory that keeps what is done of the full counts, so that a run goes on where the one before it stopped |
//! | `SOAK_SECONDS` | how long a fuzzer runs with the full counts (600) |
//! | `FOREBAY_SEED` | this seed alone; for a fuzzer, the first one |
use std::path::PathBuf;
use std::time::Duration;

/// Whether the full counts are asked for.
pub fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|v| v != "0")
}

/// `full` with `SOAK`, else `short`.
pub fn count<T>(short: T, full: T) -> T {
    if is_soak() { full } else { short }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    // Another seed than the one that was asked for would pass for it.
    let number = text.parse();
    Some(number.unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// The seed that `FOREBAY_SEED` names.
pub fn asked_seed() -> Option<u64> {
    number("FOREBAY_SEED")
}

/// How long a fuzzer runs with the full counts.
pub fn fuzz_time() -> Duration {
    Duration::from_secs(number("SOAK_SECONDS").unwrap_or(600))
}

/// Where the test `name` keeps what it has done of the full counts; `None`: nowhere.
pub fn progress_file(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("SOAK_DIR").filter(|_| is_soak())?;
    Some(PathBuf::from(dir).join(format!("{name}.next")))
}

/// Runs the seeds from 0: `short` of them, or with `SOAK` `full`, which go on where they stopped if `SOAK_DIR` is set. With
/// `FOREBAY_SEED` that one alone. A seed that panics is named.
pub fn for_each_seed(name: &str, (short, full): (u64, u64), run: impl Fn(u64)) {
    if let Some(seed) = asked_seed() {
        return run(seed);
    }
    let progress = progress_file(name);
    let done = progress
        .as_ref()
        .and_then(|p| std::fs::read_to_string(p).ok());
    let first: u64 = done.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    for seed in first..count(short, full) {
        with_seed(name, seed, || run(seed));
        if let Some(path) = &progress {
            let written = std::fs::write(path, (seed + 1).to_string());
            written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

/// Runs a test of one seed; the seed is named if it panics.
pub fn with_seed<T>(name: &str, seed: u64, run: impl FnOnce() -> T) -> T {
    let _named = NameIfPanicking { name, seed };
    run()
}

struct NameIfPanicking<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for NameIfPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}: seed {} failed; FOREBAY_SEED={} runs it again",
                self.name, self.seed, self.seed
            );
        }
    }
}
