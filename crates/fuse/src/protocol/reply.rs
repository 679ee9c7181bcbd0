//! Answers, one type for each shape that a request may be answered in.
//!
//! ```text
//! attributes  | inode 8 | size 8 | blocks 8 | atime 8 | mtime 8 | ctime 8 | atime, mtime, ctime: nanoseconds 4 + 4 + 4 | mode 4 |
//!             | names 4 | user 4 | group 4 | device 4 | block size 4 | 0 4 |                                  88 bytes
//! entry       | inode 8 | generation 8 | name and attributes last for: seconds 8 + 8, nanoseconds 4 + 4 | attributes |
//! attr        | they last for: seconds 8, nanoseconds 4 | 0 4 | attributes |
//! open        | handle 8 | flags 4 | 0 4 |            create: entry, open
//! directory   | inode 8 | where the next begins 8 | name length 4 | type 4 | name, zeros to 8 |   any number of times
//! ```
use super::names::{FileAttr, FileHandle, FopenFlags, INodeNo};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the head of a request or reply.
pub(super) const OUT_HEAD: usize = 16;
const STATFS: usize = 80;
const ENTRY: usize = 128;

/// The right and duty to answer one request. Dropped, it has answered `EIO`.
#[derive(Debug)]
pub(crate) struct Reply {
    unique: u64,
    device: Arc<OwnedFd>,
    answered: bool,
}

impl Reply {
    pub(super) fn new(unique: u64, device: &Arc<OwnedFd>) -> Reply {
        Reply {
            unique,
            device: device.clone(),
            answered: false,
        }
    }

    fn send(&mut self, errno: i32, parts: [&[u8]; 2]) {
        self.answered = true;
        let len = OUT_HEAD + parts[0].len() + parts[1].len();
        let mut head = [0; OUT_HEAD];
        head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        head[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        head[8..].copy_from_slice(&self.unique.to_ne_bytes());
        let all = [&head[..], parts[0], parts[1]].map(IoSlice::new);
        match rustix::io::writev(&self.device, &all) {
            // ENOENT: the request was given up meanwhile; ENODEV: the mount has ended.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => tracing::warn!(%error, "the kernel refused an answer"),
        }
    }

    pub fn error(mut self, errno: Errno) {
        self.send(errno.raw_os_error(), [&[], &[]]);
    }

    fn give(mut self, parts: [&[u8]; 2]) {
        self.send(0, parts);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            self.send(libc::EIO, [&[], &[]]);
        }
    }
}

/// Numbers, one after the other.
struct ReplyFields(Vec<u8>);

impl ReplyFields {
    fn new() -> ReplyFields {
        ReplyFields(Vec::with_capacity(144))
    }
    fn n4(mut self, n: u32) -> ReplyFields {
        self.0.extend_from_slice(&n.to_ne_bytes());
        self
    }
    fn n8(mut self, n: u64) -> ReplyFields {
        self.0.extend_from_slice(&n.to_ne_bytes());
        self
    }
    fn attributes(self, a: &FileAttr) -> ReplyFields {
        self.n8(a.ino.0)
            .n8(a.size)
            .n8(a.blocks)
            .n8(a.atime.0 as u64)
            .n8(a.mtime.0 as u64)
            .n8(a.ctime.0 as u64)
            .n4(a.atime.1)
            .n4(a.mtime.1)
            .n4(a.ctime.1)
            .n4(a.kind.as_raw_mode() | a.perm)
            .n4(a.nlink)
            .n4(a.uid)
            .n4(a.gid)
            .n4(a.rdev)
            .n4(a.blksize)
            .n4(0)
    }
    /// Inode numbers are never used again, so there is one generation.
    fn entry(self, attr_ttl: &Duration, entry_ttl: &Duration, attr: &FileAttr) -> ReplyFields {
        self.n8(attr.ino.0)
            .n8(0)
            .n8(entry_ttl.as_secs())
            .n8(attr_ttl.as_secs())
            .n4(entry_ttl.subsec_nanos())
            .n4(attr_ttl.subsec_nanos())
            .attributes(attr)
    }
    fn open(self, fh: FileHandle, flags: FopenFlags) -> ReplyFields {
        self.n8(fh.0).n4(flags.bits()).n4(0)
    }
    fn give(self, reply: Reply) {
        reply.give([&self.0, &[]]);
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(pub(super) Reply);

        impl $name {
            /// It failed.
            pub fn error(self, errno: Errno) {
                self.0.error(errno);
            }
            /// It gave this, which `give` sends; or it failed.
            pub fn answer<T>(self, answer: Result<T, Errno>, give: impl FnOnce($name, T)) {
                match answer {
                    Ok(found) => give(self, found),
                    Err(errno) => self.error(errno),
                }
            }
        }
    )*};
}

