//! Answers: what a request may be answered with, and how each is encoded.
//!
//! ```text
//! attributes  | inode 8 | size 8 | blocks 8 | atime 8 | mtime 8 | ctime 8 | atime, mtime, ctime: nanoseconds 4 + 4 + 4 | mode 4 |
//!             | links 4 | user 4 | group 4 | device 4 | block size 4 | 0 4 |                                  88 bytes
//! entry       | inode 8 | generation 8 | name and attributes last for: seconds 8 + 8, nanoseconds 4 + 4 | attributes |
//! attr        | they last for: seconds 8, nanoseconds 4 | 0 4 | attributes |
//! open        | handle 8 | flags 4 | 0 4 |            create: entry, open
//! directory   | inode 8 | where the next begins 8 | name length 4 | type 4 | name, zeros to 8 |   any number of times
//! ```
use super::kept_reply::is_kept;
use super::types::{FileHandle, FopenFlags};
use bytes::Bytes;
use forebay_server::{Attr, Fid, Kind, SpaceTotals};
use rustix::io::Errno;
use std::io::IoSlice;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the head of a request or reply.
pub(super) const OUT_HEAD: usize = 16;
const STATFS: usize = 80;
const ENTRY: usize = 128;
/// The most that an answer has in numbers: an entry and an open file.
const MAX_FIELDS: usize = ENTRY + 16;
/// The unit of free space that is shown, and what programs should read and write at a time; bytes.
const BLOCK_SIZE: u32 = 4096;
/// The longest name, bytes.
const MAX_NAME_LEN: u32 = 255;

/// What becomes of a reply: the kernel takes it, or wants none any more.
pub(super) fn log_refused(written: rustix::io::Result<usize>) {
    match written {
        // ENOENT: the request was given up meanwhile; ENODEV: the mount has ended.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(error) => tracing::warn!(%error, "the kernel refused an answer"),
    }
}

/// The right and duty to answer one request. Dropped, it has answered `EIO`.
#[derive(Debug)]
pub(super) struct PendingReply {
    unique: u64,
    device: Arc<OwnedFd>,
    answered: bool,
}

impl PendingReply {
    pub fn new(unique: u64, device: &Arc<OwnedFd>) -> PendingReply {
        PendingReply {
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
        if is_kept(self.unique, &[&head, parts[0], parts[1]]) {
            return;
        }
        let written = match (parts[0], parts[1]) {
            // Numbers alone, as the answer to each write: one buffer, and no list of parts.
            (numbers, []) if numbers.len() <= MAX_FIELDS => {
                let mut whole = [0; OUT_HEAD + MAX_FIELDS];
                whole[..OUT_HEAD].copy_from_slice(&head);
                whole[OUT_HEAD..len].copy_from_slice(numbers);
                rustix::io::write(&self.device, &whole[..len])
            }
            (numbers, bytes) => {
                let all = [&head[..], numbers, bytes].map(IoSlice::new);
                rustix::io::writev(&self.device, &all)
            }
        };
        log_refused(written);
    }

    pub fn error(mut self, errno: Errno) {
        self.send(errno.raw_os_error(), [&[], &[]]);
    }

    pub fn give(mut self, bytes: &[u8]) {
        self.send(0, [bytes, &[]]);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.answered {
            self.send(libc::EIO, [&[], &[]]);
        }
    }
}

/// The right and duty to answer a request with a `T`. Dropped, it has answered `EIO`.
#[derive(Debug)]
pub(crate) struct Reply<T>(PendingReply, PhantomData<fn(T)>);

impl<T> From<PendingReply> for Reply<T> {
    fn from(reply: PendingReply) -> Reply<T> {
        Reply(reply, PhantomData)
    }
}

impl<T: Answer> Reply<T> {
    /// It failed.
    pub fn error(self, errno: Errno) {
        self.0.error(errno);
    }

