//! The files of the service, seen from one node, as a side of a copy: straight through the delegate, without a mount.
use super::opened::{Reader, Writer, set};
use super::tree::{
    Name, Note, Place, Resolved, Seen, SourceFile, Stat, TargetFile, Tree, What, Xattr,
};
use crate::path::walk;
use bytes::Bytes;
use forebay_server::proto::files::Survey;
use forebay_server::{
    Attr, Caller, Delegate, Error, Fid, Kind, NewNode, OpenFlags, RenameFlags, Time,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// Names asked for at a time.
const BATCH: u32 = 1024;

/// See the head of this file.
pub struct Service {
    delegate: Arc<Delegate>,
    caller: Caller,
}

impl Service {
    /// As the client's node and owner.
    pub fn new(client: &crate::Client) -> Service {
        Service {
            delegate: client.delegate.clone(),
            caller: client.caller,
        }
    }
}

/// Keeps the delegate's text, with the number of the system call.
pub(super) fn io(error: Error) -> io::Error {
    match error {
        Error::Posix(errno) => errno.into(),
        other => {
            let kind = io::Error::from(other.errno()).kind();
            io::Error::new(kind, other)
        }
    }
}

fn fid(place: &Place) -> io::Result<Fid> {
    match place {
        Place::Fid(fid) => Ok(*fid),
        Place::Path(_) => Err(Errno::INVAL.into()),
    }
}

fn new_node(kind: Kind, mode: u32) -> NewNode {
    NewNode {
        kind,
        mode,
        rdev: 0,
        target: Vec::new(),
    }
}

fn stat_of(attr: &Attr) -> Stat {
    Stat {
        what: match attr.kind {
            Kind::File => What::File,
            Kind::Dir => What::Dir,
            Kind::Symlink => What::Symlink,
            Kind::Fifo => What::Fifo,
            Kind::Socket => What::Socket,
            Kind::CharDevice => What::CharDevice,
            Kind::BlockDevice => What::BlockDevice,
        },
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
        born: Some(Time { secs: 0, nanos: 0 }),
        xattrs: true,
        attr: Some(Box::new(attr.clone())),
    }
}

fn stat_of_survey(survey: &Survey) -> Stat {
    Stat {
        xattrs: survey.xattrs,
        ..stat_of(&survey.attr)
    }
}

impl Service {
    fn find(&self, path: &Path, follow: bool) -> io::Result<Resolved> {
        let walked = walk(&self.delegate, path, follow).map_err(io)?;
        let found = walked.found.as_ref();
        Ok(Resolved {
            found: found.map(|attr| (Place::Fid(attr.fid), stat_of(attr))),
            parent: Place::Fid(walked.parent),
            name: OsString::from_vec(walked.name),
        })
    }

    /// What the owners say, in the order given; nothing where one of them does not answer.
    fn survey<'a>(
        &self,
        places: impl Iterator<Item = Option<&'a Place>>,
    ) -> std::vec::IntoIter<Option<Survey>> {
        let fids: Option<Vec<Fid>> = places.map(|place| fid(place?).ok()).collect();
        let known = fids.and_then(|fids| self.delegate.survey(&fids).ok());
        known.unwrap_or_default().into_iter()
    }

    fn make(&self, dir: &Place, name: &OsStr, new: NewNode) -> io::Result<Place> {
        let made = self
            .delegate
            .make(fid(dir)?, name.as_bytes(), new, self.caller);
        Ok(Place::Fid(made.map_err(io)?.fid))
    }
}

impl Tree for Service {
    fn resolve(&self, path: &Path) -> io::Result<Resolved> {
        self.find(path, false)
    }

    fn resolve_target(&self, path: &Path) -> io::Result<Resolved> {
        let resolved = self.find(path, false)?;
        match &resolved.found {
            Some((_, stat)) if stat.what == What::Symlink => {
                let followed = self.find(path, true)?;
                let dir = matches!(&followed.found, Some((_, s)) if s.what == What::Dir);
                Ok(if dir { followed } else { resolved })
            }
            _ => Ok(resolved),
        }
    }

