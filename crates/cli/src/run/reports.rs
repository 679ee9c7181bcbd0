//! The reports of the servers of a launched job, read line by line; they show how each server ended.
//!
//! Invariant: a server that has reported neither a stop nor a failure counts as dead.
use crate::output::print_error_line;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::process_handle::ProcessHandle;
use forebay_node::spec::{MemberLocation, ServerReport, host};
use forebay_node::threads::spawn;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::ChildStdout;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// After one server has reported a failure, the others may still report what led to it.
const CAUSE_WAIT: Duration = Duration::from_millis(500);

/// How long what a launcher has passed on may take to be read, once it has ended.
const OUTPUT_END_LIMIT: Duration = Duration::from_secs(5);

/// What a launched job is waited for.
enum LauncherEvent {
    Report(ServerReport),
    /// Nobody holds the launcher's output any more.
    OutputEnded,
    /// The process of the launcher has ended.
    Ended,
}

/// The reports as they come.
pub struct Reports {
    events: Receiver<LauncherEvent>,
    /// What came after the servers were ready.
    late: Vec<ServerReport>,
    output_ended: bool,
    /// Readable, as at its end, once a server stops before the command has ended.
    stopping: OwnedFd,
}

impl Reports {
    /// Reads the standard output of a launcher. A death is told at once, on standard error.
    ///
    /// # Errors
    /// If there is no thread or descriptor to be had.
    pub fn read(launcher: ProcessHandle, output: ChildStdout) -> Result<Reports> {
        let (sender, events) = mpsc::channel();
        let ended = sender.clone();
        spawn("launcher end", "a thread", move || {
            while !launcher.wait(Duration::MAX) {}
            // Nobody waits for it any more.
            let _ = ended.send(LauncherEvent::Ended);
        })?;
        let (stopping, running) = std::io::pipe()
            .or_fail("cannot follow the servers", "raise the limit on open files")?;
        spawn("server reports", "a thread", move || {
            let mut notices = Notices::default();
            let mut running = Some(running);
            for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                match serde_json::from_str::<ServerReport>(&line) {
                    Ok(report) => {
                        if let Some(text) = notices.of(&report) {
                            print_error_line(format!("forebay: {text}"));
                        }
                        if let ServerReport::Stopping { .. } = report {
                            drop(running.take());
                        }
                        // Nobody waits for it any more.
                        let _ = sender.send(LauncherEvent::Report(report));
                    }
                    // What the launcher itself has to say.
                    Err(_) => print_error_line(line),
                }
            }
            let _ = sender.send(LauncherEvent::OutputEnded);
        })?;
        Ok(Reports {
            events,
            late: Vec::new(),
            output_ended: false,
            stopping: stopping.into(),
        })
    }

    /// Becomes readable once a server stops before the command has ended.
    ///
    /// # Errors
    /// Without a descriptor to be had.
    pub fn stopping(&self) -> Result<OwnedFd> {
        self.stopping
            .try_clone()
            .or_fail("cannot follow the servers", "raise the limit on open files")
    }

    fn event(&self, until: Instant) -> Result<LauncherEvent, RecvTimeoutError> {
        let left = until.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left)
    }

    /// The next one, within the time; none comes any more once the output has ended.
    pub fn next(&mut self, until: Instant) -> Result<ServerReport, RecvTimeoutError> {
        while !self.output_ended {
            match self.event(until)? {
                LauncherEvent::Report(report) => return Ok(report),
                LauncherEvent::OutputEnded => self.output_ended = true,
                LauncherEvent::Ended => {}
            }
        }
        Err(RecvTimeoutError::Disconnected)
    }

    /// Waits until a report comes, the output ends or the launcher does, `until` at most.
    pub fn wait_for_news(&mut self, until: Instant) {
        let first = self.event(until).ok();
        for event in first.into_iter().chain(self.events.try_iter()) {
            match event {
                LauncherEvent::Report(report) => self.late.push(report),
                LauncherEvent::OutputEnded => self.output_ended = true,
                LauncherEvent::Ended => {}
            }
        }
    }

    /// The failure that others only follow from, if it is reported soon.
    pub fn wait_for_root_cause(&mut self, mut failure: Failure, mut follows: bool) -> Failure {
        let end = Instant::now() + CAUSE_WAIT;
        while follows && let Ok(report) = self.next(end) {
            if let ServerReport::Failed(failed) = report
                && !failed.follows
            {
                (failure, follows) = (failed.failure, false);
            }
        }
        failure
    }

    /// `first` and those that report the same soon, sorted.
    pub fn hosts_that_cannot_run(&mut self, first: String) -> Vec<String> {
        let (mut hosts, end) = (vec![first], Instant::now() + CAUSE_WAIT);
        while let Ok(report) = self.next(end) {
            if let ServerReport::CannotRun { host, .. } = report {
                hosts.push(host);
            }
        }
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Whether such a report came since all were ready.
    pub fn any(&self, wanted: impl Fn(&ServerReport) -> bool) -> bool {
        self.late.iter().any(wanted)
    }

    /// How the servers ended; the launcher has.
    ///
    /// # Errors
    /// That some died, or else the first failure of one.
    pub fn ending(&mut self, locations: &[MemberLocation]) -> Result {
        // Whatever still holds the launcher's output is not waited for.
        let end = Instant::now() + OUTPUT_END_LIMIT;
        while !self.output_ended && Instant::now() < end {
            self.wait_for_news(end);
        }
        ending(&self.late, locations)
    }
}

