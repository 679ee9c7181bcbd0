//! Setting attributes of files: permissions, owners, times, lamination, extended attributes.
use crate::Client;
use crate::client::bytes;
use crate::error::{Result, WithPath};
use crate::link::{GetXattr, Laminate, ListXattrs, PathCall, RemoveXattr, SetAttributes, SetXattr};
use forebay_server::{SetAttr, SetTime};
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
        self.set("set mode of", set)
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
        self.set("set owner of", set)
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
        self.set("set time of", set)
    }

    /// Makes a file read-only for ever, so that every node may cache it whole.
    ///
    /// # Errors
    /// `EBUSY` while a writer is open anywhere, `EPERM` for a file of another user, `EISDIR` or `EINVAL` for what is not
    /// a regular file.
    pub fn laminate(&self) -> Result<()> {
        self.call("laminate", Laminate { path: self.bytes() })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if the file has none of this name.
    pub fn xattr(&self, name: &str) -> Result<Vec<u8>> {
        let (path, name) = (self.bytes(), name.as_bytes());
        self.call("read attribute of", GetXattr { path, name })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `ENOSPC` or `E2BIG` for values that do not fit.
    pub fn set_xattr(&self, name: &str, value: &[u8]) -> Result<()> {
        let (path, name) = (self.bytes(), name.as_bytes());
        self.call("set attribute of", SetXattr { path, name, value })
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Those of the look-up.
    pub fn list_xattrs(&self) -> Result<Vec<OsString>> {
        let names = self.call("list attributes of", ListXattrs { path: self.bytes() })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if the file has none of this name.
    pub fn remove_xattr(&self, name: &str) -> Result<()> {
        let (path, name) = (self.bytes(), name.as_bytes());
        self.call("remove attribute of", RemoveXattr { path, name })
    }

    fn set(&self, operation: &'static str, set: SetAttr) -> Result<()> {
        let path = self.bytes();
        self.call(operation, SetAttributes { path, set })
    }

    fn bytes(&self) -> &[u8] {
        bytes(&self.path)
    }

    fn call<'a, C: PathCall<'a>>(&self, operation: &'static str, call: C) -> Result<C::Reply> {
        self.client.call(call).at(operation, &self.path)
    }
}
