//! Files that are read or changed around the mount, in a service of one member: by the library, by staging, by a team.
//!
//! There the kernel keeps names and attributes for a while, and pages without a limit of time. With its writeback cache it also
//! keeps dirty pages, and decides itself about size and times of the files that it knows: only replies to changes that it has
//! requested alter them ([`KernelCaches::give`](crate::kernel_caches::KernelCaches::give)). So
//! * before a file is read around the mount, the kernel writes back its dirty pages;
//! * after a file was changed around the mount, its pages are dropped, and the kernel is given the new size and times.
//!
//! # Invariants
//! - While a handle of the mount is open for writing, the kernel may have bytes beyond the end that the service knows: it is then
//!   given no size until the last such handle is closed. The request that gives the size checks this again and is refused if there
//!   is one. A handle counts as open before the program has it, so without one no program has written.
//! - A reply may be computed before such a change and bring the kernel an old size after it. So a file that the kernel does not
//!   know at the change is checked again later (`in_flight_inodes`).
//! - Nothing here waits on a thread that answers requests.
use super::context::MountContext;
use super::task_threads::spawn_task;
use forebay_server::delegate::MountCaches;
use forebay_server::{Attr, Fid, Kind};
use rustix::io::Errno;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often giving size and times to the kernel is repeated because the file was changed meanwhile.
const MAX_TRIES: u32 = 8;

struct BypassAccess(Weak<MountContext>);

impl MountCaches for BypassAccess {
    fn write_back_dirty(&self, fid: Fid) -> bool {
        self.0
            .upgrade()
            .is_some_and(|ctx| ctx.write_back_dirty(fid))
    }

    fn refresh_kernel(&self, fid: Fid) {
        if let Some(ctx) = self.0.upgrade() {
            ctx.refresh_kernel(fid);
        }
    }
}

/// Registers the mount to be notified of accesses around it.
pub(super) fn register_mount_caches(ctx: &Arc<MountContext>) {
    if ctx.policy.alone {
        let mount = BypassAccess(Arc::downgrade(ctx));
        ctx.delegate
            .kernel_pages
            .set_mount_caches(Some(Arc::new(mount)));
    }
}

impl MountContext {
    /// Has the kernel write back the file's dirty pages, and waits for it. `false`: there could be none.
    pub(super) fn write_back_dirty(&self, fid: Fid) -> bool {
        let may = self.may_hold_written(fid);
        if may {
            let brought = self.caches.write_back(fid);
            self.report("does not write back", fid, brought);
        }
        may
    }

    /// Called before the mount is unmounted: stops the later checks, which use it.
    pub(crate) fn end_rechecks(&self) {
        self.changes.in_flight.end();
    }

    /// [`MountContext::write_back_dirty`] for all files, within `limit`. Whether all was written back.
    pub(crate) fn write_back_all_dirty(self: &Arc<MountContext>, limit: Duration) -> bool {
        let written = match self.policy.write_back.is_on() {
            true => self.handles.written(),
            false => Vec::new(),
        };
        if written.is_empty() {
            return true;
        }
        let (ctx, (done, all)) = (self.clone(), channel());
        let work = move || {
            written.into_iter().for_each(|inode| {
                ctx.write_back_dirty(Fid(inode));
            });
            // The waiting thread may have timed out.
            let _ = done.send(());
        };
        spawn_task("to bring back what programs have written", work);
        all.recv_timeout(limit).is_ok()
    }

    /// [`MountContext::write_back_dirty`] for a caller that holds the kernel's lock of the file, so that no change can be requested from
    /// the kernel. Drops the pages too.
    ///
    /// # Errors
    /// As the kernel says.
    pub(super) fn write_back_and_drop_pages(&self, fid: Fid) -> Result<(), Errno> {
        let written = self.caches.drop_all_pages(&self.delegate, fid);
        written.map(drop).map_err(errno)
    }

    /// Whether the kernel may have dirty pages of the file.
    pub(super) fn may_hold_written(&self, fid: Fid) -> bool {
        self.policy.write_back.is_on() && self.handles.is_written(fid.0)
    }

    /// As above, for a seek: includes pages that programs have written through mappings, which the kernel keeps in every service.
    pub(super) fn may_hold_unseen(&self, fid: Fid) -> bool {
        self.handles.is_written(fid.0)
            && (self.policy.write_back.is_on() || self.delegate.kernel_pages.may_be_mapped(fid))
    }

