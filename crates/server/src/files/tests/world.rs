//! Members wired directly, with losses, and what the delegate does: planning, staging, committing, reading.
use super::super::{DisplacedRestorer, FileContent, FilesHook};
use crate::inodes::{Inode, Inodes};
use crate::tests::{TestMembers, TestPeers};
use crate::*;
use forebay_fabric::Message;
use forebay_index::{Change, Extent};
use forebay_proto::Request;
use forebay_proto::call::ServiceCall;
use forebay_proto::data::{
    DataService, FreeRanges, GetStorage, GetUsage, PiecesRead, ReadPieces, RecodeRanges,
    RecodeReport, StorageReport, StoreUsage, SyncLogs, VerifyRanges,
};
use forebay_proto::files::*;
use forebay_proto::placement::{SliceMap, split_by_member};
use forebay_storage::{Batch, Io, Options, OsIo, Store};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What becomes of one message between members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    RequestLost,
    ReplyLost,
}

type Rule = Box<dyn FnMut(Member, Member, &FilesRequest) -> Fate + Send>;

/// Log bytes freed: `(member, log)` to ranges of addresses.
type Freed = BTreeMap<(Member, u64), Vec<Range<u64>>>;

/// The way between members.
pub(super) struct Net {
    pub members: u16,
    nodes: TestMembers<FileContent>,
    rule: Mutex<Option<Rule>>,
    /// Log bytes freed: `(member, log)` to ranges of addresses.
    pub freed: Mutex<Freed>,
    /// Logs whose bytes cannot be read.
    pub lost: Mutex<BTreeSet<(Member, u64)>>,
    /// The next so many questions what can be read are not answered.
    pub unanswered: AtomicU64,
    /// How many more questions what can be read come before a member does its background work during one; and which member.
    pub works_at: Mutex<Option<(u64, Member)>>,
    pub messages: AtomicU64,
}

fn lost(rank: Member) -> Error {
    Error::Fabric(forebay_fabric::Error::Deadline {
        rank: u32::from(rank),
        after: Duration::ZERO,
    })
}

impl Net {
    fn call(&self, from: Member, to: Member, request: FilesRequest) -> Result<Message> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        let fate = match &mut *self.rule.lock() {
            Some(rule) => rule(from, to, &request),
            None => Fate::Arrives,
        };
        if fate == Fate::RequestLost {
            return Err(lost(to));
        }
        let answered = self.nodes.ask(to, |files| {
            let reply = request.answer(files, from);
            (reply, files.components.context.faults.reached())
        });
        // A member that was cut off does not get its answer out.
        match answered {
            Some((reply, false)) if fate == Fate::Arrives => Ok(reply),
            _ => Err(lost(to)),
        }
    }
}

/// The log bytes of member `to`.
struct TestData<'a> {
    to: Member,
    net: &'a Net,
}

impl DataService for TestData<'_> {
    fn read_pieces(&self, _: Member, _: ReadPieces) -> Result<PiecesRead> {
        Err(Errno::NOSYS.into())
    }
    fn free_ranges(&self, _: Member, request: FreeRanges) -> Result<()> {
        let mut freed = self.net.freed.lock();
        for (log, addr, len) in request.ranges {
            let of_log = freed.entry((self.to, log)).or_default();
            of_log.push(addr..addr + len);
        }
        Ok(())
    }
    fn sync_logs(&self, _: Member, _: SyncLogs) -> Result<()> {
        Ok(())
    }
    fn verify_ranges(&self, _: Member, request: VerifyRanges) -> Result<Vec<bool>> {
        let less = |left: u64| left.checked_sub(1);
        let unanswered = &self.net.unanswered;
        if unanswered
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
        {
            return Err(lost(self.to));
        }
        let mut works_at = self.net.works_at.lock();
        *works_at = works_at.and_then(|(left, member)| Some((left.checked_sub(1)?, member)));
        let works = works_at.filter(|(left, _)| *left == 0);
        drop(works_at);
        if let Some((_, member)) = works {
            let worked = self.net.nodes.ask(member, |files| files.drain());
            worked.expect("the member runs").unwrap();
        }
        let lost = self.net.lost.lock();
        let whole = |(log, _, _): (u64, _, _)| !lost.contains(&(self.to, log));
        Ok(request.ranges.into_iter().map(whole).collect())
    }
    fn get_usage(&self, _: Member, _: GetUsage) -> Result<StoreUsage> {
        Err(Errno::NOSYS.into())
    }
    fn get_storage(&self, _: Member, _: GetStorage) -> Result<StorageReport> {
        Err(Errno::NOSYS.into())
    }
    fn recode_ranges(&self, _: Member, _: RecodeRanges) -> Result<RecodeReport> {
        Err(Errno::NOSYS.into())
    }
}

