//! Members of a service in one process, wired to each other by plain calls: for tests of their parts.
use crate::{Member, Result};
use forebay_fabric::Message;
use forebay_proto::{PeerRpc, Request};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;

/// A part of each member, which comes and goes.
pub(crate) struct TestMembers<P>(Vec<RwLock<Option<Arc<P>>>>);

impl<P> TestMembers<P> {
    /// None of them runs.
    pub fn new(members: u16) -> TestMembers<P> {
        TestMembers((0..members).map(|_| RwLock::new(None)).collect())
    }

    /// How many members there are.
    pub fn count(&self) -> u16 {
        self.0.len() as u16
    }

    /// The member runs.
    pub fn start(&self, member: Member, part: P) {
        *self.0[usize::from(member)].write() = Some(Arc::new(part));
    }

    /// The member runs no more. Waits until nobody is in [`TestMembers::ask`] of it.
    pub fn stop(&self, member: Member) -> Option<Arc<P>> {
        self.0[usize::from(member)].write().take()
    }

    /// The part, if the member runs.
    pub fn get(&self, member: Member) -> Option<Arc<P>> {
        self.0[usize::from(member)].read().clone()
    }

    /// Has the part answer, if the member runs. It does not stop in the middle of that.
    pub fn ask<R>(&self, member: Member, ask: impl FnOnce(&P) -> R) -> Option<R> {
        let part = self.0[usize::from(member)].read_recursive();
        part.as_ref().map(|part| ask(part))
    }
}

/// How a part of `member` asks other members: by a function.
pub(crate) struct TestPeers<F> {
    pub member: Member,
    pub members: u16,
    pub deadline: Duration,
    pub exchange: F,
}

impl<F: Fn(Member, Request) -> Result<Message> + Send + Sync> PeerRpc for TestPeers<F> {
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
        (self.exchange)(to, request)
    }
}
