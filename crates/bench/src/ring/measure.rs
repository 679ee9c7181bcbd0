//! One server's part in a measured run, over any transport; and all of them as threads.

use crate::fail::{Failure, Result};
use crate::harness::in_threads;
use crate::report::Spread;
use bytes::Bytes;
use crossbeam_channel::{Sender, unbounded};
use forebay_fabric::ring::{
    CollectiveTimeouts, Collectives, Group, MemoryBounds, NetworkCost, Operation, TreeShape,
};
use forebay_fabric::{Fabric, Handler, Message, Rank, Replier, local};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The load of a measured run.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct RingLoad {
    /// Clients of each server
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub clients: u32,
    /// Operations of a measured run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
}

/// An algorithm that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Subject {
    Ring,
    Fitted,
    Direct,
    Mdhim,
}

impl Subject {
    pub const ALL: [Subject; 4] = [
        Subject::Ring,
        Subject::Fitted,
        Subject::Direct,
        Subject::Mdhim,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Subject::Ring => "ring",
            Subject::Fitted => "ring-fitted",
            Subject::Direct => "direct",
            Subject::Mdhim => "mdhim",
        }
    }

    /// The tree that it goes by; none where each client asks by itself.
    pub fn shape(self) -> Option<TreeShape> {
        match self {
            Subject::Ring => Some(TreeShape::Ring),
            // The tree that the file system uses, whatever the network.
            Subject::Fitted => Some(TreeShape::Fitted(NetworkCost::default())),
            Subject::Direct => Some(TreeShape::Direct),
            Subject::Mdhim => None,
        }
    }
}

/// What the root found about one subject.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct RingMeasurement {
    pub subject: Subject,
    /// Microseconds, the median over the operations.
    pub latency_us: f64,
    /// Requests that reached the root for one operation.
    pub root_messages: f64,
}

const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);
const LIMITS: CollectiveTimeouts = CollectiveTimeouts {
    base: OPERATION_TIMEOUT,
    per_level: OPERATION_TIMEOUT,
};

/// `n` servers as threads of this process.
pub fn local(n: u32, work: &RingLoad) -> Result<Vec<RingMeasurement>> {
    // All serve before one is asked.
    let meetings = local::fabric(n)
        .into_iter()
        .map(|end| MeetingPoint::new(end));
    let meetings = meetings.collect::<Result<Vec<_>>>()?;
    let servers = local::fabric(n).into_iter().zip(meetings);
    let found = in_threads(servers, |(end, meeting)| serve(end, meeting, work))?;
    Ok(found.concat())
}

/// A server that passes on what is for its collectives, and carries out the rest one by one on one thread, as MDHIM's do.
struct RequestServer {
    collectives: Arc<Collectives>,
    requests: Sender<(Message, Replier)>,
    asked: Arc<AtomicU64>,
}

impl Handler for RequestServer {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        if Collectives::is_ring(&message) {
            self.collectives.request(from, message, replier);
        } else {
            self.asked.fetch_add(1, Ordering::SeqCst);
            // Fails only when the thread is gone; then the replier says so.
            let _ = self.requests.send((message, replier));
        }
    }

    fn message(&self, from: Rank, message: Message) {
        self.collectives.message(from, message);
    }
}

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_le_bytes())
}

fn read(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn max(a: Bytes, b: Bytes) -> Bytes {
    if read(&a) >= read(&b) { a } else { b }
}

/// Where the servers wait for each other: collectives of nothing, over a fabric of their own, so that none of their messages
/// is counted.
pub struct MeetingPoint {
    collectives: Arc<Collectives>,
    operation: Operation,
}

impl MeetingPoint {
    /// This server's end of a fabric that nothing else uses.
    ///
    /// # Errors
    /// If there are too many servers.
    pub fn new(end: Arc<dyn Fabric>) -> Result<MeetingPoint> {
        let size = end.size();
        let collectives = Arc::new(Collectives::new(end.clone(), MemoryBounds::default()));
        end.serve(collectives.clone());
        Ok(MeetingPoint {
            collectives,
            operation: Operation {
                group: Group::new(1, (0..size).collect(), TreeShape::Direct)?,
                key: "meet".into(),
                round: 0,
                root: 0,
                limits: LIMITS,
            },
        })
    }

    /// Returns when every server has called it as often as this one.
    fn wait_for_all(&mut self) -> Result<()> {
        let nothing = Bytes::new();
        self.collectives
            .reduce(&self.operation, nothing, |a, _| a, |all| all)?;
        self.operation.round += 1;
        Ok(())
    }
}

/// One server's part; what was found, at rank 0 only.
///
/// # Errors
/// If a message is lost.
pub fn serve(
    end: Arc<dyn Fabric>,
    mut meeting: MeetingPoint,
    work: &RingLoad,
) -> Result<Vec<RingMeasurement>> {
    let collectives = Arc::new(Collectives::new(end.clone(), MemoryBounds::default()));
    let (requests, queue) = unbounded::<(Message, Replier)>();
    let asked = Arc::new(AtomicU64::new(0));
    end.serve(Arc::new(RequestServer {
        collectives: collectives.clone(),
        requests,
        asked: asked.clone(),
    }));
    let server = std::thread::spawn(move || {
        let mut size = 0;
        for (message, replier) in queue {
            size = read(&message.head).max(size);
            replier.reply(Message::new(number(size)));
        }
    });
    meeting.wait_for_all()?;
    let mut found = Vec::new();
    for subject in Subject::ALL {
        let part = ServerPart {
            end: &end,
            collectives: &collectives,
            asked: &asked,
            work,
            subject,
        };
        found.extend(part.measure(&mut meeting)?);
    }
    meeting.wait_for_all()?;
    end.close();
    // Its queue ends with the handler.
    server
        .join()
        .map_err(|_| Failure::new("the server panicked"))?;
    Ok(found)
}

struct ServerPart<'a> {
    end: &'a Arc<dyn Fabric>,
    collectives: &'a Arc<Collectives>,
    asked: &'a AtomicU64,
    work: &'a RingLoad,
    subject: Subject,
}

