//! A barrier of members in different processes, which exchange some bytes at it: after each step of a start and a stop.
//!
//! All members call [`MemberBarrier::exchange`] equally often. Each call is a **round**: every member gives some bytes and gets
//! those of all others. A member asks each other one for its bytes of the round; one that has not begun the round keeps the
//! question and answers when it does, so that no request is sent twice and no thread waits at the answering side.
//!
//! ```text
//!  request: | round 8, big-endian |        answer: the bytes        one-way message: | 'S' | over 1 | why, as text |   stop
//! ```
//!
//! `over` is 1 if the command of `forebay run` (or the job's step) has ended, else 0.
//!
//! Invariant: when `exchange` succeeds, all members have called it as often as this one; some may not have returned from it.
use crate::{Error, Member, Result};
use bytes::Bytes;
use forebay_fabric::{Fabric, Handler, Message, Rank, Replier};
use forebay_proto::placement::member_at;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const STOP: u8 = b'S';

/// A member asks to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRequest {
    /// The member that asks.
    pub member: Member,
    /// Why it stops.
    pub why: String,
    /// The programs that the service was there for have ended.
    pub over: bool,
}

type OnStop = Box<dyn Fn(&StopRequest) + Send + Sync>;

/// See the head of this file. Dropping it lets the others know that this member takes part in no more rounds.
pub struct MemberBarrier {
    end: Arc<dyn Fabric>,
    server: Arc<RoundServer>,
}

/// Answers what other members ask of this one.
#[derive(Default)]
struct RoundServer {
    rounds: Mutex<BarrierRounds>,
    on_stop: OnceLock<OnStop>,
    /// A request to stop that came before somebody wanted to hear of it.
    early_stop: Mutex<Option<StopRequest>>,
}

#[derive(Default)]
struct BarrierRounds {
    /// What this member gave, round by round, of all past rounds: a slow member may still ask.
    given: Vec<Bytes>,
    waiting: HashMap<u64, Vec<Replier>>,
}

impl MemberBarrier {
    /// Over an end of a fabric that serves nothing else.
    pub fn new(end: Arc<dyn Fabric>) -> MemberBarrier {
        let server = Arc::new(RoundServer::default());
        end.serve(server.clone());
        MemberBarrier { end, server }
    }

    /// This member.
    pub fn member(&self) -> Member {
        member_at(self.end.rank())
    }

    /// How many members there are.
    pub fn members(&self) -> u16 {
        self.end.size() as u16
    }

    /// Gives `own` and gets what each member gives, by member; waits for all of them, `limit` at most.
    ///
    /// # Errors
    /// `Peer`: the first member that is gone or late.
    pub fn exchange(&self, own: impl Into<Bytes>, limit: Duration) -> Result<Vec<Bytes>> {
        let missing = |member: usize, error: &forebay_fabric::Error| {
            let how = match error {
                forebay_fabric::Error::Deadline { .. } => format!("is not ready after {limit:?}"),
                _ => String::from("has ended"),
            };
            Error::Peer {
                member: member as Member,
                reason: format!("it {how}; see its log"),
            }
        };
        let all = self.ask_all(own.into(), limit).into_iter().enumerate();
        all.map(|(member, given)| given.map_err(|e| missing(member, &e)))
            .collect()
    }

    /// As `exchange`, for a stop: members that are gone are not waited for.
    pub fn exchange_at_stop(&self, limit: Duration) {
        for (member, given) in self.ask_all(Bytes::new(), limit).iter().enumerate() {
            if let Err(error) = given {
                tracing::debug!(member, %error, "stops without this member");
            }
        }
    }

    fn ask_all(&self, own: Bytes, limit: Duration) -> Vec<Result<Bytes, forebay_fabric::Error>> {
        let until = Instant::now() + limit;
        let (round, waiting) = {
            let mut rounds = self.server.rounds.lock();
            let round = rounds.given.len() as u64;
            rounds.given.push(own.clone());
            (round, rounds.waiting.remove(&round).unwrap_or_default())
        };
        for replier in waiting {
            replier.reply(Message::new(own.clone()));
        }
        let ask = |member: Rank| {
            if member == self.end.rank() {
                return Ok(own.clone());
            }
            let question = Message::new(round.to_be_bytes().to_vec());
            let left = until.saturating_duration_since(Instant::now());
            Ok(self.end.call(member, question, left)?.head)
        };
        (0..self.end.size()).map(ask).collect()
    }

