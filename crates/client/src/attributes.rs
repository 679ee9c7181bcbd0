//! Setting attributes of files: permissions, owners, times, lamination, extended attributes.
use crate::Client;
use crate::error::{Result, WithPath};
use forebay_server::{Attr, Delegate, SetAttr, SetTime};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The attributes of what a path names, to be set, and its extended attributes. Each call looks the path up anew and follows
/// symbolic links, so each fails as [`Client::metadata`] does, besides what its own text says.
pub struct PathAttributes<'a> {
    client: &'a Client,
    path: PathBuf,
}

impl Client {
    /// The attributes of what `path` names. Nothing is looked up yet.
    pub fn attributes(&self, path: impl AsRef<Path>) -> PathAttributes<'_> {
        PathAttributes {
            client: self,
            path: path.as_ref().to_path_buf(),
        }
    }
}

impl PathAttributes<'_> {
    /// Sets the permission bits. Taking away the last write bit laminates the file softly once nobody has it open for
    /// writing.
    ///
    /// # Errors
    /// `EPERM` for a file of another user.
    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        let set = SetAttr {
            mode: Some(mode & 0o7777),
            ..SetAttr::default()
        };
        self.set("set mode of", &set)
    }

    /// Sets owner and group.
    ///
    /// # Errors
    /// As [`PathAttributes::set_permissions`].
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttr {
            uid,
            gid,
            ..SetAttr::default()
        };
        self.set("set owner of", &set)
    }

    /// Sets the time of the last change of the content.
    ///
    /// # Errors
    /// As [`PathAttributes::set_permissions`].
    pub fn set_modified(&self, to: SystemTime) -> Result<()> {
        let set = SetAttr {
            mtime: Some(SetTime::At(to.into())),
            ..SetAttr::default()
        };
        self.set("set time of", &set)
    }

    /// Makes a file read-only for ever, so that every node may cache it whole.
    ///
    /// # Errors
    /// `EBUSY` while a writer is open anywhere, `EPERM` for a file of another user, `EISDIR` or `EINVAL` for what is not
    /// a regular file.
    pub fn laminate(&self) -> Result<()> {
        let own = self.client.caller.uid;
        self.with_file("laminate", |delegate, attr| {
            if own != 0 && own != attr.uid {
                return Err(Errno::PERM.into());
            }
            delegate.names.laminate(attr.fid)
        })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if the file has none of this name.
    pub fn xattr(&self, name: &str) -> Result<Vec<u8>> {
        self.with_file("read attribute of", |delegate, attr| {
            delegate.names.getxattr(attr.fid, name.as_bytes())
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `ENOSPC` or `E2BIG` for values that do not fit.
    pub fn set_xattr(&self, name: &str, value: &[u8]) -> Result<()> {
        self.with_file("set attribute of", |delegate, attr| {
            delegate
                .names
                .setxattr(attr.fid, name.as_bytes(), value, false, false)
        })
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Those of the look-up.
    pub fn list_xattrs(&self) -> Result<Vec<OsString>> {
        let names = self.with_file("list attributes of", |delegate, attr| {
            delegate.names.listxattr(attr.fid)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if the file has none of this name.
    pub fn remove_xattr(&self, name: &str) -> Result<()> {
        self.with_file("remove attribute of", |delegate, attr| {
            delegate.names.removexattr(attr.fid, name.as_bytes())
        })
    }

    fn set(&self, operation: &'static str, set: &SetAttr) -> Result<()> {
        let caller = self.client.caller;
        self.with_file(operation, |delegate, attr| {
            let changed = delegate.names.setattr(attr.fid, set, None, caller);
            delegate.kernel_pages.refresh_kernel(attr.fid);
            changed.map(drop)
        })
    }

    fn with_file<T>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&Delegate, Attr) -> forebay_server::Result<T>,
    ) -> Result<T> {
        let attr = self.client.attr(operation, &self.path, true)?;
        f(&self.client.delegate, attr).at(operation, &self.path)
    }
}
