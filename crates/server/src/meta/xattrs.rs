//! Extended attributes: key `(fid, name)`, value as given.
//!
//! ```text
//! key    0        8                    value  0
//!        +--------+------------------+        +------------------------+
//!        | fid BE | name, 1..=255 B  |        | the value, 0..=64 KiB  |
//!        +--------+------------------+        +------------------------+
//! ```
//!
//! The namespaces `user`, `trusted` and `security` are kept. Others (`system`: POSIX access lists) answer
//! `EOPNOTSUPP`, as Linux does where a file system has no handler for them.
use super::local::LocalNamespace;
use crate::{Fid, Kind, Result, keys};
use forebay_storage::Batch;
use rustix::io::Errno;

/// Longest name, in bytes.
const NAME_MAX: usize = 255;
/// Longest value, in bytes.
const VALUE_MAX: usize = 64 << 10;
/// All names of one inode together, each with its closing NUL, in bytes: what `listxattr` can return.
const LIST_MAX: usize = 64 << 10;

fn key(fid: Fid, name: &[u8]) -> Vec<u8> {
    let mut key = fid.0.to_be_bytes().to_vec();
    key.extend_from_slice(name);
    key
}

/// `ERANGE` as Linux for impossible names; `EOPNOTSUPP` for namespaces that are not kept.
fn check(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE.into());
    }
    let kept = [&b"user."[..], b"trusted.", b"security."];
    match kept.iter().find(|prefix| name.starts_with(prefix)) {
        None => Err(Errno::OPNOTSUPP.into()),
        Some(prefix) if name.len() == prefix.len() => Err(Errno::INVAL.into()),
        Some(_) => Ok(()),
    }
}

/// `user` attributes belong to files and directories only.
fn refused(kind: Kind, name: &[u8]) -> bool {
    name.starts_with(b"user.") && !matches!(kind, Kind::File | Kind::Dir)
}

impl LocalNamespace {
    pub fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>> {
        check(name)?;
        match self.store.get(keys::XATTRS, &key(fid, name))? {
            Some(value) => Ok(value.to_vec()),
            None => self.inodes.get(fid).and(Err(Errno::NODATA.into())),
        }
    }

    pub fn setxattr(
        &self,
        fid: Fid,
        name: &[u8],
        value: Vec<u8>,
        create: bool,
        replace: bool,
    ) -> Result<()> {
        check(name)?;
        if create && replace {
            return Err(Errno::INVAL.into());
        }
        if value.len() > VALUE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let _lock = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        if refused(inode.kind, name) {
            return Err(Errno::PERM.into());
        }
        let exists = self.store.get(keys::XATTRS, &key(fid, name))?.is_some();
        if exists && create {
            return Err(Errno::EXIST.into());
        }
        if !exists && replace {
            return Err(Errno::NODATA.into());
        }
        if !exists {
            let listed: usize = self.listxattr(fid)?.iter().map(|name| name.len() + 1).sum();
            if listed + name.len() + 1 > LIST_MAX {
                return Err(Errno::NOSPC.into());
            }
        }
        let mut batch = Batch::new();
        batch.put(keys::XATTRS, key(fid, name), value);
        inode.ctime = self.now();
        self.inodes.put(&mut batch, fid, &inode);
        self.apply(batch)
    }

    pub fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for item in keys::records_of(&self.store, keys::XATTRS, fid) {
            names.push(item?.0[8..].to_vec());
        }
        if names.is_empty() {
            self.inodes.get(fid)?;
        }
        Ok(names)
    }

    pub fn removexattr(&self, fid: Fid, name: &[u8]) -> Result<()> {
        check(name)?;
        let _lock = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        if refused(inode.kind, name) {
            return Err(Errno::PERM.into());
        }
        if self.store.get(keys::XATTRS, &key(fid, name))?.is_none() {
            return Err(Errno::NODATA.into());
        }
        let mut batch = Batch::new();
        batch.delete(keys::XATTRS, key(fid, name));
        inode.ctime = self.now();
        self.inodes.put(&mut batch, fid, &inode);
        self.apply(batch)
    }
}