replies! {
    /// That it is done.
    ReplyEmpty;
    /// A name's inode.
    ReplyEntry;
    /// Attributes.
    ReplyAttr;
    /// Bytes.
    ReplyData;
    /// An open file.
    ReplyOpen;
    /// A new file, open.
    ReplyCreate;
    /// How many bytes were written.
    ReplyWrite;
    /// Room.
    ReplyStatfs;
    /// An extended attribute, or its length.
    ReplyXattr;
    /// A lock.
    ReplyLock;
    /// An offset.
    ReplyLseek;
    /// What an `ioctl` says.
    ReplyIoctl;
}

impl ReplyEmpty {
    pub fn ok(self) {
        self.0.give([&[], &[]]);
    }
    pub fn done(self, answer: Result<(), Errno>) {
        self.answer(answer, |reply, ()| reply.ok());
    }
}

impl ReplyEntry {
    pub fn entry(self, ttl: &Duration, attr: &FileAttr) {
        self.entry_with_ttls(ttl, ttl, attr);
    }
    /// There is no such name: inode 0, whose attributes mean nothing.
    pub fn absent(self, ttl: &Duration) {
        let fields = ReplyFields::new().n8(0).n8(0).n8(ttl.as_secs()).n8(0);
        let mut fields = fields.n4(ttl.subsec_nanos());
        fields.0.resize(ENTRY, 0);
        fields.give(self.0);
    }
    pub fn entry_with_ttls(self, attr_ttl: &Duration, entry_ttl: &Duration, attr: &FileAttr) {
        ReplyFields::new()
            .entry(attr_ttl, entry_ttl, attr)
            .give(self.0);
    }
}

impl ReplyAttr {
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        let fields = ReplyFields::new()
            .n8(ttl.as_secs())
            .n4(ttl.subsec_nanos())
            .n4(0);
        fields.attributes(attr).give(self.0);
    }
}

impl ReplyData {
    pub fn data(self, bytes: &[u8]) {
        self.0.give([bytes, &[]]);
    }
}

impl ReplyOpen {
    pub fn opened(self, (fh, flags): (FileHandle, FopenFlags)) {
        ReplyFields::new().open(fh, flags).give(self.0);
    }
}

impl ReplyCreate {
    pub fn created(self, ttl: &Duration, attr: &FileAttr, fh: FileHandle, flags: FopenFlags) {
        let fields = ReplyFields::new().entry(ttl, ttl, attr);
        fields.open(fh, flags).give(self.0);
    }
}

impl ReplyWrite {
    pub fn written(self, bytes: u32) {
        ReplyFields::new().n4(bytes).n4(0).give(self.0);
    }
}

impl ReplyStatfs {
    /// Sizes in blocks of `block` bytes; names in bytes.
    pub fn statfs(
        self,
        blocks: u64,
        free: u64,
        files: u64,
        files_free: u64,
        block: u32,
        longest_name: u32,
    ) {
        let mut fields = ReplyFields::new()
            .n8(blocks)
            .n8(free)
            .n8(free)
            .n8(files)
            .n8(files_free)
            .n4(block)
            .n4(longest_name)
            .n4(block);
        fields.0.resize(STATFS, 0);
        fields.give(self.0);
    }
}

impl ReplyXattr {
    pub fn size(self, size: u32) {
        ReplyFields::new().n4(size).n4(0).give(self.0);
    }
    pub fn data(self, bytes: &[u8]) {
        self.0.give([bytes, &[]]);
    }
}

impl ReplyLock {
    /// `last`: the last byte itself.
    pub fn locked(self, start: u64, last: u64, typ: i32, pid: u32) {
        let fields = ReplyFields::new().n8(start).n8(last);
        fields.n4(typ as u32).n4(pid).give(self.0);
    }
}

impl ReplyLseek {
    pub fn offset(self, offset: i64) {
        ReplyFields::new().n8(offset as u64).give(self.0);
    }
}

impl ReplyIoctl {
    pub fn ioctl(self, result: i32, bytes: &[u8]) {
        let fields = ReplyFields::new().n4(result as u32).n4(0).n4(0).n4(0);
        self.0.give([&fields.0, bytes]);
    }
}

/// Entries of a directory, as many as fit.
#[derive(Debug)]
pub(crate) struct ReplyDirectory {
    reply: Reply,
    entries: Vec<u8>,
    room: usize,
}

impl ReplyDirectory {
    pub(super) fn new(reply: Reply, room: usize) -> ReplyDirectory {
        ReplyDirectory {
            reply,
            entries: Vec::new(),
            room,
        }
    }