impl ServerPart<'_> {
    fn operation(&self, key: &'static str, round: u32) -> Result<Operation> {
        let shape = self.subject.shape().unwrap_or(TreeShape::Ring);
        let ranks = (0..self.end.size()).collect();
        Ok(Operation {
            group: Group::new(self.subject as u64, ranks, shape)?,
            key: key.into(),
            round: round.into(),
            root: 0,
            limits: LIMITS,
        })
    }

    /// Requests that came here so far.
    fn messages(&self) -> u64 {
        match self.subject {
            Subject::Mdhim => self.asked.load(Ordering::SeqCst),
            _ => self.collectives.counts().values,
        }
    }

    /// One operation of this server's clients: `client` is one of them.
    fn client(&self, client: u32, operation: &Operation, steps: &Barrier) -> Result<()> {
        let size = u64::from(self.end.rank() * self.work.clients + client);
        let last = u64::from(self.end.size() * self.work.clients - 1);
        match self.subject {
            Subject::Mdhim => {
                self.end
                    .call(0, Message::new(number(size)), OPERATION_TIMEOUT)?;
            }
            _ => {
                // All clients' requests are here; the first stands for the server.
                steps.wait();
                if client == 0 {
                    let own = u64::from((self.end.rank() + 1) * self.work.clients - 1);
                    let answer = self
                        .collectives
                        .reduce(operation, number(own), max, |m| m)?;
                    if read(&answer) != last {
                        return Err(Failure::new("a wrong answer"));
                    }
                }
            }
        }
        steps.wait();
        Ok(())
    }

    fn measure(&self, meeting: &mut MeetingPoint) -> Result<Option<RingMeasurement>> {
        let clients = self.work.clients;
        let (mut latencies, mut messages) = (Vec::new(), Vec::new());
        let operations = (0..self.work.rounds).map(|round| self.operation("measured", round));
        let operations = operations.collect::<Result<Vec<_>>>()?;
        let steps = Barrier::new(clients as usize);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..clients)
                .map(|client| {
                    let (steps, operations) = (&steps, &operations);
                    scope.spawn(move || {
                        for operation in operations {
                            steps.wait();
                            self.client(client, operation, steps)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            for (round, operation) in operations.iter().enumerate() {
                let before = self.messages();
                meeting.wait_for_all()?;
                steps.wait();
                let begun = Instant::now();
                self.client(0, operation, &steps)?;
                let latency = begun.elapsed().as_nanos() as u64;
                // A collective is over at the root when all its messages came; counted before those of the next come.
                let reduced = self.messages() - before;
                meeting.wait_for_all()?;
                // Clients by themselves are done when all have met.
                let came = match self.subject {
                    Subject::Mdhim => self.messages() - before,
                    _ => reduced,
                };
                let exchange = self.operation("slowest", round as u32)?;
                let slowest = self
                    .collectives
                    .reduce(&exchange, number(latency), max, |m| m)?;
                latencies.push(read(&slowest) as f64 / 1000.0);
                messages.push(came as f64);
            }
            let failed = |_| Failure::new("a client panicked");
            let outcomes = others.into_iter().map(|o| o.join().map_err(failed)?);
            outcomes.collect::<Result<()>>()
        })?;
        Ok((self.end.rank() == 0).then(|| RingMeasurement {
            subject: self.subject,
            latency_us: Spread::of(&latencies).median,
            root_messages: Spread::of(&messages).median,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_at_the_root_are_what_they_should_be() {
        let work = RingLoad {
            clients: 3,
            rounds: 4,
        };
        let found = local(6, &work).unwrap();
        let messages: Vec<_> = found.iter().map(|m| (m.subject, m.root_messages)).collect();
        let expected = [
            (Subject::Ring, 3.0),
            (Subject::Fitted, 3.0),
            (Subject::Direct, 5.0),
            (Subject::Mdhim, 18.0),
        ];
        assert_eq!(messages, expected);
        assert!(found.iter().all(|m| m.latency_us > 0.0));
    }
}
