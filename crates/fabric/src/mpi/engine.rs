//! The progress thread: the only one that calls MPI.
//!
//! Other threads hand it commands through a queue, and wake it if it naps. It never waits for a
//! peer, and runs no handler: requests go to the pool, one-way messages to the mailbox, replies to their slots.

use super::edge::Comm;
use super::end::End;
use super::frame::{Frame, Kind};
use super::idle::{Bed, Pause, pause};
use super::link::Link;
use super::peers::{Health, Peers};
use super::pool::Pool;
use super::world::{Ending, Timing};
use crate::{Error, Rank};
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What other threads ask of the progress thread.
pub(super) enum Command {
    /// Send this frame, if the peer is there.
    Send(Rank, Frame),
    /// Frames of this end's epoch are its own.
    Open(Arc<End>),
    /// This epoch's end here is closed: say so to all.
    Close(u64),
    /// Leave the job; wait this long for the others to leave too.
    Stop(Duration),
}

/// The way to the progress thread.
#[derive(Clone)]
pub(super) struct Wire {
    queue: Sender<Command>,
    bed: Arc<Bed>,
}

/// The progress thread's side of the [`Wire`].
pub(super) struct Commands {
    queue: Receiver<Command>,
    bed: Arc<Bed>,
}

impl Wire {
    /// Both sides.
    pub fn new() -> (Wire, Commands) {
        // Unbounded: a handler that waits for room could be what the room waits for.
        let (send, receive) = unbounded();
        let bed = Arc::new(Bed::default());
        let commands = Commands {
            queue: receive,
            bed: bed.clone(),
        };
        (Wire { queue: send, bed }, commands)
    }

    /// Hands over a command.
    ///
    /// # Errors
    /// `Closed` when the progress thread has ended.
    pub fn give(&self, command: Command) -> Result<(), Error> {
        self.queue.send(command).map_err(|_| Error::Closed)?;
        self.bed.wake();
        Ok(())
    }
}

/// Commands or arrivals taken before looking at the rest.
const BATCH: usize = 64;
/// Looks while spinning before the clock is read again.
const SPINS: usize = 20;
/// Looks after a nap: MPI libraries do not look everywhere each time.
const LOOKS: usize = 2;

pub(super) struct Engine {
    comm: Comm,
    commands: Commands,
    peers: Arc<Peers>,
    pool: Arc<Pool>,
    timing: Timing,
    /// By MPI rank.
    members: Vec<Rank>,
    /// By member.
    links: Vec<Link>,
    /// By epoch; `None` once closed.
    ends: HashMap<u64, Option<Arc<End>>>,
    /// Frames of epochs that are not open here yet.
    ahead: HashMap<u64, Vec<(Rank, Frame)>>,
    next_tick: Instant,
    last_tick: Instant,
    stop_at: Option<Option<Instant>>,
    probe_failed: bool,
}

impl Engine {
    /// `ranks` are MPI ranks by member.
    pub fn new(
        comm: Comm,
        commands: Commands,
        ranks: &[i32],
        (peers, pool, timing): (Arc<Peers>, Arc<Pool>, Timing),
    ) -> Engine {
        let mut members = vec![0; ranks.len()];
        for (member, rank) in ranks.iter().enumerate() {
            members[*rank as usize] = member as Rank;
        }
        let now = Instant::now();
        Engine {
            comm,
            commands,
            peers,
            pool,
            timing,
            members,
            links: ranks.iter().map(|rank| Link::new(*rank)).collect(),
            ends: HashMap::new(),
            ahead: HashMap::new(),
            next_tick: now,
            last_tick: now,
            stop_at: None,
            probe_failed: false,
        }
    }

