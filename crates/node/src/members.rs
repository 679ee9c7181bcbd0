//! The members that run in this process, however many they are and however they reach the others.
use crate::control::{DeadMember, PeerHealth};
use forebay_server::salvage::Salvage;
use forebay_server::{Delegate, MemberStatus, Service};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The members that run in this process.
pub trait LocalMembers: Send {
    /// What they hold and have done. Waits `scan_wait` at most for what costs a look at everything.
    fn stats(&self, scan_wait: Duration) -> forebay_server::Result<Vec<MemberStatus>>;
    /// How the members in other processes stand; none if there are no other processes.
    fn peers(&self) -> Vec<PeerHealth> {
        Vec::new()
    }
    /// Each of them: its number and its delegate.
    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)>;
    /// How many members the service has, in all processes.
    fn members(&self) -> u16;
    /// Where the member's directory lies in the store of this process, relative to it.
    fn store_subdir(&self, member: u16) -> PathBuf;
    /// Whether nothing can be changed.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Members in other processes that were declared dead, and where they ran; none if there are no other processes.
    fn dead(&self) -> Vec<DeadMember> {
        Vec::new()
    }
    /// Tells the members in other processes that this one stops, and why;
    /// `over`: the programs that the service was there for have ended.
    fn leave(&self, _why: &str, _over: bool) {}
    /// Commits what is pending and closes; waits for other processes at each step, `limit` at most.
    fn stop(self: Box<Self>, limit: Duration) -> forebay_server::Result<()>;
}

impl LocalMembers for Service {
    fn stats(&self, scan_wait: Duration) -> forebay_server::Result<Vec<MemberStatus>> {
        Service::cached_status(self, scan_wait)
    }

    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)> {
        let delegate = |member| (member, self.delegate(member));
        (0..self.members()).map(delegate).collect()
    }

    fn members(&self) -> u16 {
        Service::members(self)
    }

    fn store_subdir(&self, member: u16) -> PathBuf {
        PathBuf::from(format!("node-{member}"))
    }

    fn stop(self: Box<Self>, _limit: Duration) -> forebay_server::Result<()> {
        Service::stop(*self)
    }
}

impl LocalMembers for Salvage {
    fn stats(&self, scan_wait: Duration) -> forebay_server::Result<Vec<MemberStatus>> {
        self.service()?.cached_status(scan_wait)
    }

    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)> {
        self.service()
            .map_or_else(|_| Vec::new(), LocalMembers::delegates)
    }

    fn members(&self) -> u16 {
        self.service().map_or(0, Service::members)
    }

    fn store_subdir(&self, member: u16) -> PathBuf {
        // Absolute: nothing is written to the store.
        self.scratch().join(format!("node-{member}"))
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn stop(self: Box<Self>, _limit: Duration) -> forebay_server::Result<()> {
        Salvage::stop(*self)
    }
}
