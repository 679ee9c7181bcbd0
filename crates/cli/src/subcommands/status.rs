//! `forebay status`: what a running service holds, uses and does; once, or again and again.
use super::status_text::text;
use crate::args::StatusArgs;
use crate::output::{json, lines, print, print_unescaped};
use crate::subcommands::umount::store_named;
use forebay_node::control::{ConnectError, ControlClient, MemberEntry, Rates, Status};
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::mount_table;
use forebay_node::threads::on_signals;
use forebay_node::units::parse_duration;
use forebay_server::delegate::Traffic;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long the service may take to answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a single look waits for figures that are being counted for the first time.
const FIRST_COUNT_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether they are.
const FIRST_COUNT_POLL: Duration = Duration::from_millis(200);

/// To the upper left corner; what is left of the line before; what is left of the screen before.
const HOME: &str = "\x1b[H";
const LINE: &str = "\x1b[K";
const BELOW: &str = "\x1b[J";
const CLEAR: &str = "\x1b[2J";

/// Runs the subcommand.
///
/// # Errors
/// If no service runs on the store, or it does not answer.
pub fn run(args: &StatusArgs) -> Result {
    let store = store_named(&mount_table::all()?, &args.store)?;
    if let Some(interval) = args.watch {
        return watch(args, &store, interval);
    }
    let until = Instant::now() + FIRST_COUNT_LIMIT;
    let mut status = ask(&store, false)?;
    while status.members.iter().any(|m| m.figures.files.is_none()) && Instant::now() < until {
        // A service answers questions only: it cannot tell when its count is done.
        std::thread::sleep(FIRST_COUNT_POLL);
        status = ask(&store, false)?;
    }
    let shown = show(args, &status)?;
    print(shown)
}

fn ask(store: &Path, watched: bool) -> Result<Status> {
    let mut client = match ControlClient::connect(store) {
        Ok(client) => client,
        Err(ConnectError::Silent(failure) | ConnectError::Failed(failure)) => return Err(failure),
        Err(ConnectError::NotRunning) => {
            let shown = store.display();
            let next = match store.file_name().and_then(|name| name.to_str()) {
                // `--watch 1`: what was meant for the flag is taken for the store.
                Some(n) if watched && parse_duration(n).is_ok() && !store.exists() => {
                    format!("if it is an interval, write `--watch={n} STORE`")
                }
                _ => format!("start it with `forebay mount {shown} MOUNTPOINT`"),
            };
            return Err(Failure::new(
                format!("no Forebay service runs on {shown}"),
                next,
            ));
        }
    };
    client.status(REPLY_TIMEOUT)
}

fn show(args: &StatusArgs, status: &Status) -> Result<String> {
    if !args.json {
        return Ok(text(status, args.wide));
    }
    let written = || {
        let mut value = serde_json::to_value(status)?;
        value["total"] = serde_json::to_value(MemberEntry::total(&status.members))?;
        Ok::<_, serde_json::Error>(value)
    };
    json(&written().or_fail("cannot write the status", "report this")?)
}

/// What was counted at a look, by member; and the processes that counted it.
struct StatusSample {
    at: Instant,
    counted: BTreeMap<u16, (u32, Traffic)>,
}

impl StatusSample {
    fn at(status: &Status, at: Instant) -> StatusSample {
        let counted = status.members.iter().map(|m| {
            let number = m.figures.member;
            let pid = status.process_of(number).map_or(0, |p| p.pid);
            (number, (pid, m.figures.traffic))
        });
        StatusSample {
            at,
            counted: counted.collect(),
        }
    }

    /// Puts rates since this look into the next one.
    fn rate(&self, status: &mut Status, next: &StatusSample) {
        let time = next.at.saturating_duration_since(self.at);
        for member in &mut status.members {
            let number = &member.figures.member;
            let (Some((before_pid, before)), Some((pid, now))) =
                (self.counted.get(number), next.counted.get(number))
            else {
                continue;
            };
            if before_pid == pid {
                member.rates = Rates::between(before, now, time);
            }
        }
    }
}

/// Shows the status again and again, until a signal or the end of who reads it.
fn watch(args: &StatusArgs, store: &Path, interval: Duration) -> Result {
    let stop = signals()?;
    let terminal = std::io::stdout().is_terminal() && !args.json;
    let mut last: Option<StatusSample> = None;
    loop {
        let begun = Instant::now();
        let mut status = ask(store, true)?;
        let look = StatusSample::at(&status, Instant::now());
        if let Some(last) = &last {
            last.rate(&mut status, &look);
        }
        let shown = show(args, &status)?;
        let shown = lines(&shown);
        let shown = match (terminal, last.is_some(), args.json) {
            (true, again, _) => redrawn(&shown, again),
            (false, true, false) => format!("\n{shown}"),
            _ => shown.into_owned(),
        };
        last = Some(look);
        if !print_unescaped(&shown)? {
            return Ok(());
        }
        // A signal, or no thread that could tell of one.
        if stop.recv_timeout(interval.saturating_sub(begun.elapsed()))
            != Err(RecvTimeoutError::Timeout)
        {
            return Ok(());
        }
    }
}

/// The text in the place of the one before.
fn redrawn(text: &str, again: bool) -> String {
    let clear = if again { "" } else { CLEAR };
    let lines = text.replace('\n', &format!("{LINE}\n"));
    format!("{clear}{HOME}{lines}{BELOW}")
}

/// Tells when the user has seen enough.
fn signals() -> Result<Receiver<i32>> {
    let (sender, receiver) = channel();
    on_signals(&[SIGINT, SIGTERM], move |signal| {
        // Fails only if the program is ending already.
        let _ = sender.send(signal);
    })?;
    Ok(receiver)
}
