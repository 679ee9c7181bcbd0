//! Opening, creating and releasing files, and what the kernel may keep in its page cache.
//!
//! The kernel keeps pages across opens only if the file's generation is the one whose pages it holds: set when an open
//! told it to drop its pages (and it then used the handle), moved along by this node's own commits when nothing foreign
//! came between them.
use super::combine::NewFile;
use super::counted::{Counted, UnansweredOpen};
use super::handles::Open;
use super::open_file::OpenFile;
use super::{Delegate, Handle, Opened};
use crate::{Attr, Caller, Error, Fid, Kind, Member, NewNode, OpenFlags, Result};
use forebay_fabric::Error as Fabric;
use forebay_proto::call::ServiceCall;
use forebay_proto::{files, meta};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Most requests to open or close whose answers were lost.
const TRIES: u32 = 4;
/// Of a directory: what is made in it takes its group.
const SETGID: u32 = 0o2000;
/// How often `create` looks again when what it found is removed before it is open.
const CREATE_TRIES: u32 = 16;

impl Delegate {
    /// Opens a file. Sees everything committed anywhere before.
    ///
    /// # Errors
    /// `EISDIR`, `ESTALE`, `EPERM` for writing a file laminated for ever.
    pub fn open(&self, fid: Fid, flags: OpenFlags) -> Result<Opened> {
        let _at = self.counters.other();
        let (attr, counted) = self.ask_open(fid, flags)?;
        Ok(self.opened(&attr, flags, counted, false))
    }

    /// Opens a file for reading by attributes fetched before, without telling its owner. So nothing keeps its bytes once it
    /// loses its last name: only for who looks at its attributes again after reading.
    pub fn peek(&self, attr: &Attr) -> Handle {
        let _at = self.counters.other();
        let flags = OpenFlags {
            read: true,
            ..OpenFlags::default()
        };
        self.table.add(self.table.hold(attr), flags, None, None)
    }

    /// Creates (or opens what another node made meanwhile, unless exclusive) and opens in one step.
    ///
    /// # Errors
    /// As open with `O_CREAT`.
    pub fn create(
        &self,
        parent: Fid,
        name: &[u8],
        mode: u32,
        exclusive: bool,
        flags: OpenFlags,
        caller: Caller,
    ) -> Result<Opened> {
        let _at = self.counters.other();
        let new = NewFile {
            parent,
            name: name.into(),
            mode,
            caller,
        };
        let send = |handles| self.make_and_open(&new, exclusive, flags, handles);
        let (((attr, counted), made), own) = match exclusive || parent.owner() == self.member() {
            true => (send(1)?, true),
            false => self.combine.create(&new, flags, send)?,
        };
        Ok(self.opened(&attr, flags, counted, made && own))
    }

    /// Makes a file without a name in directory `dir` and opens it (`O_TMPFILE`). It lies with this member, so nobody else is
    /// asked but for the directory, and goes with its last close, or this server's end, unless `link` has given it a name.
    /// `linkable`: that is allowed.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` if the directory was removed.
    pub fn create_unnamed(
        &self,
        dir: Fid,
        mode: u32,
        linkable: bool,
        flags: OpenFlags,
        caller: Caller,
    ) -> Result<Opened> {
        let _at = self.counters.other();
        let parent = self.ask_attr(dir)?;
        match (parent.kind, parent.nlink) {
            (Kind::Dir, 0) => return Err(Errno::NOENT.into()),
            (Kind::Dir, _) => {}
            _ => return Err(Errno::NOTDIR.into()),
        }
        let new = files::UnnamedFile {
            mode,
            uid: caller.uid,
            gid: match parent.mode & SETGID {
                0 => caller.gid,
                _ => parent.gid,
            },
            linkable,
        };
        let token = self.tokens.next()?;
        let request = files::OpenUnnamed {
            new,
            write: flags.write,
            token,
        };
        let attr = self.node.peers.call(self.member(), request)?;
        Ok(self.opened(&attr, flags, Counted::new(token, 1), true))
    }

