//! Remote procedure calls between the server processes of one service: for what `forebay status` shows of all of them,
//! and for what they do together (stage jobs, recordings). Requests of the file system between members are
//! `forebay_proto`'s.
//!
//! ```text
//!  client -- control socket --> ControlService of the asked server -- ServerRpc --> ControlService of the others
//!
//!  request: a `PeerRequest` as JSON         reply: `Ok` of its value, or `Err` of a sentence for people, as JSON
//! ```
//!
//! Invariants: a request is answered by a thread of its own, so a slow reply holds up nothing else; a server answers from its
//! own state and calls no other server for it, so requests cannot form a cycle. A service in one process runs the same code with no
//! peers.
pub mod messages;

use forebay_fabric::{Error, Fabric, Handler, Message, Rank, Replier, local};
pub use messages::{PeerReply, PeerRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// A reply that holds `value`.
///
/// # Errors
/// If it cannot be written.
pub fn reply(value: impl Serialize) -> PeerReply {
    serde_json::to_value(value).map_err(|e| e.to_string())
}

/// Answers the requests of other servers.
pub trait PeerHandler: Send + Sync + 'static {
    /// The reply to a request of `from`; an error is a sentence for people.
    fn answer(&self, from: u16, request: PeerRequest) -> PeerReply;
}

/// A request as it is sent, or why it cannot be.
pub type EncodedRequest = Result<Message, String>;

impl PeerRequest {
    /// As it is sent: once for all members that get it, for it may be long.
    pub fn encode(&self) -> EncodedRequest {
        serde_json::to_vec(self)
            .map(Message::new)
            .map_err(|e| format!("cannot write the question: {e}; report this"))
    }
}

/// This process's end of the calls.
pub struct ServerRpc {
    end: Arc<dyn Fabric>,
}

impl ServerRpc {
    /// Over an end of a fabric that serves nothing else. Requests wait until [`ServerRpc::serve`].
    pub fn new(end: Arc<dyn Fabric>) -> ServerRpc {
        ServerRpc { end }
    }

    /// Of the only process of a service: there are no others.
    pub fn alone() -> ServerRpc {
        // One end for the one rank.
        ServerRpc::new(local::fabric(1).remove(0))
    }

    /// Answers the others, if there are others, from now on. Once.
    pub fn serve(&self, handler: Arc<dyn PeerHandler>) {
        if self.size() > 1 {
            self.end.serve(Arc::new(RequestAcceptor(handler)));
        }
    }

    /// All members but the one of this process.
    pub fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let own = self.own();
        (0..self.size()).filter(move |member| *member != own)
    }

    /// The member of this process.
    pub fn own(&self) -> u16 {
        self.end.rank() as u16
    }

    /// How many processes the service has.
    pub fn size(&self) -> u16 {
        self.end.size() as u16
    }

    /// Calls `member`, and waits `limit` at most.
    ///
    /// # Errors
    /// A sentence for people that names the member: it is gone, late, or refuses.
    pub fn call<T: DeserializeOwned>(
        &self,
        member: u16,
        request: EncodedRequest,
        limit: Duration,
    ) -> Result<T, String> {
        let unknown = |e: serde_json::Error| {
            format!(
                "member {member} speaks another language: {e}; run the same release on all nodes"
            )
        };
        let reply = self.end.call(member.into(), request?, limit);
        let reply = reply.map_err(|error| match error {
            Error::Deadline { .. } => {
                format!("member {member} did not answer within {limit:?}; see its log")
            }
            _ => format!("member {member} has ended; see its log"),
        })?;
        let reply: PeerReply = serde_json::from_slice(&reply.head).map_err(unknown)?;
        let value = reply.map_err(|why| format!("member {member}: {why}"))?;
        serde_json::from_value(value).map_err(unknown)
    }

    /// Sends all others the same request at once.
    pub fn call_all<T: DeserializeOwned + Send>(
        &self,
        request: &PeerRequest,
        limit: Duration,
    ) -> Vec<(u16, Result<T, String>)> {
        let request = request.encode();
        self.call_each(self.others().map(|member| (member, request.clone(), limit)))
    }

    /// Sends each of these members its request, at once, and waits for it as long as is said there.
    pub fn call_each<T: DeserializeOwned + Send>(
        &self,
        requests: impl Iterator<Item = (u16, EncodedRequest, Duration)>,
    ) -> Vec<(u16, Result<T, String>)> {
        std::thread::scope(|scope| {
            let calls: Vec<_> = requests
                .map(|(member, request, limit)| {
                    let call = move || self.call(member, request, limit);
                    (member, scope.spawn(call))
                })
                .collect();
            let panicked = |_| Err(String::from("the question panicked; see the log"));
            let join = |(member, thread): (u16, std::thread::ScopedJoinHandle<'_, _>)| {
                (member, thread.join().unwrap_or_else(panicked))
            };
            calls.into_iter().map(join).collect()
        })
    }

    /// Answers and calls no more.
    pub fn close(&self) {
        self.end.close();
    }
}

