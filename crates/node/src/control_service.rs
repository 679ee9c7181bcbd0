//! The answers of a running server: to clients on its control socket, to the other servers of its service, and to readers
//! of its metrics.
use crate::control::{
    ControlHandler, ControlReply, ControlRequest, MemberEntry, MissingMember, PeerHealth,
    ProcessStatus, Status,
};
use crate::events::ServerEvent;
use crate::links::LinkServers;
use crate::members::LocalMembers;
use crate::mount_table;
use crate::open_files;
use crate::rates::RateSampler;
use crate::recording::RecordingService;
use crate::server_context::ServerContext;
use crate::server_rpc::{PeerHandler, PeerReply, PeerRequest, reply};
use crate::spec::host;
use crate::stage::StageService;
use forebay_fuse::OpenHandles;
use forebay_server::Fid;
use forebay_server::delegate::{RecodeCursor, RecodeStep};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::time::{Duration, Instant};

/// How long another process may take to answer.
const PEER_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for one that was not heard for longer than [`SUSPECT_AFTER_SECONDS`].
const SUSPECT_REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Three heartbeats.
const SUSPECT_AFTER_SECONDS: f64 = 3.0;
/// How long is waited for figures that cost a look at every file.
const SCAN_WAIT: Duration = Duration::from_millis(300);

/// Answers status itself, and hands stop requests to the main thread.
pub struct ControlService {
    /// What it serves.
    pub server: Arc<ServerContext>,
    /// What is open on each of its mounts.
    pub handles: Vec<Arc<OpenHandles>>,
    /// Since when it is ready.
    pub since: Instant,
    /// Its stage jobs.
    pub stages: Arc<StageService>,
    /// Its recordings.
    pub recordings: Arc<RecordingService>,
    /// Its connections to other programs.
    pub links: Arc<LinkServers>,
    /// What goes through it.
    pub rates: RateSampler,
    /// Where its metrics are served.
    pub metrics: Option<String>,
    /// To the main thread.
    pub events: Mutex<Sender<ServerEvent>>,
}

impl ControlHandler for ControlService {
    fn answer(&self, ask: ControlRequest, asker: u32) -> ControlReply {
        match ask {
            ControlRequest::Status => match self.status() {
                Ok(status) => ControlReply::Status(Box::new(status)),
                Err(why) => ControlReply::Refused(why),
            },
            ControlRequest::Stop { force } => self.stop(force, asker),
            ControlRequest::Stage(ask) => self.stages.answer(ask, asker),
            ControlRequest::Record(ask) => self.recordings.answer(ask),
            ControlRequest::Recode { fid, place } => self
                .recode(Fid(fid), place)
                .map_or_else(ControlReply::Refused, ControlReply::Recoded),
        }
    }
}

impl PeerHandler for ControlService {
    fn answer(&self, _from: u16, question: PeerRequest) -> PeerReply {
        match question {
            PeerRequest::Status => reply(self.own_status()?),
            PeerRequest::Stage(ask) => self.stages.answer_server(ask),
            PeerRequest::Record(ask) => self.recordings.answer_server(ask),
            PeerRequest::Busy { host: its, asker } => {
                // On another machine its number means another process.
                let asker = if its == host() { asker } else { 0 };
                let why = self.stop_obstacle(asker);
                reply(why.map(|why| format!("on {}: {why}", host())))
            }
        }
    }
}

impl ControlService {
    /// A step of encoding a file again, through a delegate of this process.
    fn recode(&self, fid: Fid, place: RecodeCursor) -> Result<RecodeStep, String> {
        let shown = self.server.store.display();
        let found = self.server.with_members(|members| {
            let delegate = members.delegates().into_iter().next();
            (delegate, members.is_read_only())
        });
        let delegate = match found {
            Some((_, true)) => {
                return Err(format!(
                    "the salvaged store {shown} is read-only; copy its files into a new service"
                ));
            }
            Some((Some((_, delegate)), false)) => delegate,
            Some((None, false)) | None => {
                return Err(format!("the service of {shown} is stopping; try again"));
            }
        };
        let step = delegate.locator.recode_step(fid, place);
        step.map_err(|e| format!("cannot encode it again: {e}; see the log of {shown}"))
    }