    fn child(&self, dir: &Place, name: &OsStr) -> io::Result<(Place, Stat)> {
        let attr = self.delegate.lookup(fid(dir)?, name.as_bytes());
        let attr = attr.map_err(io)?;
        Ok((Place::Fid(attr.fid), stat_of(&attr)))
    }

    fn stat(&self, place: &Place) -> io::Result<Stat> {
        let attr = self.delegate.getattr(fid(place)?).map_err(io)?;
        Ok(stat_of(&attr))
    }

    fn again(&self, places: &[Place]) -> Vec<io::Result<Stat>> {
        let mut all = Vec::with_capacity(places.len());
        for places in places.chunks(BATCH as usize) {
            let mut known = self.survey(places.iter().map(Some));
            all.extend(places.iter().map(|place| match known.next().flatten() {
                Some(survey) => Ok(stat_of_survey(&survey)),
                None => self.stat(place),
            }));
        }
        all
    }

    fn list(&self, dir: &Place) -> io::Result<Vec<Name>> {
        let dir = fid(dir)?;
        let (mut names, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let batch = self.delegate.readdir(dir, after.as_deref(), BATCH);
            let batch = batch.map_err(io)?;
            let Some(last) = batch.last() else {
                return Ok(names);
            };
            after = Some(last.name.clone());
            names.extend(batch.into_iter().map(|e| Name {
                name: OsString::from_vec(e.name),
                place: Some(Place::Fid(e.fid)),
            }));
        }
    }

    fn look(&self, dir: &Place, names: &[Name]) -> Vec<io::Result<Seen>> {
        let mut known = self.survey(names.iter().map(|name| name.place.as_ref()));
        let one = |name: &Name| match known.next().flatten() {
            Some(survey) => Ok(Seen {
                place: Place::Fid(survey.attr.fid),
                stat: stat_of_survey(&survey),
                held: survey.held.map(|held| held.into_iter().collect()),
            }),
            // Something else may have the name by now; and what is wrong is told name by name.
            None => {
                let (place, stat) = self.child(dir, &name.name)?;
                let held = None;
                Ok(Seen { place, stat, held })
            }
        };
        names.iter().map(one).collect()
    }

    fn read_link(&self, place: &Place) -> io::Result<OsString> {
        let target = self.delegate.readlink(fid(place)?).map_err(io)?;
        Ok(OsString::from_vec(target))
    }

