//! Recording a mount: while a recorder is set, every request of the kernel is reported to it when it is answered.
//!
//! Most mounts are not recorded; then a request costs one check of a flag. A recorded mount may also have the kernel keep
//! nothing: files opened from then on bypass the page cache, names and attributes are asked for each time. So the recording
//! shows what programs do, not what the kernel's caches leave of it.
use crate::attempt::TEAM_DIRECTORY;
use crate::protocol::{DirectoryEntries, FileHandle, OpenedHandle, Request, XattrAnswer};
use forebay_server::Fid;
use forebay_trace::Action;
use forebay_trace::record::{ObservedCall, Recorder};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The recorder of a mount, if one is set.
#[derive(Default)]
pub struct MountRecording {
    on: AtomicBool,
    exact: AtomicBool,
    recorder: RwLock<Option<Arc<Recorder>>>,
}

impl MountRecording {
    /// Tells `recorder` of every request from now on. `exact`: the kernel is to keep nothing meanwhile.
    pub fn begin(&self, recorder: Arc<Recorder>, exact: bool) {
        *self.recorder.write() = Some(recorder);
        self.exact.store(exact, Ordering::SeqCst);
        self.on.store(true, Ordering::SeqCst);
    }

    /// Stops recording; returns the recorder. Requests that are being answered may still be reported to it.
    pub fn end(&self) -> Option<Arc<Recorder>> {
        self.on.store(false, Ordering::SeqCst);
        self.exact.store(false, Ordering::SeqCst);
        self.recorder.write().take()
    }

    /// Whether the kernel is to keep nothing.
    pub(crate) fn exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// Takes down that a request has come in, if a recorder is set.
    pub(crate) fn record(&self, req: &Request, call: CallInfo<'_>) -> CallRecord {
        // The directory of teams is nobody's file.
        if !self.on.load(Ordering::Relaxed) || call.fid() == TEAM_DIRECTORY {
            return CallRecord(None);
        }
        let recorder = self.recorder.read().clone();
        CallRecord(recorder.map(|recorder| {
            RecordedCall {
                seen: ObservedCall {
                    thread: req.pid,
                    start: recorder.now(),
                    ..call.seen
                },
                child: call
                    .name
                    .map(|(parent, name)| (parent.0, name.as_bytes().to_vec())),
                recorder,
            }
        }))
    }
}

/// What a request is about.
#[derive(Clone, Copy)]
pub(crate) struct CallInfo<'a> {
    seen: ObservedCall,
    name: Option<(Fid, &'a OsStr)>,
}

impl<'a> CallInfo<'a> {
    /// A file or directory.
    pub(crate) fn on(action: Action, fid: Fid) -> CallInfo<'a> {
        let seen = ObservedCall {
            thread: 0,
            action,
            inode: fid.0,
            handle: 0,
            offset: 0,
            len: 0,
            start: 0,
            end: 0,
            error: 0,
        };
        CallInfo { seen, name: None }
    }

    /// A name in a directory.
    pub(crate) fn at(action: Action, parent: Fid, name: &'a OsStr) -> CallInfo<'a> {
        CallInfo::on(action, parent).to(parent, name)
    }

    /// A file that gets a name in a directory.
    pub(crate) fn to(mut self, parent: Fid, name: &'a OsStr) -> CallInfo<'a> {
        self.name = Some((parent, name));
        self
    }

    /// An open file.
    pub(crate) fn through(mut self, handle: FileHandle) -> CallInfo<'a> {
        self.seen.handle = handle.0;
        self
    }

    /// A part of it.
    pub(crate) fn range(mut self, offset: u64, len: u64) -> CallInfo<'a> {
        (self.seen.offset, self.seen.len) = (offset, len);
        self
    }

    /// The action's name, for the log.
    pub(crate) fn operation(&self) -> &'static str {
        self.seen.action.name()
    }

    pub(crate) fn fid(&self) -> Fid {
        Fid(self.seen.inode)
    }
}

/// A request that is being answered; not reported if the mount is not recorded.
pub(crate) struct CallRecord(Option<RecordedCall>);

struct RecordedCall {
    recorder: Arc<Recorder>,
    seen: ObservedCall,
    /// The directory and name it is about.
    child: Option<(u64, Vec<u8>)>,
}

impl CallRecord {
    /// Tells how it was answered.
    pub(crate) fn end<T: RecordedAnswer>(self, answer: &Result<T, Errno>) {
        let Some(mut call) = self.0 else {
            return;
        };
        call.seen.end = call.recorder.now();
        match answer {
            Ok(told) => {
                told.tell(&mut call.seen);
                call.name();
            }
            Err(e) => {
                call.seen.error = e.raw_os_error().unsigned_abs();
                if call.seen.action == Action::Read {
                    call.seen.len = 0;
                }
            }
        }
        call.recorder.call(&call.seen);
    }

    /// Tells that a rename gave this name.
    pub(crate) fn renamed(&self, parent: Fid, name: &OsStr) {
        if let Some(call) = &self.0
            && let Some((from, old)) = &call.child
            && let Some(inode) = call.recorder.child(*from, old)
        {
            call.recorder.named(parent.0, name.as_bytes(), inode);
        }
    }
}

impl RecordedCall {
    /// What the answer says about a name: whose it is; for one that was removed, whose it was.
    fn name(&mut self) {
        let Some((parent, name)) = &self.child else {
            return;
        };
        match self.seen.action {
            Action::Unlink | Action::RemoveDirectory | Action::Rename => {
                let was = self.recorder.child(*parent, name);
                self.seen.inode = was.unwrap_or(self.seen.inode);
            }
            _ if self.seen.inode != 0 => self.recorder.named(*parent, name, self.seen.inode),
            _ => {}
        }
    }
}

/// What an answer says about the call.
pub(crate) trait RecordedAnswer {
    fn tell(&self, _: &mut ObservedCall) {}
}

impl RecordedAnswer for () {}
impl RecordedAnswer for i64 {}
impl RecordedAnswer for u64 {}
impl RecordedAnswer for Vec<u8> {}
impl RecordedAnswer for DirectoryEntries {}
impl RecordedAnswer for XattrAnswer {}
impl RecordedAnswer for forebay_server::SpaceTotals {}

impl RecordedAnswer for bytes::Bytes {
    fn tell(&self, seen: &mut ObservedCall) {
        seen.len = self.len() as u64;
    }
}

/// Bytes copied.
impl RecordedAnswer for u32 {
    fn tell(&self, seen: &mut ObservedCall) {
        seen.len = u64::from(*self);
    }
}

impl RecordedAnswer for forebay_server::Attr {
    fn tell(&self, seen: &mut ObservedCall) {
        seen.inode = self.fid.0;
    }
}

impl RecordedAnswer for OpenedHandle {
    fn tell(&self, seen: &mut ObservedCall) {
        seen.handle = self.0.0;
    }
}

impl RecordedAnswer for (forebay_server::Attr, OpenedHandle) {
    fn tell(&self, seen: &mut ObservedCall) {
        (seen.inode, seen.handle) = (self.0.fid.0, self.1.0.0);
    }
}