/// A planned commit: its parts are staged, the owner does not know of it yet.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub writer: Member,
    pub fid: Fid,
    pub token: u64,
    pub own: Vec<Change>,
    pub patterns: Vec<u8>,
    pub staged: Vec<Member>,
    pub attr: CommitAttr,
}

/// A member's store in one of its lives.
struct Life {
    store: Arc<Store>,
    inodes: Arc<Inodes>,
}

/// Members and their stores.
pub(super) struct World {
    pub net: Arc<Net>,
    lives: TestMembers<Life>,
    tokens: AtomicU64,
    /// Opens not closed yet: who, what, for writing, token.
    opened: Mutex<Vec<(Member, Fid, bool, u64)>>,
    dir: tempfile::TempDir,
    io: Arc<dyn Io>,
    options: Options,
}

impl World {
    pub(super) fn new(members: u16) -> World {
        let options = Options {
            memtable_bytes: 256 << 10,
            // Nothing here fills the disk; allocating room for that at every start is slow.
            wal_reserve_bytes: 0,
            table_reserve_bytes: 0,
            ..Options::default()
        };
        World::with(members, Arc::new(OsIo), options)
    }

    pub(super) fn with(members: u16, io: Arc<dyn Io>, options: Options) -> World {
        let net = Arc::new(Net {
            members,
            nodes: TestMembers::new(members),
            rule: Mutex::new(None),
            freed: Mutex::default(),
            lost: Mutex::default(),
            unanswered: AtomicU64::new(0),
            works_at: Mutex::default(),
            messages: AtomicU64::new(0),
        });
        let world = World {
            net,
            lives: TestMembers::new(members),
            tokens: AtomicU64::new(1),
            opened: Mutex::default(),
            dir: tempfile::tempdir().unwrap(),
            io,
            options,
        };
        (0..members).for_each(|k| world.start(k));
        world
    }

    /// The member goes away, its store is closed.
    pub(super) fn stop(&self, k: Member) {
        if let Some(files) = self.net.nodes.stop(k) {
            files.close();
        }
        if let Some(life) = self.lives.stop(k) {
            life.store.close().unwrap();
        }
    }

    /// A new life of the member from its store; `recover` comes when the test says so.
    pub(super) fn start(&self, k: Member) {
        let path = self.dir.path().join(k.to_string());
        std::fs::create_dir_all(&path).unwrap();
        let store = Store::open(self.io.clone(), &path, self.options.clone());
        let store = Arc::new(store.unwrap());
        let inodes = Arc::new(Inodes::new(store.clone(), k).unwrap());
        let net = self.net.clone();
        let peers = TestPeers {
            member: k,
            members: net.members,
            deadline: Duration::from_secs(60),
            exchange: move |to, request| match request {
                Request::Files(request) => net.call(k, to, request),
                Request::Data(request) => Ok(request.answer(&TestData { to, net: &net }, k)),
                other => panic!("{other:?}"),
            },
        };
        let files = FileContent::with_peers(
            store.clone(),
            inodes.clone(),
            Arc::new(peers),
            Arc::default(),
        )
        .unwrap();
        self.lives.start(k, Life { store, inodes });
        self.net.nodes.start(k, files);
    }

