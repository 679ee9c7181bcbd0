//! The progress thread: the only thread that uses the transport.
//!
//! Other threads hand it commands through a queue, and wake it if it sleeps. It never waits for a peer, and runs no
//! handler: requests go to the pool, one-way messages to the mailbox, replies to their slots.

use super::byte_transport::{ByteTransport, Pause};
use super::commands::{Command, CommandReceiver};
use super::endpoint::Endpoint;
use super::frame::{Frame, FrameKind};
use super::handler_pool::HandlerPool;
use super::link::Link;
use super::peers::{Health, Peers};
use super::timing::Timing;
use crate::Rank;
use crossbeam_channel::TryRecvError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// All left, and the transport has ended (`MPI_Finalize` has returned).
    Finalized,
    /// Someone is dead or stays: ending the transport would wait for it, so it was left. The process should end now.
    Abandoned,
}

/// Commands or arrivals taken before looking at the rest.
const BATCH: usize = 64;
/// Looks while spinning before the clock is read again.
const POLLS_PER_CLOCK_READ: usize = 20;

/// The state of the progress thread.
pub(super) struct ProgressLoop<T: ByteTransport> {
    transport: T,
    commands: CommandReceiver<Endpoint>,
    peers: Arc<Peers>,
    pool: Arc<HandlerPool>,
    timing: Timing,
    /// By process.
    members: Vec<Rank>,
    /// By member.
    links: Vec<Link<T>>,
    /// By epoch; `None` once closed.
    ends: HashMap<u64, Option<Arc<Endpoint>>>,
    /// Frames of epochs that are not open here yet.
    early: HashMap<u64, Vec<(Rank, Frame)>>,
    next_tick: Instant,
    last_tick: Instant,
    /// Once told to stop: when it gives up waiting for the others; never if that is too far for the clock.
    stop_at: Option<Option<Instant>>,
    look_failed: bool,
}

impl<T: ByteTransport> ProgressLoop<T> {
    /// `processes` are those of the members, by member.
    pub fn new(
        transport: T,
        commands: CommandReceiver<Endpoint>,
        processes: &[u32],
        (peers, pool, timing): (Arc<Peers>, Arc<HandlerPool>, Timing),
    ) -> ProgressLoop<T> {
        let mut members = vec![0; processes.len()];
        for (member, process) in processes.iter().enumerate() {
            members[*process as usize] = member as Rank;
        }
        let now = Instant::now();
        ProgressLoop {
            transport,
            commands,
            peers,
            pool,
            timing,
            members,
            links: processes.iter().map(|p| Link::new(*p)).collect(),
            ends: HashMap::new(),
            early: HashMap::new(),
            next_tick: now,
            last_tick: now,
            stop_at: None,
            look_failed: false,
        }
    }

    /// Runs until told to stop, then ends the transport if that cannot hang.
    pub fn run(mut self) -> SessionEnd {
        self.peers.reset_silence();
        let mut last_work = Instant::now();
        let mut looks = POLLS_PER_CLOCK_READ;
        while !self.is_over() {
            let (mut work, mut heard) = (false, false);
            for _ in 0..looks {
                // Hearing of a peer alone is no work: heartbeats do not keep an idle thread awake.
                heard |= self.receive();
                work |= self.take_commands() | self.advance();
                if work {
                    break;
                }
            }
            let now = Instant::now();
            self.tick(now, work | heard);
            if work {
                last_work = now;
                looks = POLLS_PER_CLOCK_READ;
                continue;
            }
            let moving = self.links.iter().any(Link::is_moving);
            let pause = self.transport.pause(now - last_work, moving);
            looks = match pause {
                Pause::Spin => POLLS_PER_CLOCK_READ,
                Pause::Yield | Pause::Sleep(_) => T::POLLS_AFTER_PAUSE,
            };
            match pause {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep(at_most) => {
                    let at_most = at_most.min(self.until_due(now));
                    let transport = &mut self.transport;
                    self.commands
                        .sleep_unless_queued(|| transport.sleep(at_most));
                }
            }
        }
        self.finish()
    }

