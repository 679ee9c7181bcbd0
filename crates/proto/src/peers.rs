//! One member's view of all members: typed requests to oneself as plain calls, to others over the fabric.
//!
//! `peers.call(member, request)` gives the reply that belongs to the request ([`Call::Reply`]). A request to the own member is a
//! direct call of its service, in the caller's thread; another member's travels as a postcard head with its bulk bytes beside it.
//!
//! Invariants:
//! - Never call while holding a lock that a handler may take: the answer may need that lock, here or two members on.
//! - An error comes back as the kind it left as ([`WireError`](crate::WireError)); what has no kind of its own becomes
//!   [`Error::Peer`].
//! - No call outlives the deadline of the service, also to a dead member.
use crate::call::Call;
use crate::locks::GrantNotice;
use crate::placement::{member_at, rank_of};
use crate::wire::{KernelInvalidation, MemberPart, MemberServices, OneWay, PeerCall, Request};
use crate::{Error, Member, Result};
use bytes::Bytes;
use forebay_fabric::{Fabric, Message, Rank, Replier};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How a part of a member asks other members. A trait, so that tests can lose requests and replies.
pub trait PeerRpc: Send + Sync {
    /// This member.
    fn member(&self) -> Member;
    /// How many members the service has.
    fn members(&self) -> u16;
    /// How long a request to another member may take.
    fn deadline(&self) -> Duration;
    /// Brings a request to member `to`, and its encoded reply back. Callers want [`call`](#method.call).
    ///
    /// # Errors
    /// When the member cannot be reached. What it answers in place of a reply is in the message.
    fn exchange(&self, to: Member, request: Request) -> Result<Message>;
    /// Returns once the kernel of the node of member `to`, which may be this one, has dropped this; within `limit`, where the
    /// transport knows limits.
    ///
    /// # Errors
    /// Why it has not; a fabric error if the member does not answer in time.
    fn invalidate_kernel_within(
        &self,
        to: Member,
        what: KernelInvalidation,
        _limit: Duration,
    ) -> Result<()> {
        KernelInvalidation::decode_reply(to, self.exchange(to, what.into())?)
    }
}

impl dyn PeerRpc {
    /// Asks member `to`.
    ///
    /// # Errors
    /// What the member answers in place of a reply; a fabric error if it does not answer.
    pub fn call<C: PeerCall>(&self, to: Member, request: C) -> Result<C::Reply> {
        C::decode_reply(to, self.exchange(to, request.into())?)
    }
}

/// See the head of this file.
pub struct Peers {
    member: Member,
    members: u16,
    fabric: Arc<dyn Fabric>,
    deadline: Duration,
    local: OnceLock<Weak<dyn MemberServices>>,
    asked: RequestGauge,
}

/// Requests of one kind: how many there were, and how many there are now.
#[derive(Debug, Default)]
pub struct RequestGauge {
    all: AtomicU64,
    now: AtomicU64,
}

impl RequestGauge {
    /// One more, until the guard is dropped.
    pub fn enter(&self) -> impl Drop + '_ {
        struct GaugeGuard<'a>(&'a AtomicU64);
        impl Drop for GaugeGuard<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.all.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(&self.now)
    }

    /// Since the start, and now.
    pub fn counts(&self) -> (u64, u64) {
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
            member: member_at(fabric.rank()),
            members: fabric.size() as u16,
            fabric,
            deadline,
            local: OnceLock::new(),
            asked: RequestGauge::default(),
        })
    }

    /// Names the local parts. Once, before the first request; requests to oneself before that fail with `Closed`.
    pub fn bind(&self, services: Weak<dyn MemberServices>) {
        // A second call would be a mistake of the service; the first one stays.
        let _ = self.local.set(services);
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
        self.asked.counts()
    }

    /// Asks member `to`.
    ///
    /// # Errors
    /// What the member answers in place of a reply; a fabric error if it does not answer.
    pub fn call<C: PeerCall>(&self, to: Member, request: C) -> Result<C::Reply> {
        if to == self.member {
            let services = self.local()?;
            return request.serve(<C::Service as MemberPart>::of(&*services)?, to);
        }
        C::decode_reply(to, self.send(to, request.into(), self.deadline)?)
    }

    /// Returns once the kernel of another member's node has dropped this.
    ///
    /// # Errors
    /// Why it has not; a fabric error if the member does not answer.
    pub fn invalidate_kernel(&self, to: Member, what: KernelInvalidation) -> Result<()> {
        KernelInvalidation::decode_reply(to, self.send(to, what.into(), self.deadline)?)
    }

    /// Tells a node that a lock it waits for is there. It asks by itself if this gets lost.
    pub fn notify_granted(&self, to: Member, notice: GrantNotice) {
        if to == self.member {
            if let Ok(services) = self.local() {
                services.granted(notice);
            }
            return;
        }
        let sent = encode(to, &OneWay::Lock(notice)).and_then(|head| {
            let sent = self.fabric.send(rank_of(to), Message::new(head));
            sent.map_err(Error::from)
        });
        if let Err(e) = sent {
            tracing::debug!(to, error = %e, "a notice of a granted lock could not be sent");
        }
    }

    fn local(&self) -> Result<Arc<dyn MemberServices>> {
        let services = self.local.get().and_then(Weak::upgrade);
        services.ok_or(Error::Fabric(forebay_fabric::Error::Closed))
    }

    fn send(&self, to: Member, request: Request, limit: Duration) -> Result<Message> {
        let message = Message::new(encode(to, &request)?);
        let _counted = self.asked.enter();
        Ok(self.fabric.call(rank_of(to), message, limit)?)
    }
}