    /// It gave this, or failed.
    pub fn answer(mut self, answer: Result<T, Errno>) {
        match answer {
            Ok(answer) => {
                let fields = answer.encode(ReplyFields::new());
                self.0.send(0, [fields.bytes(), answer.bytes()]);
            }
            Err(errno) => self.error(errno),
        }
    }
}

/// What a request may be answered with.
pub(crate) trait Answer {
    /// Its numbers.
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        fields
    }
    /// The bytes after them.
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// Numbers, one after the other.
pub(crate) struct ReplyFields {
    bytes: [u8; MAX_FIELDS],
    len: usize,
}

impl ReplyFields {
    fn new() -> ReplyFields {
        ReplyFields {
            bytes: [0; MAX_FIELDS],
            len: 0,
        }
    }
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
    fn put<const N: usize>(mut self, number: [u8; N]) -> ReplyFields {
        self.bytes[self.len..self.len + N].copy_from_slice(&number);
        self.len += N;
        self
    }
    pub fn n2(self, n: u16) -> ReplyFields {
        self.put(n.to_ne_bytes())
    }
    pub fn n4(self, n: u32) -> ReplyFields {
        self.put(n.to_ne_bytes())
    }
    fn n8(self, n: u64) -> ReplyFields {
        self.put(n.to_ne_bytes())
    }
    /// Zeros, up to this length.
    pub fn zeros_to(self, len: usize) -> ReplyFields {
        ReplyFields { len, ..self }
    }
    fn attributes(self, a: &Attr) -> ReplyFields {
        self.n8(a.fid.0)
            .n8(a.size)
            .n8(a.bytes.div_ceil(512))
            .n8(a.atime.secs as u64)
            .n8(a.mtime.secs as u64)
            .n8(a.ctime.secs as u64)
            .n4(a.atime.nanos)
            .n4(a.mtime.nanos)
            .n4(a.ctime.nanos)
            .n4(a.kind.mode_bits() | a.mode & 0o7777)
            .n4(a.nlink)
            .n4(a.uid)
            .n4(a.gid)
            .n4(a.rdev)
            .n4(BLOCK_SIZE)
            .n4(0)
    }
}

/// It is done.
impl Answer for () {}

/// Bytes.
impl Answer for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// How many bytes were written.
impl Answer for u32 {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        fields.n4(*self).n4(0)
    }
}

/// An offset.
impl Answer for i64 {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        fields.n8(*self as u64)
    }
}

/// Attributes, and how long the kernel may keep them.
impl Answer for (Attr, Duration) {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        let (attr, ttl) = self;
        let fields = fields.n8(ttl.as_secs()).n4(ttl.subsec_nanos()).n4(0);
        fields.attributes(attr)
    }
}

/// What a name stands for, and how long the kernel may keep that.
pub(crate) struct EntryAnswer {
    /// `None`: there is no such name.
    pub attr: Option<Attr>,
    pub attr_ttl: Duration,
    pub entry_ttl: Duration,
}

impl Answer for EntryAnswer {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        // Inode numbers are never used again, so there is one generation. Inode 0: no such name; its attributes mean nothing.
        let fields = fields
            .n8(self.attr.as_ref().map_or(0, |attr| attr.fid.0))
            .n8(0)
            .n8(self.entry_ttl.as_secs())
            .n8(self.attr_ttl.as_secs())
            .n4(self.entry_ttl.subsec_nanos())
            .n4(self.attr_ttl.subsec_nanos());
        match &self.attr {
            Some(attr) => fields.attributes(attr),
            None => fields.zeros_to(ENTRY),
        }
    }
}

/// An open file, and what the kernel may do with its pages.
impl Answer for (FileHandle, FopenFlags) {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        fields.n8(self.0.0).n4(self.1.bits()).n4(0)
    }
}

/// A new file, open.
impl Answer for (EntryAnswer, (FileHandle, FopenFlags)) {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        self.1.encode(self.0.encode(fields))
    }
}

impl Answer for SpaceTotals {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        let unit = u64::from(BLOCK_SIZE);
        let (blocks, free) = (self.total / unit, self.free / unit);
        // Files need no room of their own kind: as many as there are free blocks may follow.
        let files = self.files.saturating_add(free);
        let fields = fields.n8(blocks).n8(free).n8(free).n8(files).n8(free);
        let fields = fields.n4(BLOCK_SIZE).n4(MAX_NAME_LEN).n4(BLOCK_SIZE);
        fields.zeros_to(STATFS)
    }
}

/// Extended attributes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum XattrAnswer {
    /// How many bytes there are, for a caller who asked only that.
    Size(u32),
    /// The bytes.
    Value(Vec<u8>),
}

impl Answer for XattrAnswer {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        match self {
            XattrAnswer::Size(size) => fields.n4(*size).n4(0),
            XattrAnswer::Value(_) => fields,
        }
    }
    fn bytes(&self) -> &[u8] {
        match self {
            XattrAnswer::Size(_) => &[],
            XattrAnswer::Value(value) => value,
        }
    }
}

/// A lock.
pub(crate) struct LockAnswer {
    pub start: u64,
    /// The last byte itself.
    pub last: u64,
    pub typ: i32,
    pub pid: u32,
}

impl Answer for LockAnswer {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        let fields = fields.n8(self.start).n8(self.last);
        fields.n4(self.typ as u32).n4(self.pid)
    }
}

/// The bytes that an `ioctl` gives.
pub(crate) struct IoctlAnswer(pub Vec<u8>);

impl Answer for IoctlAnswer {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        fields.zeros_to(16)
    }
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Entries of a directory, as many as fit.
#[derive(Debug)]
pub(crate) struct DirectoryEntries {
    entries: Vec<u8>,
    room: usize,
}

impl DirectoryEntries {
    /// None yet, and no more than `room` bytes.
    pub fn new(room: u32) -> DirectoryEntries {
        DirectoryEntries {
            entries: Vec::new(),
            room: room as usize,
        }
    }

