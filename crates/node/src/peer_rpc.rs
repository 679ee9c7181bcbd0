//! How the server processes of one service ask each other: for what `forebay status` shows of all of them, and for what
//! they do together.
//!
//! ```text
//!  client -- control socket --> desk of the asked server -- office --> desks of the others
//!
//!  request: a `Question` as JSON            reply: `Ok` of its answer, or `Err` of a sentence for people, as JSON
//! ```
//!
//! Invariants: a question is answered by a thread of its own, so a slow answer holds up nothing else; a server answers for
//! itself only and asks nobody for it, so questions cannot go in circles.
use crate::control::RecordAsk;
use crate::stage::PartAsk;
use forebay_fabric::{Error, Fabric, Handler, Message, Rank, Replier};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What one server asks another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    /// What it holds and does: the status of that process alone.
    Status,
    /// About its part of a stage job.
    Stage(PartAsk),
    /// To begin or end a recording of its own mounts.
    Record(RecordAsk),
    /// What speaks against stopping: a sentence for people, if anything does.
    Busy {
        /// The machine of the process that wants it stopped.
        host: String,
        /// That process.
        asker: u32,
    },
}

/// What is said to a question.
pub type Said = Result<serde_json::Value, String>;

/// Answers the questions of other servers.
pub trait Clerk: Send + Sync + 'static {
    /// The answer to what `from` asks; an error is a sentence for people.
    fn answer(&self, from: u16, question: Question) -> Said;
}

/// This process's end of the talk.
pub struct Office {
    end: Arc<dyn Fabric>,
}

impl Office {
    /// Over an end of a fabric that serves nothing else. Questions wait until [`Office::open`].
    #[cfg(any(test, feature = "mpi"))]
    pub fn new(end: Arc<dyn Fabric>) -> Office {
        Office { end }
    }

    /// Answers the others from now on. Once.
    pub fn open(&self, clerk: Arc<dyn Clerk>) {
        self.end.serve(Arc::new(Counter(clerk)));
    }

    /// All members but the one of this process.
    pub fn others(&self) -> impl Iterator<Item = u16> {
        let own = self.end.rank();
        (0..self.end.size())
            .filter(move |member| *member != own)
            .map(|member| member as u16)
    }

    /// The member of this process.
    pub fn own(&self) -> u16 {
        self.end.rank() as u16
    }

    /// How many processes the service has.
    pub fn size(&self) -> u16 {
        self.end.size() as u16
    }

    /// Asks `member`, and waits `limit` at most.
    ///
    /// # Errors
    /// A sentence for people that names the member: it is gone, late, or refuses.
    pub fn ask<T: DeserializeOwned>(
        &self,
        member: u16,
        question: &Question,
        limit: Duration,
    ) -> Result<T, String> {
        self.ask_text(member, write(question)?, limit)
    }

    fn ask_text<T: DeserializeOwned>(
        &self,
        member: u16,
        question: Message,
        limit: Duration,
    ) -> Result<T, String> {
        let unknown = |e: serde_json::Error| {
            format!(
                "member {member} speaks another language: {e}; run the same release on all nodes"
            )
        };
        let reply = self.end.call(member.into(), question, limit);
        let reply = reply.map_err(|error| match error {
            Error::Deadline { .. } => {
                format!("member {member} did not answer within {limit:?}; see its log")
            }
            _ => format!("member {member} has ended; see its log"),
        })?;
        let said: Said = serde_json::from_slice(&reply.head).map_err(unknown)?;
        let value = said.map_err(|why| format!("member {member}: {why}"))?;
        serde_json::from_value(value).map_err(unknown)
    }

    /// Asks all others at once.
    pub fn ask_all<T: DeserializeOwned + Send>(
        &self,
        question: &Question,
        limit: Duration,
    ) -> Vec<(u16, Result<T, String>)> {
        let members: Vec<u16> = self.others().collect();
        self.ask_some(&members, question, limit)
    }

    /// The same, waiting for each as long as `limit` says.
    pub fn ask_patiently<T: DeserializeOwned + Send>(
        &self,
        question: &Question,
        limit: impl Fn(u16) -> Duration,
    ) -> Vec<(u16, Result<T, String>)> {
        let text = write(question);
        let asked = self.others().map(|member| (member, text.clone()));
        self.ask_at_once(asked.collect(), limit)
    }

    /// Asks these the same at once.
    pub fn ask_some<T: DeserializeOwned + Send>(
        &self,
        members: &[u16],
        question: &Question,
        limit: Duration,
    ) -> Vec<(u16, Result<T, String>)> {
        // Written once: it may be long.
        let text = write(question);
        let asked = members.iter().map(|member| (*member, text.clone()));
        self.ask_at_once(asked.collect(), |_| limit)
    }