    /// Runs until told to stop, then ends MPI if that cannot hang.
    pub fn run(mut self) -> Ending {
        self.peers.forgive();
        let mut last_work = Instant::now();
        let mut looks = SPINS;
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
                looks = SPINS;
                continue;
            }
            let moving = self.links.iter().any(Link::is_moving);
            let pause = pause(now - last_work, moving);
            looks = if pause == Pause::Spin { SPINS } else { LOOKS };
            match pause {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Nap(nap) => {
                    let queue = &self.commands.queue;
                    self.commands.bed.nap(nap, || !queue.is_empty());
                }
            }
        }
        self.finish()
    }

    fn take_commands(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            match self.commands.queue.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    // Nobody can ask for anything any more.
                    self.obey(Command::Stop(Duration::ZERO));
                    break;
                }
            }
            any = true;
        }
        any
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send(to, frame) => self.send(to, &frame),
            Command::Open(end) => {
                self.ends.insert(end.epoch, Some(end.clone()));
                for (from, frame) in self.ahead.remove(&end.epoch).into_iter().flatten() {
                    end.arrive(from, frame);
                }
            }
            Command::Close(epoch) => {
                self.ends.insert(epoch, None);
                self.tell_all(&Frame::bare(Kind::Bye, epoch, 0));
            }
            Command::Stop(patience) => {
                if self.stop_at.is_none() {
                    self.stop_at = Some(Instant::now().checked_add(patience));
                    // Those who left before wait for it.
                    for to in self.peers.others() {
                        self.transmit(to, &Frame::bare(Kind::Bye, 0, 0));
                    }
                }
            }
        }
    }

    fn tell_all(&mut self, frame: &Frame) {
        for to in self.peers.others() {
            self.send(to, frame);
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
        let sent = self.links[to as usize].send(&self.comm, frame);
        if let Err(error) = sent {
            self.bury(to, &error.to_string());
        }
    }

    /// Begins to receive what has arrived.
    fn receive(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            match self.comm.probe() {
                Ok(Some((rank, mut first))) => {
                    any = true;
                    self.probe_failed = false;
                    // MPI names ranks of this communicator only.
                    let from = self.members[rank as usize];
                    if self.peers.health(from) != Health::Dead {
                        self.peers.heard(from);
                        self.links[from as usize].begin(first);
                    } else {
                        // Whoever was declared dead stays dead; what it sends is taken and forgotten, and it is told why.
                        let _ = first.test();
                        self.tell_expelled(from);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    // It names no peer. If it is for ever, silence will.
                    if !std::mem::replace(&mut self.probe_failed, true) {
                        tracing::error!(%error, "MPI cannot look for messages");
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
            let moved = self.links[member].advance(&self.comm, |frame| arrived.push(frame));
            if let Ok(moved) = moved {
                let beat = |frame: &Frame| frame.kind == Kind::Heartbeat;
                let only_beats = !arrived.is_empty() && arrived.iter().all(beat);
                any |= moved.out | (moved.inn && !only_beats);
                if moved.inn {
                    self.peers.heard(from);
                }
            }
            for frame in arrived {
                self.arrive(from, frame);
            }
            if let Err(error) = moved {
                self.bury(from, &error.to_string());
            }
        }
        any
    }

    fn arrive(&mut self, from: Rank, frame: Frame) {
        match (frame.kind, frame.epoch) {
            (Kind::Heartbeat, _) => {}
            (Kind::Expelled, _) => self.expelled(from),
            (Kind::Bye, 0) => {
                if self.peers.end(from, Health::Left) {
                    tracing::debug!(from, "a peer left");
                    self.lose(from);
                }
            }
            (kind, epoch) => match self.ends.get(&epoch) {
                Some(Some(end)) => end.arrive(from, frame),
                Some(None) if kind == Kind::Request => {
                    self.send(from, &Frame::bare(Kind::Bye, epoch, 0));
                }
                Some(None) => {}
                None => self.ahead.entry(epoch).or_default().push((from, frame)),
            },
        }
    }

    fn lose(&self, rank: Rank) {
        for end in self.ends.values().flatten() {
            end.peer_gone(rank);
        }
    }

    fn bury(&mut self, rank: Rank, why: &str) {
        if !self.peers.end(rank, Health::Dead) {
            return;
        }
        tracing::error!(rank, why, "a peer is dead");
        self.links[rank as usize].clear();
        // It may only have been kept from running. Then it reads this first.
        self.tell_expelled(rank);
        self.lose(rank);
        for observer in self.peers.observers() {
            self.pool.run(move || observer(rank));
        }
    }

    /// Tells a dead peer that it is, not more often than a heartbeat would be sent. That it cannot be sent changes nothing.
    fn tell_expelled(&mut self, rank: Rank) {
        let link = &mut self.links[rank as usize];
        if link.last_sent.elapsed() >= self.timing.heartbeat / 2 && !link.is_sending() {
            let _ = link.send(&self.comm, &Frame::bare(Kind::Expelled, 0, 0));
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
                self.lose(rank);
                lost.push(rank);
            }
        }
        let of_death = self.peers.observers();
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
            self.peers.forgive();
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
            let silent = self.peers.silent(rank);
            if silent > self.timing.limit && !busy {
                self.bury(rank, &format!("silent for {silent:?}"));
            } else if now.saturating_duration_since(self.links[rank as usize].last_sent)
                >= self.timing.heartbeat
                && self.stop_at.is_none()
            {
                self.send(rank, &Frame::bare(Kind::Heartbeat, 0, 0));
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

    /// `MPI_Finalize` waits for everyone: it is called only if everyone is about to call it.
    fn finish(self) -> Ending {
        let left = |rank| self.peers.health(rank) == Health::Left;
        if !self.peers.others().all(left) || self.links.iter().any(Link::is_moving) {
            return Ending::Abandoned;
        }
        match self.comm.finalize() {
            Ok(()) => Ending::Finalized,
            Err(error) => {
                tracing::error!(%error, "MPI did not end well");
                Ending::Abandoned
            }
        }
    }
}
