//! The source or the target of a copy: a plain directory or the files of the service, behind one trait.
//!
//! Invariants: no call follows a symbolic link as the last name, but for `resolve_target`, which looks at the name the user
//! gave. Errors carry the number of the system call.
use forebay_server::{Attr, Fid, Kind, Time};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most bytes of one read or write.
pub const CHUNK: u64 = 1 << 20;

/// An object of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectRef {
    /// In a plain directory.
    Path(PathBuf),
    /// In the service.
    Fid(Fid),
}

/// What `stat` shows. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStat {
    /// What it is.
    pub kind: Kind,
    /// Permission and set-id bits.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names it has.
    pub nlink: u64,
    /// Device files: which device, as in `Attr::rdev`.
    pub rdev: u32,
    /// Length.
    pub size: u64,
    /// Bytes stored for it; fewer than `size` if it has holes.
    pub stored: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Its file system and number there.
    pub id: (u64, u64),
    /// When it was made, if the file system says so. With `id` it identifies a file for good; the number alone may be reused.
    pub created: Option<Time>,
    /// It may have extended attributes.
    pub xattrs: bool,
    /// What the service says of it, for its own calls.
    pub attr: Option<Box<Attr>>,
}

impl ObjectStat {
    /// Bytes to copy, as far as they can be told before.
    pub fn bytes_to_copy(&self) -> u64 {
        self.size.min(self.stored)
    }

    /// Whether holes must be looked for.
    pub fn is_sparse(&self) -> bool {
        self.stored < self.size
    }

    /// Whether the content of `self` and of `other` is taken to be the same, because size and time are.
    pub fn same_content(&self, other: &ObjectStat) -> bool {
        (self.kind, self.size, self.mtime) == (other.kind, other.size, other.mtime)
    }
}

/// An extended attribute: name, value.
pub type Xattr = (OsString, Vec<u8>);

/// What could not be kept of an object's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnkeptAttribute {
    /// Its user or group.
    Owner,
    /// An extended attribute, and why.
    Xattr(String),
}