impl PeerRpc for Peers {
    fn member(&self) -> Member {
        self.member
    }
    fn members(&self) -> u16 {
        self.members
    }
    fn deadline(&self) -> Duration {
        self.deadline
    }
    fn exchange(&self, to: Member, request: Request) -> Result<Message> {
        match to == self.member {
            true => request.serve(&*self.local()?, to),
            false => self.send(to, request, self.deadline),
        }
    }
    fn invalidate_kernel_within(
        &self,
        to: Member,
        what: KernelInvalidation,
        limit: Duration,
    ) -> Result<()> {
        if to != self.member {
            return KernelInvalidation::decode_reply(to, self.send(to, what.into(), limit)?);
        }
        let (done, hear) = std::sync::mpsc::sync_channel(1);
        let services = self.local()?;
        services.invalidate_kernel(
            what,
            Box::new(move |dropped| {
                // Who asked may have stopped waiting.
                let _ = done.send(dropped);
            }),
        );
        // A dropped `done` is one that nobody will call any more.
        let heard = hear.recv_timeout(limit);
        heard.unwrap_or(Err(rustix::io::Errno::IO.into()))
    }
}

/// Answers one request that came over the fabric: decodes, asks the part, replies.
pub fn answer(services: &dyn MemberServices, from: Rank, message: Message, replier: Replier) {
    let member = member_at(from);
    let reply = match postcard::from_bytes::<Request>(&message.head) {
        Ok(Request::Kernel(what)) => {
            let done = |dropped| replier.reply(KernelInvalidation::encode_reply(dropped));
            return services.invalidate_kernel(what, Box::new(done));
        }
        Ok(request) => request.serve(services, member),
        Err(e) => Err(Error::Corrupt(format!(
            "unreadable request from member {member}: {e}"
        ))),
    };
    // In place of a reply, an error looks the same whatever was asked.
    let error = |e| KernelInvalidation::encode_reply(Err(e));
    replier.reply(reply.unwrap_or_else(error));
}

/// Hands on one message that came one way.
pub fn deliver(services: &dyn MemberServices, from: Rank, message: &Message) {
    match postcard::from_bytes(&message.head) {
        Ok(OneWay::Lock(notice)) => services.granted(notice),
        Err(e) => tracing::warn!(from, error = %e, "an unreadable one-way message"),
    }
}