    /// Asks each of these something else, at once.
    pub fn ask_each<T: DeserializeOwned + Send>(
        &self,
        asked: &[(u16, Question)],
        limit: Duration,
    ) -> Vec<(u16, Result<T, String>)> {
        let asked = asked
            .iter()
            .map(|(member, question)| (*member, write(question)));
        self.ask_at_once(asked.collect(), |_| limit)
    }

    fn ask_at_once<T: DeserializeOwned + Send>(
        &self,
        asked: Vec<(u16, Result<Message, String>)>,
        limit: impl Fn(u16) -> Duration,
    ) -> Vec<(u16, Result<T, String>)> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = asked
                .into_iter()
                .map(|(member, text)| {
                    let limit = limit(member);
                    let ask = move || self.ask_text(member, text?, limit);
                    (member, scope.spawn(ask))
                })
                .collect();
            let panicked = |_| Err(String::from("the question panicked; see the log"));
            let join = |(member, thread): (u16, std::thread::ScopedJoinHandle<'_, _>)| {
                (member, thread.join().unwrap_or_else(panicked))
            };
            asked.into_iter().map(join).collect()
        })
    }

    /// Answers and asks no more.
    pub fn close(&self) {
        self.end.close();
    }
}

fn write(question: &Question) -> Result<Message, String> {
    serde_json::to_vec(question)
        .map(Message::new)
        .map_err(|e| format!("cannot write the question: {e}; report this"))
}

/// Takes questions in, and gives each a thread.
struct Counter(Arc<dyn Clerk>);

impl Handler for Counter {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        let clerk = self.0.clone();
        let answer = move || {
            let said: Said = match serde_json::from_slice(&message.head) {
                Ok(question) => clerk.answer(from as u16, question),
                Err(e) => Err(format!(
                    "cannot read the question: {e}; run the same release on all nodes"
                )),
            };
            match serde_json::to_vec(&said) {
                Ok(head) => replier.reply(Message::new(head)),
                // Dropping the replier fails the question.
                Err(e) => tracing::error!("cannot write an answer: {e}"),
            }
        };
        // Fails only if there is no thread to be had; then the question fails.
        if let Err(e) = std::thread::Builder::new()
            .name("office".into())
            .spawn(answer)
        {
            tracing::warn!("cannot start a thread to answer member {from}: {e}");
        }
    }

    fn message(&self, from: Rank, _message: Message) {
        tracing::warn!(from, "said something that nobody asked for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::local;

    struct Says(Said);

    impl Clerk for Says {
        fn answer(&self, from: u16, question: Question) -> Said {
            assert!(matches!(question, Question::Status));
            self.0.clone().map(|v| serde_json::json!([from, v]))
        }
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn all_others_are_asked_and_a_refusal_and_a_silent_one_name_themselves() {
        let offices: Vec<Office> = local::fabric(4)
            .into_iter()
            .map(|end| Office::new(end))
            .collect();
        offices[0].open(Arc::new(Says(Ok(0.into()))));
        offices[1].open(Arc::new(Says(Ok(11.into()))));
        offices[2].open(Arc::new(Says(Err("no room".into()))));
        offices[3].close();
        let said = offices[0].ask_all::<(u16, u32)>(&Question::Status, LONG);
        assert_eq!(said[0], (1, Ok((0, 11))));
        assert_eq!(said[1], (2, Err("member 2: no room".into())));
        assert_eq!(said[2].0, 3);
        assert!(
            said[2]
                .1
                .as_ref()
                .unwrap_err()
                .contains("member 3 has ended")
        );
        let odd: Result<String, String> = offices[0].ask(1, &Question::Status, LONG);
        assert!(odd.unwrap_err().contains("same release"));
    }

    #[test]
    fn one_that_does_not_answer_is_late() {
        struct Sleeps;
        impl Clerk for Sleeps {
            fn answer(&self, _: u16, _: Question) -> Said {
                std::thread::sleep(Duration::from_millis(300));
                Ok(0.into())
            }
        }
        let offices: Vec<Office> = local::fabric(2)
            .into_iter()
            .map(|end| Office::new(end))
            .collect();
        offices[1].open(Arc::new(Sleeps));
        let said: Result<u32, String> =
            offices[0].ask(1, &Question::Status, Duration::from_millis(10));
        assert!(said.unwrap_err().contains("did not answer within 10ms"));
    }
}
