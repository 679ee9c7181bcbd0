//! The coordinator of one stage job, at the server that a client asked: it has every server copy its part, adds up the results, and
//! finishes the job.
//!
//! Invariants: when one part stops, all do. A member that no longer answers stops the job. While the job is being finished, the
//! other servers keep their parts, so that an ordinary stop of one of them is refused.
use super::job_part::JobPart;
use crate::server_rpc::messages::{PartProgress, PartRequest, PartSpec};
use crate::server_rpc::{PeerRequest, ServerRpc};
use forebay_client::stage::{PartSummary, StageCounts, StageOutcome, StopReason};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long another server may take to start its part (it reads what an earlier run has left), or to answer.
const PART_REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The parts of other servers are asked for their progress, which tells them too that their coordinator lives. The pause between two
/// rounds is this part of the time that the job, or the wait for other servers at its end, has taken: an end is seen later by that part at
/// most.
const POLL_SHARE: u32 = 32;
const MIN_POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_millis(250);
/// Advice in the error of an interrupted job.
const HOW_TO_GO_ON: &str =
    "the same command goes on once all servers run; what is finished is kept";

/// See the head of this file.
pub struct Coordinator<'a> {
    /// The part of this server, which has not begun.
    pub part: &'a std::sync::Arc<JobPart>,
    /// The way to the other servers.
    pub rpc: &'a ServerRpc,
    /// What all parts of other servers have done.
    pub elsewhere: &'a Mutex<StageCounts>,
    /// Lines in one answer.
    pub lines: usize,
}

/// A part at another server.
#[derive(Default)]
struct RemotePart {
    lines: usize,
    counts: StageCounts,
    left: Option<PartSummary>,
    /// Ended, and all its lines are here.
    ended: bool,
    lost: bool,
}

impl RemotePart {
    fn is_finished(&self) -> bool {
        self.ended || self.lost
    }
}

