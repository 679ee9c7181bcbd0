//! Names and attributes: passed on to the owners, with this node's pending writes shown in the answers.
use super::{Delegate, Handle};
use crate::{Attr, Caller, DirEntry, Fid, Kind, NewNode, RenameFlags, Result, SetAttr};
use forebay_proto::{files, meta};

impl Delegate {
    /// The inode of a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `ESTALE`.
    pub fn lookup(&self, parent: Fid, name: &[u8]) -> Result<Attr> {
        let _at = self.counters.other();
        let ask = || {
            let request = meta::Lookup {
                parent,
                name: name.to_vec(),
            };
            self.node.peers.call(parent.owner(), request)
        };
        let attr = match parent.owner() == self.node.peers.member() {
            true => ask()?,
            false => self.combine.lookup(parent, name, ask)?,
        };
        Ok(self.shown(attr))
    }

    /// With this node's pending writes applied (size, mtime).
    ///
    /// # Errors
    /// `ESTALE` if it was removed.
    pub fn getattr(&self, fid: Fid) -> Result<Attr> {
        let _at = self.counters.other();
        let attr = match fid.owner() == self.node.peers.member() {
            true => self.views.ask_attr(fid)?,
            false => self.combine.attr(fid, || self.views.ask_attr(fid))?,
        };
        Ok(self.shown(attr))
    }

    /// A file that is open here, as this node sees it now; nobody is asked.
    pub fn seen(&self, fid: Fid) -> Option<Attr> {
        let file = self.table.find(fid)?;
        let state = file.state.lock();
        Some(state.shown())
    }

    /// `handle`: the open file through which a truncate came.
    ///
    /// # Errors
    /// As chmod, chown, utimensat and truncate; `EBADF` for a truncate through a handle that cannot write.
    pub fn setattr(
        &self,
        fid: Fid,
        set: &SetAttr,
        handle: Option<Handle>,
        caller: Caller,
    ) -> Result<Attr> {
        let _at = self.counters.other();
        if let Some(size) = set.size {
            self.truncate(fid, size, handle, caller)?;
        }
        let rest = SetAttr {
            size: None,
            ..set.clone()
        };
        if rest == SetAttr::default() {
            return Ok(self.shown(self.views.ask_attr(fid)?));
        }
        let file = self.table.find(fid);
        // An explicit time or mode must not be undone by a commit of writes before it: such a commit is waited for, and
        // what is pending, or got no answer, forgets its time.
        let _commit = file.as_ref().map(|f| f.commit_lock.lock());
        let request = meta::ChangeAttr {
            fid,
            set: rest,
            caller,
        };
        let attr = self.node.peers.call(fid.owner(), request)?;
        if let Some(file) = &file {
            let mut state = file.state.lock();
            state.forget(set.mtime.is_some(), set.mode.is_some());
        }
        Ok(self.shown(attr))
    }

    /// mknod, mkdir, symlink, exclusive create without open.
    ///
    /// # Errors
    /// `EEXIST` if there is such a name, and as mkdir, mknod, symlink.
    pub fn make(&self, parent: Fid, name: &[u8], new: NewNode, caller: Caller) -> Result<Attr> {
        let _at = self.counters.other();
        let request = meta::Create {
            parent,
            name: name.to_vec(),
            new,
            caller,
            exclusive: true,
        };
        let created = self.node.peers.call(parent.owner(), request)?;
        Ok(created.attr)
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn readlink(&self, fid: Fid) -> Result<Vec<u8>> {
        let _at = self.counters.other();
        let request = meta::ReadLink { fid };
        self.node.peers.call(fid.owner(), request)
    }

    /// Another name for a file.
    ///
    /// # Errors
    /// As link.
    pub fn link(&self, fid: Fid, parent: Fid, name: &[u8]) -> Result<Attr> {
        let _at = self.counters.other();
        let request = meta::Link {
            fid,
            parent,
            name: name.to_vec(),
        };
        let attr = self.node.peers.call(parent.owner(), request)?;
        Ok(self.shown(attr))
    }

    /// Removes a name; the file goes with its last name and its last open handle anywhere.
    ///
    /// # Errors
    /// As unlink.
    pub fn unlink(&self, parent: Fid, name: &[u8], caller: Caller) -> Result<()> {
        let _at = self.counters.other();
        let request = meta::Unlink {
            parent,
            name: name.to_vec(),
            caller,
        };
        self.node.peers.call(parent.owner(), request)?;
        self.deferred_closes.retry_now();
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir.
    pub fn rmdir(&self, parent: Fid, name: &[u8], caller: Caller) -> Result<()> {
        let _at = self.counters.other();
        let request = meta::RemoveDir {
            parent,
            name: name.to_vec(),
            caller,
        };
        self.node.peers.call(parent.owner(), request)
    }

    /// Renames, over what is there if the flags allow.
    ///
    /// # Errors
    /// As renameat2.
    pub fn rename(
        &self,
        from: Fid,
        name: &[u8],
        to: Fid,
        to_name: &[u8],
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<()> {
        let _at = self.counters.other();
        let request = meta::Rename {
            from,
            name: name.to_vec(),
            to,
            to_name: to_name.to_vec(),
            flags,
            caller,
        };
        self.node.peers.call(to.owner(), request)?;
        self.deferred_closes.retry_now();
        Ok(())
    }

    /// Entries in name order after `after`; at most `limit`; without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn readdir(&self, fid: Fid, after: Option<&[u8]>, limit: u32) -> Result<Vec<DirEntry>> {
        let _at = self.counters.other();
        let request = meta::ReadDir {
            fid,
            after: after.map(<[u8]>::to_vec),
            limit,
        };
        self.node.peers.call(fid.owner(), request)
    }

    /// The parent directory (`..`).
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn parent(&self, fid: Fid) -> Result<Fid> {
        let _at = self.counters.other();
        let request = meta::GetParent { fid };
        self.node.peers.call(fid.owner(), request)
    }

    /// Every name and attribute changed in the directory before is on disk when it returns. A directory lies with another
    /// member than its parent, and a rename touches two, so every member is asked.
    ///
    /// # Errors
    /// `EIO` if a member cannot answer or its disk fails.
    pub fn sync_directory(&self, fid: Fid) -> Result<()> {
        let _at = self.counters.other();
        (0..self.node.peers.members()).try_for_each(|member| {
            let request = files::SyncFile { fid };
            self.node.peers.call(member, request)
        })
    }

    /// Read-only for ever; `EBUSY` while a writer is open anywhere.
    ///
    /// # Errors
    /// `EBUSY`; `EINVAL` for anything but a file.
    pub fn laminate(&self, fid: Fid) -> Result<()> {
        let _at = self.counters.other();
        let request = files::Laminate { fid };
        self.node.peers.call(fid.owner(), request).map(drop)
    }

    /// Attributes just fetched, as this node sees them; they count as a view of the file.
    pub(super) fn shown(&self, attr: Attr) -> Attr {
        match self.table.find(attr.fid) {
            Some(file) if attr.kind == Kind::File => {
                let mut state = file.state.lock();
                state.observe(&attr);
                // Answers overtake each other: never show an older size than this node has seen.
                let shown = if attr.generation < state.attr.generation {
                    state.shown()
                } else {
                    state.show(attr)
                };
                state.tells(shown.size);
                shown
            }
            _ => attr,
        }
    }
}