    /// Called after a file was changed around the mount: drops the kernel's pages, and gives it the new size and times.
    pub(super) fn refresh_kernel(self: &Arc<MountContext>, fid: Fid) {
        let renewed = match self.caches.drop_all_pages(&self.delegate, fid) {
            Ok(true) => self.give(fid),
            Ok(false) => {
                let mount = Arc::downgrade(self);
                let look = move |fid| {
                    let ctx = mount.upgrade();
                    ctx.inspect(|ctx| ctx.recheck(fid)).is_some()
                };
                self.changes.in_flight.add(fid, look);
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.report("keeps an old state of", fid, renewed);
    }

    /// The later check of a file that the kernel did not know at the change. If it knows it now, its pages are newer than the change.
    fn recheck(&self, fid: Fid) {
        let given = match self.caches.is_known(fid) {
            Ok(true) => self.give(fid),
            known => known.map(drop),
        };
        self.report("keeps an old state of", fid, given);
    }

    /// Gives the kernel the size and times of a file.
    fn give(&self, fid: Fid) -> io::Result<()> {
        for _ in 0..MAX_TRIES {
            let attr = self.attr_now(fid)?;
            if attr.kind != Kind::File {
                return Ok(());
            }
            let given = match self.may_hold_written(fid) {
                true => Err(Errno::BUSY.into()),
                false => self.caches.give(&attr),
            };
            match given {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                    if self.defer_refresh(fid) {
                        return Ok(());
                    }
                }
                given => {
                    given?;
                    let now = self.attr_now(fid)?;
                    if (now.size, now.mtime) == (attr.size, attr.mtime) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts off the refresh to the last close of a handle that writes. `false`: there is no such handle any more.
    fn defer_refresh(&self, fid: Fid) -> bool {
        self.changes.defer_refresh(fid);
        // If it was closed meanwhile, no close does it.
        self.may_hold_written(fid) || !self.changes.take_deferred(fid)
    }

    /// Refreshes the kernel's state of a file at the last close of a handle that writes, or now if there is none.
    pub(super) fn refresh_at_last_close(self: &Arc<MountContext>, fid: Fid) {
        if !self.defer_refresh(fid) {
            self.refresh_kernel(fid);
        }
    }

    /// Called when the last handle of the mount that writes to the file was closed.
    pub(super) fn last_writer_closed(self: &Arc<MountContext>, fid: Fid) {
        if !self.policy.write_back.is_on() || !self.changes.take_deferred(fid) {
            return;
        }
        self.spawn_refresh(fid);
    }

    fn spawn_refresh(self: &Arc<MountContext>, fid: Fid) {
        let ctx = self.clone();
        let work = move || ctx.refresh_kernel(fid);
        spawn_task("to show a change past the mount", work);
    }

    /// The reply to a change of attributes that the mount itself made; `size`: one that gives the kernel the size.
    pub(super) fn own_change(&self, fid: Fid, size: bool) -> Result<Attr, Errno> {
        if size && self.may_hold_written(fid) {
            return Err(Errno::BUSY);
        }
        self.attr_now(fid).map_err(errno)
    }

    /// Gives the kernel the modification time after a write past its page cache: for such writes it keeps none.
    pub(super) fn show_time(&self, fid: Fid) {
        let given = self.attr_now(fid);
        let given = given.and_then(|attr| self.caches.give_later_time(&attr));
        self.report("keeps an old time of", fid, given);
    }

    /// Attributes for the kernel: a file that is open for writing has at least one block. Dirty pages have no blocks here yet, and
    /// programs treat a file without blocks as one hole.
    pub(super) fn with_blocks(&self, attr: Attr) -> Attr {
        match attr.bytes == 0 && attr.kind == Kind::File && self.may_hold_written(attr.fid) {
            true => Attr { bytes: 1, ..attr },
            false => attr,
        }
    }

    /// The attributes, with this node's pending writes.
    pub(super) fn attr_now(&self, fid: Fid) -> io::Result<Attr> {
        Ok(self.delegate.names.getattr(fid)?)
    }

    fn report(&self, what: &str, fid: Fid, done: io::Result<()>) {
        match done.as_ref().map_err(io::Error::raw_os_error) {
            // The mount has ended, and the kernel's caches with it; or the file.
            Ok(()) | Err(Some(libc::ENODEV | libc::ENOTCONN | libc::ENOENT | libc::ESTALE)) => {}
            Err(number) => tracing::error!(
                inode = fid.0,
                ?number,
                "the kernel {what} a file that is used past the mount"
            ),
        }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
