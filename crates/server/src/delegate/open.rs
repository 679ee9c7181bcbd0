//! Opening, creating and releasing files, and what the kernel may keep in its page cache.
//!
//! The kernel keeps pages across opens only if the file's generation is the one whose pages it holds: set when an open
//! told it to drop its pages (and it then used the handle), moved along by this node's own commits when nothing foreign
//! came between them.
use super::combine::NewFile;
use super::counted::Counted;
use super::{Delegate, Handle, Opened};
use crate::{Attr, Caller, Fid, Kind, OpenFlags, Result};
use forebay_proto::files;
use rustix::io::Errno;

/// Of a directory: what is made in it takes its group.
const SETGID: u32 = 0o2000;

impl Delegate {
    /// Opens a file. Sees everything committed anywhere before.
    ///
    /// # Errors
    /// `EISDIR`, `ESTALE`, `EPERM` for writing a file laminated for ever.
    pub fn open(&self, fid: Fid, flags: OpenFlags) -> Result<Opened> {
        let _at = self.counters.other();
        let (attr, counted) = self.opens.ask_open(fid, flags)?;
        Ok(self.opens.opened(&attr, flags, counted, false))
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
        let send = |handles| self.opens.make_and_open(&new, exclusive, flags, handles);
        let (((attr, counted), made), own) =
            match exclusive || parent.owner() == self.node.peers.member() {
                true => (send(1)?, true),
                false => self.opens.combine.create(&new, flags, send)?,
            };
        Ok(self.opens.opened(&attr, flags, counted, made && own))
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
        let parent = self.views.ask_attr(dir)?;
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
        let attr = self.node.peers.call(self.node.peers.member(), request)?;
        Ok(self
            .opens
            .opened(&attr, flags, Counted::new(token, 1), true))
    }

    /// Ends a handle: commits what is pending, and tells the owner. The kernel does not wait for this, so an error is
    /// of use only to the library.
    ///
    /// # Errors
    /// As flush; the handle is gone all the same. What is pending is tried again in the background, and at the next open.
    pub fn release(&self, handle: Handle) -> Result<()> {
        let _at = self.counters.other();
        let open = self.table.take(handle)?;
        open.used();
        let file = &open.file;
        {
            let mut state = file.state.lock();
            state
                .unreported_closes
                .extend(open.counted.as_ref().and_then(|c| c.release()));
            state.retired.extend(open.log.lock().take());
        }
        let published = self.committer.publish(file, self.always_sync);
        self.locks.release(file.fid, handle);
        let told = match published {
            Ok(()) => self.opens.tell_closes(file),
            Err(_) => Ok(()),
        };
        self.opens.unhold(file);
        published.and(told)
    }
}
