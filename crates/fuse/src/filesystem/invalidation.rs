//! Invalidations by other nodes of what this node's kernel keeps: a file has changed, or a directory was moved.
//!
//! Each is handled on its own thread, because the kernel may ask the mount something first. Leased attributes are the exception: the
//! kernel asks nothing.
use super::context::MountContext;
use super::directory_moves::DirectoryMoveState;
use super::task_threads::spawn_task;
use crate::kernel_caches::KernelCaches;
use forebay_server::delegate::LeasedPart;
use forebay_server::proto::meta::LEASE_TERM;
use forebay_server::{Fid, InvalidationDone, KernelInvalidation};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time in which a program's thread takes a reply that is ready.
const REPLY_PICKUP_TIMEOUT: Duration = Duration::from_millis(20);

/// From now on the kernel hears of what other nodes do, as far as they say so.
pub(super) fn register_invalidations(ctx: &Arc<MountContext>, places: &Arc<DirectoryMoveState>) {
    let weak = (Arc::downgrade(ctx), Arc::downgrade(places));
    let invalidator = move |invalidation: KernelInvalidation, told: InvalidationDone| {
        let (Some(ctx), Some(places)) = (weak.0.upgrade(), weak.1.upgrade()) else {
            return told(Ok(()));
        };
        let work: Box<dyn FnOnce() + Send> = match invalidation {
            KernelInvalidation::Changed(attr) => {
                match ctx.delegate.kernel_pages.changed_elsewhere(&attr) {
                    Some(paged) => Box::new(move || {
                        told(
                            ctx.caches
                                .refresh_size_and_pages(&ctx.delegate, attr.fid, paged),
                        )
                    }),
                    None => return told(Ok(())),
                }
            }
            KernelInvalidation::Moved { fid, path } => Box::new(move || {
                let path = Path::new(OsStr::from_bytes(&path));
                moved(&ctx.caches, &places, fid, path, told);
            }),
            KernelInvalidation::Attributes(fid) => return drop_attributes(&ctx, fid, told),
            KernelInvalidation::Entry { parent, name } => {
                let pages = &ctx.delegate.kernel_pages;
                match pages.end_lease(parent, LeasedPart::Entries) {
                    Some(given) => {
                        Box::new(move || expire_entry(&ctx.caches, parent, &name, given, told))
                    }
                    None => return told(Ok(())),
                }
            }
        };
        // Without a thread the other node gets an error, because `told` goes with `work`.
        spawn_task("to hear of other nodes", work);
    };
    ctx.delegate
        .kernel_pages
        .set_kernel_invalidator(Some(Arc::new(invalidator)));
}

/// Has the kernel drop leased attributes. Does not wait: dropping attributes takes no lock that a request may hold.
fn drop_attributes(ctx: &MountContext, fid: Fid, told: InvalidationDone) {
    let pages = &ctx.delegate.kernel_pages;
    let Some(given) = pages.end_lease(fid, LeasedPart::Attributes) else {
        return told(Ok(()));
    };
    match ctx.caches.drop_attributes(fid) {
        Ok(true) => told(Ok(())),
        // The kernel does not know the inode. Perhaps it has the answer and is about to make it: then the lease has to run out.
        Ok(false) => {
            let left = (LEASE_TERM + REPLY_PICKUP_TIMEOUT).saturating_sub(given.elapsed());
            if left.is_zero() {
                return told(Ok(()));
            }
            spawn_task("to wait for the end of a lease", move || {
                std::thread::sleep(left);
                told(Ok(()));
            });
        }
        // The mount has ended, and the kernel's caches with it.
        Err(_) => told(Ok(())),
    }
}

/// Has the kernel look a leased name up again when it comes by it next.
///
/// That takes the lock of the directory, which a call may hold that waits for its answer. Where two nodes so wait for each other,
/// the lease runs out: who asks does not wait longer for this than for that.
fn expire_entry(
    caches: &KernelCaches,
    parent: Fid,
    name: &[u8],
    given: Instant,
    told: InvalidationDone,
) {
    let expire = || caches.expire_entry(parent, OsStr::from_bytes(name));
    let expired = expire();
    let left = REPLY_PICKUP_TIMEOUT.saturating_sub(given.elapsed());
    if expired.is_ok() && !left.is_zero() {
        // A thread that looks the name up may have its answer, and not have taken it yet: it would set a new time-out.
        std::thread::sleep(left);
        let _ = expire();
    }
    told(Ok(()));
}

/// Has the kernel look up a directory that another node has moved.
fn moved(
    caches: &KernelCaches,
    places: &DirectoryMoveState,
    fid: Fid,
    path: &Path,
    told: InvalidationDone,
) {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !path.components().all(plain) || !places.directories.is_elsewhere(fid, path) {
        return told(Ok(()));
    }
    // A rename of this mount that waits for the other node holds locks that the look-up may need.
    if places.telling.load(Ordering::SeqCst) > 0 {
        told(Ok(()));
        places.look_up(caches, fid, path);
    } else {
        places.look_up(caches, fid, path);
        told(Ok(()));
    }
}
