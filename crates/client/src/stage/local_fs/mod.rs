//! A plain directory of this machine as the source or the target of a copy.
mod attributes;
mod file;

use super::endpoint::{
    CopyEndpoint, ListedName, NamedObject, ObjectRef, ObjectStat, ResolvedPath, SourceFile,
    TargetFile, UnkeptAttribute, Xattr,
};
use attributes::{owner, stat_of, timestamps};
use file::{LocalReader, LocalWriter};
use forebay_server::Kind;
use parking_lot::Mutex;
use rustix::fs::{Advice, AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A sync of so few files is asked for each; of more, of the whole file system.
const MAX_SINGLE_FSYNCS: usize = 16;

/// See the head of this file.
#[derive(Default)]
pub struct LocalEndpoint {
    /// Where a walk must not go.
    avoid: Vec<PathBuf>,
    /// One directory on every file system that was written to.
    systems: Mutex<BTreeMap<u64, PathBuf>>,
}

impl LocalEndpoint {
    /// `avoid`: paths a walk must not enter or look at.
    pub fn new(avoid: Vec<PathBuf>) -> LocalEndpoint {
        LocalEndpoint {
            avoid,
            systems: Mutex::default(),
        }
    }

    fn wrote_below(&self, dir: &Path) -> io::Result<()> {
        let dev = std::fs::metadata(dir)?.dev();
        self.systems
            .lock()
            .entry(dev)
            .or_insert_with(|| dir.to_path_buf());
        Ok(())
    }
}

fn path(place: &ObjectRef) -> io::Result<&Path> {
    match place {
        ObjectRef::Path(path) => Ok(path),
        ObjectRef::Fid(_) => Err(Errno::INVAL.into()),
    }
}

impl CopyEndpoint for LocalEndpoint {
    fn resolve(&self, path: &Path) -> io::Result<ResolvedPath> {
        let found = match std::fs::symlink_metadata(path) {
            Ok(m) => Some((ObjectRef::Path(path.into()), stat_of(&m))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(ResolvedPath {
            parent: ObjectRef::Path(path.parent().unwrap_or(path).into()),
            name: path.file_name().unwrap_or_default().into(),
            found,
        })
    }

    fn resolve_target(&self, path: &Path) -> io::Result<ResolvedPath> {
        let mut resolved = self.resolve(path)?;
        if let Some((_, stat)) = &resolved.found
            && stat.kind == Kind::Symlink
            && let Ok(m) = std::fs::metadata(path)
            && m.is_dir()
        {
            resolved.found = Some((ObjectRef::Path(path.canonicalize()?), stat_of(&m)));
        }
        match &resolved.found {
            Some((ObjectRef::Path(dir), stat)) if stat.kind == Kind::Dir => {
                self.wrote_below(dir)?
            }
            _ => self.wrote_below(path.parent().unwrap_or(path))?,
        }
        Ok(resolved)
    }

    fn lookup(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<(ObjectRef, ObjectStat)> {
        let path = path(dir)?.join(name);
        let stat = stat_of(&std::fs::symlink_metadata(&path)?);
        Ok((ObjectRef::Path(path), stat))
    }

    fn stat(&self, place: &ObjectRef) -> io::Result<ObjectStat> {
        Ok(stat_of(&std::fs::symlink_metadata(path(place)?)?))
    }

    fn list(&self, dir: &ObjectRef) -> io::Result<Vec<ListedName>> {
        let mut names = std::fs::read_dir(path(dir)?)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        let bare = |name| ListedName { name, place: None };
        Ok(names.into_iter().map(bare).collect())
    }

    fn lookup_many(&self, dir: &ObjectRef, names: &[ListedName]) -> Vec<io::Result<NamedObject>> {
        let one = |name: &ListedName| {
            let (place, stat) = self.lookup(dir, &name.name)?;
            let held = Some(BTreeMap::new());
            Ok(NamedObject { place, stat, held })
        };
        names.iter().map(one).collect()
    }

    fn read_link(&self, place: &ObjectRef) -> io::Result<OsString> {
        Ok(std::fs::read_link(path(place)?)?.into_os_string())
    }

    fn xattrs(&self, place: &ObjectRef) -> io::Result<Vec<Xattr>> {
        let path = path(place)?;
        let mut list = vec![0; 256];
        let n = loop {
            match rustix::fs::llistxattr(path, &mut list) {
                Ok(n) => break n,
                Err(Errno::RANGE) if list.len() < 1 << 17 => list = vec![0; 1 << 17],
                // A file system without them.
                Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
                Err(e) => return Err(e.into()),
            }
        };
        let mut all = Vec::new();
        for name in list[..n].split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            let mut value = vec![0; 1 << 16];
            match rustix::fs::lgetxattr(path, name, &mut value) {
                Ok(n) => {
                    value.truncate(n);
                    all.push((name.to_os_string(), value));
                }
                // Removed meanwhile, or not for this user.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(all)
    }

    fn open(&self, place: &ObjectRef, fresh: bool) -> io::Result<Box<dyn SourceFile>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path(place)?, flags, Mode::empty())?);
        let advice = if fresh {
            Advice::DontNeed
        } else {
            Advice::Sequential
        };
        // Only advice: without it the bytes are the same.
        let _ = rustix::fs::fadvise(&file, 0, None, advice);
        let buffer = Vec::new();
        Ok(Box::new(LocalReader { file, buffer }))
    }

    fn is_avoided(&self, place: &ObjectRef) -> bool {
        matches!(place, ObjectRef::Path(path) if self.avoid.contains(path))
    }

    fn mkdir(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<(ObjectRef, bool)> {
        let path = path(dir)?.join(name);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => Ok((ObjectRef::Path(path), true)),
            Err(Errno::EXIST) => {
                if !std::fs::symlink_metadata(&path)?.is_dir() {
                    return Err(Errno::NOTDIR.into());
                }
                self.wrote_below(&path)?;
                Ok((ObjectRef::Path(path), false))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn create(
        &self,
        dir: &ObjectRef,
        name: &OsStr,
        _becomes: &OsStr,
        truncate: bool,
    ) -> io::Result<Box<dyn TargetFile>> {
        let path = path(dir)?.join(name);
        let mut flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if truncate {
            flags |= OFlags::TRUNC;
        }
        let open = || rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        let file = match open() {
            // One that an interrupted run left without the right to write.
            Err(Errno::ACCESS) if truncate => {
                rustix::fs::unlink(&path)?;
                open()
            }
            other => other,
        }?;
        Ok(Box::new(LocalWriter(File::from(file))))
    }

    fn symlink(&self, dir: &ObjectRef, name: &OsStr, target: &OsStr) -> io::Result<ObjectRef> {
        let path = path(dir)?.join(name);
        std::os::unix::fs::symlink(target, &path)?;
        Ok(ObjectRef::Path(path))
    }

    fn mknod(&self, dir: &ObjectRef, name: &OsStr, stat: &ObjectStat) -> io::Result<ObjectRef> {
        let path = path(dir)?.join(name);
        let kind = match stat.kind {
            Kind::Fifo => FileType::Fifo,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            _ => return Err(Errno::INVAL.into()),
        };
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &path, kind, mode, stat.rdev.into())?;
        Ok(ObjectRef::Path(path))
    }

    fn link(&self, place: &ObjectRef, dir: &ObjectRef, name: &OsStr) -> io::Result<()> {
        std::fs::hard_link(path(place)?, path(dir)?.join(name))
    }

    fn rename(&self, dir: &ObjectRef, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let dir = path(dir)?;
        std::fs::rename(dir.join(from), dir.join(to))
    }

    fn remove(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<()> {
        std::fs::remove_file(path(dir)?.join(name))
    }

    fn set_attributes(
        &self,
        place: &ObjectRef,
        stat: &ObjectStat,
        xattrs: &[Xattr],
    ) -> io::Result<Vec<UnkeptAttribute>> {
        let path = path(place)?;
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let mut notes = Vec::new();
        notes.extend(owner(
            |u, g| rustix::fs::chownat(CWD, path, u, g, nofollow),
            stat,
        )?);
        for (name, value) in xattrs {
            if let Err(e) = rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
                notes.push(UnkeptAttribute::xattr(name, e));
            }
        }
        rustix::fs::utimensat(CWD, path, &timestamps(stat), nofollow)?;
        if stat.kind != Kind::Symlink {
            rustix::fs::chmod(path, Mode::from_raw_mode(stat.mode))?;
        }
        Ok(notes)
    }

    fn sync(&self, files: &[(ObjectRef, OsString)]) -> io::Result<()> {
        if files.len() > MAX_SINGLE_FSYNCS {
            return self.sync_names();
        }
        for (dir, name) in files {
            // Attributes and data; a file without the right to read belongs to its user all the same.
            let file = path(dir)?.join(name);
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match rustix::fs::open(&file, flags, Mode::empty()) {
                Ok(file) => rustix::fs::fsync(&file)?,
                Err(Errno::ACCESS) => return self.sync_names(),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let systems: Vec<PathBuf> = self.systems.lock().values().cloned().collect();
        systems
            .iter()
            .try_for_each(|dir| Ok(rustix::fs::syncfs(File::open(dir)?)?))
    }
}
