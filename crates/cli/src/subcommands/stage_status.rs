//! `forebay stage status`: running, finished and unfinished stage jobs.
use super::stage::{REPLY_TIMEOUT, connect, with_resume_hint};
use crate::args::StageStatusArgs;
use crate::output::{escaped, json, print, print_error_line};
use crate::subcommands::umount::{store_named, stores};
use crate::table::Table;
use forebay_node::control::{ConnectError, ControlClient, StageJob, StageState};
use forebay_node::failure::Result;
use forebay_node::mount_table;
use forebay_node::units::{count, rate, size};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs the subcommand.
///
/// # Errors
/// If no service runs where one is named, or one does not answer; if the job to cancel does not exist.
pub fn run(args: &StageStatusArgs) -> Result {
    let mounts = mount_table::all()?;
    let mut all: Vec<(PathBuf, Vec<StageJob>)> = Vec::new();
    let mut forgotten = None;
    match &args.store {
        Some(path) => {
            let store = store_named(&mounts, path)?;
            let mut client = connect(&store)?;
            if let Some(job) = args.cancel {
                client.cancel_stage_job(job, REPLY_TIMEOUT)?;
            }
            let mut left = jobs(&mut client, false, &store)?;
            if args.forget {
                let before = unfinished(&left);
                left = jobs(&mut client, true, &store)?;
                let after = unfinished(&left);
                let gone = before.into_iter().filter(|what| !after.contains(what));
                forgotten = Some(gone.collect::<Vec<String>>());
            }
            all.push((store, left));
        }
        None => {
            for store in stores(&mounts) {
                match ControlClient::connect(&store) {
                    Ok(mut client) => match jobs(&mut client, false, &store) {
                        Ok(jobs) => all.push((store, jobs)),
                        // It may end while it is asked.
                        Err(failure) => print_error_line(format!("forebay: {failure}")),
                    },
                    // A dead mount has no jobs; another user's service is not asked.
                    Err(ConnectError::NotRunning | ConnectError::Failed(_)) => {}
                    Err(ConnectError::Silent(failure)) => {
                        print_error_line(format!("forebay: {failure}"))
                    }
                }
            }
        }
    }
    let text = if args.json {
        let shown: Vec<_> = all
            .iter()
            .map(|(store, jobs)| serde_json::json!({ "store": store, "jobs": jobs }))
            .collect();
        let mut value = serde_json::json!({ "services": shown });
        if let Some(forgotten) = forgotten {
            value["forgotten"] = forgotten.into();
        }
        json(&value)?
    } else {
        forgotten.map_or(String::new(), |f| forgotten_text(&f)) + &text(&all)
    };
    print(text)
}

/// What the unfinished ones of these jobs are.
fn unfinished(jobs: &[StageJob]) -> Vec<String> {
    let unfinished = jobs.iter().filter(|j| j.state == StageState::Unfinished);
    unfinished.map(|job| job.what.clone()).collect()
}

/// What was forgotten, one job a line.
fn forgotten_text(forgotten: &[String]) -> String {
    if forgotten.is_empty() {
        return "there was no unfinished stage job to forget\n".into();
    }
    let line = |what: &String| format!("forgot the unfinished stage job {}\n", escaped(what));
    forgotten.iter().map(line).collect()
}

fn jobs(client: &mut ControlClient, forget: bool, store: &Path) -> Result<Vec<StageJob>> {
    with_resume_hint(client.stage_jobs(forget, REPLY_TIMEOUT), store)
}

fn text(all: &[(PathBuf, Vec<StageJob>)]) -> String {
    let mut table = Table::new(&[
        "what", "job", "state", "files", "of", "copied", "of", "kept", "failed", "time", "rate",
    ]);
    let mut rows = 0;
    for job in all.iter().flat_map(|(_, jobs)| jobs) {
        rows += 1;
        let c = &job.counts;
        let more = if c.all_found > 0 { "" } else { "+" };
        let time = Duration::from_secs_f64(job.seconds.max(0.0));
        let state = match job.state {
            StageState::Running => "running",
            StageState::Done => "done",
            StageState::Failed => "some failed",
            StageState::Stopped => "stopped",
            StageState::Unfinished => "unfinished",
        };
        let mut row = vec![job.what.clone()];
        row.push(if job.job == 0 {
            "-".into()
        } else {
            job.job.to_string()
        });
        row.push(state.into());
        if job.state != StageState::Unfinished {
            row.extend([
                count(c.files + c.kept_files),
                format!("{}{more}", count(c.found_files)),
                size(c.bytes),
                format!("{}{more}", size(c.found_bytes)),
                count(c.kept_files),
                count(c.failed),
                format!("{:.1} s", job.seconds),
                rate(c.bytes, time),
            ]);
        }
        table.row(row);
    }
    match (all.len(), rows) {
        (0, _) => {
            "no service of yours is mounted; `forebay mount STORE MOUNTPOINT` starts one\n".into()
        }
        (_, 0) => "no stage jobs\n".into(),
        _ => table.to_string(),
    }
}