    pub(super) fn restart(&self, k: Member) {
        self.stop(k);
        self.start(k);
        self.files(k).recover().unwrap();
        self.restore(k..k + 1);
    }

    /// What these members do after all have recovered.
    pub(super) fn restore(&self, members: Range<Member>) {
        for step in [
            DisplacedRestorer::find_unreadable_tails,
            DisplacedRestorer::restore_bytes,
            DisplacedRestorer::cut_unreadable_tails,
        ] {
            members
                .clone()
                .for_each(|k| step(&self.files(k).restore).unwrap());
        }
    }

    /// The power fails: all members end, none in order, and the bytes of this log did not reach the disk.
    pub(super) fn cut_power(&self, lost: (Member, u64)) {
        self.net.lost.lock().insert(lost);
        let members = 0..self.net.members;
        members.clone().for_each(|k| self.stop(k));
        members.clone().for_each(|k| self.start(k));
        members
            .clone()
            .for_each(|k| self.files(k).recover().unwrap());
        self.restore(members);
    }

    fn life(&self, k: Member) -> Arc<Life> {
        self.lives.get(k).expect("the member runs")
    }

    pub(super) fn store(&self, k: Member) -> Arc<Store> {
        self.life(k).store.clone()
    }

    pub(super) fn inodes(&self, k: Member) -> Arc<Inodes> {
        self.life(k).inodes.clone()
    }

    /// All stores, as the check wants them.
    pub(super) fn stores(&self) -> Vec<(Member, Arc<Store>)> {
        (0..self.net.members).map(|k| (k, self.store(k))).collect()
    }

    pub(super) fn files(&self, k: Member) -> Arc<FileContent> {
        self.net.nodes.get(k).expect("the member runs")
    }

    /// Log bytes freed.
    pub(super) fn freed_bytes(&self) -> u64 {
        let freed = self.net.freed.lock();
        freed.values().flatten().map(|r| r.end - r.start).sum()
    }

    pub(super) fn set_rule(
        &self,
        rule: impl FnMut(Member, Member, &FilesRequest) -> Fate + Send + 'static,
    ) {
        *self.net.rule.lock() = Some(Box::new(rule));
    }

    pub(super) fn clear_rule(&self) {
        *self.net.rule.lock() = None;
    }

    pub(super) fn map(&self) -> SliceMap {
        SliceMap {
            members: self.net.members,
        }
    }

    /// A new empty file.
    pub(super) fn create(&self, owner: Member) -> Fid {
        let inodes = self.inodes(owner);
        let fid = inodes.allocate_fid().unwrap();
        let inode = Inode {
            nlink: 1,
            ..Inode::new(Kind::File, 0o644, 0, 0, Time::default())
        };
        let mut batch = Batch::new();
        inodes.put(&mut batch, fid, &inode);
        self.store(owner).apply(batch).unwrap();
        fid
    }

    pub(super) fn inode(&self, fid: Fid) -> Inode {
        self.inodes(fid.owner()).get(fid).unwrap()
    }

    /// What `meta` does when the last name goes.
    pub(super) fn unlink(&self, fid: Fid) {
        let orphan = |inode: &mut Inode, batch: &mut Batch| {
            inode.nlink = 0;
            batch.put(keys::ORPHANS, fid.0.to_be_bytes().to_vec(), Vec::new());
            Ok(())
        };
        self.inodes(fid.owner()).update(fid, orphan).unwrap();
        self.files(fid.owner()).orphaned(fid);
    }

    /// What `meta` does first when the last name goes: false if the file cannot be removed at once, and then nothing was
    /// done. `batch_applied`: whether the batch reaches the store.
    pub(super) fn unlink_at_once(&self, fid: Fid, batch_applied: bool) -> bool {
        let (files, inodes) = (self.files(fid.owner()), self.inodes(fid.owner()));
        let _inode = inodes.lock(fid);
        let mut inode = inodes.get(fid).unwrap();
        inode.nlink = 0;
        let mut batch = Batch::reclaiming();
        let Some(removal) = files.remove_at_once(fid, &inode, &mut batch) else {
            assert!(batch.is_empty(), "what is not removed at once adds nothing");
            return false;
        };
        if batch_applied {
            self.store(fid.owner()).apply(batch).unwrap();
            removal.batch_applied();
        }
        true
    }

