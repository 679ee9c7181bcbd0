//! A running mount: its start, its threads, its end.
use crate::caller_groups::CallerGroups;
use crate::errors::MountError;
use crate::filesystem::{Filesystem, MountContext};
use crate::open_handles::OpenHandles;
use crate::options::{MountOptions, READAHEAD, answering_threads};
use crate::protocol::{self, ReadingRule, Session};
use crate::recording::MountRecording;
use crate::{mount_calls, mount_table, mountpoint};
use forebay_server::Delegate;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long [`Mount::stop`] waits for users of the mount to go.
const USERS_LEAVE_WAIT: Duration = Duration::from_secs(5);
/// How long it then waits for what these have written and not closed.
const WRITE_BACK_WAIT: Duration = Duration::from_secs(5);
/// What the kernel keeps of a mount at most where it does not say so (before Linux 6.2), bytes: of some 16 GiB of free memory.
const USUAL_DIRTY_LIMIT: u64 = 32 << 20;
/// How long it then waits for the threads.
const THREADS_END_WAIT: Duration = Duration::from_secs(10);

/// A file system mounted by this process. Dropping it stops it.
///
/// The process that serves a mount must not use files below it: a thread that waits for its own process can keep the
/// process from ending. Programs and tests use it from other processes.
pub struct Mount {
    point: PathBuf,
    device: String,
    session: Option<JoinHandle<io::Result<()>>>,
    ended: Receiver<()>,
    // No more than these of the context: it keeps the connection to the kernel open, which closes when the last thread has ended.
    ctx: Weak<MountContext>,
    recording: Arc<MountRecording>,
    handles: Arc<OpenHandles>,
    callers: Arc<CallerGroups>,
    refused: Arc<AtomicBool>,
}

/// A mount point that is mounted and waits for its delegate: whoever touches it waits too. Dropping it unmounts it.
///
/// A process that must not fork later mounts first, and then gets to know whom it serves.
pub struct PendingMount {
    point: PathBuf,
    options: MountOptions,
    connection: Option<OwnedFd>,
}

impl PendingMount {
    /// Mounts on the empty directory `point`. Nothing answers there until [`PendingMount::answer`].
    ///
    /// # Errors
    /// Each [`MountError`] names the mount point and the next step.
    pub fn mount(
        point: impl AsRef<Path>,
        options: MountOptions,
    ) -> Result<PendingMount, MountError> {
        let point = mountpoint::check(point.as_ref())?;
        let connection = Some(mount_calls::mount(&point, &options)?);
        mountpoint::claim(&point);
        Ok(PendingMount {
            point,
            options,
            connection,
        })
    }

    /// Answers requests with `delegate`'s view of the service, in the background until [`Mount::stop`].
    ///
    /// # Errors
    /// `System`; the mount point is unmounted again then.
    pub fn answer(mut self, delegate: Arc<Delegate>) -> Result<Mount, MountError> {
        let Some(connection) = self.connection.take() else {
            unreachable!("only this takes the connection, and it takes self");
        };
        let point = &self.point;
        let (send, ended) = channel();
        let ctx = MountContext::new(delegate, &self.options);
        let device = device(point).unwrap_or_default();
        ctx.policy
            .write_back
            .budget
            .set_most_kept(most_kept(&device));
        let filesystem = Filesystem::new(ctx.clone(), send);
        // The kernel lets nobody else in either; so does the answer.
        let owner = (!self.options.allow_other).then(|| rustix::process::geteuid().as_raw());
        let started = Session::handshake(filesystem, connection, owner).and_then(|session| {
            // Nothing is answered before `spawn`.
            ctx.caches.connect(session.notifier(), point)?;
            session.spawn(answering_threads(), reading_rule(&ctx.delegate))
        });
        let session = match started {
            Ok(session) => session,
            Err(e) => {
                let error = MountError::system("start answering on", point, e);
                self.give_up();
                return Err(error);
            }
        };
        set_readahead(&device);
        Ok(Mount {
            point: point.clone(),
            device,
            session: Some(session),
            ended,
            ctx: Arc::downgrade(&ctx),
            recording: ctx.recording.clone(),
            handles: ctx.handles.clone(),
            callers: ctx.callers.clone(),
            refused: ctx.refused.clone(),
        })
    }

    fn give_up(&self) {
        if let Err(e) = mount_calls::detach(&self.point) {
            tracing::warn!(point = %self.point.display(), error = %e, "the mount stays");
        }
        mountpoint::disclaim(&self.point);
    }
}

impl Drop for PendingMount {
    fn drop(&mut self) {
        // Closing the connection first wakes those that wait.
        if self.connection.take().is_some() {
            self.give_up();
        }
    }
}

impl Mount {
    /// Where a recorder of its requests is set.
    pub fn recording(&self) -> Arc<MountRecording> {
        self.recording.clone()
    }

