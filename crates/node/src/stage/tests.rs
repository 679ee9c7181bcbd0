//! Several stage services over a fabric in memory, each with some members of one service.
use super::StageService;
use crate::control::{ControlReply, StageJob, StageReply, StageRequest, StageSpec, StageState};
use crate::members::LocalMembers;
use crate::server_context::ServerContext;
use crate::server_rpc::messages::PartRequest;
use crate::server_rpc::{PeerHandler, PeerReply, PeerRequest, ServerRpc};
use forebay_client::stage::StageOptions;
use forebay_fabric::local;
use forebay_server::{Config, Delegate, MemberStatus, Service};
use forebay_storage::OsIo;
use forebay_testkit::tree_compare::assert_same;
use forebay_testkit::wait::{LIMIT, until_some};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One member of a service, as the host of a process sees it.
struct Member {
    member: u16,
    members: u16,
    delegate: Arc<Delegate>,
}

impl LocalMembers for Member {
    fn stats(&self, _: Duration) -> forebay_server::Result<Vec<MemberStatus>> {
        Ok(Vec::new())
    }
    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)> {
        vec![(self.member, self.delegate.clone())]
    }
    fn members(&self) -> u16 {
        self.members
    }
    fn store_subdir(&self, member: u16) -> PathBuf {
        PathBuf::from(format!("node-{member}"))
    }
    fn stop(self: Box<Self>, _: Duration) -> forebay_server::Result<()> {
        Ok(())
    }
}

struct Front(Arc<StageService>);

impl PeerHandler for Front {
    fn answer(&self, _: u16, question: PeerRequest) -> PeerReply {
        match question {
            PeerRequest::Stage(ask) => self.0.answer_server(ask),
            PeerRequest::Status | PeerRequest::Busy { .. } | PeerRequest::Record(_) => {
                Err("no".into())
            }
        }
    }
}

/// Lets threads through once it is open.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    reached: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.reached.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock();
        self.changed.wait_while(&mut open, |open| !*open);
    }
    fn open(&self) {
        *self.open.lock() = true;
        self.changed.notify_all();
    }
}

struct Place {
    services: Vec<Arc<StageService>>,
    servers: Vec<Arc<ServerContext>>,
    _service: Service,
    dir: tempfile::TempDir,
}

fn small() -> StageOptions {
    StageOptions {
        large: 1 << 20,
        piece: 256 << 10,
        ..StageOptions::default()
    }
}

