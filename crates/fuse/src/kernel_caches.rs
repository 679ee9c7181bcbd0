//! Invalidates the kernel's caches of files: drops pages, updates attributes.
//!
//! A notification drops pages, but it does not change the size that the kernel has for a file. Buffered reads within that size,
//! `sendfile`, `splice` and `copy_file_range` do not ask for the size again. So after the pages are dropped, the mount looks the
//! file up through itself ([`SelfCalls`]), at a temporary name in its own directory. The reply to the look-up carries the new
//! attributes.
//!
//! Invariant: nothing here except [`KernelCaches::store_pages`] is called on a thread that answers requests. Dropping pages waits
//! for reads under way, and the look-up waits for its reply.
use crate::attempt::TEAM_DIRECTORY;
use crate::protocol::Notifier;
use crate::self_calls::{KernelAttributes, SelfCall, SelfCalls};
use forebay_client::team_ioctl::wire::DIRECTORY;
use forebay_server::delegate::Delegate;
use forebay_server::{Attr, Fid};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often the kernel is told a size that it does not take, because the file changes under it on this node meanwhile.
const MAX_SIZE_NOTICES: u32 = 8;
/// The longest wait for one look-up. The mount answers, if only with an error, within its service's deadline.
const SELF_CALL_LIMIT: Duration = Duration::from_secs(120);

struct KernelChannel {
    notifier: Notifier,
    self_calls: SelfCalls,
    point: PathBuf,
}

/// See the head of this file.
#[derive(Default)]
pub(crate) struct KernelCaches {
    connection: OnceLock<KernelChannel>,
    /// Files that are being looked up, by the number in their name.
    renewed: Mutex<HashMap<u64, Fid>>,
    next: AtomicU64,
    /// How many calls that look like changes of attributes are under way.
    calling: AtomicUsize,
    /// The root's attributes as the kernel was told them last: its own look-ups begin there, and need no other member.
    root: Mutex<Option<Attr>>,
}

