//! Tracks which page-cache pages this node's kernel may hold. The mount uses it to keep them right.
//!
//! Pages become stale in two ways:
//! - Another node changes the file. Then the file's generation is newer than that of the pages ([`StalePages`]).
//! - A program of this node writes past the page cache (direct I/O), and the kernel reads the page back during the write. After an
//!   asynchronous write the kernel does not invalidate its pages again. So the mount reports every fill of the page cache here, and
//!   if there may be pages, it drops the range of a direct write before it answers the write.
//!
//! In a service of one member the kernel also keeps attributes and names for a while and, with its writeback cache, dirty pages,
//! sizes and times. Whoever accesses files there without the mount (the library, staging, teams) reports it, and the mount
//! synchronises the kernel ([`MountCaches`]).
//!
//! Only *paging* handles fill pages: handles open for reading (a mapping needs one), and handles without direct I/O. While a file
//! has none, handles that only write are opened for direct I/O (`opens`).
//!
//! Invariants:
//! - `paged` is set before bytes are read for the page cache, and checked after the bytes of a direct write can be read. So either
//!   the read sees the write, or the write sees that it must drop pages.
//! - `paged` is cleared only when all pages are dropped.
//! - The kernel never drops pages at an open by itself: it is told to keep them, and this node drops stale ones before. So each
//!   drop begins and ends here (`page_drops`).
use super::context::DelegateContext;
use super::handles::Handle;
use super::kernel_leases::LeasedPart;
use super::open_file::{OpenFile, StalePages};
use crate::member_parts::KernelInvalidator;
use crate::{Attr, Error, Fid, Result};
use forebay_fabric::Error as Fabric;
use forebay_proto::meta::LEASE_TERM;
use forebay_proto::{KernelInvalidation, PeerRpc};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// What the mount must do after a direct write, before it answers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectWriteFollowUp {
    /// Drop the pages of the range: they may be stale.
    pub drop_pages: bool,
    /// The write was an append after bytes that other nodes had appended, and programs of this node may read the file: call
    /// [`KernelPages::refetch_view`], and give the kernel the size.
    pub refetch_view: bool,
}

/// What a mount does when a file is read or changed around it. Not to be called on a thread that answers requests of the mount: the
/// kernel may first make a request that this thread must answer.
pub trait MountCaches: Send + Sync {
    /// Has the kernel write back the file's dirty pages, and waits for it. `false`: there could be none.
    fn write_back_dirty(&self, fid: Fid) -> bool;
    /// Called after a change of the file's content, size or times: returns once programs see it. While programs have the file open for
    /// writing, the kernel may keep size and times until the last of them closes it.
    fn refresh_kernel(&self, fid: Fid);
}

/// See the head of this file.
pub struct KernelPages {
    pub(super) ctx: Arc<DelegateContext>,
    /// The mount; only in a service of one member.
    pub(super) mount: RwLock<Option<Arc<dyn MountCaches>>>,
    /// Files of which pages are being filled (`page_fills`).
    pub(super) filling: AtomicUsize,
}

impl KernelPages {
    /// Sets the mount that is notified of accesses around it; `None`: there is none any more.
    pub fn set_mount_caches(&self, mount: Option<Arc<dyn MountCaches>>) {
        *self.mount.write() = mount;
    }

    /// Whether the kernel may have newer bytes of a file that programs have open for writing than this node.
    pub fn keeps_dirty_pages(&self) -> bool {
        self.mount.read().is_some()
    }

    /// A file is about to be read or changed around the mount: see [`MountCaches::write_back_dirty`].
    pub fn write_back_dirty(&self, fid: Fid) -> bool {
        let mount = self.mount.read().clone();
        mount.is_some_and(|mount| mount.write_back_dirty(fid))
    }

    /// A file was changed around the mount: see [`MountCaches::refresh_kernel`].
    pub fn refresh_kernel(&self, fid: Fid) {
        let mount = self.mount.read().clone();
        if let Some(mount) = mount {
            mount.refresh_kernel(fid);
        }
    }