    /// Time until something is due that no arrival and no command tells of.
    fn until_due(&self, now: Instant) -> Duration {
        let stop_at = self.stop_at.flatten().unwrap_or(self.next_tick);
        self.next_tick.min(stop_at).saturating_duration_since(now)
    }

    fn take_commands(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            match self.commands.next() {
                Ok(command) => self.execute(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    // Nobody can ask for anything any more.
                    self.execute(Command::Stop(Duration::ZERO));
                    break;
                }
            }
            any = true;
        }
        any
    }

    fn execute(&mut self, command: Command<Endpoint>) {
        match command {
            Command::Send(to, frame) => self.send(to, &frame),
            Command::Open(epoch, end) => {
                for (from, frame) in self.early.remove(&epoch).into_iter().flatten() {
                    end.arrive(from, frame);
                }
                self.ends.insert(epoch, Some(end));
            }
            Command::Close(epoch) => {
                self.ends.insert(epoch, None);
                let bye = Frame::control(FrameKind::Bye, epoch, 0);
                for to in self.peers.others() {
                    self.send(to, &bye);
                }
            }
            Command::Stop(timeout) => {
                if self.stop_at.is_none() {
                    self.stop_at = Some(Instant::now().checked_add(timeout));
                    // Those who left before wait for it.
                    for to in self.peers.others() {
                        self.transmit(to, &Frame::control(FrameKind::Bye, 0, 0));
                    }
                }
            }
        }
    }

    fn send(&mut self, to: Rank, frame: &Frame) {
        // One that left still takes what was on its way, but nothing new.
        if self.peers.is_alive(to) {
            self.transmit(to, frame);
        }
    }

    fn transmit(&mut self, to: Rank, frame: &Frame) {
        if self.peers.health(to) == Health::Dead {
            return;
        }
        let sent = self.links[to as usize].send(&mut self.transport, frame);
        if let Err(error) = sent {
            self.declare_dead(to, &error.to_string());
        }
    }

    /// Begins to receive what has arrived.
    fn receive(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            match self.transport.poll_first() {
                Ok(Some((process, mut first))) => {
                    any = true;
                    self.look_failed = false;
                    // The transport names processes of this job only.
                    let from = self.members[process as usize];
                    if self.peers.health(from) != Health::Dead {
                        self.peers.record_activity(from);
                        self.links[from as usize].begin(first);
                    } else {
                        // Whoever was declared dead stays dead; what it sends is taken and forgotten, and it is told why.
                        let _ = self.transport.poll_receive(&mut first);
                        self.tell_expelled(from);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    // It names no peer. If it is for ever, silence will.
                    if !std::mem::replace(&mut self.look_failed, true) {
                        tracing::error!(%error, "{} cannot look for messages", T::NAME);
                    }
                    break;
                }
            }
        }
        any
    }

    fn advance(&mut self) -> bool {
        let mut any = false;
        for member in 0..self.links.len() {
            if !self.links[member].is_moving() {
                continue;
            }
            let from = member as Rank;
            let mut arrived = Vec::new();
            let progress =
                self.links[member].advance(&mut self.transport, |frame| arrived.push(frame));
            if let Ok(moved) = progress {
                let beat = |frame: &Frame| frame.kind == FrameKind::Heartbeat;
                let only_beats = !arrived.is_empty() && arrived.iter().all(beat);
                any |= moved.sent | (moved.received && !only_beats);
                if moved.received {
                    self.peers.record_activity(from);
                }
            }
            for frame in arrived {
                self.arrive(from, frame);
            }
            if let Err(error) = progress {
                self.declare_dead(from, &error.to_string());
            }
        }
        any
    }

    fn arrive(&mut self, from: Rank, frame: Frame) {
        match (frame.kind, frame.epoch) {
            (FrameKind::Heartbeat, _) => {}
            (FrameKind::Expelled, _) => self.expelled(from),
            (FrameKind::Bye, 0) => {
                if self.peers.end(from, Health::Left) {
                    tracing::debug!(from, "a peer left");
                    self.end_calls_to(from);
                }
            }
            (kind, epoch) => match self.ends.get(&epoch) {
                Some(Some(end)) => end.arrive(from, frame),
                Some(None) if kind == FrameKind::Request => {
                    self.send(from, &Frame::control(FrameKind::Bye, epoch, 0));
                }
                Some(None) => {}
                None => self.early.entry(epoch).or_default().push((from, frame)),
            },
        }
    }

    fn end_calls_to(&self, rank: Rank) {
        for end in self.ends.values().flatten() {
            end.peer_gone(rank);
        }
    }

    fn declare_dead(&mut self, rank: Rank, why: &str) {
        if !self.peers.end(rank, Health::Dead) {
            return;
        }
        tracing::error!(rank, why, "a peer is dead");
        self.links[rank as usize].clear();
        // It may only have been kept from running. Then it reads this first.
        self.tell_expelled(rank);
        self.end_calls_to(rank);
        for observer in self.peers.death_observers() {
            self.pool.run(move || observer(rank));
        }
    }

    /// Tells a dead peer that it is, not more often than a heartbeat would be sent. That it cannot be sent changes nothing.
    fn tell_expelled(&mut self, rank: Rank) {
        let link = &mut self.links[rank as usize];
        if link.last_sent.elapsed() >= self.timing.heartbeat / 2 && !link.is_sending() {
            let expelled = Frame::control(FrameKind::Expelled, 0, 0);
            let _ = link.send(&mut self.transport, &expelled);
        }
    }

    /// This process was declared dead: the others act without it, so it must not act with them.
    fn expelled(&mut self, by: Rank) {
        let Some(observers) = self.peers.expelled(by) else {
            return;
        };
        tracing::error!(by, "this process was declared dead");
        let mut lost = Vec::new();
        for rank in self.peers.others() {
            if self.peers.end(rank, Health::Dead) {
                self.links[rank as usize].clear();
                self.end_calls_to(rank);
                lost.push(rank);
            }
        }
        let of_death = self.peers.death_observers();
        // One after the other: why all are dead is told first.
        self.pool.run(move || {
            observers.iter().for_each(|observer| observer(by));
            for rank in lost {
                of_death.iter().for_each(|observer| observer(rank));
            }
        });
    }

    /// Heartbeats and deaths, when it is time.
    fn tick(&mut self, now: Instant, busy: bool) {
        if now < self.next_tick {
            return;
        }
        // If this thread itself was kept from running, silence proves nothing.
        if now - self.last_tick > self.timing.limit / 2 {
            self.peers.reset_silence();
        }
        self.last_tick = now;
        // A death is declared only when nothing is left to read.
        self.next_tick = match busy {
            true => now,
            false => now + self.timing.heartbeat / 4,
        };
        for rank in self.peers.others() {
            if !self.peers.is_alive(rank) {
                continue;
            }
            let silent = self.peers.time_since_activity(rank);
            if silent > self.timing.limit && !busy {
                self.declare_dead(rank, &format!("silent for {silent:?}"));
            } else if now.saturating_duration_since(self.links[rank as usize].last_sent)
                >= self.timing.heartbeat
                && self.stop_at.is_none()
            {
                self.send(rank, &Frame::control(FrameKind::Heartbeat, 0, 0));
            }
        }
    }

    fn is_over(&self) -> bool {
        let Some(until) = self.stop_at else {
            return false;
        };
        let alone = self.peers.others().all(|r| !self.peers.is_alive(r));
        let mut links = self.peers.others().map(|r| (r, &self.links[r as usize]));
        let sending =
            links.any(|(r, link)| link.is_sending() && self.peers.health(r) != Health::Dead);
        (alone && !sending) || until.is_some_and(|until| Instant::now() >= until)
    }

    /// Ending the transport may wait for everyone: it is done only if everyone is about to do it.
    fn finish(self) -> SessionEnd {
        let left = |rank| self.peers.health(rank) == Health::Left;
        if !self.peers.others().all(left) || self.links.iter().any(Link::is_moving) {
            return SessionEnd::Abandoned;
        }
        match self.transport.finish() {
            Ok(()) => SessionEnd::Finalized,
            Err(error) => {
                tracing::error!(%error, "{} did not end well", T::NAME);
                SessionEnd::Abandoned
            }
        }
    }
}