    /// Asks all other members to stop; `over` if the programs that the service was there for have ended.
    pub fn tell_stop(&self, why: &str, over: bool) {
        let text = [&[STOP, u8::from(over)], why.as_bytes()].concat();
        for member in (0..self.end.size()).filter(|m| *m != self.end.rank()) {
            // Fails only if it is gone, and then it needs no telling.
            let _ = self.end.send(member, Message::new(text.clone()));
        }
    }

    /// Calls `f` when another member asks to stop, also if it has done so already; once, for the first `f` only.
    pub fn on_stop(&self, f: impl Fn(&StopRequest) + Send + Sync + 'static) {
        // A second one would be a mistake of the caller; the first one stays.
        let _ = self.server.on_stop.set(Box::new(f));
        let early = self.server.early_stop.lock().take();
        if let (Some(request), Some(f)) = (early, self.server.on_stop.get()) {
            f(&request);
        }
    }

    /// Takes part in no more rounds.
    pub fn close(&self) {
        self.end.close();
    }
}

impl Drop for MemberBarrier {
    fn drop(&mut self) {
        self.close();
    }
}

impl Handler for RoundServer {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        let Ok(round) = <[u8; 8]>::try_from(&message.head[..]).map(u64::from_be_bytes) else {
            tracing::warn!(from, "asked something that is no round");
            return; // Dropping the replier fails the question.
        };
        let mut rounds = self.rounds.lock();
        let round_index = usize::try_from(round).ok();
        match round_index.and_then(|r| rounds.given.get(r)).cloned() {
            Some(given) => {
                drop(rounds);
                replier.reply(Message::new(given));
            }
            None => rounds.waiting.entry(round).or_default().push(replier),
        }
    }

    fn message(&self, from: Rank, message: Message) {
        match &message.head[..] {
            [STOP, over, why @ ..] => {
                let request = StopRequest {
                    member: member_at(from),
                    why: String::from_utf8_lossy(why).into_owned(),
                    over: *over == 1,
                };
                let mut early = self.early_stop.lock();
                match self.on_stop.get() {
                    Some(f) => {
                        drop(early);
                        f(&request);
                    }
                    None => *early = Some(request),
                }
            }
            _ => tracing::warn!(from, "a message that this version does not know"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::local;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(30);

    fn barriers(n: u32) -> Vec<MemberBarrier> {
        let ends = local::fabric(n).into_iter();
        ends.map(|end| MemberBarrier::new(end)).collect()
    }

    #[test]
    fn all_get_what_all_give_in_every_round() {
        std::thread::scope(|scope| {
            for barrier in barriers(4) {
                scope.spawn(move || {
                    for round in 0..50u8 {
                        let own = vec![round, barrier.member() as u8];
                        let got = barrier.exchange(own, LONG).unwrap();
                        let want: Vec<_> = (0..4).map(|m| Bytes::from(vec![round, m])).collect();
                        assert_eq!(got, want);
                    }
                    barrier.exchange_at_stop(LONG);
                });
            }
        });
    }

    #[test]
    fn one_that_has_left_is_named_and_does_not_hold_up_a_stop() {
        let mut barriers = barriers(2);
        drop(barriers.pop());
        let error = barriers[0].exchange(Bytes::new(), LONG).unwrap_err();
        assert!(
            error.to_string().contains("member 1: it has ended"),
            "{error}"
        );
        barriers[0].exchange_at_stop(LONG);
        let late = barrier_with_one_late().exchange(Bytes::new(), Duration::from_millis(1));
        assert!(late.unwrap_err().to_string().contains("not ready"));
    }

    /// The first of two; the other never comes.
    fn barrier_with_one_late() -> MemberBarrier {
        let mut barriers = barriers(2);
        std::mem::forget(barriers.pop());
        barriers.remove(0)
    }

    #[test]
    fn a_request_to_stop_reaches_all_also_those_that_listen_late() {
        let barriers = barriers(3);
        let (send, heard) = mpsc::channel();
        let listen = |m: &MemberBarrier| {
            let send = send.clone();
            m.on_stop(move |request| send.send(request.clone()).unwrap());
        };
        let request = |why: &str, over| StopRequest {
            member: 0,
            why: why.into(),
            over,
        };
        listen(&barriers[1]);
        barriers[0].tell_stop("enough", true);
        assert_eq!(heard.recv_timeout(LONG), Ok(request("enough", true)));
        listen(&barriers[2]);
        assert_eq!(heard.recv_timeout(LONG), Ok(request("enough", true)));
        barriers[0].tell_stop("a signal", false);
        let again = [heard.recv_timeout(LONG), heard.recv_timeout(LONG)];
        let expected = Ok(request("a signal", false));
        assert_eq!(again, [expected.clone(), expected]);
    }
}