    /// Notes that the next read or write through this handle fills the kernel's page cache.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn enters_page_cache(&self, handle: Handle) -> Result<()> {
        self.ctx.table.get(handle)?.file.enters_page_cache();
        Ok(())
    }

    /// Whether a program may have mapped the file: a handle that reads is open, and it has been used.
    pub fn may_be_mapped(&self, fid: Fid) -> bool {
        let paged = |file: Arc<OpenFile>| {
            file.paged.load(Ordering::SeqCst) && file.state.lock().paging_handles > 0
        };
        self.ctx.table.find(fid).is_some_and(paged)
    }

    /// To be called after a direct write, which the kernel expected at `expected` and which went to `placed`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn after_direct_write(
        &self,
        handle: Handle,
        expected: u64,
        placed: u64,
    ) -> Result<DirectWriteFollowUp> {
        let open = self.ctx.table.get(handle)?;
        let others = || open.flags.read || open.file.state.lock().handles > 1;
        Ok(DirectWriteFollowUp {
            drop_pages: open.file.paged.load(Ordering::SeqCst),
            refetch_view: placed > expected && others(),
        })
    }

    /// Fetches the file's view anew. Otherwise bytes that other nodes appended before an append of this node would read as zeros.
    ///
    /// # Errors
    /// `EBADF`; `EIO` if the file's owner does not answer.
    pub fn refetch_view(&self, handle: Handle) -> Result<()> {
        let open = self.ctx.table.get(handle)?;
        self.ctx.refresh(&open.file)
    }

    /// Whether kernels of other nodes have to hear of a change before the call that made it returns: in posix consistency,
    /// where the file is open. Direct I/O asks for every byte, but mappings and spliced reads do not.
    pub fn has_unshown(&self, fid: Fid) -> bool {
        let unshown = |file: Arc<OpenFile>| !file.state.lock().unshown.is_empty();
        self.ctx.posix && self.ctx.table.find(fid).is_some_and(unshown)
    }

    /// Returns once the kernels of other nodes keep nothing older than what this node published of the file. Not to be
    /// called on a thread that answers requests of a mount: the other node's mount may wait for this one's in turn.
    ///
    /// # Errors
    /// `EIO` if a node that runs did not hear of it.
    pub fn show_elsewhere(&self, fid: Fid) -> Result<()> {
        let Some(file) = self.ctx.table.find(fid) else {
            return Ok(());
        };
        let (members, attr) = {
            let mut state = file.state.lock();
            (std::mem::take(&mut state.unshown), state.attr.clone())
        };
        let told = members.iter().map(|member| {
            let changed = KernelInvalidation::Changed(attr.clone());
            match self.ctx.node.peers.invalidate_kernel(*member, changed) {
                // Its mount ends with it.
                Err(Error::Fabric(Fabric::Dead(_))) => Ok(()),
                Err(error) => {
                    tracing::error!(fid = fid.0, member, %error, "the kernel of another node may show old bytes of a file");
                    Err(error)
                }
                Ok(()) => Ok(()),
            }
        });
        // All are told, whatever becomes of one.
        told.fold(Ok(()), Result::and)
    }

    /// The kernels of other nodes hear that a directory is now at `path`, from the root on. One that does not is no
    /// failure: it finds out when it looks the directory up. As for [`KernelPages::show_elsewhere`], on no answering thread.
    pub fn show_moved(&self, fid: Fid, path: &[u8]) {
        let peers = &self.ctx.node.peers;
        for member in (0..peers.members()).filter(|m| *m != peers.member()) {
            let path = path.to_vec();
            let moved = KernelInvalidation::Moved { fid, path };
            if let Err(error) = peers.invalidate_kernel(member, moved) {
                tracing::debug!(fid = fid.0, member, %error, "a node does not hear of a moved directory");
            }
        }
    }

    /// Sets the mount's handler of invalidations by other nodes; `None`: there is no mount any more. With a mount and other members,
    /// the kernel may hold leased objects.
    pub fn set_kernel_invalidator(&self, invalidator: Option<Arc<KernelInvalidator>>) {
        let mounted = invalidator.is_some();
        *self.ctx.node.kernel.write() = invalidator;
        if mounted && self.ctx.members() > 1 {
            self.ctx.kernel_leases.turn_on();
        }
    }

    /// A library of this process has renamed or removed what this name named: returns once this node's kernel looks the name up before it
    /// uses it again, or keeps it no more. A kernel that asks for such a change knows by itself: its request must not wait for this.
    pub fn expire_name(&self, parent: Fid, name: &[u8]) {
        let leases = &self.ctx.kernel_leases;
        if !leases.is_on() || leases.revoke(parent, LeasedPart::Entries, None).is_none() {
            return;
        }
        let name = name.to_vec();
        let what = KernelInvalidation::Entry { parent, name };
        let peers = &self.ctx.node.peers;
        let expired = peers.invalidate_kernel_within(peers.member(), what, 2 * LEASE_TERM);
        if let Err(error) = expired {
            tracing::debug!(parent = parent.0, %error, "the kernel keeps a name until its lease has run out");
        }
    }

    /// A lease on this is over, and the kernel is given no other one that was asked for before. Answers when it was given one last,
    /// if it may still have it: then it is to drop what it keeps.
    pub fn end_lease(&self, fid: Fid, part: LeasedPart) -> Option<Instant> {
        self.ctx.kernel_leases.revoke(fid, part, None)
    }

    /// Another node has published a change of a file, which is so since. What the kernel has to hear: that its pages may be
    /// old (true), or just the size; `None`: it has no pages, and that size.
    pub fn changed_elsewhere(&self, attr: &Attr) -> Option<bool> {
        let file = self.ctx.table.find(attr.fid)?;
        let mut state = file.state.lock();
        state.observe(attr);
        let paged = file.paged.load(Ordering::SeqCst);
        (paged || state.told != Some(state.size())).then_some(paged)
    }

    /// The kernel has made a file at least as long as a write of this node reaches, though it may have been cut meanwhile.
    pub fn size_is_uncertain(&self, fid: Fid) {
        // Only in posix consistency does anyone ask what the kernel was told (`changed_elsewhere`).
        if !self.ctx.posix {
            return;
        }
        if let Some(file) = self.ctx.table.find(fid) {
            file.state.lock().told = None;
        }
    }

    /// The kernel has been seen to have this size for a file that is open here.
    pub fn note_kernel_size(&self, fid: Fid, size: u64) {
        if let Some(file) = self.ctx.table.find(fid) {
            let mut state = file.state.lock();
            // A write of this node may have changed it meanwhile.
            state.told = Some(size).filter(|size| *size == state.size());
        }
    }

    /// Has the kernel drop all pages of the file with `drop`, which waits for those on their way. Those that are being filled are there
    /// by then. Not to be called on a thread that answers requests of a mount.
    ///
    /// # Errors
    /// As [`KernelPages::wait_for_fills`].
    pub fn drop_all<T>(&self, fid: Fid, drop: impl FnOnce() -> T) -> Result<T> {
        self.wait_for_fills(fid)?;
        let file = self.ctx.table.find(fid);
        let _turn = file.as_ref().map(|file| file.dropping.lock());
        Ok(self.drop_in_turn(fid, file.as_deref(), drop))
    }

    /// The same for a file that has just been opened, if nothing can be on its way: no other handle is open. Then it may be called on
    /// any thread. `None`: not so, and nothing is done.
    pub fn drop_all_at_once<T>(&self, fid: Fid, drop: impl FnOnce() -> T) -> Option<T> {
        let file = self.ctx.table.find(fid)?;
        // An open that comes now finds the old pages too, and is answered after them.
        let turn = file.dropping.try_lock()?;
        let alone = {
            let state = file.state.lock();
            let current = state.kernel == Some(state.attr.generation);
            state.handles == 1 && !current && !state.fills.is_filling()
        };
        let dropped = alone.then(|| self.drop_in_turn(fid, Some(&file), drop));
        std::mem::drop(turn);
        dropped
    }

    fn drop_in_turn<T>(&self, fid: Fid, file: Option<&OpenFile>, drop: impl FnOnce() -> T) -> T {
        if let Some(file) = file {
            let state = file.state.lock();
            // One that has begun since may fill pages after they are dropped.
            if !state.fills.is_filling() {
                file.paged.store(false, Ordering::SeqCst);
            }
        }
        let _under_way = self.begin_drop(fid, true);
        drop()
    }

    /// The kernel's pages of the file are gone since they were found stale.
    pub fn dropped_pages(&self, stale: StalePages) {
        if let Some(file) = self.ctx.table.find(stale.fid) {
            let mut state = file.state.lock();
            state.kernel = state.kernel.max(Some(stale.generation));
        }
    }
}