/// What is told on standard error: each death once, and that the service stops.
#[derive(Default)]
struct Notices {
    locations: Vec<MemberLocation>,
    told_dead: BTreeSet<u16>,
    told_stop: bool,
}

impl Notices {
    fn of(&mut self, report: &ServerReport) -> Option<String> {
        match report {
            ServerReport::AllReady(locations) => self.locations = locations.clone(),
            ServerReport::Died(member)
                if !self.locations.is_empty() && self.told_dead.insert(*member) =>
            {
                let location = self
                    .locations
                    .iter()
                    .find(|location| location.member == *member);
                let how = match location.is_none_or(|location| location.host == host()) {
                    true => "has died",
                    false => "has died, or its host cannot be reached",
                };
                return Some(format!(
                    "{} {how}; what needs it fails with EIO, all else goes on",
                    names(&self.locations, &BTreeSet::from([*member]))
                ));
            }
            ServerReport::Stopping { member, why } if !self.told_stop => {
                self.told_stop = true;
                return Some(format!(
                    "{} stops while the command runs ({why}); so the command is ended",
                    names(&self.locations, &BTreeSet::from([*member]))
                ));
            }
            _ => {}
        }
        None
    }
}

/// See [`Reports::ending`].
fn ending(reports: &[ServerReport], locations: &[MemberLocation]) -> Result {
    let mut dead: BTreeSet<u16> = BTreeSet::new();
    let mut silent: BTreeSet<u16> = locations.iter().map(|location| location.member).collect();
    let mut failures = Vec::new();
    for report in reports {
        match report {
            ServerReport::Died(member) => drop(dead.insert(*member)),
            ServerReport::Stopped(member) => drop(silent.remove(member)),
            ServerReport::Failed(failed) => failures.push(failed.failure.clone()),
            _ => {}
        }
    }
    dead.extend(&silent);
    if !dead.is_empty() {
        let here =
            |location: &MemberLocation| location.host == host() || !dead.contains(&location.member);
        let next = "start again on the same stores: what was committed is in them";
        let next = match locations.iter().all(here) {
            true => next.to_string(),
            false => format!(
                "one whose host could not be reached stops by itself once it hears no other server for --deadline, and its mount \
                 gives errors until then; {next}"
            ),
        };
        return Err(Failure::new(
            format!("{} ended before its time", names(locations, &dead)),
            next,
        ));
    }
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// These members and where they were.
fn names(locations: &[MemberLocation], members: &BTreeSet<u16>) -> String {
    if members.len() == locations.len() && members.len() > 1 {
        return format!("each of the {} servers", locations.len());
    }
    let name = |member: &u16| match locations.iter().find(|location| location.member == *member) {
        Some(location) => format!("the server of member {member} on {}", location.host),
        None => format!("the server of member {member}"),
    };
    members.iter().map(name).collect::<Vec<_>>().join(", and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations() -> Vec<MemberLocation> {
        let location = |member| MemberLocation {
            member,
            host: format!("node{member}"),
            mount: "/m".into(),
            pid: 7,
        };
        (0..3).map(location).collect()
    }

    fn failed(text: &str) -> ServerReport {
        ServerReport::Failed(Failure::plain(text).into())
    }

    #[test]
    fn who_says_nothing_has_died() {
        let stopped =
            |members: &[u16]| members.iter().copied().map(ServerReport::Stopped).collect();
        let end = |reports: Vec<ServerReport>| ending(&reports, &locations()).map_err(|f| f.text);
        assert_eq!(end(stopped(&[2, 0, 1])), Ok(()));
        let one = end(stopped(&[2, 0])).unwrap_err();
        assert!(one.contains("member 1 on node1 ended before"), "{one}");
        let all = end(Vec::new()).unwrap_err();
        assert!(all.contains("each of the 3 servers"), "{all}");
        let mut full: Vec<ServerReport> = stopped(&[0, 1, 2]);
        full.insert(1, failed("disk is full"));
        assert_eq!(end(full).unwrap_err(), "disk is full");
        // What the others could not do without it is not the cause.
        let mut echo: Vec<ServerReport> = stopped(&[0, 2]);
        echo.splice(1..1, [failed("echo"), ServerReport::Died(1)]);
        assert!(end(echo).unwrap_err().contains("member 1 on node1"));
    }

    #[test]
    fn a_death_is_told_once_with_its_host() {
        let mut notices = Notices::default();
        assert_eq!(notices.of(&ServerReport::Died(1)), None);
        notices.of(&ServerReport::AllReady(locations()));
        let text = notices.of(&ServerReport::Died(1)).unwrap();
        assert!(text.contains("member 1 on node1 has died, or"), "{text}");
        assert_eq!(notices.of(&ServerReport::Died(1)), None);
        assert!(notices.of(&ServerReport::Died(2)).is_some());
        let stops = |member, why: &str| ServerReport::Stopping {
            member,
            why: why.into(),
        };
        let text = notices.of(&stops(1, "signal 15")).unwrap();
        assert!(
            text.contains("member 1 on node1 stops while") && text.contains("(signal 15)"),
            "{text}"
        );
        // The others only follow.
        assert_eq!(notices.of(&stops(0, "member 1 stops: signal 15")), None);
    }
}
