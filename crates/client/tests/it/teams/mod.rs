//! A service in one process with a team of clients at all of its nodes, each client a thread.
use crate::backends::BackendKind;
use forebay_client::embedded::EmbeddedClient;
use forebay_client::link::server::{LinkLimits, LinkServer};
use forebay_client::link::socket_of;
use forebay_client::{Client, Team};
use forebay_fabric::fault::{Faults, Intercept, InterceptedCall, intercepted};
use forebay_fabric::{Error, Fabric, Message, Rank};
use forebay_server::{Caller, Config, Service};
use forebay_storage::OsIo;
use forebay_testkit::prerequisites::scratch;
use forebay_testkit::wait::until;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

pub struct TeamCluster {
    service: Service,
    pub faults: Arc<Faults>,
    death: Arc<PlannedKill>,
    teams: AtomicU32,
    /// How many clients at each node.
    here: Vec<u32>,
    links: Vec<LinkServer>,
    /// A client of each node's link, if that is the backend.
    linked: Vec<Client>,
    dir: TempDir,
}

/// A client in its team.
pub struct JoinedClient {
    team: Team,
    place: u64,
    node: u16,
}

impl JoinedClient {
    /// Its number among all clients.
    pub fn place(&self) -> u64 {
        self.place
    }

    pub fn node(&self) -> u16 {
        self.node
    }
}

impl Deref for JoinedClient {
    type Target = Team;
    fn deref(&self) -> &Team {
        &self.team
    }
}

impl DerefMut for JoinedClient {
    fn deref_mut(&mut self) -> &mut Team {
        &mut self.team
    }
}

/// A server that is to die.
struct PlannedKill {
    left: AtomicI64,
    victim: AtomicU32,
}

impl Default for PlannedKill {
    fn default() -> PlannedKill {
        PlannedKill {
            left: AtomicI64::new(i64::MAX),
            victim: AtomicU32::new(0),
        }
    }
}

struct KillAtStep {
    death: Arc<PlannedKill>,
    faults: Arc<Faults>,
}

impl KillAtStep {
    fn step(&self) {
        if self.death.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.faults.kill(self.death.victim.load(Ordering::SeqCst));
        }
    }
}

impl Intercept for KillAtStep {
    fn call(&self, call: InterceptedCall<'_>) -> Result<Message, Error> {
        self.step();
        call.proceed()
    }

    fn send(&self, end: &dyn Fabric, to: Rank, message: Message) -> Result<(), Error> {
        self.step();
        end.send(to, message)
    }
}

impl TeamCluster {
    /// `n` nodes, with so many clients each, in turn.
    pub fn new(n: u16, here: &[u32]) -> TeamCluster {
        TeamCluster::hasty(n, here, Duration::from_secs(60))
    }

    pub fn hasty(n: u16, here: &[u32], deadline: Duration) -> TeamCluster {
        TeamCluster::seeded(n, here, deadline, 7)
    }

    pub fn seeded(n: u16, here: &[u32], deadline: Duration, seed: u64) -> TeamCluster {
        let (dir, faults) = (scratch(), Faults::new(seed));
        let death = Arc::new(PlannedKill::default());
        let config = Config {
            nodes: n,
            memory: 16 << 20,
            deadline,
            ..Config::default()
        };
        let wrap = |end| {
            let killing = KillAtStep {
                death: death.clone(),
                faults: faults.clone(),
            };
            intercepted(faults.wrap(end), Arc::new(killing))
        };
        let store = dir.path().join("store");
        let service = Service::start_over(Arc::new(OsIo), &store, config, wrap).unwrap();
        TeamCluster {
            service,
            faults: faults.clone(),
            death: death.clone(),
            teams: AtomicU32::new(1),
            here: here.iter().copied().cycle().take(n.into()).collect(),
            links: Vec::new(),
            linked: Vec::new(),
            dir,
        }
    }

