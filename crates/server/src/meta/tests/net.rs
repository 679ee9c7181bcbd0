//! Members wired to each other by plain calls, that can stop before any batch and start again from their stores.
use crate::files::{FilesHook, PreparedRemoval};
use crate::finding::Finding;
use crate::inodes::{Inode, Inodes};
use crate::meta::check::check;
use crate::meta::local::LocalNamespace;
use crate::meta::recover::make_root;
use crate::meta::{Namespace, names};
use crate::tests::{TestMembers, TestPeers};
use crate::*;
use forebay_fabric::Message;
use forebay_proto::data::DataService;
use forebay_proto::files::FilesService;
use forebay_proto::locks::{GrantNotice, LocksService};
use forebay_proto::meta::*;
use forebay_proto::{MemberPart, MemberServices, PeerCall, Request};
use forebay_storage::{OsIo, Store};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// What stays of a member.
struct Host {
    store: Arc<Store>,
    writing: Arc<Mutex<HashSet<Fid>>>,
}

/// Which batch, counted over all members, does not happen any more.
#[derive(Default)]
struct Cut {
    batches: u64,
    at: Option<u64>,
    /// Everyone stops, or only the member whose batch it was.
    all: bool,
    stopped: HashSet<Member>,
}

/// A service without files and fabric.
pub struct Net {
    hosts: Vec<Host>,
    namespaces: TestMembers<Namespace>,
    cut: Mutex<Cut>,
    /// What happens before which message between members.
    between: Mutex<Option<(u64, Between)>>,
    deadline: Mutex<Duration>,
    clock: Mutex<fn() -> Time>,
    _dir: tempfile::TempDir,
}

type Between = Box<dyn FnOnce(&Net) + Send>;

/// A member without files.
struct NamesOnly(Arc<Namespace>);

impl MemberServices for NamesOnly {
    fn operations(&self) -> Result<&(dyn OperationService + 'static)> {
        Ok(&*self.0)
    }
    fn leaf(&self) -> Result<&(dyn LeafService + 'static)> {
        Ok(self.0.leaf())
    }
    fn files(&self) -> Result<&(dyn FilesService + 'static)> {
        Err(Errno::NOSYS.into())
    }
    fn data(&self) -> Result<&(dyn DataService + 'static)> {
        Err(Errno::NOSYS.into())
    }
    fn locks(&self) -> Result<&(dyn LocksService + 'static)> {
        Err(Errno::NOLCK.into())
    }
    fn granted(&self, _: GrantNotice) {}
    fn invalidate_kernel(&self, _: KernelInvalidation, done: InvalidationDone) {
        done(Ok(()));
    }
}

/// Removes what has no name at once, as when nothing is open.
struct Remover {
    store: Arc<Store>,
    inodes: Arc<Inodes>,
    writing: Arc<Mutex<HashSet<Fid>>>,
}

impl FilesHook for Remover {
    fn writers(&self, fid: Fid) -> bool {
        self.writing.lock().contains(&fid)
    }
    fn orphaned(&self, fid: Fid) {
        let _lock = self.inodes.lock(fid);
        assert_eq!(
            self.inodes.get(fid).unwrap().nlink,
            0,
            "orphaned with a name"
        );
        let mut batch = forebay_storage::Batch::new();
        self.inodes.remove(&mut batch, fid).unwrap();
        self.store.apply(batch).unwrap();
    }
    fn open_new(&self, _: Fid, _: Member, _: forebay_proto::meta::NewOpen) -> bool {
        true
    }
    fn is_open(&self, _: Fid) -> bool {
        true
    }
    fn named(&self, fid: Fid) {
        assert_eq!(self.inodes.get(fid).unwrap().nlink, 1, "the first name");
        assert!(!self.inodes.linkable(fid).unwrap(), "it has a name");
    }
    fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut forebay_storage::Batch,
    ) -> Option<Box<dyn PreparedRemoval + 'a>> {
        assert_eq!(inode.nlink, 0, "removed with a name");
        // Every other file, so that both ways are taken.
        if fid.0.is_multiple_of(2) {
            return None;
        }
        self.inodes.remove(batch, fid).unwrap();
        Some(Box::new(Nothing))
    }
}

struct Nothing;

impl PreparedRemoval for Nothing {
    fn batch_applied(self: Box<Self>) {}
}

/// A clock that only goes forward: no two answers are equal.
pub fn tick() -> Time {
    static TICKS: AtomicI64 = AtomicI64::new(1);
    Time {
        secs: TICKS.fetch_add(1, Ordering::Relaxed),
        nanos: 0,
    }
}

