//! Fuzzes requests: whatever bytes one has, it is answered exactly once, and nothing is read past its end. Requests come from
//! the kernel alone, but a mistake there, or here about its structures, must not end the service. Short form: 30,000 requests;
//! `SOAK=1`: 3,000,000.
#![allow(clippy::unwrap_used)] // A test fails by panicking.
use super::arguments::*;
use super::dispatch::{Handler, OpenedHandle, dispatch};
use super::kernel_config::KernelConfig;
use super::reply::*;
use super::session::Session;
use super::types::{FileHandle, OpenFlags, Request};
use super::{InitFlags, opcode};
use bytes::Bytes;
use forebay_server::{Attr, Fid, SpaceTotals};
use forebay_testkit::random::Random;
use forebay_testkit::seeds::count;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Gives up every request that it is handed (so each is answered `EIO`), after a look at the arguments.
#[derive(Default)]
pub(super) struct GivesUp {
    forgotten: AtomicU64,
    decoded: AtomicU64,
    /// What a `statfs` waits for.
    statfs_waits: Option<Mutex<Receiver<()>>>,
}

impl GivesUp {
    /// The same, but each `statfs` waits for a word.
    pub fn statfs_after(word: Receiver<()>) -> GivesUp {
        GivesUp {
            statfs_waits: Some(Mutex::new(word)),
            ..GivesUp::default()
        }
    }

    fn seen(&self) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }
    fn name(&self, names: &[&OsStr]) {
        let mut bytes = names.iter().flat_map(|name| name.as_bytes());
        assert!(bytes.all(|b| *b != 0), "{names:?}");
        self.seen();
    }
}

impl Handler for GivesUp {
    fn init(&self, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_READ);
        config.max_write = 1 << 20;
        config.readahead = config.readahead.min(1 << 20);
        Ok(())
    }
    fn destroy(&self) {}
    fn forget(&self, _: Fid, _: u64) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }
    fn lookup(&self, _: &Request, name: &OsStr, _: Reply<EntryAnswer>) {
        self.name(&[name]);
    }
    fn getattr(&self, _: &Request, _: Option<FileHandle>, _: Reply<(Attr, Duration)>) {
        self.seen();
    }
    fn setattr(&self, _: &Request, _: SetAttrRequest, _: Reply<(Attr, Duration)>) {
        self.seen();
    }
    fn readlink(&self, _: &Request, _: Reply<Bytes>) {
        self.seen();
    }
    fn mknod(&self, _: &Request, name: &OsStr, _: u32, _: u32, _: Reply<EntryAnswer>) {
        self.name(&[name]);
    }
    fn mkdir(&self, _: &Request, name: &OsStr, _: u32, _: Reply<EntryAnswer>) {
        self.name(&[name]);
    }
    fn symlink(&self, _: &Request, name: &OsStr, target: &Path, _: Reply<EntryAnswer>) {
        self.name(&[name, target.as_os_str()]);
    }
    fn link(&self, _: &Request, _: Fid, name: &OsStr, _: Reply<EntryAnswer>) {
        self.name(&[name]);
    }
    fn unlink(&self, _: &Request, name: &OsStr, _: Reply<()>) {
        self.name(&[name]);
    }
    fn rmdir(&self, _: &Request, name: &OsStr, _: Reply<()>) {
        self.name(&[name]);
    }
    fn rename(&self, _: &Request, rename: RenameRequest<'_>, _: Reply<()>) {
        self.name(&[rename.name, rename.to_name]);
    }
    fn open(&self, _: &Request, _: OpenFlags, _: bool, _: Reply<OpenedHandle>) {
        self.seen();
    }
    fn create(
        &self,
        _: &Request,
        create: CreateRequest<'_>,
        _: Reply<(EntryAnswer, OpenedHandle)>,
    ) {
        self.name(create.name.as_slice());
    }
    fn read(&self, _: &Request, _: ReadRequest, _: Reply<Bytes>) {
        self.seen();
    }
    fn write(&self, _: &Request, write: WriteRequest<'_>, _: Reply<u32>) {
        assert!(write.data.len() <= MOST);
        self.seen();
    }
    fn flush(&self, _: &Request, _: FileHandle, _: u64, _: Reply<()>) {
        self.seen();
    }
    fn release(&self, _: &Request, _: FileHandle, _: Reply<()>) {
        self.seen();
    }
    fn fsync(&self, _: &Request, _: FileHandle, _: Reply<()>) {
        self.seen();
    }
    fn fallocate(&self, _: &Request, _: AllocateRequest, _: Reply<()>) {
        self.seen();
    }
    fn lseek(&self, _: &Request, _: FileHandle, _: i64, _: i32, _: Reply<i64>) {
        self.seen();
    }
    fn copy_file_range(&self, _: &Request, _: CopyRequest, _: Reply<u32>) {
        self.seen();
    }
    fn set_lock(&self, _: &Request, _: LockRequest, _: Reply<()>) {
        self.seen();
    }
    fn get_lock(&self, _: &Request, _: LockRequest, _: Reply<LockAnswer>) {
        self.seen();
    }
    fn opendir(&self, _: &Request, _: Reply<OpenedHandle>) {
        self.seen();
    }
    fn readdir(&self, _: &Request, _: FileHandle, _: u64, _: u32, _: Reply<DirectoryEntries>) {
        self.seen();
    }
    fn releasedir(&self, _: &Request, _: FileHandle, _: Reply<()>) {
        self.seen();
    }
    fn fsyncdir(&self, _: &Request, _: Reply<()>) {
        self.seen();
    }
    fn statfs(&self, _: &Request, _: Reply<SpaceTotals>) {
        if let Some(word) = &self.statfs_waits {
            word.lock().recv().unwrap();
        }
        self.seen();
    }
    fn setxattr(&self, _: &Request, name: &OsStr, value: &[u8], _: i32, _: Reply<()>) {
        assert!(value.len() <= MOST);
        self.name(&[name]);
    }
    fn getxattr(&self, _: &Request, name: &OsStr, _: u32, _: Reply<XattrAnswer>) {
        self.name(&[name]);
    }
    fn listxattr(&self, _: &Request, _: u32, _: Reply<XattrAnswer>) {
        self.seen();
    }
    fn removexattr(&self, _: &Request, name: &OsStr, _: Reply<()>) {
        self.name(&[name]);
    }
    fn ioctl(&self, _: &Request, _: FileHandle, _: u32, data: &[u8], _: Reply<IoctlAnswer>) {
        assert!(data.len() <= MOST);
        self.seen();
    }
}

