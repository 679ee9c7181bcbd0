//! The member of a server that is one process of a job, and its connection to the members in other processes.
use crate::control::{DeadMember, PeerHealth};
use crate::members::LocalMembers;
use crate::spec::MemberLocation;
use forebay_fabric::session::{self, Session, SessionEnd};
use forebay_server::{Delegate, JoinedMember, MemberStatus};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// See the head of this file.
pub struct JobMember {
    /// The member.
    pub joined: JoinedMember,
    /// The way to the other processes.
    pub session: Session,
    /// Where all members run, once all are ready.
    pub locations: Arc<OnceLock<Vec<MemberLocation>>>,
    /// Reports that the member has stopped.
    pub stopped: Box<dyn FnOnce() + Send>,
}

impl LocalMembers for JobMember {
    fn stats(&self, scan_wait: Duration) -> forebay_server::Result<Vec<MemberStatus>> {
        Ok(vec![self.joined.cached_status(scan_wait)?])
    }

    fn peers(&self) -> Vec<PeerHealth> {
        let seen = |peer: session::Peer| PeerHealth {
            member: peer.rank as u16,
            health: peer.health,
            silent_seconds: peer.silent.as_secs_f64(),
        };
        let own = self.session.rank();
        let others = self.session.peers().into_iter().filter(|p| p.rank != own);
        others.map(seen).collect()
    }

    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)> {
        vec![(self.session.rank() as u16, self.joined.delegate())]
    }

    fn members(&self) -> u16 {
        self.session.size() as u16
    }

    fn store_subdir(&self, _member: u16) -> PathBuf {
        PathBuf::new()
    }

    fn dead(&self) -> Vec<DeadMember> {
        let is_dead = |member: u16| {
            let mut peers = self.session.peers().into_iter();
            peers.any(|p| p.rank == u32::from(member) && p.health == session::Health::Dead)
        };
        let locations = self.locations.get().into_iter().flatten();
        let dead = locations.filter(|location| is_dead(location.member));
        dead.map(|location| DeadMember {
            member: location.member,
            host: location.host.clone(),
            pid: location.pid,
        })
        .collect()
    }

    fn leave(&self, why: &str, over: bool) {
        self.joined.barrier().tell_stop(why, over);
    }

    fn stop(self: Box<Self>, limit: Duration) -> forebay_server::Result<()> {
        let result = self.joined.stop(limit);
        // The end of the session may wait for a launcher that hangs; to the store it makes no difference any more.
        (self.stopped)();
        if self.session.stop(limit) == SessionEnd::Abandoned {
            tracing::warn!(
                "a member has died: ended without MPI_Finalize, which would wait for it"
            );
        }
        result
    }
}
