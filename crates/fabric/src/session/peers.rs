//! The health of the peers, as this process sees it: who lives, and how long each has been silent.
//!
//! **Invariant:** a peer goes from alive to left or dead once, and never back, whatever still arrives from it. A peer that was
//! declared dead but still runs is notified of it: it is then **expelled**, and treats all others as dead.

use crate::Rank;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How a peer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Health {
    /// Heard of within the limit.
    Alive = 0,
    /// It said that it leaves.
    Left = 1,
    /// Silent beyond the limit, or its link failed. It stays dead for this job.
    Dead = 2,
}

/// One member, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The member.
    pub rank: Rank,
    /// How it stands.
    pub health: Health,
    /// Time since it was last heard; zero for this process itself.
    pub silent: Duration,
}

type DeathObserver = Arc<dyn Fn(Rank) + Send + Sync>;

pub(super) struct Peers {
    start: Instant,
    own: Rank,
    states: Vec<PeerState>,
    on_death: Mutex<Vec<DeathObserver>>,
    expulsion: Mutex<Expulsion>,
}

#[derive(Default)]
struct Expulsion {
    by: Option<Rank>,
    observers: Vec<DeathObserver>,
}

#[derive(Default)]
struct PeerState {
    health: AtomicU8,
    /// Milliseconds after `start`.
    heard: AtomicU64,
}

impl Peers {
    pub fn new(own: Rank, size: u32) -> Peers {
        Peers {
            start: Instant::now(),
            own,
            states: (0..size).map(|_| PeerState::default()).collect(),
            on_death: Mutex::default(),
            expulsion: Mutex::default(),
        }
    }

    pub fn own(&self) -> Rank {
        self.own
    }

    pub fn size(&self) -> u32 {
        self.states.len() as u32
    }

    pub fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let own = self.own;
        (0..self.size()).filter(move |rank| *rank != own)
    }

    /// How `rank` stands; ranks there are not are dead.
    pub fn health(&self, rank: Rank) -> Health {
        let health = self.states.get(rank as usize);
        match health.map(|state| state.health.load(Ordering::SeqCst)) {
            Some(0) => Health::Alive,
            Some(1) => Health::Left,
            _ => Health::Dead,
        }
    }

    pub fn is_alive(&self, rank: Rank) -> bool {
        self.health(rank) == Health::Alive
    }

    /// Sets an alive peer's health; false if it was not alive.
    pub fn end(&self, rank: Rank, health: Health) -> bool {
        let Some(state) = self.states.get(rank as usize) else {
            return false;
        };
        let (alive, order) = (Health::Alive as u8, Ordering::SeqCst);
        let changed = state
            .health
            .compare_exchange(alive, health as u8, order, order);
        changed.is_ok()
    }

    pub fn record_activity(&self, rank: Rank) {
        if let Some(state) = self.states.get(rank as usize) {
            let now = self.start.elapsed().as_millis() as u64;
            state.heard.store(now, Ordering::Relaxed);
        }
    }

    pub fn time_since_activity(&self, rank: Rank) -> Duration {
        let Some(state) = self.states.get(rank as usize).filter(|_| rank != self.own) else {
            return Duration::ZERO;
        };
        let heard = Duration::from_millis(state.heard.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(heard)
    }

    /// Counts everyone as just heard.
    pub fn reset_silence(&self) {
        for rank in 0..self.size() {
            self.record_activity(rank);
        }
    }

    pub fn all(&self) -> Vec<Peer> {
        let peer = |rank| Peer {
            rank,
            health: self.health(rank),
            silent: self.time_since_activity(rank),
        };
        (0..self.size()).map(peer).collect()
    }

    pub fn on_death(&self, f: DeathObserver) {
        self.on_death.lock().push(f);
    }

    /// Hears who has declared this process dead, also if that was before.
    pub fn on_expulsion(&self, f: DeathObserver) {
        let mut expulsion = self.expulsion.lock();
        match expulsion.by {
            Some(by) => {
                drop(expulsion);
                f(by);
            }
            None => expulsion.observers.push(f),
        }
    }

    /// Notes that this process was declared dead; gives those who want to hear of it; `None` if it was known.
    pub fn expelled(&self, by: Rank) -> Option<Vec<DeathObserver>> {
        let mut expulsion = self.expulsion.lock();
        match expulsion.by.replace(by) {
            Some(_) => None,
            None => Some(std::mem::take(&mut expulsion.observers)),
        }
    }

    pub fn death_observers(&self) -> Vec<DeathObserver> {
        self.on_death.lock().clone()
    }
}
