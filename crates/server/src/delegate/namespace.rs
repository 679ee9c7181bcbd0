//! Names and attributes, as this node's programs see them: fetched from the owners, and corrected by this node's pending
//! writes.
use super::commit_plan::FileCut;
use super::context::DelegateContext;
use super::handles::Handle;
use super::kernel_leases::{KernelLease, LeaseTicket, LeasedPart, ProgramThread, RequestOrigin};
use super::write::LayerWriter;
use crate::meta::{CODEC_XATTR, parse_codec};
use crate::{
    Attr, Caller, DirEntry, Fid, Kind, Member, NewInode, RenameFlags, Result, SetAttr, SetTime,
    SpaceTotals,
};
use forebay_codec::CodecHint;
use forebay_proto::PeerCall;
use forebay_proto::data::GetUsage;
use forebay_proto::files::{self, FileSurvey, SurveyFiles};
use forebay_proto::meta::{self, LeasedAttr};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Asks owners about names and attributes.
///
/// Invariant: an answer never shows less of a file than this node has written, nor an older size than it has seen.
pub struct NamespaceClient {
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) writer: Arc<LayerWriter>,
}

impl NamespaceClient {
    /// One request of a program that is one request to a member.
    fn ask<C: PeerCall>(&self, member: Member, request: C) -> Result<C::Reply> {
        let _at = self.ctx.counters.other();
        self.ctx.call(member, request)
    }

    /// The inode of a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `ESTALE`.
    pub fn lookup(&self, parent: Fid, name: &[u8]) -> Result<Attr> {
        Ok(self.shown(self.find(parent, name, false)?.attr))
    }

    /// The same for the kernel, and what of it the kernel may keep.
    ///
    /// # Errors
    /// As [`NamespaceClient::lookup`].
    pub fn lookup_leased(
        &self,
        parent: Fid,
        name: &[u8],
        thread: ProgramThread,
    ) -> Result<(Attr, KernelLease)> {
        let ticket = self.ctx.kernel_leases.ticket(thread);
        let found = self.find(parent, name, ticket.is_some())?;
        let entry_leased = found.entry_leased;
        let (attr, attributes) = self.give_attributes(ticket, found);
        let leases = &self.ctx.kernel_leases;
        let give = |ticket| leases.give(ticket, parent, LeasedPart::Entries);
        let entry = entry_leased && ticket.is_some_and(give);
        Ok((attr, KernelLease { attributes, entry }))
    }

    fn find(&self, parent: Fid, name: &[u8], lease: bool) -> Result<LeasedAttr> {
        let _at = self.ctx.counters.other();
        let ask = || {
            let name = name.to_vec();
            let request = meta::Lookup {
                parent,
                name,
                lease,
            };
            self.ctx.call(parent.owner(), request)
        };
        let found = self.ctx.combine.lookup(parent, name, ask)?;
        if found.attr.kind == Kind::Dir {
            let paths = &self.ctx.directory_paths;
            paths.note(found.attr.fid, parent, name);
        }
        Ok(found)
    }

    /// What the kernel is about to be told, and whether it may keep it.
    fn give_attributes(&self, ticket: Option<LeaseTicket>, found: LeasedAttr) -> (Attr, bool) {
        let (attr, changes_here) = self.seen_here(found.attr);
        let leases = &self.ctx.kernel_leases;
        let give = |ticket| leases.give(ticket, attr.fid, LeasedPart::Attributes);
        let given = found.leased && !changes_here && ticket.is_some_and(give);
        (attr, given)
    }

    /// With this node's pending writes applied (size, mtime).
    ///
    /// # Errors
    /// `ESTALE` if it was removed.
    pub fn getattr(&self, fid: Fid) -> Result<Attr> {
        Ok(self.shown(self.attributes(fid, None)?.attr))
    }

    /// The same for the kernel, and whether it may keep them.
    ///
    /// # Errors
    /// As [`NamespaceClient::getattr`].
    pub fn getattr_leased(&self, fid: Fid, thread: ProgramThread) -> Result<(Attr, KernelLease)> {
        let ticket = self.ctx.kernel_leases.ticket(thread);
        let lease_to = ticket.map(|_| self.ctx.member());
        let found = self.attributes(fid, lease_to)?;
        let (attr, attributes) = self.give_attributes(ticket, found);
        let lease = KernelLease {
            attributes,
            ..KernelLease::default()
        };
        Ok((attr, lease))
    }

