//! Attributes of files: permissions, owners, times, lamination, extended attributes.
use crate::Client;
use crate::error::{Result, WithPath};
use forebay_server::delegate::FileDescription;
use forebay_server::{SetAttr, SetTime, Time};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::SystemTime;

impl Client {
    /// Sets the permission bits. Taking away the last write bit laminates the file softly once nobody has it open for
    /// writing.
    ///
    /// # Errors
    /// As [`Client::metadata`], and `EPERM` for a file of another user.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.set(
            "set mode of",
            path.as_ref(),
            &SetAttr {
                mode: Some(mode & 0o7777),
                ..SetAttr::default()
            },
        )
    }

    /// Sets owner and group.
    ///
    /// # Errors
    /// As [`Client::set_permissions`].
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set(
            "set owner of",
            path.as_ref(),
            &SetAttr {
                uid,
                gid,
                ..SetAttr::default()
            },
        )
    }

    /// Sets the time of the last change of the content.
    ///
    /// # Errors
    /// As [`Client::set_permissions`].
    pub fn set_modified(&self, path: impl AsRef<Path>, to: SystemTime) -> Result<()> {
        let time = match to.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(d) => Time {
                secs: d.as_secs() as i64,
                nanos: d.subsec_nanos(),
            },
            Err(e) => {
                let d = e.duration();
                let up = i64::from(d.subsec_nanos() > 0);
                Time {
                    secs: -(d.as_secs() as i64) - up,
                    nanos: (1_000_000_000 - d.subsec_nanos()) % 1_000_000_000,
                }
            }
        };
        self.set(
            "set time of",
            path.as_ref(),
            &SetAttr {
                mtime: Some(SetTime::At(time)),
                ..SetAttr::default()
            },
        )
    }

    /// Makes a file read-only for ever, so that every node may cache it whole.
    ///
    /// # Errors
    /// `EBUSY` while a writer is open anywhere, `EPERM` for a file of another user, `EISDIR` or `EINVAL` for what is not
    /// a regular file.
    pub fn laminate(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let attr = self.attr("laminate", path, true)?;
        if self.caller.uid != 0 && self.caller.uid != attr.uid {
            return Err(Errno::PERM.into()).at("laminate", path);
        }
        self.delegate.names.laminate(attr.fid).at("laminate", path)
    }

    /// Where the committed bytes of a file are: its patterns, and what the index has.
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EISDIR` or `EINVAL` for what is not a regular file.
    pub fn describe(&self, path: impl AsRef<Path>) -> Result<FileDescription> {
        let path = path.as_ref();
        let attr = self.attr("describe", path, true)?;
        self.delegate
            .locator
            .describe(attr.fid)
            .at("describe", path)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if the file has none of this name.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<Vec<u8>> {
        let attr = self.attr("read attribute of", path.as_ref(), true)?;
        self.delegate
            .names
            .getxattr(attr.fid, name.as_bytes())
            .at("read attribute of", path.as_ref())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `ENOSPC` or `E2BIG` for values that do not fit.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &str, value: &[u8]) -> Result<()> {
        let attr = self.attr("set attribute of", path.as_ref(), true)?;
        self.delegate
            .names
            .setxattr(attr.fid, name.as_bytes(), value, false, false)
            .at("set attribute of", path.as_ref())
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let attr = self.attr("list attributes of", path.as_ref(), true)?;
        let names = self
            .delegate
            .names
            .listxattr(attr.fid)
            .at("list attributes of", path.as_ref())?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if the file has none of this name.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<()> {
        let attr = self.attr("remove attribute of", path.as_ref(), true)?;
        self.delegate
            .names
            .removexattr(attr.fid, name.as_bytes())
            .at("remove attribute of", path.as_ref())
    }

    fn set(&self, operation: &'static str, path: &Path, set: &SetAttr) -> Result<()> {
        let attr = self.attr(operation, path, true)?;
        self.delegate
            .names
            .setattr(attr.fid, set, None, self.caller)
            .at(operation, path)?;
        Ok(())
    }
}