/// Takes requests in, and gives each a thread.
struct RequestAcceptor(Arc<dyn PeerHandler>);

impl Handler for RequestAcceptor {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        let handler = self.0.clone();
        let answer = move || {
            let reply: PeerReply = match serde_json::from_slice(&message.head) {
                Ok(request) => handler.answer(from as u16, request),
                Err(e) => Err(format!(
                    "cannot read the question: {e}; run the same release on all nodes"
                )),
            };
            match serde_json::to_vec(&reply) {
                Ok(head) => replier.reply(Message::new(head)),
                // Dropping the replier fails the request.
                Err(e) => tracing::error!("cannot write an answer: {e}"),
            }
        };
        // Fails only if there is no thread to be had; then the request fails.
        if let Err(e) = std::thread::Builder::new().name("rpc".into()).spawn(answer) {
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

    struct Replies(PeerReply);

    impl PeerHandler for Replies {
        fn answer(&self, from: u16, request: PeerRequest) -> PeerReply {
            assert!(matches!(request, PeerRequest::Status));
            self.0.clone().map(|v| serde_json::json!([from, v]))
        }
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn all_others_are_asked_and_a_refusal_and_a_silent_one_name_themselves() {
        let ends: Vec<ServerRpc> = local::fabric(4)
            .into_iter()
            .map(|end| ServerRpc::new(end))
            .collect();
        ends[0].serve(Arc::new(Replies(Ok(0.into()))));
        ends[1].serve(Arc::new(Replies(Ok(11.into()))));
        ends[2].serve(Arc::new(Replies(Err("no room".into()))));
        ends[3].close();
        let reply = ends[0].call_all::<(u16, u32)>(&PeerRequest::Status, LONG);
        assert_eq!(reply[0], (1, Ok((0, 11))));
        assert_eq!(reply[1], (2, Err("member 2: no room".into())));
        assert_eq!(reply[2].0, 3);
        assert!(
            reply[2]
                .1
                .as_ref()
                .unwrap_err()
                .contains("member 3 has ended")
        );
        let odd: Result<String, String> = ends[0].call(1, PeerRequest::Status.encode(), LONG);
        assert!(odd.unwrap_err().contains("same release"));
    }

    #[test]
    fn one_that_does_not_answer_is_late() {
        struct RepliesLate;
        impl PeerHandler for RepliesLate {
            fn answer(&self, _: u16, _: PeerRequest) -> PeerReply {
                std::thread::sleep(Duration::from_millis(300));
                Ok(0.into())
            }
        }
        let ends: Vec<ServerRpc> = local::fabric(2)
            .into_iter()
            .map(|end| ServerRpc::new(end))
            .collect();
        ends[1].serve(Arc::new(RepliesLate));
        let reply: Result<u32, String> =
            ends[0].call(1, PeerRequest::Status.encode(), Duration::from_millis(10));
        assert!(reply.unwrap_err().contains("did not answer within 10ms"));
    }
}