impl KernelCaches {
    /// From now on the kernel can be told. Before the first request.
    ///
    /// # Errors
    /// No threads for look-ups.
    pub fn connect(&self, notifier: Notifier, point: &Path) -> io::Result<()> {
        let self_calls = SelfCalls::start()?;
        let connection = KernelChannel {
            notifier,
            self_calls,
            point: point.to_path_buf(),
        };
        self.connection
            .set(connection)
            .map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// Makes the kernel's size of a file, and its pages if it is `paged`, as new as `delegate` sees the file.
    ///
    /// # Errors
    /// `EIO`: they are not.
    pub fn refresh_size_and_pages(
        &self,
        delegate: &Delegate,
        fid: Fid,
        paged: bool,
    ) -> forebay_server::Result<()> {
        let renewed = match paged {
            true => self.refresh(delegate, fid),
            false => self.tell_size(delegate, fid),
        };
        match renewed.map_err(|e| e.raw_os_error()) {
            // The mount has ended, and the kernel's caches with it; or the file's last handle here.
            Ok(()) | Err(Some(libc::ENODEV | libc::ENOTCONN | libc::ENOENT | libc::ESTALE)) => {
                Ok(())
            }
            Err(number) => {
                tracing::error!(
                    fid = fid.0,
                    ?number,
                    "the kernel keeps old bytes of a file that another node has changed"
                );
                Err(rustix::io::Errno::IO.into())
            }
        }
    }

    fn connection(&self) -> io::Result<&KernelChannel> {
        Ok(self.connection.get().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Drops the pages of a file that is open here, and tells the kernel its size as `delegate` sees it.
    ///
    /// # Errors
    /// The kernel has old pages, or an old size.
    pub fn refresh(&self, delegate: &Delegate, fid: Fid) -> io::Result<()> {
        self.drop_all_pages(delegate, fid)?;
        self.tell_size(delegate, fid)
    }

    /// Drops the pages of a file; those that the kernel has not written back yet are written back first. `false`: it does not know
    /// the file.
    ///
    /// # Errors
    /// The kernel has old pages.
    pub fn drop_all_pages(&self, delegate: &Delegate, fid: Fid) -> io::Result<bool> {
        let connection = self.connection()?;
        let drop = || connection.notifier.inval_inode(fid, 0, 0);
        let dropped = delegate.kernel_pages.drop_all(fid, drop);
        dropped.map_err(|e| io::Error::from_raw_os_error(e.errno().raw_os_error()))?
    }

    /// The same of a file that has just been opened, on any thread: `None` if that would have to wait, and nothing is done.
    pub fn drop_all_pages_at_once(
        &self,
        delegate: &Delegate,
        fid: Fid,
    ) -> Option<io::Result<bool>> {
        let drop = || self.connection()?.notifier.inval_inode(fid, 0, 0);
        delegate.kernel_pages.drop_all_at_once(fid, drop)
    }

    /// The kernel asks for a file's attributes before it uses them again.
    ///
    /// # Errors
    /// It keeps them.
    pub fn forget_attributes(&self, fid: Fid) -> io::Result<()> {
        self.connection()?
            .notifier
            .inval_inode(fid, -1, 0)
            .map(drop)
    }

    /// Whether the kernel knows a file. It asks for its attributes anew.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn is_known(&self, fid: Fid) -> io::Result<bool> {
        self.connection()?.notifier.inval_inode(fid, -1, 0)
    }

    /// Puts bytes into the pages of a file, at `offset`. Waits for pages that are being read: the calling thread must not be
    /// needed for that, although it may be one that answers requests.
    ///
    /// # Errors
    /// They are not there, or not all.
    pub fn store_pages(&self, fid: Fid, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.connection()?.notifier.store(fid, offset, bytes)
    }

    /// Drops the pages in which `len` bytes from `offset` on are.
    ///
    /// # Errors
    /// The kernel has old pages.
    pub fn drop_pages(
        &self,
        delegate: &Delegate,
        fid: Fid,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let _under_way = delegate.kernel_pages.begin_drop(fid, false);
        self.drop_written(fid, offset, len)
    }

    /// The same for a write through the page cache that is not answered yet.
    ///
    /// # Errors
    /// As that.
    pub fn drop_written(&self, fid: Fid, offset: u64, len: usize) -> io::Result<()> {
        let (offset, len) = (i64::try_from(offset), i64::try_from(len));
        let (Ok(offset), Ok(len)) = (offset, len) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // A length of 0 would be all.
        match len {
            0 => Ok(()),
            _ => self
                .connection()?
                .notifier
                .inval_inode(fid, offset, len)
                .map(drop),
        }
    }

    /// Drops the attributes of an inode. Whether the kernel knows it.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn drop_attributes(&self, fid: Fid) -> io::Result<bool> {
        self.connection()?.notifier.inval_inode(fid, -1, 0)
    }

    /// Has a name in a directory looked up again before it is used again.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn expire_entry(&self, parent: Fid, name: &OsStr) -> io::Result<()> {
        self.connection()?.notifier.expire_entry(parent, name)
    }

    /// Tells the kernel the size of a file that is open here, as `delegate` sees it.
    ///
    /// # Errors
    /// The kernel has an old size.
    pub fn tell_size(&self, delegate: &Delegate, fid: Fid) -> io::Result<()> {
        self.at_own_name(fid, |self_calls, path| {
            let mut told = Ok(false);
            for _ in 0..MAX_SIZE_NOTICES {
                told = self_calls.size(path.clone(), SELF_CALL_LIMIT).map(|size| {
                    let seen = delegate.names.seen(fid);
                    let same = seen.is_none_or(|attr| attr.size == size);
                    if same {
                        delegate.kernel_pages.note_kernel_size(fid, size);
                    }
                    same
                });
                if !matches!(told, Ok(false)) {
                    break;
                }
            }
            if let Ok(false) = told {
                tracing::warn!(
                    inode = fid.0,
                    "the kernel keeps another size of a file than this node has, after {MAX_SIZE_NOTICES} look-ups; is it being written?"
                );
            }
            told.map(|_| ())
        })
    }

