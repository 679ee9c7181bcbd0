//! Makes this node's kernel follow directories that other nodes move.
//!
//! After another node has moved a directory, this kernel still has it under its old parent. It moves the directory when a look-up
//! finds it under another parent. That takes a kernel lock, which a rename between directories holds around its own look-ups: there
//! the look-up fails. The kernel repeats the whole call once, and if that fails too, the program gets `ESTALE`.
//!
//! The first failure cannot be avoided. But the repeated call looks up the parents first, before it takes the lock. So the mount
//! delays that next look-up of the same thread until it has looked the directory up through its own mount, at the new place. This
//! also moves a directory that is in use (a working directory, open files); a notification could only cut it off.
//!
//! To make this rare, a mount that moves a directory to another parent informs the other nodes, and the call returns when they have
//! answered. Each of them looks the directory up through its own mount, if its kernel has it (`invalidation`). A mount that waits
//! for others in this way does not make others wait: their look-up might need the lock that its own call holds.
//!
//! Invariant: only a reply waits, on a thread of its own, and for a fixed time at most. So a call that holds a kernel lock (it
//! names its parents by descriptors) waits for no other call.
use super::context::MountContext;
use super::directory_places::{DirectoryPlaces, MovedDirectory};
use super::task_threads::spawn_task;
use crate::kernel_caches::KernelCaches;
use crate::protocol::{EntryAnswer, Reply};
use forebay_server::{Attr, Fid, Kind};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest wait of a reply.
const LOOKUP_WAIT: Duration = Duration::from_millis(500);

/// State about moves, shared by the threads that answer requests and those that handle invalidations from other nodes.
#[derive(Default)]
pub(super) struct DirectoryMoveState {
    pub directories: DirectoryPlaces,
    /// Renames of this mount that wait for the other nodes' answers.
    pub telling: AtomicUsize,
}

impl DirectoryMoveState {
    /// Has the kernel look up a moved directory where it is now.
    pub fn look_up(&self, caches: &KernelCaches, fid: Fid, path: &Path) {
        match caches.look_up(path, LOOKUP_WAIT) {
            Ok(()) => self.directories.looked_up(fid, path),
            // It was moved again, or the thread that looks it up holds a kernel lock: then that call may fail.
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a moved directory is not looked up");
            }
        }
    }
}

/// See the head of this file.
pub(super) struct DirectoryMoves {
    pub ctx: Arc<MountContext>,
    pub places: Arc<DirectoryMoveState>,
}

impl DirectoryMoves {
    /// Notes the place at which a reply shows the kernel a directory. Not needed in a service of one member: no other node moves any.
    pub fn answered(
        &self,
        answer: &Result<Attr, Errno>,
        (parent, name): (Fid, &OsStr),
        thread: u32,
    ) {
        if let Ok(attr) = answer
            && attr.kind == Kind::Dir
            && !self.ctx.policy.alone
        {
            let directories = &self.places.directories;
            match name.as_bytes() {
                b"." | b".." => directories.answered(attr.fid),
                _ => {
                    let thread = (!self.ctx.caches.is_own(thread)).then_some(thread);
                    directories.found(attr.fid, parent, name, thread);
                }
            }
        }
    }

    /// Answers a rename after other nodes' kernels know the new places of the directories that it moved.
    pub fn answer_rename(
        &self,
        answer: Result<(), Errno>,
        moved: Vec<(Fid, PathBuf)>,
        reply: Reply<()>,
    ) {
        if moved.is_empty() {
            return reply.answer(answer);
        }
        let (ctx, places) = (self.ctx.clone(), self.places.clone());
        let purpose = "to tell of a moved directory";
        spawn_task(purpose, move || {
            places.telling.fetch_add(1, Ordering::SeqCst);
            for (fid, path) in moved {
                let path = path.as_os_str().as_bytes();
                ctx.delegate.kernel_pages.show_moved(fid, path);
            }
            places.telling.fetch_sub(1, Ordering::SeqCst);
            reply.answer(answer);
        });
    }

    /// Answers a look-up after the mount has looked the directory up at its new place.
    pub fn answer_lookup(
        &self,
        moved: MovedDirectory,
        answer: Result<EntryAnswer, Errno>,
        reply: Reply<EntryAnswer>,
    ) {
        let (ctx, places) = (self.ctx.clone(), self.places.clone());
        let purpose = "to look a moved directory up";
        spawn_task(purpose, move || {
            places.look_up(&ctx.caches, moved.fid, &moved.path);
            reply.answer(answer);
        });
    }
}
