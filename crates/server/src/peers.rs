//! Typed requests between members: to oneself a plain call, to others over the fabric.
//!
//! `meta`, `files`, `data` and the delegate call `peers.meta(member, request)` and so on. A request to the own member is
//! a direct call of the local part, in the caller's thread; another member's travels as a postcard head with its bulk
//! bytes beside it.
//!
//! Invariants:
//! - Never call while holding a lock that a handler may take: the answer may need that lock, here or two members on.
//! - An error comes back as the kind it left as ([`WireError`]); what has no kind of its own becomes [`Error::Peer`].
//! - No call outlives the deadline of the service, also to a dead member.
use crate::locks::proto::{LocksReply, LocksRequest, Notice};
use crate::proto::{KernelNews, OneWay, Reply, Request, WireError};
use crate::{Error, Member, Result, files::proto::*, meta::proto::*};
use bytes::Bytes;
use forebay_fabric::{Fabric, Message, Rank, Replier};
use forebay_proto::data::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The local parts of a member, as requests reach them.
pub trait Parts: Send + Sync {
    /// A request for the namespace, from member `from`.
    fn meta(&self, from: Member, request: MetaRequest) -> Result<MetaReply>;
    /// A request for file content and sequences.
    fn files(&self, from: Member, request: FilesRequest) -> Result<FilesReply>;
    /// A request for log bytes; the bulk of the reply beside it.
    fn data(&self, from: Member, request: DataRequest) -> Result<(DataReply, Vec<Bytes>)>;
    /// A request for advisory locks. Parts that keep none refuse it.
    fn locks(&self, _from: Member, _request: LocksRequest) -> Result<LocksReply> {
        Err(rustix::io::Errno::NOLCK.into())
    }
    /// A lock that this node waits for is there.
    fn notice(&self, _notice: Notice) {}
    /// This node's kernel has to hear of something; `done` hears when it has. Does not wait itself.
    fn renew(&self, _news: KernelNews, done: Renewed) {
        done(Ok(()));
    }
}

/// Hears that a node's kernel has heard, or why it has not.
pub type Renewed = Box<dyn FnOnce(Result<()>) + Send>;

/// One member's view of all members, itself included.
pub struct Peers {
    member: Member,
    members: u16,
    fabric: Arc<dyn Fabric>,
    deadline: Duration,
    local: OnceLock<Weak<dyn Parts>>,
    asked: Load,
}

/// Requests of one kind: how many there were, and how many there are now.
#[derive(Debug, Default)]
pub(crate) struct Load {
    all: AtomicU64,
    now: AtomicU64,
}

impl Load {
    /// One more, until the guard is dropped.
    pub fn enter(&self) -> impl Drop + '_ {
        struct Inside<'a>(&'a AtomicU64);
        impl Drop for Inside<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.all.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::Relaxed);
        Inside(&self.now)
    }

    /// Since the start, and now.
    pub fn figures(&self) -> (u64, u64) {
        (
            self.all.load(Ordering::Relaxed),
            self.now.load(Ordering::Relaxed),
        )
    }
}

impl Peers {
    /// `deadline`: how long a request to another member may take.
    pub fn new(fabric: Arc<dyn Fabric>, deadline: Duration) -> Arc<Peers> {
        Arc::new(Peers {
            // In `fabric::local` a member's rank is its number.
            member: fabric.rank() as Member,
            members: fabric.size() as u16,
            fabric,
            deadline,
            local: OnceLock::new(),
            asked: Load::default(),
        })
    }

    /// Names the local parts. Once, before the first request; requests to oneself before that fail with `Closed`.
    pub fn bind(&self, parts: Weak<dyn Parts>) {
        // A second call would be a mistake of the service; the first one stays.
        let _ = self.local.set(parts);
    }

    /// This member.
    pub fn member(&self) -> Member {
        self.member
    }

    /// How many members the service has.
    pub fn members(&self) -> u16 {
        self.members
    }

    /// The fabric of requests.
    pub fn fabric(&self) -> &Arc<dyn Fabric> {
        &self.fabric
    }

    /// How long a request to another member may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Requests to other members: sent since the start, and waiting for their answers now.
    pub fn load(&self) -> (u64, u64) {
        self.asked.figures()
    }

