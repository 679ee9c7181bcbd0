//! The process behind the disk: a FUSE file system with one file, which writes down what happens to it.
//!
//! ```text
//!  spool   0       1        9       13
//!          +------+--------+-------+---------+
//!          | kind | offset | bytes | data .. |   kind W: a write. kind F: a flush, alone. Little-endian.
//!          +------+--------+-------+---------+
//! ```
//! A write is in the spool before it is answered; a flush is answered at once, so what stands before it is on the disk.
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const WRITE: u8 = b'W';
pub(super) const FLUSH: u8 = b'F';
/// Next to the disk: how many events there were, as text.
pub(super) const POSITION: &str = "position";

const FOREVER: Duration = Duration::from_secs(3600);
const IMAGE_NODE: INodeNo = INodeNo(2);
const POSITION_NODE: INodeNo = INodeNo(3);

struct Disk {
    bytes: u64,
    content: File,
    spool: Mutex<(File, u64)>,
}

impl Disk {
    fn note(&self, record: &[u8]) -> io::Result<()> {
        let mut spool = self.spool.lock();
        spool.0.write_all(record)?;
        spool.1 += 1;
        Ok(())
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let (kind, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0),
            IMAGE_NODE => (FileType::RegularFile, self.bytes),
            _ => (FileType::RegularFile, 0),
        };
        let time: SystemTime = UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some(super::IMAGE) => IMAGE_NODE,
            Some(POSITION) => POSITION_NODE,
            _ => return reply.error(Errno::ENOENT),
        };
        reply.entry(&FOREVER, &self.attr(ino), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Nothing of it in this machine's cache: what the loop device hears of as written is here.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino == POSITION_NODE {
            let text = self.spool.lock().1.to_string();
            return reply.data(text.as_bytes().get(offset as usize..).unwrap_or_default());
        }
        let len = u64::from(size).min(self.bytes.saturating_sub(offset));
        let mut buf = vec![0; len as usize];
        match self.content.read_exact_at(&mut buf, offset) {
            Ok(()) => reply.data(&buf),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino != IMAGE_NODE || offset + data.len() as u64 > self.bytes {
            return reply.error(Errno::EINVAL);
        }
        let mut record = Vec::with_capacity(13 + data.len());
        record.push(WRITE);
        record.extend_from_slice(&offset.to_le_bytes());
        record.extend_from_slice(&(data.len() as u32).to_le_bytes());
        record.extend_from_slice(data);
        match self
            .content
            .write_all_at(data, offset)
            .and_then(|()| self.note(&record))
        {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.note(&[FLUSH]) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}

/// Serves a disk of `bytes` as [`IMAGE`](super::IMAGE) in the empty directory `at`, and writes what happens to it to the file
/// `spool`. Prints a line `READY` once it can be used, and returns when its standard input ends.
///
/// # Errors
/// If it cannot be mounted, or `spool` or its directory not be written.
pub fn serve(at: &Path, spool: &Path, bytes: u64) -> io::Result<()> {
    let content = spool.with_extension("content");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&content)?;
    std::fs::remove_file(&content)?;
    file.set_len(bytes)?;
    let disk = Disk {
        bytes,
        content: file,
        spool: Mutex::new((File::create(spool)?, 0)),
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("recording-disk".into())];
    config.n_threads = Some(2);
    let session = fuser::spawn_mount(disk, at, &config)?;
    println!("\nREADY");
    io::stdin().read_to_end(&mut Vec::new())?;
    // Whoever still uses the disk gets errors from here on.
    drop(session);
    Ok(())
}
