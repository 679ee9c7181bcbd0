//! Open files of the service that are copied from or into, and setting attributes of what was copied into it.
use crate::stage::endpoint::{CHUNK, ObjectStat, SourceFile, TargetFile, UnkeptAttribute, Xattr};
use bytes::Bytes;
use forebay_server::delegate::{Handle, SeekTarget};
use forebay_server::{Caller, Delegate, Fid, Kind, SetAttr, SetTime};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A file that is read.
pub struct ServiceReader {
    pub delegate: Arc<Delegate>,
    pub handle: Handle,
    pub last: Bytes,
}

impl SourceFile for ServiceReader {
    fn read(&mut self, offset: u64, len: u64) -> io::Result<&[u8]> {
        // The buffer before goes back first, so that it can be used again.
        self.last = Bytes::new();
        let len = len.min(CHUNK) as u32;
        self.last = self.delegate.read(self.handle, offset, len)?;
        Ok(&self.last)
    }

    fn next_data(&mut self, from: u64, end: u64) -> io::Result<Option<Range<u64>>> {
        if from >= end {
            return Ok(None);
        }
        let start = match self.delegate.seek(self.handle, from, SeekTarget::Data) {
            Ok(start) if start < end => start,
            Ok(_) => return Ok(None),
            Err(e) if e.errno() == Errno::NXIO => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let stop = self.delegate.seek(self.handle, start, SeekTarget::Hole)?;
        Ok(Some(start..stop.min(end)))
    }
}

impl Drop for ServiceReader {
    fn drop(&mut self) {
        // Nothing was written, so there is nothing to learn.
        let _ = self.delegate.release(self.handle);
    }
}

/// A file that is written.
pub struct ServiceWriter {
    pub delegate: Arc<Delegate>,
    pub caller: Caller,
    pub handle: Handle,
    pub fid: Fid,
    /// Not finished yet.
    pub open: bool,
}

impl TargetFile for ServiceWriter {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (n, piece) in bytes.chunks(CHUNK as usize).enumerate() {
            let at = offset + n as u64 * CHUNK;
            self.delegate.write(self.handle, at, piece, self.caller)?;
        }
        Ok(())
    }

    fn reserve(&mut self, _: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let set = SetAttr {
            size: Some(len),
            ..SetAttr::default()
        };
        let names = &self.delegate.names;
        names.setattr(self.fid, &set, Some(self.handle), self.caller)?;
        Ok(())
    }

    fn finish(
        mut self: Box<Self>,
        attributes: Option<(&ObjectStat, &[Xattr])>,
    ) -> io::Result<Vec<UnkeptAttribute>> {
        let flushed = self.delegate.flush(self.handle);
        self.open = false;
        let released = self.delegate.release(self.handle);
        // A program that lists the directory may know the file, under its temporary name. While this process may write it: who sets the
        // mode may take that away.
        self.delegate.kernel_pages.refresh_kernel(self.fid);
        released?;
        flushed?;
        match attributes {
            Some((stat, xattrs)) => {
                set_attributes(&self.delegate, self.caller, self.fid, stat, xattrs)
            }
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for ServiceWriter {
    fn drop(&mut self) {
        if self.open {
            // It is given up: whoever wanted the outcome has finished it.
            let _ = self.delegate.release(self.handle);
            self.delegate.kernel_pages.refresh_kernel(self.fid);
        }
    }
}

/// Sets attributes, each as far as allowed; says what could not be kept.
pub fn set_attributes(
    delegate: &Delegate,
    caller: Caller,
    fid: Fid,
    stat: &ObjectStat,
    xattrs: &[Xattr],
) -> io::Result<Vec<UnkeptAttribute>> {
    let mut notes = Vec::new();
    for (name, value) in xattrs {
        if let Err(e) = delegate
            .names
            .setxattr(fid, name.as_bytes(), value, false, false)
        {
            notes.push(UnkeptAttribute::xattr(name, e));
        }
    }
    let all = SetAttr {
        mode: (stat.kind != Kind::Symlink).then_some(stat.mode),
        uid: Some(stat.uid),
        gid: Some(stat.gid),
        size: None,
        atime: Some(SetTime::At(stat.atime)),
        mtime: Some(SetTime::At(stat.mtime)),
    };
    let changed = match delegate.names.setattr(fid, &all, None, caller) {
        Err(e) if e.errno() == Errno::PERM => {
            notes.push(UnkeptAttribute::Owner);
            let rest = SetAttr {
                uid: None,
                gid: None,
                ..all
            };
            delegate.names.setattr(fid, &rest, None, caller)
        }
        changed => changed,
    };
    delegate.kernel_pages.refresh_kernel(fid);
    changed?;
    Ok(notes)
}