    /// As a delegate asks: to the own member directly, to others over the net.
    pub(super) fn ask<C>(&self, from: Member, to: Member, request: C) -> Result<C::Reply>
    where
        C: ServiceCall<Service = dyn FilesService> + Into<FilesRequest>,
    {
        C::decode_reply(to, self.net.call(from, to, request.into())?)
    }

    pub(super) fn open(&self, from: Member, fid: Fid, write: bool) -> Result<Attr> {
        let flags = OpenFlags {
            read: true,
            write,
            ..Default::default()
        };
        let token = self.token();
        let attr = self.ask(from, fid.owner(), Open { fid, flags, token })?;
        self.opened.lock().push((from, fid, write, token));
        Ok(attr)
    }

    pub(super) fn close(&self, from: Member, fid: Fid, write: bool) {
        let token = {
            let mut opened = self.opened.lock();
            let mut all = opened.iter();
            let at = all.position(|(f, o, w, _)| (*f, *o, *w) == (from, fid, write));
            // A test may close what was never opened.
            at.map_or(u64::MAX, |at| opened.swap_remove(at).3)
        };
        self.ask(from, fid.owner(), Close { fid, token }).unwrap();
    }

    pub(super) fn view(&self, from: Member, fid: Fid) -> Result<Attr> {
        self.insist(from, fid.owner(), GetView { fid })
    }

    pub(super) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Plans and stages. An error: a part could not be staged; nothing is left behind but (perhaps) staged parts.
    pub(super) fn plan(
        &self,
        writer: Member,
        fid: Fid,
        changes: &[Change],
        attr: CommitAttr,
    ) -> Result<Planned> {
        let size = self.view(writer, fid)?.size.max(attr.end.unwrap_or(0));
        let token = self.token();
        let mut planned = Planned {
            writer,
            fid,
            token,
            own: Vec::new(),
            patterns: Vec::new(),
            staged: Vec::new(),
            attr,
        };
        for part in split_by_member(self.map(), fid.owner(), changes, size) {
            if part.member == fid.owner() {
                planned.own = part.changes;
                continue;
            }
            let stage = StageChanges {
                fid,
                token,
                changes: part.changes,
                sync: false,
            };
            self.insist(writer, part.member, stage)?;
            planned.staged.push(part.member);
        }
        Ok(planned)
    }

    /// Asks again while messages are lost, a few times.
    pub(super) fn insist<C>(&self, from: Member, to: Member, request: C) -> Result<C::Reply>
    where
        C: ServiceCall<Service = dyn FilesService> + Into<FilesRequest> + Clone,
    {
        let mut tries = 0;
        loop {
            match self.ask(from, to, request.clone()) {
                Err(Error::Fabric(_)) if tries < 3 => tries += 1,
                other => return other,
            }
        }
    }

    /// Commits what is planned; after an error of the owner the staged parts are dropped.
    pub(super) fn finish(&self, p: &Planned) -> Result<(u64, Attr)> {
        let (fid, token, writer) = (p.fid, p.token, p.writer);
        let commit = |sync| Commit {
            fid,
            token,
            own: p.own.clone(),
            patterns: p.patterns.clone(),
            staged: p.staged.clone(),
            attr: p.attr.clone(),
            sync,
        };
        let mut answer = self.insist(writer, fid.owner(), commit(false));
        if matches!(answer, Ok(CommitReply::SyncFirst)) {
            answer = self.insist(writer, fid.owner(), commit(true));
        }
        match answer {
            Ok(CommitReply::Committed(done)) => Ok((done.seq, done.attr)),
            Ok(CommitReply::SyncFirst) => panic!("asked for a sync that came with the commit"),
            Err(error @ Error::Fabric(_)) => Err(error),
            Err(error) => {
                for member in &p.staged {
                    self.insist(writer, *member, DropStaged { fid, writer, token })?;
                }
                Err(error)
            }
        }
    }