    /// Gives the kernel these attributes of a file, also where it keeps size and times of files itself.
    ///
    /// # Errors
    /// As the calls do by which it is given them: `EBUSY` if the mount refuses that just now, `EACCES` for a file that this process may
    /// not write.
    pub fn give(&self, attr: &Attr) -> io::Result<()> {
        self.adopt(attr, Some(attr.size))
    }

    /// The same of the time alone, if it is later than the one that the kernel keeps.
    ///
    /// # Errors
    /// As that.
    pub fn give_later_time(&self, attr: &Attr) -> io::Result<()> {
        self.adopt(attr, None)
    }

    fn adopt(&self, attr: &Attr, size: Option<u64>) -> io::Result<()> {
        let attributes = KernelAttributes {
            size,
            atime: attr.atime,
            mtime: attr.mtime,
        };
        self.own_call(attr.fid, SelfCall::SetAttributes(attributes))
    }

    /// Returns once the kernel has handed over all that it has of a file: dirty pages, and their time.
    ///
    /// # Errors
    /// It has not.
    pub fn write_back(&self, fid: Fid) -> io::Result<()> {
        self.own_call(fid, SelfCall::WriteBack)
    }

    fn own_call(&self, fid: Fid, call: SelfCall) -> io::Result<()> {
        self.calling.fetch_add(1, Ordering::SeqCst);
        let done = self.at_own_name(fid, |self_calls, path| {
            self_calls.call(path, call, SELF_CALL_LIMIT)
        });
        self.calling.fetch_sub(1, Ordering::SeqCst);
        done.map(drop)
    }

    /// Whether a change of attributes by this thread is made for what the kernel does with it: nothing is to be changed.
    pub fn calls(&self, thread: u32) -> bool {
        self.calling.load(Ordering::SeqCst) > 0 && self.is_own(thread)
    }

    /// Does something with a file by a name in the mount's own directory, which stands for it as long as that takes.
    fn at_own_name<T>(
        &self,
        fid: Fid,
        act: impl FnOnce(&SelfCalls, PathBuf) -> io::Result<T>,
    ) -> io::Result<T> {
        let connection = self.connection()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{RENEWED_PREFIX}{number}");
        let path = connection.point.join(DIRECTORY).join(&name);
        self.renewed.lock().insert(number, fid);
        let done = act(&connection.self_calls, path);
        self.renewed.lock().remove(&number);
        // The kernel would keep the file's inode as long as this name.
        let _ = connection
            .notifier
            .inval_entry(TEAM_DIRECTORY, OsStr::new(&name));
        done
    }

    /// Has the kernel look up a path below the root of the mount, for at most `limit`.
    ///
    /// # Errors
    /// As `lstat`, and when it takes longer.
    pub fn look_up(&self, path: &Path, limit: Duration) -> io::Result<()> {
        let connection = self.connection()?;
        let path = connection.point.join(path);
        connection.self_calls.size(path, limit).map(|_| ())
    }

    /// The file that a name in the mount's own directory stands for just now.
    pub fn renewed(&self, name: &[u8]) -> Option<Fid> {
        let number = std::str::from_utf8(name)
            .ok()?
            .strip_prefix(RENEWED_PREFIX)?;
        self.renewed.lock().get(&number.parse().ok()?).copied()
    }

    /// Whether the thread of a request is one of the mount's own.
    pub fn is_own(&self, thread: u32) -> bool {
        let connection = self.connection.get();
        connection.is_some_and(|c| c.self_calls.is_own(thread))
    }

    /// The kernel is told these attributes: they are kept if they are the root's.
    pub fn remember_root(&self, attr: &Attr) {
        if attr.fid == Fid::ROOT {
            *self.root.lock() = Some(attr.clone());
        }
    }

    /// The root's attributes for a look-up of the mount's own, so that it needs no other member.
    pub fn root(&self, fid: Fid, thread: u32) -> Option<Attr> {
        let own = fid.0 == Fid::ROOT.0 && self.is_own(thread);
        own.then(|| self.root.lock().clone()).flatten()
    }
}

/// Before the number in the name that stands for a file.
const RENEWED_PREFIX: &str = "renewed-";