pub const ROOT: Caller = Caller { uid: 0, gid: 0 };

pub fn file(mode: u32) -> NewInode {
    NewInode {
        kind: Kind::File,
        mode,
        rdev: 0,
        target: Vec::new(),
        codec: None,
    }
}

pub fn dir(mode: u32) -> NewInode {
    NewInode {
        kind: Kind::Dir,
        ..file(mode)
    }
}

pub fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.unwrap_err().errno()
}

impl Net {
    pub fn new(members: u16) -> Arc<Net> {
        let path = tempfile::tempdir().unwrap();
        let hosts = (0..members).map(|m| {
            let store = Store::open(
                Arc::new(OsIo),
                &path.path().join(m.to_string()),
                Default::default(),
            )
            .unwrap();
            Host {
                store: Arc::new(store),
                writing: Arc::default(),
            }
        });
        let net = Arc::new(Net {
            hosts: hosts.collect(),
            namespaces: TestMembers::new(members),
            cut: Mutex::default(),
            between: Mutex::default(),
            deadline: Mutex::new(Duration::from_secs(10)),
            clock: Mutex::new(tick),
            _dir: path,
        });
        for member in 0..members {
            net.start(member);
        }
        net.recover();
        net
    }

    /// As new: opening stores is slow, so tests of many short histories use one service again.
    pub fn wipe(self: &Arc<Net>) {
        *self.cut.lock() = Cut::default();
        *self.between.lock() = None;
        *self.deadline.lock() = Duration::from_secs(10);
        for (member, host) in (0..).zip(&self.hosts) {
            self.namespaces.stop(member);
            let mut batch = forebay_storage::Batch::new();
            for keyspace in (0..16).map(forebay_storage::Keyspace) {
                for item in host
                    .store
                    .scan(keyspace, Bound::Unbounded, Bound::Unbounded)
                {
                    batch.delete(keyspace, item.unwrap().0);
                }
            }
            host.store.apply(batch).unwrap();
        }
        self.restart();
    }

    /// Starts a member from its store, as after a crash.
    pub fn start(self: &Arc<Net>, member: Member) {
        let host = &self.hosts[usize::from(member)];
        self.cut.lock().stopped.remove(&member);
        let inodes = Arc::new(Inodes::new(host.store.clone(), member).unwrap());
        let hook = Remover {
            store: host.store.clone(),
            inodes: inodes.clone(),
            writing: host.writing.clone(),
        };
        let net = Arc::downgrade(self);
        let peers = TestPeers {
            member,
            members: self.namespaces.count(),
            deadline: *self.deadline.lock(),
            exchange: move |to, request| net.upgrade().unwrap().leaf(member, to, request),
        };
        let (store, hook) = (host.store.clone(), Arc::new(hook));
        let mut local = LocalNamespace::new(store, inodes, member, hook);
        make_root(&local).unwrap();
        local.clock = *self.clock.lock();
        let net = Arc::downgrade(self);
        local.cut = Arc::new(move || net.upgrade().unwrap().count(member));
        let meta = Namespace::over(local, Arc::new(peers)).unwrap();
        self.namespaces.start(member, meta);
    }

    pub fn stop(&self, member: Member) {
        self.cut.lock().stopped.insert(member);
        self.namespaces.stop(member);
    }