    /// A whole commit, planned again while the owner says `Replan`.
    pub(super) fn commit(
        &self,
        writer: Member,
        fid: Fid,
        changes: &[Change],
        attr: CommitAttr,
    ) -> Result<(u64, Attr)> {
        loop {
            match self.finish(&self.plan(writer, fid, changes, attr.clone())?) {
                Err(Error::Replan) => {}
                other => return other,
            }
        }
    }

    /// A write of `range` with bytes of `log` of the writer's member (addresses from 0).
    pub(super) fn write(
        &self,
        writer: Member,
        fid: Fid,
        range: Range<u64>,
        log: u64,
    ) -> Result<(u64, Attr)> {
        let attr = CommitAttr {
            end: Some(range.end),
            ..Default::default()
        };
        self.commit(writer, fid, &[put(writer, &range, log)], attr)
    }

    pub(super) fn truncate(&self, writer: Member, fid: Fid, size: u64) -> Result<(u64, Attr)> {
        let attr = CommitAttr {
            size: Some(size),
            ..Default::default()
        };
        self.commit(
            writer,
            fid,
            &[Change::Cut {
                start: size,
                end: u64::MAX,
            }],
            attr,
        )
    }

    /// Reads extents by the reader's rule: a view, then every member; from the start if one is ahead of the view.
    pub(super) fn read(&self, reader: Member, fid: Fid) -> Result<(Attr, Vec<Extent>)> {
        'again: loop {
            let attr = self.view(reader, fid)?;
            let mut all = Vec::new();
            for member in 0..self.net.members {
                let mut start = 0;
                loop {
                    let ask = GetExtents {
                        fid,
                        start,
                        end: u64::MAX,
                        limit: 50,
                    };
                    let ExtentsReply {
                        extents,
                        published,
                        more,
                    } = self.ask(reader, member, ask)?;
                    if published > attr.generation {
                        continue 'again;
                    }
                    start = extents.last().map_or(start, Extent::end);
                    all.extend(extents);
                    if !more {
                        break;
                    }
                }
            }
            all.sort_by_key(|e| e.offset);
            return Ok((attr, all));
        }
    }

    /// Everything in the background is done.
    pub(super) fn drain(&self) {
        for _ in 0..4 {
            (0..self.net.members).for_each(|k| self.files(k).drain().unwrap());
        }
        let left: Vec<u64> = (0..self.net.members)
            .map(|k| self.files(k).pending().unwrap())
            .collect();
        assert_eq!(
            left,
            vec![0; usize::from(self.net.members)],
            "work left after draining"
        );
    }

    /// How many records a keyspace of a member holds.
    pub(super) fn count(&self, k: Member, keyspace: forebay_storage::Keyspace) -> usize {
        use std::ops::Bound::Unbounded;
        self.store(k).scan(keyspace, Unbounded, Unbounded).count()
    }

    /// Number of extents in the member's index.
    pub(super) fn extents(&self, k: Member) -> usize {
        let index = forebay_index::ExtentIndex::of(&self.store(k)).unwrap();
        let all: Result<Vec<_>, _> = index.iter().unwrap().collect();
        all.unwrap().len()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        (0..self.net.members).for_each(|k| self.stop(k));
    }
}

/// A write of `range` from a log whose address 0 is the range's start.
pub(super) fn put(member: Member, range: &Range<u64>, log: u64) -> Change {
    Change::Put(Extent {
        offset: range.start,
        len: range.end - range.start,
        member,
        log,
        addr: 0,
        seq: 0,
    })
}

/// The log that holds this byte, and where in it; `None` for a hole.
pub(super) fn byte(extents: &[Extent], offset: u64) -> Option<(u64, u64)> {
    let e = extents
        .iter()
        .find(|e| e.offset <= offset && offset < e.end())?;
    Some((e.log, e.addr + (offset - e.offset)))
}

/// The errno of a failed operation.
pub(super) fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.unwrap_err().errno()
}