    /// `next`: where a listing goes on after it. True if it does not fit: then it is not in the reply.
    #[must_use]
    pub fn add(
        &mut self,
        ino: INodeNo,
        next: u64,
        kind: FileType,
        name: impl AsRef<OsStr>,
    ) -> bool {
        let name = name.as_ref().as_bytes();
        let len = (24 + name.len()).next_multiple_of(8);
        let end = self.entries.len() + len;
        if end > self.room {
            return true;
        }
        let entries = ReplyFields(std::mem::take(&mut self.entries));
        let fields = entries.n8(ino.0).n8(next).n4(name.len() as u32);
        self.entries = fields.n4(kind.as_raw_mode() >> 12).0;
        self.entries.extend_from_slice(name);
        self.entries.resize(end, 0);
        false
    }

    pub fn ok(self) {
        self.reply.give([&self.entries, &[]]);
    }

    pub fn error(self, errno: Errno) {
        self.reply.error(errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const ATTR: FileAttr = FileAttr {
        ino: INodeNo(7),
        size: 1,
        blocks: 2,
        atime: (-3, 4),
        mtime: (5, 6),
        ctime: (7, 8),
        kind: FileType::CharacterDevice,
        perm: 0o640,
        nlink: 9,
        uid: 10,
        gid: 11,
        rdev: 12,
        blksize: 4096,
    };

    /// What `answer` sends, without the head: that is as long as it says, and of this request.
    fn sent(errno: i32, answer: impl FnOnce(Reply)) -> Vec<u8> {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let device = Arc::new(OwnedFd::from(writer));
        answer(Reply::new(99, &device));
        drop(device);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        let head = [(bytes.len() as u32).to_ne_bytes(), (-errno).to_ne_bytes()];
        assert_eq!(bytes[..8], *head.as_flattened());
        assert_eq!(bytes[8..16], 99u64.to_ne_bytes());
        bytes.split_off(16)
    }

    #[test]
    fn answers_are_as_the_kernel_reads_them() {
        let second = Duration::new(1, 2);
        let attr = sent(0, |r| ReplyAttr(r).attr(&second, &ATTR));
        assert_eq!(attr.len(), 104);
        assert_eq!(attr[40..48], (-3i64).to_ne_bytes());
        assert_eq!(attr[76..80], (libc::S_IFCHR | 0o640).to_ne_bytes());
        assert_eq!(attr[92..96], 12u32.to_ne_bytes());
        let entry = sent(0, |r| {
            ReplyEntry(r).entry_with_ttls(&second, &Duration::ZERO, &ATTR);
        });
        assert_eq!(entry.len(), ENTRY);
        let absent = sent(0, |r| ReplyEntry(r).absent(&second));
        assert_eq!(
            (absent.len(), absent[0], absent[16], absent[32]),
            (ENTRY, 0, 1, 2)
        );
        assert_eq!((entry[16], entry[24], entry[32], entry[36]), (0, 1, 0, 2));
        let flags = FopenFlags::FOPEN_KEEP_CACHE;
        let created = sent(0, |r| {
            ReplyCreate(r).created(&second, &ATTR, FileHandle(5), flags);
        });
        assert_eq!((created.len(), created[128], created[136]), (144, 5, 2));
        let lengths = [
            sent(0, |r| ReplyStatfs(r).statfs(1, 2, 3, 4, 5, 6)).len(),
            sent(0, |r| ReplyWrite(r).written(7)).len(),
            sent(0, |r| ReplyLock(r).locked(0, 1, 2, 3)).len(),
            sent(0, |r| ReplyIoctl(r).ioctl(0, b"xy")).len(),
            sent(0, |r| ReplyData(r).data(b"xyz")).len(),
        ];
        assert_eq!(lengths, [80, 8, 24, 18, 3]);
    }

    #[test]
    fn entries_of_a_directory_are_whole_or_not_there() {
        let entries = sent(0, |r| {
            let mut reply = ReplyDirectory::new(r, 70);
            assert!(!reply.add(INodeNo(1), 2, FileType::Directory, "."));
            assert!(!reply.add(INodeNo(3), 4, FileType::Symlink, "12345678"));
            assert!(reply.add(INodeNo(5), 6, FileType::Socket, "x"));
            reply.ok();
        });
        assert_eq!(entries.len(), 32 + 32);
        assert_eq!((entries[16], entries[20], entries[24]), (1, 4, b'.'));
        assert_eq!((entries[48], entries[52]), (8, 10));
    }

    #[test]
    fn a_failure_is_a_number_and_a_dropped_answer_is_one_too() {
        assert!(sent(libc::ENOENT, |r| r.error(Errno::NOENT)).is_empty());
        assert!(sent(libc::EIO, drop).is_empty());
    }
}
