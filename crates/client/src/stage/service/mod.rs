//! The files of the service, seen from one node, as the source or the target of a copy: through the delegate, without a mount.
mod file;

use super::endpoint::{
    CopyEndpoint, ListedName, NamedObject, ObjectRef, ObjectStat, ResolvedPath, SourceFile,
    TargetFile, UnkeptAttribute, Xattr,
};
use crate::path::{brought_back, walk};
use bytes::Bytes;
use file::{ServiceReader, ServiceWriter, set_attributes};
use forebay_server::delegate::{Handle, NewFile};
use forebay_server::proto::files::FileSurvey;
use forebay_server::{Attr, Caller, Delegate, Fid, Kind, NewInode, OpenFlags, RenameFlags, Time};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// Names asked for at a time.
const NAMES_PER_REQUEST: u32 = 1024;

/// See the head of this file.
pub struct ServiceEndpoint {
    delegate: Arc<Delegate>,
    caller: Caller,
}

impl ServiceEndpoint {
    /// As the client's node and owner.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the client is not in the process of its server.
    pub fn new(client: &crate::Client) -> io::Result<ServiceEndpoint> {
        let client = client.embedded("staging")?;
        Ok(ServiceEndpoint {
            delegate: client.delegate.clone(),
            caller: client.caller,
        })
    }
}

fn fid(place: &ObjectRef) -> io::Result<Fid> {
    match place {
        ObjectRef::Fid(fid) => Ok(*fid),
        ObjectRef::Path(_) => Err(Errno::INVAL.into()),
    }
}

fn stat_of(attr: &Attr) -> ObjectStat {
    ObjectStat {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink.into(),
        rdev: attr.rdev,
        size: attr.size,
        stored: attr.bytes,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        id: (0, attr.fid.0),
        // Its number is never given again.
        created: Some(Time { secs: 0, nanos: 0 }),
        xattrs: true,
        attr: Some(Box::new(attr.clone())),
    }
}

fn stat_of_survey(survey: &FileSurvey) -> ObjectStat {
    ObjectStat {
        xattrs: survey.xattrs,
        ..stat_of(&survey.attr)
    }
}

impl ServiceEndpoint {
    fn reader(&self, handle: Handle) -> Box<dyn SourceFile> {
        Box::new(ServiceReader {
            delegate: self.delegate.clone(),
            handle,
            last: Bytes::new(),
        })
    }

    fn find(&self, path: &Path, follow: bool) -> io::Result<ResolvedPath> {
        let walked = walk(&self.delegate, path, follow)?;
        let found = match walked.found {
            Some(attr) => Some(brought_back(&self.delegate, attr)?),
            None => None,
        };
        Ok(ResolvedPath {
            found: found.map(|attr| (ObjectRef::Fid(attr.fid), stat_of(&attr))),
            parent: ObjectRef::Fid(walked.parent),
            name: OsString::from_vec(walked.name),
        })
    }

    /// What the owners say, in the order given; nothing where one of them does not answer.
    fn survey<'a>(
        &self,
        places: impl Iterator<Item = Option<&'a ObjectRef>>,
    ) -> std::vec::IntoIter<Option<FileSurvey>> {
        let fids: Option<Vec<Fid>> = places.map(|place| fid(place?).ok()).collect();
        for fid in fids.iter().flatten() {
            self.delegate.kernel_pages.write_back_dirty(*fid);
        }
        let known = fids.and_then(|fids| self.delegate.names.survey(&fids).ok());
        known.unwrap_or_default().into_iter()
    }

    fn make(&self, dir: &ObjectRef, name: &OsStr, new: NewInode) -> io::Result<ObjectRef> {
        let made = self
            .delegate
            .names
            .make(fid(dir)?, name.as_bytes(), new, self.caller);
        Ok(ObjectRef::Fid(made?.fid))
    }
}

impl CopyEndpoint for ServiceEndpoint {
    fn resolve(&self, path: &Path) -> io::Result<ResolvedPath> {
        self.find(path, false)
    }