    /// Asks the namespace of member `to`.
    pub fn meta(&self, to: Member, request: MetaRequest) -> Result<MetaReply> {
        if to == self.member {
            return self.local()?.meta(to, request);
        }
        match self.call(to, Request::Meta(request))? {
            (Reply::Meta(reply), _) => Ok(reply),
            (other, _) => Err(unexpected(to, &other)),
        }
    }

    /// Asks the content side of member `to`.
    pub fn files(&self, to: Member, request: FilesRequest) -> Result<FilesReply> {
        if to == self.member {
            return self.local()?.files(to, request);
        }
        match self.call(to, Request::Files(request))? {
            (Reply::Files(reply), _) => Ok(reply),
            (other, _) => Err(unexpected(to, &other)),
        }
    }

    /// Asks the data plane of member `to`.
    pub fn data(&self, to: Member, request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> {
        if to == self.member {
            return self.local()?.data(to, request);
        }
        match self.call(to, Request::Data(request))? {
            (Reply::Data(reply), bulk) => Ok((reply, bulk)),
            (other, _) => Err(unexpected(to, &other)),
        }
    }

    /// Asks the keeper of locks of member `to`.
    pub fn locks(&self, to: Member, request: LocksRequest) -> Result<LocksReply> {
        if to == self.member {
            return self.local()?.locks(to, request);
        }
        match self.call(to, Request::Locks(request))? {
            (Reply::Locks(reply), _) => Ok(reply),
            (other, _) => Err(unexpected(to, &other)),
        }
    }

    /// Returns once the kernel of another member's node has heard.
    pub fn renew(&self, to: Member, news: KernelNews) -> Result<()> {
        match self.call(to, Request::Renew(news))? {
            (Reply::Renewed, _) => Ok(()),
            (other, _) => Err(unexpected(to, &other)),
        }
    }

    /// Tells a node that a lock it waits for is there. It asks by itself if this gets lost.
    pub fn notice(&self, to: Member, notice: Notice) {
        if to == self.member {
            if let Ok(parts) = self.local() {
                parts.notice(notice);
            }
            return;
        }
        let message = Message::new(encode(&OneWay::Lock(notice)));
        if let Err(e) = self.fabric.send(Rank::from(to), message) {
            tracing::debug!(to, error = %e, "a notice of a granted lock could not be sent");
        }
    }

    fn local(&self) -> Result<Arc<dyn Parts>> {
        let parts = self.local.get().and_then(Weak::upgrade);
        parts.ok_or(Error::Fabric(forebay_fabric::Error::Closed))
    }

    fn call(&self, to: Member, request: Request) -> Result<(Reply, Vec<Bytes>)> {
        let message = Message {
            head: encode(&request),
            bulk: Vec::new(),
        };
        let _counted = self.asked.enter();
        let answer = self.fabric.call(Rank::from(to), message, self.deadline)?;
        let decoded: Result<Reply, WireError> =
            postcard::from_bytes(&answer.head).map_err(|e| Error::Peer {
                member: to,
                reason: format!("unreadable answer: {e}"),
            })?;
        match decoded {
            Ok(reply) => Ok((reply, answer.bulk)),
            Err(error) => Err(error.into_error(to)),
        }
    }
}

/// Answers one request that came over the fabric: decodes, asks the part, replies.
pub fn answer(parts: &dyn Parts, from: Rank, message: Message, replier: Replier) {
    let member = from as Member;
    let mut bulk = Vec::new();
    let result = match postcard::from_bytes::<Request>(&message.head) {
        Ok(Request::Renew(news)) => {
            let done = move |renewed: Result<()>| {
                let renewed = renewed.map(|()| Reply::Renewed);
                let result: Result<Reply, WireError> = renewed.map_err(|e| WireError::from(&e));
                replier.reply(Message::new(encode(&result)));
            };
            return parts.renew(news, Box::new(done));
        }
        Ok(Request::Meta(request)) => parts.meta(member, request).map(Reply::Meta),
        Ok(Request::Files(request)) => parts.files(member, request).map(Reply::Files),
        Ok(Request::Data(request)) => parts.data(member, request).map(|(reply, bytes)| {
            bulk = bytes;
            Reply::Data(reply)
        }),
        Ok(Request::Locks(request)) => parts.locks(member, request).map(Reply::Locks),
        Err(e) => Err(Error::Corrupt(format!(
            "unreadable request from member {member}: {e}"
        ))),
    };
    let result: Result<Reply, WireError> = result.map_err(|e| WireError::from(&e));
    replier.reply(Message {
        head: encode(&result),
        bulk,
    });
}

/// Hands on one message that came one way.
pub fn deliver(parts: &dyn Parts, from: Rank, message: &Message) {
    match postcard::from_bytes::<OneWay>(&message.head) {
        Ok(OneWay::Lock(notice)) => parts.notice(notice),
        Err(e) => tracing::warn!(from, error = %e, "an unreadable one-way message"),
    }
}

fn encode<T: serde::Serialize>(value: &T) -> Bytes {
    // Requests and replies hold no type that postcard cannot write; were one added, the peer answers "unreadable".
    Bytes::from(postcard::to_stdvec(value).unwrap_or_default())
}

fn unexpected(member: Member, reply: &Reply) -> Error {
    Error::Peer {
        member,
        reason: format!("answered something else than asked: {reply:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fid;
    use forebay_fabric::Handler;
    use forebay_fabric::local::{self, LocalFabric};
    use rustix::io::Errno;

    struct Echo;
    impl Parts for Echo {
        fn meta(&self, _from: Member, request: MetaRequest) -> Result<MetaReply> {
            match request {
                MetaRequest::Parent { fid } => Ok(MetaReply::Parent(fid)),
                MetaRequest::Lookup { .. } => Err(Errno::NOENT.into()),
                MetaRequest::ReadLink { .. } => Err(Error::Gone {
                    member: 1,
                    log: 2,
                    addr: 3,
                }),
                MetaRequest::GetAttr { .. } => Err(Error::Stale),
                _ => Err(forebay_storage::Error::NoSpace { path: "x".into() }.into()),
            }
        }
        fn files(&self, from: Member, _request: FilesRequest) -> Result<FilesReply> {
            Ok(FilesReply::Offset(u64::from(from)))
        }
        fn data(&self, _from: Member, _request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> {
            Ok((
                DataReply::Read,
                vec![Bytes::from_static(b"ab"), Bytes::new()],
            ))
        }
    }

    impl Handler for Echo {
        fn request(&self, from: Rank, message: Message, replier: Replier) {
            answer(self, from, message, replier);
        }
        fn message(&self, _from: Rank, _message: Message) {}
    }

    /// Members that answer so, and the first one's view of them.
    fn echoes(n: u32) -> (Arc<Echo>, Vec<Arc<LocalFabric>>, Arc<Peers>) {
        let (echo, ends) = (Arc::new(Echo), local::fabric(n));
        for end in &ends {
            end.serve(echo.clone());
        }
        let peers = Peers::new(ends[0].clone(), Duration::from_secs(5));
        let parts: Weak<Echo> = Arc::downgrade(&echo);
        peers.bind(parts);
        (echo, ends, peers)
    }

    #[test]
    fn a_request_and_its_error_arrive_the_same_from_oneself_and_from_another() {
        let (_echo, _ends, peers) = echoes(2);
        for to in 0..2 {
            let fid = Fid(77);
            assert!(matches!(
                peers.meta(to, MetaRequest::Parent { fid }),
                Ok(MetaReply::Parent(Fid(77)))
            ));
            let lookup = MetaRequest::Lookup {
                parent: fid,
                name: vec![],
            };
            assert_eq!(peers.meta(to, lookup).unwrap_err().errno(), Errno::NOENT);
            let gone = peers.meta(to, MetaRequest::ReadLink { fid });
            assert!(matches!(
                gone,
                Err(Error::Gone {
                    member: 1,
                    log: 2,
                    addr: 3
                })
            ));
            assert!(matches!(
                peers.meta(to, MetaRequest::GetAttr { fid }),
                Err(Error::Stale)
            ));
            let full = peers.meta(to, MetaRequest::ListXattr { fid });
            assert_eq!(full.unwrap_err().errno(), Errno::NOSPC);
            assert!(matches!(
                peers.files(to, FilesRequest::View { fid }),
                Ok(FilesReply::Offset(0))
            ));
            let (_, bulk) = peers.data(to, DataRequest::Space).unwrap();
            assert_eq!(bulk, vec![Bytes::from_static(b"ab"), Bytes::new()]);
        }
    }

    #[test]
    fn a_dead_member_is_an_error_and_no_other_is() {
        let (_echo, ends, peers) = echoes(3);
        ends[1].close();
        let ask = |to| peers.files(to, FilesRequest::View { fid: Fid(1) });
        assert_eq!(ask(1).unwrap_err().errno(), Errno::IO);
        assert!(ask(2).is_ok());
    }
}