    /// Of all processes of the service.
    fn status(&self) -> Result<Status, String> {
        let mut status = self.own_status()?;
        let peers: BTreeMap<u16, PeerHealth> = status
            .processes
            .iter()
            .flat_map(|p| p.peers.iter().map(|peer| (peer.member, *peer)))
            .collect();
        let timeout = |member| match peers.get(&member) {
            Some(peer) if peer.silent_seconds > SUSPECT_AFTER_SECONDS => SUSPECT_REPLY_TIMEOUT,
            _ => PEER_REPLY_TIMEOUT,
        };
        let (rpc, request) = (&self.server.rpc, PeerRequest::Status.encode());
        let requests = rpc.others().map(|m| (m, request.clone(), timeout(m)));
        for (member, said) in rpc.call_each::<Status>(requests) {
            match said {
                Ok(other) => status.add(other),
                Err(why) => {
                    let peer = peers.get(&member);
                    let missing = MissingMember {
                        why,
                        health: peer.map(|p| p.health),
                        silent_seconds: peer.map(|p| p.silent_seconds),
                    };
                    status.missing.insert(member, missing);
                }
            }
        }
        Ok(status)
    }

    /// Of this process alone.
    pub fn own_status(&self) -> Result<Status, String> {
        let shown = self.server.store.display();
        let seen = |members: &dyn LocalMembers| Ok((members.stats(SCAN_WAIT)?, members.peers()));
        let seen: Option<forebay_server::Result<_>> = self.server.with_members(seen);
        let (figures, peers) = seen
            .ok_or_else(|| format!("the service of {shown} is stopping; try again"))?
            .map_err(|e| format!("cannot read the state of {shown}: {e}; see its log"))?;
        let rated = |figures| {
            let mut member = MemberEntry {
                figures,
                ..MemberEntry::default()
            };
            let number = member.figures.member;
            member.rates = self.rates.rates(number, &member.figures.traffic);
            member
        };
        let members: Vec<MemberEntry> = figures.into_iter().map(rated).collect();
        let (link_clients, link_open_files) = self.links.clients();
        let process = ProcessStatus {
            pid: std::process::id(),
            host: host(),
            store: self.server.store.clone(),
            program: env!("CARGO_PKG_VERSION").to_string(),
            uptime_seconds: self.since.elapsed().as_secs(),
            memory: crate::processes::memory(std::process::id()),
            members: members.iter().map(|m| m.figures.member).collect(),
            metrics: self.metrics.clone(),
            stage_jobs: self.stages.running(),
            link_clients,
            link_open_files,
            peers,
        };
        Ok(Status {
            store: process.store.clone(),
            pid: process.pid,
            program: process.program.clone(),
            uptime_seconds: process.uptime_seconds,
            memory: process.memory,
            settings: self.server.settings.clone(),
            mounts: self.server.mounts.clone(),
            members,
            missing: BTreeMap::new(),
            processes: vec![process],
        })
    }

    /// What speaks against stopping this process: a stage job, or open files, as `/proc` shows them of one's own processes, and
    /// as the mounts and links know of everyone's. `asker` does not count.
    fn stop_obstacle(&self, asker: u32) -> Option<String> {
        let seen = || {
            let mut points = self.server.mounts.iter().map(|mount| &mount.path);
            let point = points.find(|p| !crate::processes::holders(p).is_empty())?;
            Some(mount_table::busy(point, asker).text)
        };
        let held = || {
            let mut mounts = self.server.mounts.iter().zip(&self.handles);
            mounts.find_map(|(mount, handles)| open_files::refusal_if_open(mount, handles))
        };
        let linked = || self.links.stop_obstacle();
        let stages = self.stages.stop_obstacle();
        stages.or_else(seen).or_else(held).or_else(linked)
    }

    /// The same for all processes of the service, for all stop together. One that does not answer has nothing to say.
    pub fn busy_anywhere(&self, asker: u32) -> Option<String> {
        let own = self.stop_obstacle(asker);
        if own.is_some() {
            return own;
        }
        let question = PeerRequest::Busy {
            host: host(),
            asker,
        };
        let rpc = &self.server.rpc;
        let all = rpc.call_all::<Option<String>>(&question, PEER_REPLY_TIMEOUT);
        all.into_iter().find_map(|(member, said)| {
            let why = said.ok().flatten()?;
            Some(format!("node {member} {why}"))
        })
    }

    fn stop(&self, force: bool, asker: u32) -> ControlReply {
        let (reply, answer) = sync_channel(1);
        let sent = self.events.lock().send(ServerEvent::StopRequest {
            force,
            asker,
            reply,
        });
        let stopping = || {
            ControlReply::Refused(format!(
                "the service of {} is stopping already",
                self.server.store.display()
            ))
        };
        match sent {
            Ok(()) => answer
                .recv_timeout(self.server.stop_limit)
                .unwrap_or_else(|_| stopping()),
            Err(_) => stopping(),
        }
    }
}
