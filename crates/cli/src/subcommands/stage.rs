//! `forebay stage in` and `stage out`: has the service copy, and shows how far it is.
use super::stage_paths;
use crate::args::StageArgs;
use crate::output::{json, name, print, print_error_line};
use crate::progress;
use forebay_client::stage::{LineKind, ReportLine, StageCounts};
use forebay_node::control::{ControlClient, StageJob, StageSpec, StageState};
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::units::{counted, rate, size};
use indicatif::ProgressBar;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for one answer.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Looks are this part of the job's time so far apart: its end is not seen later than by that part.
const POLL_SHARE: u32 = 32;
const MIN_POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_millis(200);

/// Runs the subcommand.
///
/// # Errors
/// Wrong paths (2); no service, names that failed, a job that was stopped (1).
pub fn run(args: &StageArgs, into: bool) -> Result {
    let resolved = stage_paths::resolve(args, into)?;
    let mut client = connect(&resolved.store)?;
    // The second signal ends this process at once; the service then ends the job.
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, asked.clone())
            .and_then(|_| signal_hook::flag::register(signal, asked.clone()))
            .or_fail("cannot catch signals", "raise the limit on open files")?;
    }
    let spec = StageSpec {
        into,
        pairs: resolved.pairs,
        verify: args.verify,
        sync: !args.no_sync,
        background: args.background,
        jobs: args.jobs.unwrap_or(0),
    };
    let synced = spec.sync;
    let job = with_resume_hint(client.start_stage_job(spec, REPLY_TIMEOUT), &resolved.store)?;
    if args.background {
        let store = name(&resolved.store);
        return match args.json {
            true => print(json(&serde_json::json!({ "job": job }))?),
            false => print(format!(
                "stage job {job} runs in the background; `forebay stage status {store}` shows it\n"
            )),
        };
    }
    let seen = poll_until_done(&mut client, &resolved.store, job, &asked)?;
    print(match args.json {
        true => json(&seen)?,
        false => summary(&seen, into, synced),
    })?;
    outcome(&seen)
}

/// Has the service of `store` copy, and shows how far it is; what was done, in a line. `asked` cancels it.
///
/// # Errors
/// As [`run`].
pub fn copy(spec: StageSpec, store: &Path, asked: &AtomicBool) -> Result<String> {
    let (into, synced) = (spec.into, spec.sync);
    let mut client = connect(store)?;
    let job = with_resume_hint(client.start_stage_job(spec, REPLY_TIMEOUT), store)?;
    let seen = poll_until_done(&mut client, store, job, asked)?;
    outcome(&seen)?;
    Ok(summary(&seen, into, synced))
}

/// Looks at the job until it ends; tells its lines as they come, and gives it with all of them.
fn poll_until_done(
    client: &mut ControlClient,
    store: &Path,
    job: u64,
    asked: &AtomicBool,
) -> Result<StageJob> {
    let bar = progress::bytes("staging", 0);
    let mut lines: Vec<ReportLine> = Vec::new();
    let (since, mut cancelled) = (Instant::now(), false);
    loop {
        if asked.load(Ordering::SeqCst) && !std::mem::replace(&mut cancelled, true) {
            bar.suspend(|| print_error_line("forebay: ending the job; again to leave at once"));
            client.cancel_stage_job(job, REPLY_TIMEOUT)?;
        }
        let from = lines.len();
        let seen = with_resume_hint(client.stage_job(job, from, REPLY_TIMEOUT), store)?;
        show(&bar, &seen.counts);
        if !seen.lines.is_empty() {
            let print_line = |line| print_error_line(format!("forebay: {}", line_text(line)));
            bar.suspend(|| seen.lines.iter().for_each(print_line));
            lines.extend(seen.lines);
        } else if seen.state != StageState::Running {
            bar.finish_and_clear();
            return Ok(StageJob { lines, ..seen });
        } else {
            // The control socket answers questions and sends no word of its own. A signal that cancels is seen after the wait.
            std::thread::sleep((since.elapsed() / POLL_SHARE).clamp(MIN_POLL, MAX_POLL));
        }
    }
}

fn show(bar: &ProgressBar, c: &StageCounts) {
    let done = c.files + c.kept_files;
    let more = if c.all_found > 0 { "" } else { "+" };
    bar.set_message(format!("{done} of {}{more} files", c.found_files));
    bar.set_length(c.found_bytes.max(c.bytes + c.kept_bytes));
    bar.set_position(c.bytes + c.kept_bytes);
}

fn line_text(line: &ReportLine) -> String {
    match line.kind {
        LineKind::Failed => line.text.clone(),
        LineKind::Skipped => format!("skipped {}", line.text),
        LineKind::Note => format!("note: {}", line.text),
    }
}

/// What was done, in a line.
fn summary(seen: &StageJob, into: bool, synced: bool) -> String {
    let c = &seen.counts;
    let time = Duration::from_secs_f64(seen.seconds.max(0.0));
    let mut text = format!(
        "staged {}: {} ({}) in {:.1} s, {}",
        if into { "in" } else { "out" },
        counted(c.files, "file"),
        size(c.bytes),
        seen.seconds,
        rate(c.bytes, time)
    );
    let others = [
        (
            c.kept_files,
            "file kept from an earlier run",
            "files kept from an earlier run",
        ),
        (c.verified_files, "verified", "verified"),
        (c.directories, "directory", "directories"),
        (c.symlinks, "symbolic link", "symbolic links"),
        (c.hard_links, "hard link", "hard links"),
        (c.fifos, "pipe", "pipes"),
        (c.devices, "device", "devices"),
        (c.skipped, "skipped", "skipped"),
        (c.failed, "failed", "failed"),
    ];
    for (n, one, many) in others.into_iter().filter(|(n, ..)| *n > 0) {
        let word = if n == 1 { one } else { many };
        text.push_str(&format!(", {} {word}", forebay_node::units::count(n)));
    }
    if seen.state == StageState::Done && synced {
        text.push_str("; all of it is on disk");
    }
    text.push('\n');
    text
}

fn outcome(seen: &StageJob) -> Result {
    let again = "run the same command again to go on; what is finished is kept";
    match seen.state {
        StageState::Done => Ok(()),
        StageState::Failed => Err(Failure::new(
            format!(
                "{} could not be copied",
                counted(seen.counts.failed, "name")
            ),
            "see the lines above; the same command tries only those again",
        )),
        _ => Err(match &seen.why {
            Some(why) if why.contains("; ") => Failure::plain(why),
            Some(why) => Failure::new(format!("the job was stopped: {why}"), again),
            None => Failure::new(
                "the job broke off",
                "see the service's log, and report this",
            ),
        }),
    }
}

/// A connection to the service of a store.
///
/// # Errors
/// If none runs, or it cannot be asked.
pub fn connect(store: &Path) -> Result<ControlClient> {
    let shown = store.display();
    let not_running = || {
        Failure::new(
            format!("no Forebay service runs on {shown}"),
            format!("start it with `forebay mount {shown} MOUNTPOINT`"),
        )
    };
    ControlClient::connect(store).map_err(|e| e.failure(not_running))
}

/// Adds to a failure of a stage job that the same command goes on later.
///
/// # Errors
/// The failure.
pub fn with_resume_hint<T>(result: Result<T>, store: &Path) -> Result<T> {
    // Most likely the service is ending. Whether it has ended already says nothing more, and changes meanwhile.
    let store = store.display();
    result.map_err(|Failure { code, text }| Failure {
        code,
        text: format!(
            "{text}; once the service runs again (`forebay status {store}`), the same command goes on: what is finished is kept"
        ),
    })
}