/// Bytes after the head of a request.
const MOST: usize = 400;

/// Arguments of a request: numbers that lengths and counts are got wrong by, names, and noise.
fn arguments(random: &mut Random) -> Vec<u8> {
    let (len, mut bytes) = (random.below(MOST as u64) as usize, Vec::new());
    while bytes.len() < len {
        match random.below(6) {
            0 => bytes.extend(b"name\0"),
            1 => bytes.extend([b'x'; 20]),
            2 => bytes.extend((random.below(64) as u32).to_ne_bytes()),
            3 => bytes.extend([0xff; 4]),
            4 => bytes.extend([0; 8]),
            _ => bytes.extend(random.next().to_ne_bytes()),
        }
    }
    bytes.truncate(len);
    bytes
}

pub(super) fn head(len: usize, opcode: u32, unique: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = [(len as u32).to_ne_bytes(), opcode.to_ne_bytes()].concat();
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(random.below(9).to_ne_bytes());
    bytes.extend([0; 12]);
    bytes.extend([0; 4]);
    bytes
}

fn rounds() -> u64 {
    count(30_000, 3_000_000)
}

#[test]
fn every_request_is_answered_once_whatever_its_bytes() {
    let (mut random, handler) = (Random::new(11), GivesUp::default());
    for unique in 1..=rounds() {
        let opcode = match random.below(20) {
            0 => random.next() as u32,
            _ => random.below(53) as u32,
        };
        let arguments = arguments(&mut random);
        let mut bytes = head(40 + arguments.len(), opcode, unique, &mut random);
        bytes.extend(&arguments);
        // Of its own size, so that a look behind its end is one behind the allocation.
        let bytes = bytes.into_boxed_slice();
        let (opcode, req, arguments) = request(&bytes).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let device = Arc::new(OwnedFd::from(writer));
        let owner = (random.below(9) == 0).then_some(1);
        dispatch(&handler, &device, opcode, &req, arguments, owner);
        drop(device);
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer).unwrap();
        if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            assert!(answer.is_empty(), "opcode {opcode}: {answer:?}");
            continue;
        }
        assert_eq!(answer.len(), 16, "opcode {opcode}: {answer:?}");
        assert_eq!(answer[..4], 16u32.to_ne_bytes());
        let errno = -i32::from_ne_bytes(answer[4..8].try_into().unwrap());
        let known = [libc::EIO, libc::ENOSYS, libc::EACCES];
        assert!(known.contains(&errno), "opcode {opcode}: {errno}");
        assert_eq!(answer[8..], unique.to_ne_bytes());
    }
    let (forgotten, decoded) = (handler.forgotten.into_inner(), handler.decoded.into_inner());
    println!("{forgotten} forgotten, {decoded} decoded of {}", rounds());
    assert!(forgotten > rounds() / 100 && decoded > rounds() / 4);
}

#[test]
fn what_is_no_request_is_told_apart() {
    let mut random = Random::new(12);
    for _ in 0..rounds() {
        let arguments = arguments(&mut random);
        let said = random.below(2 * MOST as u64) as usize;
        let mut bytes = head(said, random.below(53) as u32, 1, &mut random);
        bytes.extend(&arguments);
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        assert_eq!(
            request(&bytes).is_some(),
            bytes.len() >= 40 && said == bytes.len()
        );
    }
}

#[test]
fn any_first_request_is_agreed_on_or_refused() {
    let (mut random, mut agreed) = (Random::new(13), 0);
    for _ in 0..rounds() / 10 {
        let mut arguments = arguments(&mut random);
        if random.below(3) > 0 {
            let version = [7, random.below(60) as u32].map(u32::to_ne_bytes).concat();
            arguments.splice(..arguments.len().min(8), version);
        }
        let opcode = if random.below(9) == 0 {
            1
        } else {
            opcode::INIT
        };
        let mut bytes = head(40 + arguments.len(), opcode, 1, &mut random);
        bytes.extend(arguments);
        let (mut kernel, device) = UnixStream::pair().unwrap();
        kernel.write_all(&bytes).unwrap();
        // No request follows, should the mount want another.
        kernel.shutdown(std::net::Shutdown::Write).unwrap();
        agreed += u64::from(Session::handshake(GivesUp::default(), device.into(), None).is_ok());
    }
    println!("{agreed} agreed");
    assert!(agreed > 100);
}
