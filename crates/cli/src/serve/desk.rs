//! What a running server answers on its control socket.
use super::attend::Running;
use super::events::Event;
use super::stage::StageDesk;
use crate::control::{Answer, Answerer, Ask, MountStatus, Status};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers status itself, and hands stop requests to the main thread.
pub struct Desk {
    /// The service.
    pub service: Running,
    /// Its store.
    pub store: PathBuf,
    /// Its settings as texts.
    pub settings: BTreeMap<String, String>,
    /// Its mounts.
    pub points: Vec<MountStatus>,
    /// Since when it is ready.
    pub since: Instant,
    /// Its stage jobs.
    pub stages: Arc<StageDesk>,
    /// To the main thread.
    pub events: Mutex<Sender<Event>>,
    /// How long a stop may take.
    pub limit: Duration,
}

impl Answerer for Desk {
    fn answer(&self, ask: Ask, asker: u32) -> Answer {
        match ask {
            Ask::Status => self.status(),
            Ask::Stop { force } => self.stop(force, asker),
            Ask::Stage(ask) => self.stages.answer(ask, asker),
        }
    }
}

impl Desk {
    fn status(&self) -> Answer {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(service) = service.as_ref() else {
            return Answer::Refused(format!(
                "the service of {} is stopping; try again",
                self.store.display()
            ));
        };
        match service.status() {
            Err(e) => Answer::Refused(format!(
                "cannot read the state of {}: {e}; see its log",
                self.store.display()
            )),
            Ok(members) => Answer::Status(Box::new(Status {
                store: self.store.clone(),
                pid: std::process::id(),
                program: env!("CARGO_PKG_VERSION").to_string(),
                uptime_seconds: self.since.elapsed().as_secs(),
                mounts: self.points.clone(),
                members,
                memory: crate::processes::memory(std::process::id()),
                settings: self.settings.clone(),
            })),
        }
    }

    fn stop(&self, force: bool, asker: u32) -> Answer {
        let (reply, answer) = sync_channel(1);
        let sent = self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(Event::Stop {
                force,
                asker,
                reply,
            });
        let stopping = || {
            Answer::Refused(format!(
                "the service of {} is stopping already",
                self.store.display()
            ))
        };
        match sent {
            Ok(()) => answer
                .recv_timeout(self.limit)
                .unwrap_or_else(|_| stopping()),
            Err(_) => stopping(),
        }
    }
}
