//! The node server in its role for its local clients (sketch): every file operation of the mount and the library.
use crate::*;
use bytes::Bytes;

/// An open file of this delegate.
pub type Handle = u64;

/// The answer to an open.
#[derive(Debug, Clone)]
pub struct Opened {
    pub handle: Handle,
    pub attr: Attr,
    /// The kernel may keep pages it has of this file (the content is what they show).
    pub keep_cache: bool,
    /// Bypass the page cache (append and posix handles).
    pub direct: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence { Data, Hole }

/// What `fallocate` does with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallocate { pub punch: bool, pub zero: bool, pub keep_size: bool }

pub struct Delegate { _p: () }

/// All calls take any thread. Errors carry the errno of the system call. Offsets and lengths in bytes.
impl Delegate {
    pub fn lookup(&self, _parent: Fid, _name: &[u8]) -> Result<Attr> { todo!() }
    /// With this node's pending writes applied (size, mtime).
    pub fn getattr(&self, _fid: Fid) -> Result<Attr> { todo!() }
    /// `handle`: the open file through which a truncate came.
    pub fn setattr(&self, _fid: Fid, _set: &SetAttr, _handle: Option<Handle>, _caller: Caller) -> Result<Attr> { todo!() }
    /// mknod, mkdir, symlink, exclusive create without open.
    pub fn make(&self, _parent: Fid, _name: &[u8], _new: NewNode, _caller: Caller) -> Result<Attr> { todo!() }
    /// Creates (or opens what another node made meanwhile, unless exclusive) and opens in one step.
    pub fn create(&self, _parent: Fid, _name: &[u8], _mode: u32, _exclusive: bool, _flags: OpenFlags, _caller: Caller) -> Result<Opened> { todo!() }
    pub fn readlink(&self, _fid: Fid) -> Result<Vec<u8>> { todo!() }
    pub fn link(&self, _fid: Fid, _parent: Fid, _name: &[u8]) -> Result<Attr> { todo!() }
    pub fn unlink(&self, _parent: Fid, _name: &[u8], _caller: Caller) -> Result<()> { todo!() }
    pub fn rmdir(&self, _parent: Fid, _name: &[u8], _caller: Caller) -> Result<()> { todo!() }
    pub fn rename(&self, _from: Fid, _name: &[u8], _to: Fid, _to_name: &[u8], _flags: RenameFlags, _caller: Caller) -> Result<()> { todo!() }
    /// Entries in name order after `after`; at most `limit`; without `.` and `..`.
    pub fn readdir(&self, _fid: Fid, _after: Option<&[u8]>, _limit: u32) -> Result<Vec<DirEntry>> { todo!() }
    /// The parent directory (`..`).
    pub fn parent(&self, _fid: Fid) -> Result<Fid> { todo!() }
    pub fn open(&self, _fid: Fid, _flags: OpenFlags) -> Result<Opened> { todo!() }
    /// Short only at the end of the file.
    pub fn read(&self, _handle: Handle, _offset: u64, _len: u32) -> Result<Bytes> { todo!() }
    /// Append handles ignore `offset`. All or nothing.
    pub fn write(&self, _handle: Handle, _offset: u64, _data: &[u8], _caller: Caller) -> Result<()> { todo!() }
    /// Commits this node's pending writes of the file (close).
    pub fn flush(&self, _handle: Handle) -> Result<()> { todo!() }
    /// Commits, and on disk on every member involved when it returns.
    pub fn fsync(&self, _handle: Handle) -> Result<()> { todo!() }
    pub fn release(&self, _handle: Handle) -> Result<()> { todo!() }
    pub fn fallocate(&self, _handle: Handle, _what: Fallocate, _offset: u64, _len: u64) -> Result<()> { todo!() }
    /// `ENXIO` past the end.
    pub fn seek(&self, _handle: Handle, _offset: u64, _whence: Whence) -> Result<u64> { todo!() }
    pub fn copy_range(&self, _from: Handle, _offset: u64, _to: Handle, _to_offset: u64, _len: u64, _caller: Caller) -> Result<u64> { todo!() }
    pub fn statfs(&self) -> Result<Space> { todo!() }
    pub fn getxattr(&self, _fid: Fid, _name: &[u8]) -> Result<Vec<u8>> { todo!() }
    pub fn setxattr(&self, _fid: Fid, _name: &[u8], _value: &[u8], _create: bool, _replace: bool) -> Result<()> { todo!() }
    pub fn listxattr(&self, _fid: Fid) -> Result<Vec<Vec<u8>>> { todo!() }
    pub fn removexattr(&self, _fid: Fid, _name: &[u8]) -> Result<()> { todo!() }
    /// Read-only for ever; `EBUSY` while a writer is open anywhere.
    pub fn laminate(&self, _fid: Fid) -> Result<()> { todo!() }
    /// Members in this service; caching in the kernel is safe with one.
    pub fn members(&self) -> u16 { todo!() }
}