    fn resolve_target(&self, path: &Path) -> io::Result<ResolvedPath> {
        let resolved = self.find(path, false)?;
        match &resolved.found {
            Some((_, stat)) if stat.kind == Kind::Symlink => {
                let followed = self.find(path, true)?;
                let dir = matches!(&followed.found, Some((_, s)) if s.kind == Kind::Dir);
                Ok(if dir { followed } else { resolved })
            }
            _ => Ok(resolved),
        }
    }

    fn lookup(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<(ObjectRef, ObjectStat)> {
        let attr = self.delegate.names.lookup(fid(dir)?, name.as_bytes())?;
        let attr = brought_back(&self.delegate, attr)?;
        Ok((ObjectRef::Fid(attr.fid), stat_of(&attr)))
    }

    fn stat(&self, place: &ObjectRef) -> io::Result<ObjectStat> {
        let fid = fid(place)?;
        self.delegate.kernel_pages.write_back_dirty(fid);
        Ok(stat_of(&self.delegate.names.getattr(fid)?))
    }

    fn stat_many(&self, places: &[ObjectRef]) -> Vec<io::Result<ObjectStat>> {
        let mut all = Vec::with_capacity(places.len());
        for places in places.chunks(NAMES_PER_REQUEST as usize) {
            let mut known = self.survey(places.iter().map(Some));
            all.extend(places.iter().map(|place| match known.next().flatten() {
                Some(survey) => Ok(stat_of_survey(&survey)),
                None => self.stat(place),
            }));
        }
        all
    }

    fn list(&self, dir: &ObjectRef) -> io::Result<Vec<ListedName>> {
        let dir = fid(dir)?;
        let (mut names, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let batch = self
                .delegate
                .names
                .readdir(dir, after.as_deref(), NAMES_PER_REQUEST)?;
            let Some(last) = batch.last() else {
                return Ok(names);
            };
            after = Some(last.name.clone());
            names.extend(batch.into_iter().map(|e| ListedName {
                name: OsString::from_vec(e.name),
                place: Some(ObjectRef::Fid(e.fid)),
            }));
        }
    }

    fn lookup_many(&self, dir: &ObjectRef, names: &[ListedName]) -> Vec<io::Result<NamedObject>> {
        let mut known = self.survey(names.iter().map(|name| name.place.as_ref()));
        let one = |name: &ListedName| match known.next().flatten() {
            Some(survey) => Ok(NamedObject {
                place: ObjectRef::Fid(survey.attr.fid),
                stat: stat_of_survey(&survey),
                held: survey.held.map(|held| held.into_iter().collect()),
            }),
            // Something else may have the name by now; and what is wrong is told name by name.
            None => {
                let (place, stat) = self.lookup(dir, &name.name)?;
                let held = None;
                Ok(NamedObject { place, stat, held })
            }
        };
        names.iter().map(one).collect()
    }

    fn read_link(&self, place: &ObjectRef) -> io::Result<OsString> {
        let target = self.delegate.names.readlink(fid(place)?)?;
        Ok(OsString::from_vec(target))
    }

    fn xattrs(&self, place: &ObjectRef) -> io::Result<Vec<Xattr>> {
        let fid = fid(place)?;
        let names = self.delegate.names.listxattr(fid)?;
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            match self.delegate.names.getxattr(fid, &name) {
                Ok(value) => all.push((OsString::from_vec(name), value)),
                Err(e) if e.errno() == Errno::NODATA => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(all)
    }

    fn open(&self, place: &ObjectRef, _fresh: bool) -> io::Result<Box<dyn SourceFile>> {
        let opened = self.delegate.open(fid(place)?, OpenFlags::READ)?;
        Ok(self.reader(opened.handle))
    }

    fn open_seen(&self, place: &ObjectRef, stat: &ObjectStat) -> io::Result<Box<dyn SourceFile>> {
        match &stat.attr {
            Some(attr) => Ok(self.reader(self.delegate.open_uncounted(attr))),
            None => self.open(place, false),
        }
    }

    fn holders(&self, place: &ObjectRef, range: Range<u64>) -> io::Result<BTreeMap<u16, u64>> {
        Ok(self.delegate.locator.holders(fid(place)?, range)?)
    }

    fn mkdir(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<(ObjectRef, bool)> {
        match self.make(dir, name, NewInode::new(Kind::Dir, 0o700)) {
            Ok(place) => Ok((place, true)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let (place, stat) = self.lookup(dir, name)?;
                match stat.kind {
                    Kind::Dir => Ok((place, false)),
                    _ => Err(Errno::NOTDIR.into()),
                }
            }
            Err(e) => Err(e),
        }
    }

    fn create(
        &self,
        dir: &ObjectRef,
        name: &OsStr,
        becomes: &OsStr,
        truncate: bool,
    ) -> io::Result<Box<dyn TargetFile>> {
        let flags = OpenFlags {
            write: true,
            truncate,
            ..OpenFlags::default()
        };
        let new = NewFile {
            parent: fid(dir)?,
            name: name.as_bytes().into(),
            becomes: Some(becomes.as_bytes().into()),
            mode: 0o600,
            caller: self.caller,
        };
        let opened = self.delegate.create_file(&new, false, flags, None)?;
        Ok(Box::new(ServiceWriter {
            delegate: self.delegate.clone(),
            caller: self.caller,
            handle: opened.handle,
            fid: opened.attr.fid,
            open: true,
        }))
    }

    fn symlink(&self, dir: &ObjectRef, name: &OsStr, target: &OsStr) -> io::Result<ObjectRef> {
        let new = NewInode {
            target: target.as_bytes().to_vec(),
            ..NewInode::new(Kind::Symlink, 0o777)
        };
        self.make(dir, name, new)
    }

    fn mknod(&self, dir: &ObjectRef, name: &OsStr, stat: &ObjectStat) -> io::Result<ObjectRef> {
        let kind = stat.kind;
        if kind != Kind::Fifo && !kind.is_device() {
            return Err(Errno::INVAL.into());
        }
        // As on a disk: root who copies the files out again gets real devices.
        if kind.is_device() && self.caller.uid != 0 {
            return Err(Errno::PERM.into());
        }
        let new = NewInode {
            rdev: stat.rdev,
            ..NewInode::new(kind, 0o600)
        };
        self.make(dir, name, new)
    }

    fn link(&self, place: &ObjectRef, dir: &ObjectRef, name: &OsStr) -> io::Result<()> {
        let names = &self.delegate.names;
        names.link(fid(place)?, fid(dir)?, name.as_bytes())?;
        Ok(())
    }

    fn rename(&self, dir: &ObjectRef, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let dir = fid(dir)?;
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let (names, flags) = (&self.delegate.names, RenameFlags::default());
        Ok(names.rename(dir, from, dir, to, flags, self.caller)?)
    }

    fn remove(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<()> {
        let names = &self.delegate.names;
        Ok(names.unlink(fid(dir)?, name.as_bytes(), self.caller)?)
    }

    fn set_attributes(
        &self,
        place: &ObjectRef,
        stat: &ObjectStat,
        xattrs: &[Xattr],
    ) -> io::Result<Vec<UnkeptAttribute>> {
        set_attributes(&self.delegate, self.caller, fid(place)?, stat, xattrs)
    }

    /// The first of them brings most of the others' bytes to disk too, for they share segments and logs.
    fn sync(&self, files: &[(ObjectRef, OsString)]) -> io::Result<()> {
        for (dir, name) in files {
            let (place, _) = self.lookup(dir, name)?;
            let opened = self.delegate.open(fid(&place)?, OpenFlags::READ)?;
            let synced = self.delegate.fsync(opened.handle).map(|_| ());
            let released = self.delegate.release(opened.handle);
            synced.and(released)?;
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(self.delegate.names.sync_directory(Fid::ROOT)?)
    }
}