    /// Its clients use this backend from now on.
    #[must_use]
    pub fn over(mut self, kind: BackendKind) -> TeamCluster {
        if kind == BackendKind::Link {
            for node in 0..self.nodes() {
                let socket = socket_of(self.dir.path(), node);
                let limits = LinkLimits::default();
                let link = LinkServer::start(&socket, self.service.delegate(node), limits);
                self.links.push(link.unwrap());
                self.linked.push(Client::connect(&socket).unwrap());
            }
        }
        self
    }

    /// The server dies before the `step`th message from now.
    pub fn kill_at(&self, step: u64, victim: u32) {
        self.death.victim.store(victim, Ordering::SeqCst);
        self.death.left.store(step as i64, Ordering::SeqCst);
    }

    /// It is there again, if it died.
    pub fn kill_no_more(&self, victim: u32) {
        self.death.left.store(i64::MAX, Ordering::SeqCst);
        self.faults.revive(victim);
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    pub fn nodes(&self) -> u16 {
        self.here.len() as u16
    }

    pub fn clients(&self) -> u64 {
        self.here.iter().map(|h| u64::from(*h)).sum()
    }

    pub fn client(&self, node: u16) -> Client {
        let linked = self.linked.get(usize::from(node)).cloned();
        linked.unwrap_or_else(|| Client::new(self.service.delegate(node)))
    }

    /// For what only the process of the server can ask.
    pub fn embedded(&self, node: u16, uid: u32, gid: u32) -> EmbeddedClient {
        EmbeddedClient::new(self.service.delegate(node), Caller { uid, gid })
    }

    /// Each client in a thread of its own, as one team; what they return, by place.
    pub fn all<T: Send>(&self, f: impl Fn(&mut JoinedClient) -> T + Sync) -> Vec<T> {
        self.some(|_| true, f).into_iter().flatten().collect()
    }

    /// As `all`, but only these clients come. A new team each time: after a failure its clients are not at the same call.
    pub fn some<T: Send>(
        &self,
        who: impl Fn(u64) -> bool,
        f: impl Fn(&mut JoinedClient) -> T + Sync,
    ) -> Vec<Option<T>> {
        let mut seats = Vec::new();
        let number = self.teams.fetch_add(1, Ordering::SeqCst);
        for (node, here) in (0..).zip(&self.here) {
            let client = self.client(node);
            for _ in 0..*here {
                let place = seats.len() as u64;
                let team = client.team(&client.plan_of_all(number, *here)).unwrap();
                seats.push(JoinedClient { team, place, node });
            }
        }
        std::thread::scope(|scope| {
            let start = |mut seat: JoinedClient| {
                let f = &f;
                who(seat.place).then(|| scope.spawn(move || f(&mut seat)))
            };
            let threads: Vec<_> = seats.into_iter().map(start).collect();
            let join =
                |t: Option<std::thread::ScopedJoinHandle<'_, T>>| t.map(|t| t.join().unwrap());
            threads.into_iter().map(join).collect()
        })
    }

    /// No call of a team has failed at any node.
    pub fn no_failures(&self) {
        let status = self.service.status().unwrap();
        assert!(status.iter().all(|m| m.team_failures == 0), "{status:?}");
    }

    /// Waits until no node has a file open, nor an owner counts one as open.
    pub fn nothing_open(&self) {
        let nodes = self.service.nodes();
        until("no file is open", || {
            let counted: u64 = nodes.iter().map(|n| n.files.open_files()).sum();
            let held = (0..self.nodes()).map(|n| self.service.delegate(n).open_files() as u64);
            counted + held.sum::<u64>() == 0
        });
    }

    pub fn stop(self) {
        drop((self.linked, self.links));
        self.service.stop().unwrap();
    }
}

/// What all agree on.
#[track_caller]
pub fn all_same<T: PartialEq + std::fmt::Debug>(mut all: Vec<T>) -> T {
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
    all.pop().unwrap()
}