    /// `next`: where a listing goes on after it. True if it does not fit: then it is not among them.
    #[must_use]
    pub fn add(&mut self, fid: Fid, next: u64, kind: Kind, name: &[u8]) -> bool {
        let end = self.entries.len() + (24 + name.len()).next_multiple_of(8);
        if end > self.room {
            return true;
        }
        let head = ReplyFields::new().n8(fid.0).n8(next);
        let head = head.n4(name.len() as u32).n4(kind.mode_bits() >> 12);
        self.entries.extend_from_slice(head.bytes());
        self.entries.extend_from_slice(name);
        self.entries.resize(end, 0);
        false
    }
}

impl Answer for DirectoryEntries {
    fn bytes(&self) -> &[u8] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::Time;
    use forebay_server::proto::Inode;
    use std::io::Read;

    fn attr() -> Attr {
        let time = |secs, nanos| Time { secs, nanos };
        Attr {
            size: 1,
            bytes: 2 * 512,
            nlink: 9,
            rdev: 12,
            atime: time(-3, 4),
            mtime: time(5, 6),
            ctime: time(7, 8),
            ..Inode::new(Kind::CharDevice, 0o640, 10, 11, Time::default()).attr(Fid(7))
        }
    }

    /// What `answer` sends, without the head: that is as long as it says, and of this request.
    fn sent<T: Answer>(errno: i32, answer: impl FnOnce(Reply<T>)) -> Vec<u8> {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let device = Arc::new(OwnedFd::from(writer));
        answer(PendingReply::new(99, &device).into());
        drop(device);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        let head = [(bytes.len() as u32).to_ne_bytes(), (-errno).to_ne_bytes()];
        assert_eq!(bytes[..8], *head.as_flattened());
        assert_eq!(bytes[8..16], 99u64.to_ne_bytes());
        bytes.split_off(16)
    }

    fn given<T: Answer>(answer: T) -> Vec<u8> {
        sent(0, |reply| reply.answer(Ok(answer)))
    }

    #[test]
    fn answers_are_as_the_kernel_reads_them() {
        let second = Duration::new(1, 2);
        let shown = given((attr(), second));
        assert_eq!(shown.len(), 104);
        assert_eq!(shown[40..48], (-3i64).to_ne_bytes());
        assert_eq!(shown[76..80], (libc::S_IFCHR | 0o640).to_ne_bytes());
        assert_eq!(shown[92..96], 12u32.to_ne_bytes());
        let entry = |attr, entry_ttl| EntryAnswer {
            attr,
            attr_ttl: second,
            entry_ttl,
        };
        let found = given(entry(Some(attr()), Duration::ZERO));
        assert_eq!(found.len(), ENTRY);
        assert_eq!((found[16], found[24], found[32], found[36]), (0, 1, 0, 2));
        let absent = given(entry(None, second));
        assert_eq!(
            (absent.len(), absent[0], absent[16], absent[32]),
            (ENTRY, 0, 1, 2)
        );
        let open = (FileHandle(5), FopenFlags::FOPEN_KEEP_CACHE);
        let created = given((entry(Some(attr()), second), open));
        assert_eq!((created.len(), created[128], created[136]), (144, 5, 2));
        let space = SpaceTotals {
            total: 8 * 4096,
            free: 3 * 4096,
            files: 1,
        };
        let shown = given(space);
        assert_eq!(shown.len(), STATFS);
        assert_eq!([0, 8, 16, 24, 32].map(|at| shown[at]), [8, 3, 3, 4, 3]);
        let lock = LockAnswer {
            start: 0,
            last: 1,
            typ: 2,
            pid: 3,
        };
        let lengths = [
            given(7u32).len(),
            given(7i64).len(),
            given(lock).len(),
            given(IoctlAnswer(b"xy".to_vec())).len(),
            given(Bytes::from_static(b"xyz")).len(),
            given(XattrAnswer::Size(5)).len(),
            given(XattrAnswer::Value(b"xyz".to_vec())).len(),
        ];
        assert_eq!(lengths, [8, 8, 24, 18, 3, 8, 3]);
    }

    #[test]
    fn entries_of_a_directory_are_whole_or_not_there() {
        let mut entries = DirectoryEntries::new(70);
        assert!(!entries.add(Fid(1), 2, Kind::Dir, b"."));
        assert!(!entries.add(Fid(3), 4, Kind::Symlink, b"12345678"));
        assert!(entries.add(Fid(5), 6, Kind::Socket, b"x"));
        let entries = given(entries);
        assert_eq!(entries.len(), 32 + 32);
        assert_eq!((entries[16], entries[20], entries[24]), (1, 4, b'.'));
        assert_eq!((entries[48], entries[52]), (8, 10));
    }

    #[test]
    fn a_failure_is_a_number_and_a_dropped_answer_is_one_too() {
        assert!(sent::<()>(libc::ENOENT, |r| r.error(Errno::NOENT)).is_empty());
        assert!(sent::<()>(libc::EIO, drop).is_empty());
    }
}