impl Coordinator<'_> {
    /// Runs the job to its end. `spec` is what the other servers are told.
    pub fn run(&self, spec: PartSpec) -> StageOutcome {
        let mut others = self.start(spec);
        if let Err(why) = self.part.start() {
            self.part.report.fatal(why);
        }
        self.parts(&mut others);
        let outcome = self.end(&mut others);
        let done = outcome == StageOutcome::Done;
        let asked = others.iter().filter(|(_, other)| !other.lost);
        let job = self.part.job;
        self.tell(
            asked.map(|(member, _)| *member),
            PartRequest::End { job, done },
        );
        outcome
    }

    fn start(&self, spec: PartSpec) -> BTreeMap<u16, RemotePart> {
        let said = self.tell(self.rpc.others(), PartRequest::Start(Box::new(spec)));
        let part = |(member, said): (u16, Result<(), String>)| {
            let lost = said.map_err(|why| self.part.report.fatal(why)).is_err();
            let part = RemotePart {
                lost,
                ..RemotePart::default()
            };
            (member, part)
        };
        said.into_iter().map(part).collect()
    }

    /// Until every part has ended, here and elsewhere.
    fn parts(&self, others: &mut BTreeMap<u16, RemotePart>) {
        let (mut since, mut ended, mut cancelled) = (Instant::now(), false, false);
        loop {
            let pause = (since.elapsed() / POLL_SHARE).clamp(MIN_POLL, MAX_POLL);
            if self.pause(pause, others) && !std::mem::replace(&mut ended, true) {
                since = Instant::now();
            }
            if self.part.report.stopped() && !std::mem::replace(&mut cancelled, true) {
                self.cancel(others);
            }
            if ended && others.values().all(RemotePart::is_finished) {
                return;
            }
            self.poll_parts(others);
        }
    }

    /// Waits a little, or until the own part has ended; whether it has.
    fn pause(&self, pause: Duration, others: &BTreeMap<u16, RemotePart>) -> bool {
        let ended = self.part.ended();
        match others.values().all(RemotePart::is_finished) {
            true => self.part.wait(None),
            false if ended => {
                // The parts that still run are on other servers, which answer questions and send no word of their own.
                std::thread::sleep(pause);
                true
            }
            false => self.part.wait(Some(pause)),
        }
    }

    /// Finishes the job, while the other servers are still polled.
    fn end(&self, others: &mut BTreeMap<u16, RemotePart>) -> StageOutcome {
        let report = &self.part.report;
        let Some(mut parts) = self.part.take() else {
            return StageOutcome::Stopped;
        };
        if !report.stopped() {
            for (member, other) in others.iter() {
                let joined = match &other.left {
                    Some(left) => parts.join(left, other.counts.failed),
                    None => Err(String::from("it left nothing")),
                };
                if let Err(why) = joined {
                    report.fatal(format!(
                        "member {member} does not see what this one sees: {why}; every node must see the same directories, at rest: then {HOW_TO_GO_ON}"
                    ));
                }
            }
        }
        std::thread::scope(|scope| {
            let (finished, end) = mpsc::channel::<()>();
            let finish = scope.spawn(|| {
                // Closed at the end, well or not.
                let _finished = finished;
                self.part.engine.finish(parts)
            });
            while !others.is_empty() && end.recv_timeout(MAX_POLL) == Err(RecvTimeoutError::Timeout)
            {
                self.poll_parts(others);
            }
            finish.join().unwrap_or(StageOutcome::Stopped)
        })
    }

    /// Looks at all parts elsewhere, takes their lines, and adds up.
    fn poll_parts(&self, others: &mut BTreeMap<u16, RemotePart>) {
        let job = self.part.job;
        let asked = others.iter().filter(|(_, other)| !other.lost);
        let ask = |(member, other): (&u16, &RemotePart)| {
            let from = other.lines;
            let request = PeerRequest::Stage(PartRequest::Look { job, from });
            (*member, request.encode(), PART_REPLY_TIMEOUT)
        };
        for (member, said) in self.rpc.call_each::<PartProgress>(asked.map(ask)) {
            let Some(other) = others.get_mut(&member) else {
                continue;
            };
            match said {
                Ok(seen) => self.take(member, other, seen),
                Err(why) => {
                    other.lost = true;
                    self.part.report.fatal(format!("{why}; {HOW_TO_GO_ON}"));
                }
            }
        }
        let mut sum = StageCounts::default();
        others.values().for_each(|other| sum += other.counts);
        *self.elsewhere.lock() = sum;
    }

    fn take(&self, member: u16, other: &mut RemotePart, seen: PartProgress) {
        let report = &self.part.report;
        other.counts = seen.counts;
        other.lines += seen.lines.len();
        let all = seen.lines.len() < self.lines;
        seen.lines
            .into_iter()
            .for_each(|line| report.add_line(line));
        match seen.stop {
            Some(StopReason::Fatal(why)) => report.fatal(format!("member {member}: {why}")),
            // If it was this server that asked for it, it has stopped already.
            Some(StopReason::Cancelled) => {
                report.fatal(format!("member {member} has stopped; {HOW_TO_GO_ON}"))
            }
            None => {}
        }
        other.ended = seen.ended && all;
        other.left = seen.left.or(other.left.take());
    }

    fn cancel(&self, others: &BTreeMap<u16, RemotePart>) {
        let asked = others.iter().filter(|(_, other)| !other.is_finished());
        let job = self.part.job;
        // One that does not hear it is lost, or ends when nobody looks.
        let _ = self.tell(
            asked.map(|(member, _)| *member),
            PartRequest::Cancel { job },
        );
    }

    fn tell(
        &self,
        members: impl Iterator<Item = u16>,
        ask: PartRequest,
    ) -> Vec<(u16, Result<(), String>)> {
        let request = PeerRequest::Stage(ask).encode();
        let requests = members.map(|member| (member, request.clone(), PART_REPLY_TIMEOUT));
        self.rpc.call_each(requests)
    }
}
