//! The context that the types of a delegate share, and their calls to other members; an owner's *view* of a file is its
//! attributes and generation.
//!
//! Invariant: a view only moves a file forward (`FileState::observe`); replies may arrive out of order.
use super::change_counters::ChangeCounters;
use super::combine::RequestCombiner;
use super::deferred_close::DeferredCloses;
use super::directory_paths::DirectoryPaths;
use super::file_series::FileSeries;
use super::handles::OpenFileTable;
use super::kernel_clock::KernelClock;
use super::kernel_leases::{KernelLeases, LeasedPart, ProgramThread};
use super::open_file::OpenFile;
use super::traffic::TrafficCounters;
use crate::{Attr, CodecNames, Error, Fid, Kind, Member, MemberParts, Result, Time};
use forebay_codec::CodecHint;
use forebay_data::Counter;
use forebay_fabric::Error as Fabric;
use forebay_proto::files::GetView;
use forebay_proto::meta;
use forebay_proto::placement::SliceMap;
use forebay_proto::{KernelInvalidation, MemberServices, PeerCall};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// Attempts to get a newer view without a pause between them.
const VIEW_TRIES_AT_ONCE: u32 = 20;
/// Further attempts, with short pauses.
const VIEW_TRIES_SOON: u32 = 80;

/// See the head of this file.
pub(super) struct DelegateContext {
    pub node: Arc<MemberParts>,
    /// Handles, and the files this node knows.
    pub table: OpenFileTable,
    pub counters: Arc<TrafficCounters>,
    /// What closes leave behind.
    pub deferred_closes: Arc<DeferredCloses>,
    /// Names opens and commits at their owners.
    pub tokens: Counter,
    /// Times of changes in a service of one member.
    pub kernel_clock: KernelClock,
    /// What this node's kernel may keep for a while.
    pub kernel_leases: KernelLeases,
    /// Files of which reads are noted (`page_drops`).
    pub noted_files: AtomicUsize,
    /// When bytes that other processes keep of files may be old.
    pub changes: Arc<ChangeCounters>,
    /// Where directories are.
    pub directory_paths: DirectoryPaths,
    /// Which files are versions of one thing.
    pub file_series: FileSeries,
    /// Codec hints of files of which nobody says anything.
    pub codec_names: Arc<CodecNames>,
    /// Requests that ask other members the same at the same time.
    pub combine: RequestCombiner,
    /// Every write is visible elsewhere before it returns, and every commit shown to the kernels of nodes that hold the file open.
    pub posix: bool,
    /// Every commit is on disk before it counts.
    pub always_sync: bool,
}

impl DelegateContext {
    /// The member whose delegate this is.
    pub fn member(&self) -> Member {
        self.node.peers.member()
    }

    /// Members of the service.
    pub fn members(&self) -> u16 {
        self.node.peers.members()
    }

    /// The time that a change made here has. Of one member it is what the kernel takes for files, which keeps the times of those that it
    /// knows itself.
    pub fn now(&self) -> Time {
        match self.members() {
            1 => self.kernel_clock.now(),
            _ => Time::now(),
        }
    }

    /// Which member has which slice.
    pub fn slices(&self) -> SliceMap {
        let members = self.members();
        SliceMap { members }
    }

    /// The codec hint of a new file by its name, if its directory has none.
    pub fn codec_of_name(&self, parent: Fid, name: &[u8]) -> Option<CodecHint> {
        let directory = || self.directory_paths.path(self, parent);
        self.codec_names.hint(name, directory)
    }

    /// Asks a member.
    pub fn call<C: PeerCall>(&self, member: Member, request: C) -> Result<C::Reply> {
        self.node.peers.call(member, request)
    }

    /// Makes a request, and repeats it while replies are lost: a bounded number of times, within the service's deadline.
    pub fn call_with_retries<C: PeerCall + Clone>(
        &self,
        member: Member,
        request: &C,
        tries: u32,
    ) -> Result<C::Reply> {
        let until = Instant::now() + self.node.peers.deadline();
        for _ in 1..tries {
            match self.call(member, request.clone()) {
                Err(Error::Fabric(Fabric::Deadline { .. })) if Instant::now() < until => {}
                answer => return answer,
            }
        }
        self.call(member, request.clone())
    }

    /// Asks for a newer view than of generation `seen`. If the owner has none, waits a little for one that another call of this
    /// node gets. `EIO` once an operation has done so for the deadline of requests.
    pub fn retry_view(&self, file: &OpenFile, seen: u64, retry: &mut ViewRetry) -> Result<()> {
        let deadline = self.node.peers.deadline();
        let until = *retry.until.get_or_insert_with(|| Instant::now() + deadline);
        if Instant::now() >= until {
            tracing::error!(
                fid = file.fid.0,
                "a commit of this file stays half published; is a member dead?"
            );
            return Err(Errno::IO.into());
        }
        self.refresh(file)?;
        let pause = retry.pause();
        let newer = file.wait_newer(seen, until.min(Instant::now() + pause));
        if !newer && pause.is_zero() {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Fetches the owner's view of the file.
    pub fn refresh(&self, file: &OpenFile) -> Result<()> {
        let owner = file.fid.owner();
        let attr = self.call(owner, GetView { fid: file.fid })?;
        file.state.lock().observe(&attr);
        Ok(())
    }

    /// The owner's attributes, without what is pending here.
    pub fn ask_attr(&self, fid: Fid) -> Result<Attr> {
        let lease_to = None;
        let found = self.call(fid.owner(), meta::GetAttr { fid, lease_to })?;
        Ok(found.attr)
    }

    /// A request of this node has changed the attributes of these: its kernel drops what it keeps of them.
    pub fn forget_in_kernel(&self, fids: &[Fid]) {
        self.forget_names(fids, None);
    }

    /// The same after the making or removal of a name: `thread` waits for it in the kernel, which then drops the attributes of the
    /// directory and of what was removed of its own accord.
    pub fn forget_names(&self, fids: &[Fid], thread: ProgramThread) {
        if !self.kernel_leases.is_on() {
            return;
        }
        for fid in fids {
            let leases = &self.kernel_leases;
            let kept = leases.revoke(*fid, LeasedPart::Attributes, thread);
            if kept.is_some() {
                let changed = KernelInvalidation::Attributes(*fid);
                // Attributes are dropped before this returns.
                self.node.invalidate_kernel(changed, Box::new(|_| ()));
            }
        }
    }

    /// The owner's attributes of a regular file; `EISDIR`, `EINVAL` for anything else.
    pub fn ask_file(&self, fid: Fid) -> Result<Attr> {
        let attr = self.ask_attr(fid)?;
        match attr.kind {
            Kind::File => Ok(attr),
            Kind::Dir => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }
}

/// The tries of one operation to get a newer view. They follow each other ever more slowly, until the deadline of requests.
#[derive(Default)]
pub(super) struct ViewRetry {
    until: Option<Instant>,
    tries: u32,
}

impl ViewRetry {
    /// The pause after the next try.
    fn pause(&mut self) -> Duration {
        self.tries += 1;
        match self.tries.saturating_sub(VIEW_TRIES_AT_ONCE) {
            0 => Duration::ZERO,
            1..=VIEW_TRIES_SOON => Duration::from_micros(200),
            _ => Duration::from_millis(4),
        }
    }
}