impl UnkeptAttribute {
    /// That this extended attribute could not be set.
    pub fn xattr(name: &OsStr, error: impl std::fmt::Display) -> UnkeptAttribute {
        UnkeptAttribute::Xattr(format!("{} ({error})", name.to_string_lossy()))
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedName {
    /// The name.
    pub name: OsString,
    /// What had it when the directory was listed, where listing tells.
    pub place: Option<ObjectRef>,
}

/// What a walk sees of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedObject {
    /// What has it.
    pub place: ObjectRef,
    /// Its attributes.
    pub stat: ObjectStat,
    /// All its bytes by the member that stores them; `None`: to be asked for.
    pub held: Option<BTreeMap<u16, u64>>,
}

/// A file that is read.
pub trait SourceFile {
    /// Up to `len` bytes at `offset`; fewer at the end only.
    fn read(&mut self, offset: u64, len: u64) -> io::Result<&[u8]>;
    /// The next stored bytes at or after `from`, cut at `end`; `None` if there are none.
    fn next_data(&mut self, from: u64, end: u64) -> io::Result<Option<Range<u64>>>;
}

/// A file that is written.
pub trait TargetFile {
    /// Writes all of it.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reserves room, where that means something.
    fn reserve(&mut self, range: Range<u64>) -> io::Result<()>;
    /// Sets its length.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
    /// Closes it, with these attributes if any; says what could not be kept.
    fn finish(
        self: Box<Self>,
        attributes: Option<(&ObjectStat, &[Xattr])>,
    ) -> io::Result<Vec<UnkeptAttribute>>;
}

/// The name the user gave.
pub struct ResolvedPath {
    /// The directory above it; for a root, the root.
    pub parent: ObjectRef,
    /// The name; empty for a root.
    pub name: OsString,
    /// What is there.
    pub found: Option<(ObjectRef, ObjectStat)>,
}

/// See the head of this file.
pub trait CopyEndpoint: Send + Sync {
    /// The name the user gave as a source.
    fn resolve(&self, path: &Path) -> io::Result<ResolvedPath>;
    /// The name the user gave as a target: a link to a directory counts as the directory.
    fn resolve_target(&self, path: &Path) -> io::Result<ResolvedPath>;
    /// A name in a directory.
    fn lookup(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<(ObjectRef, ObjectStat)>;
    /// The object again.
    fn stat(&self, place: &ObjectRef) -> io::Result<ObjectStat>;
    /// These objects again: as `stat`, with fewer requests where it can be.
    fn stat_many(&self, places: &[ObjectRef]) -> Vec<io::Result<ObjectStat>> {
        places.iter().map(|place| self.stat(place)).collect()
    }
    /// The names in a directory, sorted: so all nodes walk in the same order.
    fn list(&self, dir: &ObjectRef) -> io::Result<Vec<ListedName>>;
    /// What each of these names in a directory is: as `child`, with fewer requests where it can be.
    fn lookup_many(&self, dir: &ObjectRef, names: &[ListedName]) -> Vec<io::Result<NamedObject>>;
    /// What a symbolic link says.
    fn read_link(&self, place: &ObjectRef) -> io::Result<OsString>;
    /// All extended attributes that can be read.
    fn xattrs(&self, place: &ObjectRef) -> io::Result<Vec<Xattr>>;
    /// Opens a file for reading. `fresh`: from the disk, not from a cache, as far as that can be asked for.
    fn open(&self, place: &ObjectRef, fresh: bool) -> io::Result<Box<dyn SourceFile>>;
    /// Opens a file for reading that was seen with these attributes, for who looks at it again after.
    fn open_seen(&self, place: &ObjectRef, _stat: &ObjectStat) -> io::Result<Box<dyn SourceFile>> {
        self.open(place, false)
    }
    /// Bytes of the range by the member that stores them; empty where that means nothing.
    fn holders(&self, _: &ObjectRef, _: Range<u64>) -> io::Result<BTreeMap<u16, u64>> {
        Ok(BTreeMap::new())
    }
    /// Whether a walk must not go there: the service's own mounts and store.
    fn is_avoided(&self, _: &ObjectRef) -> bool {
        false
    }

    /// Makes a directory for its user only; one that is there is fine. Gives it, and whether it was made.
    fn mkdir(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<(ObjectRef, bool)>;
    /// Creates or opens a file for writing, for its user only. `becomes`: the name that it will have. `truncate`: empty.
    fn create(
        &self,
        dir: &ObjectRef,
        name: &OsStr,
        becomes: &OsStr,
        truncate: bool,
    ) -> io::Result<Box<dyn TargetFile>>;
    /// Makes a symbolic link.
    fn symlink(&self, dir: &ObjectRef, name: &OsStr, target: &OsStr) -> io::Result<ObjectRef>;
    /// Makes a named pipe, or a device file like `stat`, for its user only. `EPERM` for a device file if this user may not make it.
    fn mknod(&self, dir: &ObjectRef, name: &OsStr, stat: &ObjectStat) -> io::Result<ObjectRef>;
    /// Gives an object another name.
    fn link(&self, place: &ObjectRef, dir: &ObjectRef, name: &OsStr) -> io::Result<()>;
    /// Renames within a directory, over what is there.
    fn rename(&self, dir: &ObjectRef, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, dir: &ObjectRef, name: &OsStr) -> io::Result<()>;
    /// Sets owner, extended attributes, times and mode, in this order, each as far as allowed.
    fn set_attributes(
        &self,
        place: &ObjectRef,
        stat: &ObjectStat,
        xattrs: &[Xattr],
    ) -> io::Result<Vec<UnkeptAttribute>>;
    /// These files are on disk when it returns.
    fn sync(&self, files: &[(ObjectRef, OsString)]) -> io::Result<()>;
    /// Every name and attribute set before is on disk when it returns.
    fn sync_names(&self) -> io::Result<()>;
}