fn encode<T: serde::Serialize>(to: Member, value: &T) -> Result<Bytes> {
    let bytes = postcard::to_stdvec(value).map_err(|e| Error::Peer {
        member: to,
        reason: format!("was not asked: the request cannot be encoded: {e}"),
    })?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{
        DataService, FreeRanges, GetStorage, GetUsage, PiecesRead, ReadPieces, RecodeRanges,
        RecodeReport, StorageReport, StoreUsage, SyncLogs, VerifyRanges,
    };
    use crate::files::FilesService;
    use crate::locks::LocksService;
    use crate::meta::{LeafService, OperationService};
    use crate::wire::InvalidationDone;
    use forebay_fabric::{Handler, local};
    use rustix::io::Errno;

    /// A member with log bytes only; each request has an answer of another kind.
    struct DataOnly;

    impl DataService for DataOnly {
        fn read_pieces(&self, _: Member, _: ReadPieces) -> Result<PiecesRead> {
            let buffers = vec![Bytes::from_static(b"ab"), Bytes::new()];
            Ok(PiecesRead {
                buffers,
                ..PiecesRead::default()
            })
        }
        fn free_ranges(&self, _: Member, _: FreeRanges) -> Result<()> {
            Err(Error::Gone {
                member: 1,
                log: 2,
                addr: 3,
            })
        }
        fn sync_logs(&self, _: Member, _: SyncLogs) -> Result<()> {
            Err(forebay_storage::Error::NoSpace { path: "x".into() }.into())
        }
        fn verify_ranges(&self, _: Member, _: VerifyRanges) -> Result<Vec<bool>> {
            Err(Error::Replan)
        }
        fn get_usage(&self, from: Member, _: GetUsage) -> Result<StoreUsage> {
            let n = u64::from(from);
            Ok(StoreUsage {
                live: n,
                total: n + 1,
                free: n + 2,
            })
        }
        fn get_storage(&self, _: Member, _: GetStorage) -> Result<StorageReport> {
            Err(Errno::NOSYS.into())
        }
        fn recode_ranges(&self, _: Member, _: RecodeRanges) -> Result<RecodeReport> {
            Err(Errno::NOSYS.into())
        }
    }

    impl MemberServices for DataOnly {
        fn operations(&self) -> Result<&(dyn OperationService + 'static)> {
            Err(Errno::NOSYS.into())
        }
        fn leaf(&self) -> Result<&(dyn LeafService + 'static)> {
            Err(Errno::NOSYS.into())
        }
        fn files(&self) -> Result<&(dyn FilesService + 'static)> {
            Err(Errno::NOSYS.into())
        }
        fn data(&self) -> Result<&(dyn DataService + 'static)> {
            Ok(self)
        }
        fn locks(&self) -> Result<&(dyn LocksService + 'static)> {
            Err(Errno::NOLCK.into())
        }
        fn granted(&self, _: GrantNotice) {}
        fn invalidate_kernel(&self, _: KernelInvalidation, done: InvalidationDone) {
            done(Ok(()));
        }
    }

    impl Handler for DataOnly {
        fn request(&self, from: Rank, message: Message, replier: Replier) {
            answer(self, from, message, replier);
        }
        fn message(&self, from: Rank, message: Message) {
            deliver(self, from, &message);
        }
    }

    /// Members that serve, and the ends of the fabric that they hold.
    fn members(n: u32) -> Vec<(Arc<Peers>, Arc<DataOnly>)> {
        let one = |end: Arc<dyn Fabric>| {
            let peers = Peers::new(end.clone(), Duration::from_secs(30));
            let services = Arc::new(DataOnly);
            let weak: Weak<DataOnly> = Arc::downgrade(&services);
            peers.bind(weak);
            end.serve(services.clone());
            (peers, services)
        };
        let ends = local::fabric(n).into_iter();
        ends.map(|end| one(end)).collect()
    }

    #[test]
    fn a_reply_and_an_error_arrive_the_same_from_oneself_and_from_another() {
        let members = members(2);
        let peers = &members[0].0;
        let rpc: Arc<dyn PeerRpc> = peers.clone();
        let ranges = Vec::new;
        for to in 0..2 {
            let read = ReadPieces { pieces: Vec::new() };
            let wanted = vec![Bytes::from_static(b"ab"), Bytes::new()];
            assert_eq!(peers.call(to, read.clone()).unwrap().buffers, wanted);
            assert_eq!(rpc.call(to, read).unwrap().buffers, wanted);
            let usage = peers.call(to, GetUsage).unwrap();
            assert_eq!((usage.live, usage.free), (0, 2), "asked by member 0");
            assert_eq!(rpc.call(to, GetUsage).unwrap(), usage);
            let gone = peers.call(to, FreeRanges { ranges: ranges() });
            assert!(
                matches!(
                    gone,
                    Err(Error::Gone {
                        member: 1,
                        log: 2,
                        addr: 3
                    })
                ),
                "{gone:?}"
            );
            let stale = peers.call(to, VerifyRanges { ranges: ranges() });
            assert!(matches!(stale, Err(Error::Replan)), "{stale:?}");
            let full = peers.call(to, SyncLogs).unwrap_err();
            assert_eq!(full.errno(), Errno::NOSPC);
            let no_part = peers.call(to, crate::meta::SyncIntents).unwrap_err();
            assert_eq!(no_part.errno(), Errno::NOSYS);
        }
        let moved = KernelInvalidation::Moved {
            fid: crate::Fid::ROOT,
            path: Vec::new(),
        };
        peers.invalidate_kernel(1, moved).unwrap();
    }

    #[test]
    fn a_dead_member_is_an_error_and_no_other_is() {
        let members = members(3);
        members[1].0.fabric().close();
        let ask = |to| members[0].0.call(to, GetUsage);
        assert_eq!(ask(1).unwrap_err().errno(), Errno::IO);
        assert!(ask(2).is_ok());
    }

    #[test]
    fn what_is_no_reply_is_the_peers_error() {
        for head in [&b""[..], &[7], &[0, 1]] {
            let message = Message::new(Bytes::copy_from_slice(head));
            let error = GetUsage::decode_reply(3, message).unwrap_err();
            assert!(matches!(error, Error::Peer { member: 3, .. }), "{error}");
        }
    }
}