    fn attributes(&self, fid: Fid, lease_to: Option<Member>) -> Result<LeasedAttr> {
        let _at = self.ctx.counters.other();
        let ask = || self.ctx.call(fid.owner(), meta::GetAttr { fid, lease_to });
        self.ctx.combine.attr(fid, ask)
    }

    /// A file that is open here, as this node sees it now; nobody is asked.
    pub fn seen(&self, fid: Fid) -> Option<Attr> {
        let file = self.ctx.table.find(fid)?;
        let state = file.state.lock();
        Some(state.shown())
    }

    /// `handle`: the open file through which a truncate came. A size and a time of modification are one commit.
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
        let _at = self.ctx.counters.other();
        let mut rest = set.clone();
        if let Some(size) = rest.size.take() {
            let mtime = match rest.mtime.take() {
                Some(SetTime::At(mtime)) => mtime,
                Some(SetTime::Now) | None => self.ctx.now(),
            };
            let cut = FileCut {
                size,
                mtime: Some(mtime),
            };
            self.writer.truncate(fid, cut, handle, caller)?;
        }
        if rest == SetAttr::default() {
            return Ok(self.shown(self.ctx.ask_attr(fid)?));
        }
        let file = self.ctx.table.find(fid);
        // An explicit time or mode must not be undone by a commit of writes before it: such a commit is waited for, and
        // what is pending, or got no answer, forgets its time.
        let _commit = file.as_ref().map(|f| f.commit_lock.lock());
        let sets_mtime = rest.mtime.is_some();
        let request = meta::ChangeAttr {
            fid,
            set: rest,
            caller,
        };
        let attr = self.ctx.call(fid.owner(), request)?;
        self.ctx.forget_in_kernel(&[fid]);
        if let Some(file) = &file {
            let mut state = file.state.lock();
            state.forget(sets_mtime, set.mode.is_some());
        }
        Ok(self.shown(attr))
    }

    /// mknod, mkdir, symlink, exclusive create without open.
    ///
    /// # Errors
    /// `EEXIST` if there is such a name, and as mkdir, mknod, symlink.
    pub fn make(
        &self,
        parent: Fid,
        name: &[u8],
        new: NewInode,
        by: impl Into<RequestOrigin>,
    ) -> Result<Attr> {
        let RequestOrigin { caller, thread } = by.into();
        let kind = new.kind;
        let codec = match kind {
            Kind::File => self.ctx.codec_of_name(parent, name),
            _ => None,
        };
        let request = meta::Create {
            parent,
            name: name.to_vec(),
            new: NewInode { codec, ..new },
            caller,
            exclusive: true,
            open: None,
        };
        let made = self.ask(parent.owner(), request)?;
        if kind == Kind::File {
            let (series, directories) = (&self.ctx.file_series, &self.ctx.directory_paths);
            series.note(directories, made.attr.fid, parent, name);
        }
        if kind == Kind::Dir {
            self.ctx.directory_paths.note(made.attr.fid, parent, name);
        }
        self.ctx.forget_names(&[parent], thread);
        Ok(made.attr)
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn readlink(&self, fid: Fid) -> Result<Vec<u8>> {
        self.ask(fid.owner(), meta::ReadLink { fid })
    }

    /// Another name for a file.
    ///
    /// # Errors
    /// As link.
    pub fn link(&self, fid: Fid, parent: Fid, name: &[u8]) -> Result<Attr> {
        let name = name.to_vec();
        let attr = self.ask(parent.owner(), meta::Link { fid, parent, name })?;
        self.ctx.forget_in_kernel(&[fid, parent]);
        Ok(self.shown(attr))
    }

    /// Removes a name; the file goes with its last name and its last open handle anywhere.
    ///
    /// # Errors
    /// As unlink.
    pub fn unlink(&self, parent: Fid, name: &[u8], by: impl Into<RequestOrigin>) -> Result<()> {
        self.unlink_if(parent, name, None, by)
    }

    /// The same for a name that must be `fid`'s.
    ///
    /// # Errors
    /// As unlink; `ENOENT` if it is another file's.
    pub fn unlink_file(
        &self,
        parent: Fid,
        name: &[u8],
        fid: Fid,
        by: impl Into<RequestOrigin>,
    ) -> Result<()> {
        self.unlink_if(parent, name, Some(fid), by)
    }

    fn unlink_if(
        &self,
        parent: Fid,
        name: &[u8],
        fid: Option<Fid>,
        by: impl Into<RequestOrigin>,
    ) -> Result<()> {
        let RequestOrigin { caller, thread } = by.into();
        let request = meta::Unlink {
            parent,
            name: name.to_vec(),
            fid,
            caller,
        };
        let removed = self.ask(parent.owner(), request)?;
        self.ctx.forget_names(&[removed, parent], thread);
        self.ctx.deferred_closes.retry_now();
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir.
    pub fn rmdir(&self, parent: Fid, name: &[u8], by: impl Into<RequestOrigin>) -> Result<()> {
        let RequestOrigin { caller, thread } = by.into();
        let request = meta::RemoveDir {
            parent,
            name: name.to_vec(),
            caller,
        };
        let removed = self.ask(parent.owner(), request)?;
        self.ctx.forget_names(&[removed, parent], thread);
        Ok(())
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
        let request = meta::Rename {
            from,
            name: name.to_vec(),
            to,
            to_name: to_name.to_vec(),
            flags,
            caller,
        };
        // Before it happens: from then on others may change what the kernel has under its new name.
        self.ctx.kernel_leases.moves_into(to);
        if flags.exchange {
            self.ctx.kernel_leases.moves_into(from);
        }
        let mut concerned = self.ask(to.owner(), request)?;
        self.ctx.directory_paths.forget(&concerned);
        concerned.extend([from, to]);
        self.ctx.forget_in_kernel(&concerned);
        self.ctx.deferred_closes.retry_now();
        Ok(())
    }

    /// Entries in name order after `after`; at most `limit`; without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn readdir(&self, fid: Fid, after: Option<&[u8]>, limit: u32) -> Result<Vec<DirEntry>> {
        let request = meta::ReadDir {
            fid,
            after: after.map(<[u8]>::to_vec),
            limit,
        };
        self.ask(fid.owner(), request)
    }

    /// The parent directory (`..`).
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn parent(&self, fid: Fid) -> Result<Fid> {
        self.ask(fid.owner(), meta::GetParent { fid })
    }

    /// Every name and attribute changed in the directory before is on disk when it returns. A directory lies with another
    /// member than its parent, and a rename touches two, so every member is asked.
    ///
    /// # Errors
    /// `EIO` if a member cannot answer or its disk fails.
    pub fn sync_directory(&self, fid: Fid) -> Result<()> {
        let _at = self.ctx.counters.other();
        (0..self.ctx.members())
            .try_for_each(|member| self.ctx.call(member, files::SyncFile { fid }))
    }

    /// Read-only for ever; `EBUSY` while a writer is open anywhere.
    ///
    /// # Errors
    /// `EBUSY`; `EINVAL` for anything but a file.
    pub fn laminate(&self, fid: Fid) -> Result<()> {
        self.ask(fid.owner(), files::Laminate { fid })?;
        self.ctx.forget_in_kernel(&[fid]);
        Ok(())
    }

    /// A value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>> {
        let name = name.to_vec();
        self.ask(fid.owner(), meta::GetXattr { fid, name })
    }

    /// Sets a value. `create`: only a new one; `replace`: only one that exists.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `ERANGE`, `E2BIG`, `EOPNOTSUPP`; `EINVAL` for a codec hint that is none.
    pub fn setxattr(
        &self,
        fid: Fid,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        let request = meta::SetXattr {
            fid,
            name: name.to_vec(),
            value: value.to_vec(),
            create,
            replace,
        };
        self.ask(fid.owner(), request)?;
        self.ctx.forget_in_kernel(&[fid]);
        if name == CODEC_XATTR.as_bytes() {
            self.take_codec(fid, parse_codec(value).ok());
        }
        Ok(())
    }

    /// What is written to the file on this node from now on is encoded by this hint.
    fn take_codec(&self, fid: Fid, codec: Option<CodecHint>) {
        if let Some(file) = self.ctx.table.find(fid) {
            file.state.lock().attr.codec = codec;
        }
    }

    /// All names.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>> {
        self.ask(fid.owner(), meta::ListXattrs { fid })
    }

    /// Removes a value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn removexattr(&self, fid: Fid, name: &[u8]) -> Result<()> {
        let request = meta::RemoveXattr {
            fid,
            name: name.to_vec(),
        };
        self.ask(fid.owner(), request)?;
        self.ctx.forget_in_kernel(&[fid]);
        if name == CODEC_XATTR.as_bytes() {
            self.take_codec(fid, None);
        }
        Ok(())
    }

    /// Used: what all members that answer store. Free: what this node may still store, because what is written here stays
    /// here. The total is both, so it is not the same on every node. A dead member's data is left out.
    ///
    /// # Errors
    /// When this node's own data plane does not answer.
    pub fn statfs(&self) -> Result<SpaceTotals> {
        let _at = self.ctx.counters.other();
        let (mut used, mut free) = (0u64, 0);
        let own = self.ctx.member();
        for member in 0..self.ctx.members() {
            match self.ctx.call(member, GetUsage) {
                Ok(usage) => {
                    used = used.saturating_add(usage.live);
                    if member == own {
                        free = usage.free;
                    }
                }
                Err(e) if member != own => {
                    tracing::debug!(member, error = %e, "no answer for statfs")
                }
                Err(e) => return Err(e),
            }
        }
        Ok(SpaceTotals {
            total: used.saturating_add(free),
            free,
            files: 0,
        })
    }

    /// Attributes and holders of many objects, in the order given, with one request a member that owns any of them; `None`: it
    /// was removed. As with `holders`, what is only pending counts nowhere, and it is a hint.
    ///
    /// # Errors
    /// `EIO` if a member cannot answer.
    pub fn survey(&self, fids: &[Fid]) -> Result<Vec<Option<FileSurvey>>> {
        let _at = self.ctx.counters.other();
        let mut by_owner = BTreeMap::<Member, Vec<usize>>::new();
        for (n, fid) in fids.iter().enumerate() {
            by_owner.entry(fid.owner()).or_default().push(n);
        }
        let mut all = vec![None; fids.len()];
        for (owner, places) in by_owner {
            let fids = places.iter().map(|n| fids[*n]).collect();
            let found = self.ctx.call(owner, SurveyFiles { fids })?;
            for (n, mut survey) in places.into_iter().zip(found) {
                if let Some(survey) = &mut survey {
                    let seen = survey.attr.ctime;
                    survey.attr = self.shown(survey.attr.clone());
                    // This node knows of a later change: what the owner said of attributes may be from before it.
                    survey.xattrs |= survey.attr.ctime != seen;
                }
                all[n] = survey;
            }
        }
        Ok(all)
    }

    /// Attributes that another node fetched, as this node sees the file.
    pub fn as_seen(&self, attr: Attr) -> Attr {
        let _at = self.ctx.counters.other();
        self.shown(attr)
    }

    /// Attributes just fetched, as this node sees them; they count as a view of the file.
    fn shown(&self, attr: Attr) -> Attr {
        self.seen_here(attr).0
    }

    /// The same; also whether the file may change here without a request to its owner.
    fn seen_here(&self, attr: Attr) -> (Attr, bool) {
        match self.ctx.table.find(attr.fid) {
            Some(file) if attr.kind == Kind::File => {
                let mut state = file.state.lock();
                let changes = state.handles > 0 || state.unpublished().any(|l| !l.is_empty());
                state.observe(&attr);
                // Answers overtake each other: never show an older size than this node has seen.
                let shown = if attr.generation < state.attr.generation {
                    state.shown()
                } else {
                    state.show(attr)
                };
                state.forget_other_kernel_size(shown.size);
                (shown, changes)
            }
            _ => (attr, false),
        }
    }
}
