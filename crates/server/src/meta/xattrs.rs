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
//!
//! One has no record of its own: [`CODEC_XATTR`], the codec hint of a file or directory. It is a field of the inode, because whoever
//! opens the file needs it, and shows as an attribute like the others.
use super::local::LocalNamespace;
use crate::{Error, Fid, Kind, Result, keys};
use forebay_codec::CodecHint;
use forebay_storage::Batch;
use rustix::io::Errno;

/// The codec hint: a value that is none is `EINVAL`.
pub const CODEC_XATTR: &str = "user.forebay.codec";

/// Longest name, in bytes.
const NAME_MAX: usize = 255;
/// Longest value, in bytes.
const VALUE_MAX: usize = 64 << 10;
/// All names of one inode together, each with its closing NUL, in bytes: what `listxattr` can return.
const LIST_MAX: usize = 64 << 10;

/// No codec hint is longer; of what is none no more is shown.
const MAX_SHOWN_HINT: usize = 100;

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

fn is_codec(name: &[u8]) -> bool {
    name == CODEC_XATTR.as_bytes()
}

/// The codec hint that a value of [`CODEC_XATTR`] names.
///
/// # Errors
/// `EINVAL` with what is wrong, and what may be written.
pub(crate) fn parse_codec(value: &[u8]) -> Result<CodecHint> {
    // The text would say all of it again.
    let shown = &value[..value.len().min(MAX_SHOWN_HINT)];
    let hint = match shown.len() == value.len() {
        true => String::from_utf8_lossy(value).parse::<CodecHint>(),
        false => format!("{}...", String::from_utf8_lossy(shown)).parse(),
    };
    hint.map_err(|e| Error::Invalid(format!("{CODEC_XATTR}: {e}")))
}

/// Whether a value may be set where there is one already (`exists`), or none.
fn check_flags(exists: bool, create: bool, replace: bool) -> Result<()> {
    match exists {
        true if create => Err(Errno::EXIST.into()),
        false if replace => Err(Errno::NODATA.into()),
        _ => Ok(()),
    }
}

impl LocalNamespace {
    pub fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>> {
        check(name)?;
        if is_codec(name) {
            let hint = self.inodes.get(fid)?.codec;
            let text = hint.map(|hint| hint.to_string().into_bytes());
            return text.ok_or(Errno::NODATA.into());
        }
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
        let exists = match is_codec(name) {
            true => inode.codec.is_some(),
            false => self.store.get(keys::XATTRS, &key(fid, name))?.is_some(),
        };
        check_flags(exists, create, replace)?;
        if !exists {
            let listed: usize = self.listxattr(fid)?.iter().map(|name| name.len() + 1).sum();
            if listed + name.len() + 1 > LIST_MAX {
                return Err(Errno::NOSPC.into());
            }
        }
        let mut batch = Batch::new();
        match is_codec(name) {
            true => inode.codec = Some(parse_codec(&value)?),
            false => batch.put(keys::XATTRS, key(fid, name), value),
        }
        inode.ctime = self.now();
        self.inodes.put(&mut batch, fid, &inode);
        self.apply(batch)
    }

    pub fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for item in keys::records_of(&self.store, keys::XATTRS, fid) {
            names.push(item?.0[8..].to_vec());
        }
        // Stores of before it was a field may have one of that name.
        names.retain(|name| !is_codec(name));
        if self.inodes.get(fid)?.codec.is_some() {
            names.push(CODEC_XATTR.into());
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
        let mut batch = Batch::new();
        let was_set = match is_codec(name) {
            true => inode.codec.take().is_some(),
            false => {
                batch.delete(keys::XATTRS, key(fid, name));
                self.store.get(keys::XATTRS, &key(fid, name))?.is_some()
            }
        };
        if !was_set {
            return Err(Errno::NODATA.into());
        }
        inode.ctime = self.now();
        self.inodes.put(&mut batch, fid, &inode);
        self.apply(batch)
    }
}