    /// What is open on it.
    pub fn open_handles(&self) -> Arc<OpenHandles> {
        self.handles.clone()
    }

    /// Unmounts and waits for the last request. Waits up to 5 seconds for users to go, then cuts them off.
    ///
    /// # Errors
    /// [`MountError::CutOff`] if users were cut off; the mount has ended then, too.
    pub fn stop(mut self) -> Result<(), MountError> {
        self.end()
    }

    /// The process groups of all that have used the mount, as this process sees them.
    pub fn callers(&self) -> BTreeSet<u32> {
        self.callers.groups()
    }

    /// Answers every request with `ENOTCONN` from now on, and leaves the mount where it is: when this process has ended, the kernel
    /// answers so until somebody unmounts it. For a service that ends while programs still run, whose files would else land in the
    /// directory below without a word.
    pub fn refuse(mut self) {
        self.write_back_all_dirty();
        self.refused.store(true, Ordering::SeqCst);
        // Its threads answer until the process ends.
        std::mem::forget(self.session.take());
    }

    /// Has the kernel write back dirty pages, within [`WRITE_BACK_WAIT`].
    fn write_back_all_dirty(&self) {
        if let Some(ctx) = self.ctx.upgrade()
            && !ctx.write_back_all_dirty(WRITE_BACK_WAIT)
        {
            tracing::error!(
                point = %self.point.display(),
                "the kernel keeps bytes that programs have written, and they are lost unless these hear of an error: it did not write them \
                 back in {WRITE_BACK_WAIT:?}"
            );
        }
    }

    fn end(&mut self) -> Result<(), MountError> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        if let Some(ctx) = self.ctx.upgrade() {
            ctx.end_rechecks();
        }
        let result = self.take_out();
        mountpoint::disclaim(&self.point);
        match self.ended.recv_timeout(THREADS_END_WAIT) {
            // Sent as the last step of the session, so joining does not wait.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                if let Err(e) = protocol::join(session) {
                    tracing::warn!(point = %self.point.display(), error = %e, "the mount ended with an error");
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(point = %self.point.display(), "a process still holds files of the mount; its threads go on until it ends");
                return Err(MountError::CutOff {
                    point: self.point.clone(),
                });
            }
        }
        result
    }

    /// Takes the mount out of the tree, if it is still ours.
    fn take_out(&self) -> Result<(), MountError> {
        let until = Instant::now() + USERS_LEAVE_WAIT;
        let mut pause = Duration::from_millis(1);
        // Where the list cannot be read it is taken for ours: then the call says so if it is not there.
        while device(&self.point).map_or(true, |there| there == self.device) {
            match mount_calls::unmount(&self.point) {
                Ok(()) => return Ok(()),
                Err(e) => match e.raw_os_error() {
                    Some(libc::EBUSY) if Instant::now() < until => {
                        // The kernel tells nobody when the last user of a mount goes.
                        std::thread::sleep(pause);
                        pause = (pause * 2).min(Duration::from_millis(200));
                    }
                    Some(libc::EBUSY) => {
                        self.write_back_all_dirty();
                        let forced = mount_calls::force(&self.point);
                        forced.map_err(|e| MountError::system("unmount", &self.point, e))?;
                        return Err(MountError::CutOff {
                            point: self.point.clone(),
                        });
                    }
                    // Someone else unmounted it between the look and the call.
                    Some(libc::EINVAL) => return Ok(()),
                    _ => return Err(MountError::system("unmount", &self.point, e)),
                },
            }
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            tracing::warn!("{e}");
        }
    }
}

/// Which threads of the mount read requests.
fn reading_rule(delegate: &Delegate) -> ReadingRule {
    match delegate.seldom_waits() {
        true => ReadingRule::OneIfEnough,
        false => ReadingRule::All,
    }
}

/// The device number of what is mounted on `point`; empty if nothing of ours is.
fn device(point: &Path) -> io::Result<String> {
    let table = mount_table::mounts()?;
    let ours = mount_table::mounted_on(&table, point).filter(|e| e.is_forebay());
    Ok(ours.map(|e| e.device.clone()).unwrap_or_default())
}

/// Most bytes of dirty pages that the kernel keeps of a mount. Its limit moves with the memory that is free, and writers may pass it by some
/// pages: so twice that.
fn most_kept(device: &str) -> u64 {
    let file = format!("/sys/class/bdi/{device}/max_bytes");
    let limit = std::fs::read_to_string(file).ok();
    let limit = limit.and_then(|text| text.trim().parse().ok());
    limit.unwrap_or(USUAL_DIRTY_LIMIT) * 2
}

/// The kernel starts FUSE mounts with 128 KiB of readahead and lets only the administrator raise it.
fn set_readahead(device: &str) {
    let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let set: io::Result<()> = std::fs::write(&file, (READAHEAD >> 10).to_string());
    if let Err(e) = set {
        tracing::debug!(file, error = %e, "readahead stays at the kernel's default");
    }
}