impl Place {
    fn new(members: u16, options: impl Fn(u16) -> StageOptions) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let config = Config {
            nodes: members,
            ..Config::default()
        };
        let service = Service::start(Arc::new(OsIo), &store, config).unwrap();
        let ends = local::fabric(members.into());
        let server = |(member, end): (u16, Arc<local::LocalFabric>)| {
            let host: Box<dyn LocalMembers> = Box::new(Member {
                member,
                members,
                delegate: service.delegate(member),
            });
            Arc::new(ServerContext {
                store: store.clone(),
                settings: BTreeMap::new(),
                stop_limit: LIMIT,
                deadline: LIMIT,
                mounts: Vec::new(),
                members: Mutex::new(Some(host)),
                rpc: ServerRpc::new(end),
            })
        };
        let servers: Vec<_> = (0..members).zip(ends).map(server).collect();
        let stage = |(member, server): (u16, &Arc<ServerContext>)| {
            let stages = StageService::new(server.clone());
            let stages = Arc::new(stages.with(options(member), Duration::from_millis(1500)));
            server.rpc.serve(Arc::new(Front(stages.clone())));
            stages
        };
        let services = (0..members).zip(&servers).map(stage).collect();
        Place {
            services,
            servers,
            _service: service,
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spec(&self, into: bool, from: &Path, to: &Path) -> StageSpec {
        let text = |path: &Path| path.to_str().unwrap().to_string();
        StageSpec {
            into,
            pairs: vec![(text(from), text(to))],
            verify: true,
            sync: true,
            background: true,
            jobs: 1,
        }
    }

    fn ask(&self, service: usize, ask: StageRequest) -> Result<StageReply, String> {
        match self.services[service].answer(ask, std::process::id()) {
            ControlReply::Stage(answer) => Ok(answer),
            ControlReply::Refused(why) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn start(&self, service: usize, spec: &StageSpec) -> u64 {
        match self.ask(service, StageRequest::Start(Box::new(spec.clone()))) {
            Ok(StageReply::Job(job)) => job,
            other => panic!("{other:?}"),
        }
    }

    fn look(&self, service: usize, job: u64) -> StageJob {
        match self.ask(service, StageRequest::Look { job, from: 0 }) {
            Ok(StageReply::Seen(job)) => *job,
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, service: usize) -> Vec<StageJob> {
        match self.ask(service, StageRequest::List) {
            Ok(StageReply::Jobs(jobs)) => jobs,
            other => panic!("{other:?}"),
        }
    }

    fn end(&self, service: usize, job: u64) -> StageJob {
        soon(|| {
            let seen = self.look(service, job);
            (seen.state != StageState::Running).then_some(seen)
        })
    }

    fn run(&self, service: usize, spec: &StageSpec) -> StageJob {
        let job = self.start(service, spec);
        self.end(service, job)
    }

    fn journals(&self) -> usize {
        let dirs = (0..self.services.len()).map(|n| self.path(&format!("store/node-{n}/stage")));
        dirs.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten())
            .count()
    }
}

fn soon<T>(is: impl FnMut() -> Option<T>) -> T {
    until_some(LIMIT, || "it comes".into(), is)
}

/// Small files, a large one, hard links, holes, an attribute.
fn plant(dir: &Path, files: u64) {
    for n in 0..files {
        let below = dir.join(format!("d{}", n % 5));
        std::fs::create_dir_all(&below).unwrap();
        let bytes: Vec<u8> = (0..3000 + n).map(|k| ((k * k + n) >> 3) as u8).collect();
        std::fs::write(below.join(format!("f{n}")), bytes).unwrap();
    }
    let large: Vec<u8> = (0..3_000_001u32)
        .map(|k| (k.wrapping_mul(k) >> 7) as u8)
        .collect();
    std::fs::write(dir.join("large"), large).unwrap();
    std::fs::hard_link(dir.join("d0/f0"), dir.join("d1/again")).unwrap();
    let sparse = std::fs::File::create(dir.join("sparse")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 2 << 20).unwrap();
}

#[track_caller]
fn same(a: &Path, b: &Path) {
    assert_same(a, b);
    assert_eq!(
        b.join("d0/f0").metadata().unwrap().ino(),
        b.join("d1/again").metadata().unwrap().ino()
    );
    assert!(b.join("sparse").metadata().unwrap().blocks() < 1000);
}

#[test]
fn every_server_copies_its_part_and_one_does_the_end() {
    let place = Place::new(3, |_| small());
    let (src, out) = (place.path("src"), place.path("out"));
    plant(&src, 40);
    let told = place.run(1, &place.spec(true, &src, Path::new("/tree")));
    assert_eq!(told.state, StageState::Done, "{told:?}");
    let c = told.counts;
    assert_eq!(
        (c.found_files, c.files, c.verified_files, c.hard_links),
        (42, 42, 42, 1)
    );
    assert_eq!((c.directories, c.failed, c.all_found), (6, 0, 1));
    let told = place.run(2, &place.spec(false, Path::new("/tree"), &out));
    assert_eq!((told.state, told.counts.files), (StageState::Done, 42));
    // The second job of the service, the first of its third server.
    assert_eq!(told.job, 3);
    same(&src, &out);
    assert_eq!(place.journals(), 0, "a job that is done is forgotten");
    let jobs = place.list(0);
    let shown: Vec<_> = jobs.iter().map(|j| (j.job, j.state)).collect();
    assert_eq!(shown, [(2, StageState::Done), (3, StageState::Done)]);
    assert!(
        place
            .services
            .iter()
            .all(|service| service.stop_obstacle().is_none())
    );
    // A name that fails at whichever server is told once, and the rest is copied.
    let spec = place.spec(false, Path::new("/tree"), &out);
    for name in ["d2/f2", "d3/f3", "large"] {
        std::fs::remove_file(out.join(name)).unwrap();
        std::fs::create_dir(out.join(name)).unwrap();
    }
    let told = place.run(0, &spec);
    assert_eq!(told.state, StageState::Failed);
    assert_eq!((told.counts.failed, told.counts.files), (3, 39));
    assert_eq!(told.lines.len(), 3, "{:?}", told.lines);
    assert_eq!(place.journals(), 3);
    let unfinished = |job: &&StageJob| job.state == StageState::Unfinished;
    assert_eq!(place.list(1).iter().filter(unfinished).count(), 0);
}

/// A place with a tree in the service, whose second server stops at the gate in its first file on the way out.
fn held(files: u64) -> (Place, Arc<Gate>, StageSpec) {
    let gate = Arc::new(Gate::default());
    let at = gate.clone();
    let place = Place::new(3, move |member| {
        let gate = at.clone();
        let hook = move |to: &Path, _: &Path| {
            if member == 1 && to.components().any(|c| c.as_os_str() == "out") {
                gate.pass();
            }
        };
        StageOptions {
            hook: Some(Arc::new(hook)),
            ..small()
        }
    });
    let src = place.path("src");
    plant(&src, files);
    let told = place.run(0, &place.spec(true, &src, Path::new("/tree")));
    assert_eq!(told.state, StageState::Done, "{told:?}");
    let spec = place.spec(false, Path::new("/tree"), &place.path("out"));
    (place, gate, spec)
}

#[test]
fn a_job_is_seen_refused_and_cancelled_at_any_server_and_goes_on_at_another() {
    let (place, gate, spec) = held(60);
    let job = place.start(0, &spec);
    soon(|| (gate.reached.load(Ordering::SeqCst) == 1).then_some(()));
    // All but what the second server has to do.
    soon(|| (place.look(0, job).counts.files >= 30).then_some(()));
    for service in 0..3 {
        let jobs = place.list(service);
        let last = jobs.last().unwrap();
        assert_eq!((last.job, last.state), (job, StageState::Running));
        let busy = place.services[service].stop_obstacle().unwrap();
        assert!(busy.contains(&format!("stage job {job} runs")), "{busy}");
        let again = place.ask(service, StageRequest::Start(Box::new(spec.clone())));
        let why = again.unwrap_err();
        assert!(why.contains("copies the same already"), "{why}");
    }
    place.ask(2, StageRequest::Cancel { job }).unwrap();
    gate.open();
    let told = place.end(0, job);
    assert_eq!(told.state, StageState::Stopped);
    assert_eq!(told.why.as_deref(), Some("it was cancelled"));
    assert!(
        place
            .services
            .iter()
            .all(|service| service.stop_obstacle().is_none())
    );
    assert_eq!(place.journals(), 3);
    let again = place.run(2, &spec);
    assert_eq!(again.state, StageState::Done, "{again:?}");
    assert!(again.counts.kept_files >= 30, "{:?}", again.counts);
    assert_eq!(again.counts.kept_files + again.counts.files, 62);
    same(&place.path("src"), &place.path("out"));
    let why = place.ask(1, StageRequest::Cancel { job: 77 }).unwrap_err();
    assert!(why.contains("no stage job 77"), "{why}");
}

#[test]
fn a_server_that_stops_ends_the_job_and_says_so() {
    let (place, gate, spec) = held(40);
    let job = place.start(0, &spec);
    soon(|| (gate.reached.load(Ordering::SeqCst) == 1).then_some(()));
    gate.open();
    place.services[2].stop();
    let told = place.end(0, job);
    if told.state == StageState::Done {
        // It was quicker.
        return;
    }
    let why = told.why.unwrap();
    assert!(
        why.starts_with("member 2") && why.contains("same command"),
        "{why}"
    );
    let refused = place.ask(0, StageRequest::Start(Box::new(spec.clone())));
    // Its own name is taken by nobody: it is the other that refuses.
    let job = match refused.unwrap() {
        StageReply::Job(job) => job,
        other => panic!("{other:?}"),
    };
    let why = place.end(0, job).why.unwrap();
    assert!(why.contains("member 2: the service is stopping"), "{why}");
}

#[test]
fn a_server_that_is_gone_ends_the_job_and_the_parts_of_one_that_is_gone_end_by_themselves() {
    let (place, gate, spec) = held(40);
    let job = place.start(0, &spec);
    soon(|| (gate.reached.load(Ordering::SeqCst) == 1).then_some(()));
    // The third server hears and says nothing any more: it is dead to the others, and nobody looks at its part.
    place.servers[2].rpc.close();
    let told = soon(|| place.look(0, job).why);
    assert!(told.contains("member 2 has ended"), "{told}");
    gate.open();
    assert_eq!(place.end(0, job).state, StageState::Stopped);
    soon(|| place.services[2].stop_obstacle().is_none().then_some(()));
    let why = place
        .ask(0, StageRequest::Start(Box::new(spec)))
        .unwrap_err();
    assert!(why.contains("staging needs all servers"), "{why}");
}

#[test]
fn servers_that_see_something_else_do_not_come_to_an_end() {
    // What is divided at one is not at the other: as if it saw another file.
    let place = Place::new(2, |member| StageOptions {
        large: if member == 0 { 1 << 20 } else { 1 << 30 },
        ..small()
    });
    let src = place.path("src");
    plant(&src, 10);
    let told = place.run(0, &place.spec(true, &src, Path::new("/tree")));
    assert_eq!(told.state, StageState::Stopped);
    let why = told.why.unwrap();
    assert!(
        why.contains("member 1 does not see what this one sees"),
        "{why}"
    );
    assert_eq!(place.journals(), 2);
}

#[test]
fn a_part_of_a_job_that_nobody_leads_is_not_there() {
    let place = Place::new(2, |_| small());
    let look = place.services[1].answer_server(PartRequest::Look { job: 9, from: 0 });
    assert!(look.unwrap_err().contains("no part of stage job 9"));
    // To end what is not there is no error: the word may come twice.
    let end = PartRequest::End { job: 9, done: true };
    assert!(place.services[1].answer_server(end).is_ok());
}