    /// A file that is there afterwards, open for so many handles; whether it was made.
    fn make_and_open(
        &self,
        new: &NewFile<'_>,
        exclusive: bool,
        flags: OpenFlags,
        handles: u32,
    ) -> Result<((Attr, Arc<Counted>), bool)> {
        for _ in 0..CREATE_TRIES {
            let NewFile {
                parent,
                ref name,
                mode,
                caller,
            } = *new;
            let (attr, made) = self.make_file(parent, name, mode, exclusive, caller)?;
            let flags = OpenFlags {
                truncate: flags.truncate && !made,
                ..flags
            };
            match self.ask_open_for(attr.fid, flags, handles) {
                Ok(open) => return Ok((open, made)),
                // Removed between the two steps.
                Err(e) if !exclusive && e.errno() == Errno::STALE => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Creates a file, or finds what has the name, unless exclusive; whether it was made.
    pub(super) fn make_file(
        &self,
        parent: Fid,
        name: &[u8],
        mode: u32,
        exclusive: bool,
        caller: Caller,
    ) -> Result<(Attr, bool)> {
        let new = NewNode {
            kind: Kind::File,
            mode,
            rdev: 0,
            target: Vec::new(),
        };
        let request = meta::Create {
            parent,
            name: name.to_vec(),
            new,
            caller,
            exclusive,
        };
        let created = self.node.peers.call(parent.owner(), request)?;
        Ok((created.attr, created.made))
    }

    /// Ends a handle: commits what is pending, and tells the owner. The kernel does not wait for this, so an error is
    /// of use only to the library.
    ///
    /// # Errors
    /// As flush; the handle is gone all the same. What is pending is tried again in the background, and at the next open.
    pub fn release(&self, handle: Handle) -> Result<()> {
        let _at = self.counters.other();
        let open = self.table.take(handle)?;
        self.used(&open);
        let file = &open.file;
        {
            let mut state = file.state.lock();
            state
                .unreported_closes
                .extend(open.counted.as_ref().and_then(|c| c.release()));
            state.retired.extend(open.log.lock().take());
        }
        let published = self.publish(file, self.always_sync);
        self.release_locks(file.fid, handle);
        let told = match published {
            Ok(()) => self.tell_closes(file),
            Err(_) => Ok(()),
        };
        self.unhold(file);
        published.and(told)
    }

    /// The owner counts the open, once.
    fn ask_open(&self, fid: Fid, flags: OpenFlags) -> Result<(Attr, Arc<Counted>)> {
        if fid.owner() == self.member() {
            return self.ask_open_for(fid, flags, 1);
        }
        self.combine
            .open(fid, flags, |handles| self.ask_open_for(fid, flags, handles))
    }

    /// One open for so many handles; empties the file once if the flags say so.
    fn ask_open_for(
        &self,
        fid: Fid,
        flags: OpenFlags,
        handles: u32,
    ) -> Result<(Attr, Arc<Counted>)> {
        let token = self.tokens.next()?;
        let asked = self.insist(fid.owner(), &files::Open { fid, flags, token });
        if let Err(Error::Fabric(_)) = &asked {
            // It may have been counted.
            self.lose(UnansweredOpen::Of(fid, token));
        }
        let attr = match flags.truncate {
            true => self.emptied(&asked?, token)?,
            false => asked?,
        };
        Ok((attr, Counted::new(token, handles)))
    }

    /// Empties a file that was opened under this token; closes it if that fails.
    fn emptied(&self, attr: &Attr, token: u64) -> Result<Attr> {
        let file = self.table.hold(attr);
        let cut = self.cut_at(&file, 0, None);
        if cut.is_err() {
            file.state.lock().unreported_closes.push(token);
            // The first failure is the one to report; what cannot be told is told in the background.
            let _ = self.tell_closes(&file);
        }
        let attr = file.state.lock().attr.clone();
        self.unhold(&file);
        cut.map(|()| attr)
    }

    /// An open that may be counted without anyone here having it: the owner is told in the background.
    pub(super) fn lose(&self, lost: UnansweredOpen) {
        self.lost_opens.lock().push(lost);
        self.deferred_closes.add();
    }

    /// Asks again while the answer gets lost, within the service's deadline.
    pub(super) fn insist<C>(&self, owner: Member, request: &C) -> Result<C::Reply>
    where
        C: ServiceCall + Clone,
    {
        let until = Instant::now() + self.node.peers.deadline();
        for _ in 1..TRIES {
            match self.node.peers.call(owner, request.clone()) {
                Err(Error::Fabric(Fabric::Deadline { .. })) if Instant::now() < until => {}
                answer => return answer,
            }
        }
        self.node.peers.call(owner, request.clone())
    }

    /// Closes what was opened without an answer; whether nothing of that is left.
    pub(super) fn close_lost(&self) -> bool {
        let lost = std::mem::take(&mut *self.lost_opens.lock());
        let told = |lost: &UnansweredOpen| match *lost {
            UnansweredOpen::Of(fid, token) => {
                let close = files::Close { fid, token };
                match self.node.peers.call(fid.owner(), close) {
                    Ok(_) => true,
                    Err(e) => e.errno() == Errno::STALE,
                }
            }
            UnansweredOpen::Somewhere(token) => self.tell_abandoned(token),
        };
        let left: Vec<_> = lost.into_iter().filter(|open| !told(open)).collect();
        let done = left.is_empty();
        self.lost_opens.lock().extend(left);
        done
    }

    /// A handle of an open that is counted.
    pub(super) fn opened(
        &self,
        attr: &Attr,
        flags: OpenFlags,
        counted: Arc<Counted>,
        made: bool,
    ) -> Opened {
        let file = self.table.hold(attr);
        if file.state.lock().handles == 1 {
            // What an earlier close could not publish is tried again; if that fails again, it stays pending.
            let _ = self.publish(&file, self.always_sync);
        }
        let (attr, keep_cache, fresh) = {
            let mut state = file.state.lock();
            let size = state.size();
            state.tells(size);
            let keep = state.kernel == Some(state.attr.generation);
            (
                state.shown(),
                keep,
                (!keep).then_some(state.attr.generation),
            )
        };
        let direct = flags.append || self.is_posix();
        let handle = self.table.add(file, flags, Some(counted), fresh);
        Opened {
            handle,
            attr,
            keep_cache,
            direct,
            made,
        }
    }

    /// Ends a hold on the file. What could not be published or told is tried again in the background.
    pub(super) fn unhold(&self, file: &Arc<OpenFile>) {
        if !self.table.unhold(file) {
            self.deferred_closes.add();
        }
    }

    /// The kernel used the handle, so it has dropped the pages that the answer to the open told it to drop.
    pub(super) fn used(&self, open: &Open) {
        if open.fresh.load(Ordering::Relaxed) == 0 {
            return;
        }
        let fresh = open.fresh.swap(0, Ordering::Relaxed);
        if fresh > 0 {
            let mut state = open.file.state.lock();
            state.kernel = state.kernel.max(Some(fresh - 1));
        }
    }

    /// Tells the owner of closes whose writes are published. What cannot be told stays unreported.
    pub(super) fn tell_closes(&self, file: &Arc<OpenFile>) -> Result<()> {
        let closes = std::mem::take(&mut file.state.lock().unreported_closes);
        for (i, token) in closes.iter().enumerate() {
            let request = files::Close {
                fid: file.fid,
                token: *token,
            };
            let told = self.insist(file.fid.owner(), &request);
            match told {
                // The owner restarted, or the file is gone: nothing is counted there any more.
                Ok(_) => {}
                Err(e) if e.errno() == Errno::STALE => {}
                Err(e) => {
                    file.state.lock().unreported_closes.extend_from_slice(&closes[i..]);
                    return Err(e);
                }
            }
        }
        Ok(())
    }
}
