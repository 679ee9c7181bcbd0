//! Recording a mount: while a recorder is set, every request of the kernel is reported to it when it is answered.
//!
//! Most mounts are not recorded; then a request costs one check of a flag. A recorded mount may also have the kernel keep
//! nothing: files opened from then on bypass the page cache, names and attributes are asked for each time. So what programs do
//! is seen as they do it, and not what the kernel made of it.
use crate::conversions::TEAM_DIRECTORY;
use crate::protocol::{FileHandle, FopenFlags, INodeNo, Request};
use forebay_trace::Action;
use forebay_trace::record::{ObservedCall, Recorder};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who watches a mount, if anyone.
#[derive(Default)]
pub struct Watch {
    on: AtomicBool,
    exact: AtomicBool,
    recorder: RwLock<Option<Arc<Recorder>>>,
}

impl Watch {
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

    /// Takes down that a request has come in, if anybody watches.
    pub(crate) fn record(&self, req: &Request, call: CallInfo<'_>) -> CallRecord {
        // The directory of teams is nobody's file.
        if !self.on.load(Ordering::Relaxed) || call.ino == TEAM_DIRECTORY {
            return CallRecord(None);
        }
        CallRecord(self.watched(req, call))
    }

    fn watched(&self, req: &Request, call: CallInfo<'_>) -> Option<WatchedCall> {
        let recorder = self.recorder.read().clone()?;
        let child = call
            .name
            .map(|(parent, name)| (parent.0, name.as_bytes().to_vec()));
        Some(WatchedCall {
            seen: ObservedCall {
                thread: req.pid,
                action: call.action,
                inode: call.ino.0,
                handle: call.handle,
                offset: call.offset,
                len: call.len,
                start: recorder.now(),
                end: 0,
                error: 0,
            },
            child,
            recorder,
        })
    }
}

/// What a request is about.
#[derive(Clone, Copy)]
pub(crate) struct CallInfo<'a> {
    action: Action,
    ino: INodeNo,
    name: Option<(INodeNo, &'a OsStr)>,
    handle: u64,
    offset: u64,
    len: u64,
}

impl<'a> CallInfo<'a> {
    /// A file or directory.
    pub(crate) fn on(action: Action, ino: INodeNo) -> CallInfo<'a> {
        CallInfo {
            action,
            ino,
            name: None,
            handle: 0,
            offset: 0,
            len: 0,
        }
    }

    /// A name in a directory.
    pub(crate) fn at(action: Action, parent: INodeNo, name: &'a OsStr) -> CallInfo<'a> {
        CallInfo {
            name: Some((parent, name)),
            ..CallInfo::on(action, parent)
        }
    }

    /// A file that gets a name in a directory.
    pub(crate) fn to(self, parent: INodeNo, name: &'a OsStr) -> CallInfo<'a> {
        CallInfo {
            name: Some((parent, name)),
            ..self
        }
    }

    /// An open file.
    pub(crate) fn through(self, handle: FileHandle) -> CallInfo<'a> {
        CallInfo {
            handle: handle.0,
            ..self
        }
    }

    /// A part of it.
    pub(crate) fn range(self, offset: u64, len: u64) -> CallInfo<'a> {
        CallInfo {
            offset,
            len,
            ..self
        }
    }

    /// The action's name, for the log.
    pub(crate) fn operation(&self) -> &'static str {
        self.action.name()
    }

    pub(crate) fn ino(&self) -> INodeNo {
        self.ino
    }
}

/// A request that is being answered; not reported if the mount is not recorded.
pub(crate) struct CallRecord(Option<WatchedCall>);

impl CallRecord {
    /// Tells how it was answered.
    pub(crate) fn end<T: RecordedAnswer>(self, answer: &Result<T, Errno>) {
        if let Some(call) = self.0 {
            call.end(answer);
        }
    }

    /// Tells that a rename gave this name.
    pub(crate) fn renamed(&self, parent: INodeNo, name: &OsStr) {
        if let Some(call) = &self.0 {
            call.renamed(parent, name);
        }
    }
}

struct WatchedCall {
    recorder: Arc<Recorder>,
    seen: ObservedCall,
    /// The directory and name it is about.
    child: Option<(u64, Vec<u8>)>,
}

impl WatchedCall {
    fn end<T: RecordedAnswer>(mut self, answer: &Result<T, Errno>) {
        self.seen.end = self.recorder.now();
        match answer {
            Ok(told) => {
                told.tell(&mut self.seen);
                self.name();
            }
            Err(e) => {
                self.seen.error = e.raw_os_error().unsigned_abs();
                if self.seen.action == Action::Read {
                    self.seen.len = 0;
                }
            }
        }
        self.recorder.call(&self.seen);
    }

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

    fn renamed(&self, parent: INodeNo, name: &OsStr) {
        let Some((from, old)) = &self.child else {
            return;
        };
        if let Some(inode) = self.recorder.child(*from, old) {
            self.recorder.named(parent.0, name.as_bytes(), inode);
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
impl RecordedAnswer for forebay_server::SpaceTotals {}
impl RecordedAnswer for forebay_server::delegate::GrantedLock {}

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

impl RecordedAnswer for (FileHandle, FopenFlags) {
    fn tell(&self, seen: &mut ObservedCall) {
        seen.handle = self.0.0;
    }
}

impl RecordedAnswer for (forebay_server::Attr, FileHandle, FopenFlags) {
    fn tell(&self, seen: &mut ObservedCall) {
        (seen.inode, seen.handle) = (self.0.fid.0, self.1.0);
    }
}
