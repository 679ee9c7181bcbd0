//! What a running server answers on its control socket.
use super::attend::Running;
use super::events::Event;
use super::office::{Clerk, Office, Question, Said};
use super::stage::StageDesk;
use crate::control::{Answer, Answerer, Ask, MountStatus, Status};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long another process may take to tell its status.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// The way to the other processes of the service, if there are others.
    pub office: Option<Arc<Office>>,
    /// To the main thread.
    pub events: Mutex<Sender<Event>>,
    /// How long a stop may take.
    pub limit: Duration,
}

impl Answerer for Desk {
    fn answer(&self, ask: Ask, asker: u32) -> Answer {
        match ask {
            Ask::Status => match self.status() {
                Ok(status) => Answer::Status(Box::new(status)),
                Err(why) => Answer::Refused(why),
            },
            Ask::Stop { force } => self.stop(force, asker),
            Ask::Stage(ask) => self.stages.answer(ask, asker),
        }
    }
}

impl Clerk for Desk {
    fn answer(&self, _from: u16, question: Question) -> Said {
        let value = match question {
            Question::Status => serde_json::to_value(self.own_status()?),
            Question::Stage(ask) => return self.stages.answer_server(ask),
        };
        value.map_err(|e| e.to_string())
    }
}

impl Desk {
    /// Of all processes of the service.
    fn status(&self) -> Result<Status, String> {
        let mut status = self.own_status()?;
        let others = self.office.as_deref();
        for (member, said) in others
            .iter()
            .flat_map(|o| o.ask_all(&Question::Status, PATIENCE))
        {
            let said: Result<Status, String> = said;
            match said {
                Ok(other) => {
                    status.members.extend(other.members);
                    status.mounts.extend(other.mounts);
                }
                Err(why) => {
                    status.missing.insert(member, why);
                }
            }
        }
        status.members.sort_by_key(|m| m.member);
        status.mounts.sort_by_key(|m| m.member);
        Ok(status)
    }

    /// Of this process alone.
    fn own_status(&self) -> Result<Status, String> {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = self.store.display();
        let Some(service) = service.as_ref() else {
            return Err(format!("the service of {shown} is stopping; try again"));
        };
        let members = service
            .status()
            .map_err(|e| format!("cannot read the state of {shown}: {e}; see its log"))?;
        Ok(Status {
            store: self.store.clone(),
            pid: std::process::id(),
            program: env!("CARGO_PKG_VERSION").to_string(),
            uptime_seconds: self.since.elapsed().as_secs(),
            mounts: self.points.clone(),
            members,
            missing: BTreeMap::new(),
            memory: crate::processes::memory(std::process::id()),
            settings: self.settings.clone(),
        })
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