    /// What a service does once all its members have started: the namespace's recovery, then the files'.
    pub fn recover(&self) {
        let members = 0..self.namespaces.count();
        members
            .clone()
            .for_each(|m| self.meta(m).coordinator.remake_left());
        members.for_each(|m| self.meta(m).recovery.recover().unwrap());
        for (member, host) in (0..).zip(&self.hosts) {
            let meta = self.meta(member);
            for item in host
                .store
                .scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded)
            {
                let fid = Fid(u64::from_be_bytes(item.unwrap().0[..].try_into().unwrap()));
                meta.coordinator.local.files.orphaned(fid);
            }
        }
    }

    pub fn restart(self: &Arc<Net>) {
        for member in 0..self.hosts.len() as u16 {
            self.start(member);
        }
        self.recover();
    }

    /// Starts all members again, with this deadline.
    pub fn wait_at_most(self: &Arc<Net>, deadline: Duration) {
        *self.deadline.lock() = deadline;
        for member in 0..self.hosts.len() as u16 {
            self.start(member);
        }
    }

    /// Starts all members again, with this clock.
    pub fn set_clock(self: &Arc<Net>, clock: fn() -> Time) {
        *self.clock.lock() = clock;
        self.restart();
    }

    /// Before message `at` (from 0) between members, `what` happens. Operations do not wait long then.
    pub fn between(self: &Arc<Net>, at: u64, what: impl FnOnce(&Net) + Send + 'static) {
        self.wait_at_most(Duration::from_millis(2));
        *self.between.lock() = Some((at, Box::new(what)));
    }

    /// Whether it has happened.
    pub fn happened(&self) -> bool {
        self.between.lock().take().is_none()
    }

    /// Brings a request of member `from` to the namespace of member `to`.
    fn leaf(&self, from: Member, to: Member, request: Request) -> Result<Message> {
        let Request::Leaf(request) = request else {
            panic!("a member may only ask leaf requests of others: {request:?}");
        };
        self.interject();
        if self.cut.lock().stopped.contains(&from) {
            return Err(forebay_fabric::Error::Closed.into());
        }
        Ok(request.answer(self.running(to)?.leaf(), from))
    }

    fn interject(&self) {
        let mut between = self.between.lock();
        let what = match between.take() {
            Some((0, what)) => what,
            Some((at, what)) => return *between = Some((at - 1, what)),
            None => return,
        };
        drop(between);
        what(self);
    }

    /// The next batches count; the one with this number (from 0) does not happen.
    pub fn cut_at(&self, at: u64, all: bool) {
        *self.cut.lock() = Cut {
            at: Some(at),
            all,
            ..Cut::default()
        };
    }

    /// No more cuts; answers whether there was one.
    pub fn cut_off(&self) -> bool {
        let mut cut = self.cut.lock();
        let done = cut.at.is_some_and(|at| cut.batches > at);
        cut.at = None;
        done
    }

    pub fn stopped(&self) -> Vec<Member> {
        let mut stopped: Vec<Member> = self.cut.lock().stopped.iter().copied().collect();
        stopped.sort_unstable();
        stopped
    }

    fn count(&self, member: Member) -> Result<()> {
        let mut cut = self.cut.lock();
        cut.batches += 1;
        if cut.at == Some(cut.batches - 1) {
            match cut.all {
                true => cut.stopped.extend(0..self.hosts.len() as u16),
                false => drop(cut.stopped.insert(member)),
            }
        }
        match cut.stopped.contains(&member) {
            true => Err(Error::Refused("cut off".into())),
            false => Ok(()),
        }
    }

    pub fn meta(&self, member: Member) -> Arc<Namespace> {
        self.namespaces.get(member).unwrap()
    }

    pub fn writing(&self, fid: Fid, yes: bool) {
        let mut writing = self.hosts[usize::from(fid.owner())].writing.lock();
        if yes {
            writing.insert(fid)
        } else {
            writing.remove(&fid)
        };
    }

    /// The namespace of a member that runs.
    fn running(&self, member: Member) -> Result<Arc<Namespace>> {
        let dead = || Error::Fabric(forebay_fabric::Error::Dead(member.into()));
        if self.cut.lock().stopped.contains(&member) {
            return Err(dead());
        }
        self.namespaces.get(member).ok_or_else(dead)
    }

    /// As the delegate of that member asks it.
    pub fn ask<C: PeerCall>(&self, to: Member, request: C) -> Result<C::Reply> {
        let names = NamesOnly(self.running(to)?);
        request.serve(<C::Service as MemberPart>::of(&names)?, to)
    }

    // The calls of a delegate.

    pub fn create(&self, parent: Fid, name: &str, new: NewInode) -> Result<Attr> {
        self.create_as(parent, name, new, ROOT)
    }
    pub fn create_as(
        &self,
        parent: Fid,
        name: &str,
        new: NewInode,
        caller: Caller,
    ) -> Result<Attr> {
        let request = Create {
            parent,
            name: name.into(),
            new,
            caller,
            exclusive: true,
            open: None,
        };
        let created = self.ask(parent.owner(), request)?;
        assert!(created.made);
        Ok(created.attr)
    }
    pub fn lookup(&self, parent: Fid, name: &str) -> Result<Attr> {
        let name = name.into();
        let lease = false;
        let request = Lookup {
            parent,
            name,
            lease,
        };
        Ok(self.ask(parent.owner(), request)?.attr)
    }
    pub fn getattr(&self, fid: Fid) -> Result<Attr> {
        let lease_to = None;
        Ok(self.ask(fid.owner(), GetAttr { fid, lease_to })?.attr)
    }
    pub fn setattr(&self, fid: Fid, set: SetAttr) -> Result<Attr> {
        let caller = ROOT;
        self.ask(fid.owner(), ChangeAttr { fid, set, caller })
    }
    pub fn link(&self, fid: Fid, parent: Fid, name: &str) -> Result<Attr> {
        let name = name.into();
        self.ask(parent.owner(), Link { fid, parent, name })
    }
    pub fn unlink(&self, parent: Fid, name: &str, caller: Caller) -> Result<()> {
        let name = name.into();
        let request = Unlink {
            parent,
            name,
            fid: None,
            caller,
        };
        self.ask(parent.owner(), request).map(drop)
    }
    pub fn rmdir(&self, parent: Fid, name: &str) -> Result<()> {
        let request = RemoveDir {
            parent,
            name: name.into(),
            caller: ROOT,
        };
        self.ask(parent.owner(), request).map(drop)
    }
    pub fn rename(&self, from: (Fid, &str), to: (Fid, &str), flags: RenameFlags) -> Result<()> {
        self.rename_as(from, to, flags, ROOT)
    }
    pub fn rename_as(
        &self,
        from: (Fid, &str),
        to: (Fid, &str),
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<()> {
        let (name, to_name) = (from.1.into(), to.1.into());
        let request = Rename {
            from: from.0,
            name,
            to: to.0,
            to_name,
            flags,
            caller,
        };
        self.ask(to.0.owner(), request).map(drop)
    }
    pub fn readdir(&self, fid: Fid, after: Option<&str>, limit: u32) -> Result<Vec<DirEntry>> {
        let after = after.map(Into::into);
        self.ask(fid.owner(), ReadDir { fid, after, limit })
    }
    /// A file of `member` without a name.
    pub fn unnamed(&self, member: Member, uid: u32, linkable: bool) -> Fid {
        let inodes = &self.meta(member).coordinator.local.inodes;
        let fid = inodes.allocate_fid().unwrap();
        let mut batch = forebay_storage::Batch::new();
        let inode = Inode::new(Kind::File, 0o600, uid, 0, tick());
        inodes.put(&mut batch, fid, &inode);
        inodes.put_orphan(&mut batch, fid, linkable);
        self.store(member).apply(batch).unwrap();
        fid
    }

    /// The files and directories of `member` without a name.
    pub fn orphans(&self, member: Member) -> Vec<Fid> {
        let scan = self
            .store(member)
            .scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded);
        scan.map(|item| u64::from_be_bytes(item.unwrap().0[..].try_into().unwrap()))
            .map(Fid)
            .collect()
    }

    /// A directory in `parent` that lives at `member`.
    pub fn dir_at(&self, parent: Fid, member: Member) -> Fid {
        let members = self.hosts.len() as u16;
        let fits = |name: &String| {
            names::directory_member(parent, name.as_bytes(), members) == member
                && self.lookup(parent, name).is_err()
        };
        let name = (0..).map(|i| format!("m{member}-{i}")).find(fits).unwrap();
        let fid = self.create(parent, &name, dir(0o755)).unwrap().fid;
        assert_eq!(fid.owner(), member);
        fid
    }

    /// Every path with kind, links, and the owner (which tests use as the file's identity).
    pub fn tree(&self) -> BTreeMap<String, (Kind, u32, u32)> {
        let mut tree = BTreeMap::new();
        let mut todo = vec![(String::new(), Fid::ROOT)];
        while let Some((path, fid)) = todo.pop() {
            let mut after = None;
            loop {
                let page = self.readdir(fid, after.as_deref(), 3).unwrap();
                let Some(last) = page.last() else { break };
                after = Some(String::from_utf8(last.name.clone()).unwrap());
                for entry in page {
                    let name = String::from_utf8(entry.name).unwrap();
                    let attr = self.lookup(fid, &name).unwrap();
                    assert_eq!((attr.fid, attr.kind), (entry.fid, entry.kind));
                    let path = format!("{path}/{name}");
                    tree.insert(path.clone(), (attr.kind, attr.nlink, attr.uid));
                    if attr.kind == Kind::Dir {
                        todo.push((path, attr.fid));
                    }
                }
            }
        }
        tree
    }

    /// The members that run forget finished operations, as they do in the background.
    pub fn forget_done(&self) {
        for member in 0..self.namespaces.count() {
            // A member that is stopped meanwhile has them still.
            if let Some(meta) = self.namespaces.get(member) {
                meta.coordinator.finish_left();
                let _ = meta.coordinator.forget_done();
            }
        }
    }

    pub fn check(&self) -> Vec<Finding> {
        self.forget_done();
        let stores: Vec<_> = self
            .hosts
            .iter()
            .enumerate()
            .map(|(m, host)| (m as Member, &*host.store))
            .collect();
        check(&stores)
    }

    pub fn store(&self, member: Member) -> &Store {
        &self.hosts[usize::from(member)].store
    }
}