    fn xattrs(&self, place: &Place) -> io::Result<Vec<Xattr>> {
        let fid = fid(place)?;
        let names = self.delegate.listxattr(fid).map_err(io)?;
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            match self.delegate.getxattr(fid, &name) {
                Ok(value) => all.push((OsString::from_vec(name), value)),
                Err(e) if e.errno() == Errno::NODATA => {}
                Err(e) => return Err(io(e)),
            }
        }
        Ok(all)
    }

    fn open(&self, place: &Place, _fresh: bool) -> io::Result<Box<dyn SourceFile>> {
        let flags = OpenFlags {
            read: true,
            ..OpenFlags::default()
        };
        let opened = self.delegate.open(fid(place)?, flags).map_err(io)?;
        Ok(Box::new(Reader {
            delegate: self.delegate.clone(),
            handle: opened.handle,
            last: Bytes::new(),
        }))
    }

    fn peek(&self, place: &Place, stat: &Stat) -> io::Result<Box<dyn SourceFile>> {
        match &stat.attr {
            Some(attr) => Ok(Box::new(Reader {
                delegate: self.delegate.clone(),
                handle: self.delegate.peek(attr),
                last: Bytes::new(),
            })),
            None => self.open(place, false),
        }
    }

    fn holders(&self, place: &Place, range: Range<u64>) -> io::Result<BTreeMap<u16, u64>> {
        self.delegate.holders(fid(place)?, range).map_err(io)
    }

    fn avoid(&self, _: &Place) -> bool {
        false
    }

    fn mkdir(&self, dir: &Place, name: &OsStr) -> io::Result<(Place, bool)> {
        match self.make(dir, name, new_node(Kind::Dir, 0o700)) {
            Ok(place) => Ok((place, true)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let (place, stat) = self.child(dir, name)?;
                match stat.what {
                    What::Dir => Ok((place, false)),
                    _ => Err(Errno::NOTDIR.into()),
                }
            }
            Err(e) => Err(e),
        }
    }

    fn create(&self, dir: &Place, name: &OsStr, truncate: bool) -> io::Result<Box<dyn TargetFile>> {
        let flags = OpenFlags {
            write: true,
            truncate,
            ..OpenFlags::default()
        };
        let (dir, name) = (fid(dir)?, name.as_bytes());
        let opened = self
            .delegate
            .create(dir, name, 0o600, false, flags, self.caller)
            .map_err(io)?;
        Ok(Box::new(Writer {
            delegate: self.delegate.clone(),
            caller: self.caller,
            handle: opened.handle,
            fid: opened.attr.fid,
            open: true,
        }))
    }

    fn symlink(&self, dir: &Place, name: &OsStr, target: &OsStr) -> io::Result<Place> {
        let new = NewNode {
            target: target.as_bytes().to_vec(),
            ..new_node(Kind::Symlink, 0o777)
        };
        self.make(dir, name, new)
    }

    fn node(&self, dir: &Place, name: &OsStr, stat: &Stat) -> io::Result<Place> {
        let kind = match stat.what {
            What::Fifo => Kind::Fifo,
            What::CharDevice => Kind::CharDevice,
            What::BlockDevice => Kind::BlockDevice,
            _ => return Err(Errno::INVAL.into()),
        };
        // As on a disk: root who copies the files out again gets real devices.
        if kind.is_device() && self.caller.uid != 0 {
            return Err(Errno::PERM.into());
        }
        let new = NewNode {
            rdev: stat.rdev,
            ..new_node(kind, 0o600)
        };
        self.make(dir, name, new)
    }

    fn link(&self, place: &Place, dir: &Place, name: &OsStr) -> io::Result<()> {
        let linked = self.delegate.link(fid(place)?, fid(dir)?, name.as_bytes());
        linked.map(|_| ()).map_err(io)
    }

    fn rename(&self, dir: &Place, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let dir = fid(dir)?;
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let renamed = self
            .delegate
            .rename(dir, from, dir, to, RenameFlags::default(), self.caller);
        renamed.map_err(io)
    }

    fn remove(&self, dir: &Place, name: &OsStr) -> io::Result<()> {
        let removed = self
            .delegate
            .unlink(fid(dir)?, name.as_bytes(), self.caller);
        removed.map_err(io)
    }

    fn set_attributes(
        &self,
        place: &Place,
        stat: &Stat,
        xattrs: &[Xattr],
    ) -> io::Result<Vec<Note>> {
        set(&self.delegate, self.caller, fid(place)?, stat, xattrs)
    }

    /// The first of them brings most of the others' bytes to disk too, for they share segments and logs.
    fn sync(&self, files: &[(Place, OsString)]) -> io::Result<()> {
        let flags = OpenFlags {
            read: true,
            ..OpenFlags::default()
        };
        for (dir, name) in files {
            let (place, _) = self.child(dir, name)?;
            let opened = self.delegate.open(fid(&place)?, flags).map_err(io)?;
            let synced = self.delegate.fsync(opened.handle).map(|_| ());
            let released = self.delegate.release(opened.handle);
            synced.and(released).map_err(io)?;
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.delegate.sync_directory(Fid::ROOT).map_err(io)
    }
}
