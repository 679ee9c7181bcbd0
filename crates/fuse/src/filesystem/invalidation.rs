//! Invalidations by other nodes of what this node's kernel keeps: a file has changed, or a directory was moved.
//!
//! Each is heard on a thread of its own, because the kernel may first ask the mount something.
use super::context::MountContext;
use super::directory_moves::DirectoryMoveState;
use super::waiter::spawn_waiter;
use crate::kernel_caches::KernelCaches;
use forebay_server::{Fid, InvalidationDone, KernelInvalidation};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From now on the kernel hears of what other nodes do, as far as they say so.
pub(super) fn follow(ctx: &Arc<MountContext>, places: &Arc<DirectoryMoveState>) {
    let weak = (Arc::downgrade(ctx), Arc::downgrade(places));
    let invalidator = move |news: KernelInvalidation, told: InvalidationDone| {
        let (Some(ctx), Some(places)) = (weak.0.upgrade(), weak.1.upgrade()) else {
            return told(Ok(()));
        };
        let work: Box<dyn FnOnce() + Send> = match news {
            KernelInvalidation::Changed(attr) => {
                match ctx.delegate.kernel_pages.changed_elsewhere(&attr) {
                    Some(paged) => {
                        Box::new(move || told(ctx.caches.catch_up(&ctx.delegate, attr.fid, paged)))
                    }
                    None => return told(Ok(())),
                }
            }
            KernelInvalidation::Moved { fid, path } => Box::new(move || {
                let path = Path::new(OsStr::from_bytes(&path));
                moved(&ctx.caches, &places, fid, path, told);
            }),
        };
        // Without a thread the other node gets an error, because `told` goes with `work`.
        spawn_waiter("news", "to hear of other nodes", work);
    };
    ctx.delegate
        .kernel_pages
        .set_kernel_invalidator(Some(Arc::new(invalidator)));
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
