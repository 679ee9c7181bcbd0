//! Open files of a plain directory: reads skip holes, and writes leave them out.
use super::attributes::{owner, timestamps};
use crate::stage::endpoint::{CHUNK, ObjectStat, SourceFile, TargetFile, UnkeptAttribute, Xattr};
use rustix::fs::{FallocateFlags, Mode, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A file that is copied from.
pub struct LocalReader {
    pub file: File,
    /// Room for what was read last.
    pub buffer: Vec<u8>,
}

impl SourceFile for LocalReader {
    fn read(&mut self, offset: u64, len: u64) -> io::Result<&[u8]> {
        let len = len.min(CHUNK) as usize;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let mut done = 0;
        while done < len {
            match self
                .file
                .read_at(&mut self.buffer[done..len], offset + done as u64)
            {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.buffer[..done])
    }

    fn next_data(&mut self, from: u64, end: u64) -> io::Result<Option<Range<u64>>> {
        if from >= end {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) if start < end => start,
            Ok(_) | Err(Errno::NXIO) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let stop = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
        Ok(Some(start..stop.min(end)))
    }
}

/// A file that is written.
pub struct LocalWriter(pub File);

impl TargetFile for LocalWriter {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn reserve(&mut self, range: Range<u64>) -> io::Result<()> {
        let len = range.end - range.start;
        match rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, range.start, len) {
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(e.into()),
            // A file system that cannot reserve allocates as it writes.
            _ => Ok(()),
        }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn finish(
        self: Box<Self>,
        attributes: Option<(&ObjectStat, &[Xattr])>,
    ) -> io::Result<Vec<UnkeptAttribute>> {
        let Some((stat, xattrs)) = attributes else {
            return Ok(Vec::new());
        };
        let mut notes = Vec::new();
        notes.extend(owner(|u, g| rustix::fs::fchown(&self.0, u, g), stat)?);
        for (name, value) in xattrs {
            if let Err(e) = rustix::fs::fsetxattr(&self.0, name, value, XattrFlags::empty()) {
                notes.push(UnkeptAttribute::xattr(name, e));
            }
        }
        rustix::fs::futimens(&self.0, &timestamps(stat))?;
        rustix::fs::fchmod(&self.0, Mode::from_raw_mode(stat.mode))?;
        Ok(notes)
    }
}
