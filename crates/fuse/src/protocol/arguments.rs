//! The arguments of requests: what follows their heads.
//!
//! Each structure is read by a method of [`Arguments`] that draws its bytes. A field that no handler wants is passed over.
use super::types::{FileHandle, OpenFlags, RenameFlags, Request, WriteFlags};
use forebay_server::{Caller, Fid, SetAttr, SetTime, Time};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of a request's head.
const HEAD: usize = 40;
/// Of `getattr`: it comes through an open file.
const HAS_HANDLE: u32 = 1 << 0;
/// Of `setattr`, which arguments it means: the time of modification, the open file that it comes through, the time of change.
const MTIME: u32 = 1 << 5;
const HANDLE: u32 = 1 << 6;
const CTIME: u32 = 1 << 10;
/// Of reads and writes: they name their lock owner, as those do that bypass the page cache.
const HAS_OWNER: u32 = 1 << 1;

/// What a `setattr` wants changed.
#[derive(Debug, Clone)]
pub(crate) struct SetAttrRequest {
    pub set: SetAttr,
    /// The open file that it came through.
    pub fh: Option<FileHandle>,
    /// Set-id bits go: the caller of a truncate may not keep them, or the owner changes.
    pub kills_set_ids: bool,
    /// It may be the kernel's own, which keeps the times of files that it writes back: see [`is_kernel_mtime`].
    pub hands_over_time: bool,
}

/// Whether a `setattr` of these arguments is one by which the kernel hands over the time that it keeps for a file. A program's looks so too
/// if it sets the time of modification alone, but comes through no open file.
pub(super) fn is_kernel_mtime(valid: u32) -> bool {
    valid & !HANDLE == MTIME | CTIME
}

/// An entry that gets another name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenameRequest<'a> {
    pub name: &'a OsStr,
    /// The directory that has the new name.
    pub to: Fid,
    pub to_name: &'a OsStr,
    pub flags: RenameFlags,
}

/// A file to make, if it is not there, and open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CreateRequest<'a> {
    /// None: a file that has no name (`O_TMPFILE`).
    pub name: Option<&'a OsStr>,
    pub mode: u32,
    pub flags: OpenFlags,
}

/// Bytes to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest {
    pub fh: FileHandle,
    pub offset: u64,
    pub size: u32,
    /// They bypass the page cache.
    pub direct: bool,
}

/// Bytes to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteRequest<'a> {
    pub fh: FileHandle,
    pub offset: u64,
    pub data: &'a [u8],
    pub how: WriteFlags,
    /// As the file was opened, or was told since.
    pub flags: OpenFlags,
    /// They bypass the page cache.
    pub direct: bool,
}

/// A range to reserve, zero or punch out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocateRequest {
    pub fh: FileHandle,
    pub offset: u64,
    pub len: u64,
    /// As `fallocate` is given it.
    pub mode: i32,
}

/// Bytes to copy between two open files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyRequest {
    pub from: FileHandle,
    pub from_offset: u64,
    pub to_fid: Fid,
    pub to: FileHandle,
    pub to_offset: u64,
    pub len: u64,
}

/// A lock that is asked for, given up or looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest {
    pub fh: FileHandle,
    pub owner: u64,
    pub start: u64,
    /// The last byte itself.
    pub last: u64,
    pub typ: i32,
    pub pid: u32,
    /// Of `flock`, not of `fcntl`.
    pub flock: bool,
    /// To wait for it.
    pub wait: bool,
}

/// The request is shorter than it must be.
#[derive(Debug)]
pub(super) struct RequestTooShort;

type Result<T> = std::result::Result<T, RequestTooShort>;

/// Takes arguments off the front.
pub(super) struct Arguments<'a>(pub &'a [u8]);

impl<'a> Arguments<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RequestTooShort)?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RequestTooShort)?;
        self.0 = rest;
        Ok(*taken)
    }
    pub fn n4(&mut self) -> Result<u32> {
        self.array().map(u32::from_ne_bytes)
    }
    pub fn n8(&mut self) -> Result<u64> {
        self.array().map(u64::from_ne_bytes)
    }
    pub fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(drop)
    }
    /// Up to the next zero.
    pub fn name(&mut self) -> Result<&'a OsStr> {
        let len = self.0.iter().position(|b| *b == 0).ok_or(RequestTooShort)?;
        let name = self.take(len)?;
        self.skip(1)?;
        Ok(OsStr::from_bytes(name))
    }
    pub fn handle(&mut self) -> Result<FileHandle> {
        self.n8().map(FileHandle)
    }
    pub fn inode(&mut self) -> Result<Fid> {
        self.n8().map(Fid)
    }
    pub fn open_flags(&mut self) -> Result<OpenFlags> {
        self.n4().map(|flags| OpenFlags(flags as i32))
    }

    /// `| length 4 | opcode 4 | unique 8 | inode 8 | user 4 | group 4 | process 4 | 0 4 |`: also the length and the opcode.
    fn head(&mut self) -> Result<(u32, u32, Request)> {
        let (len, opcode) = (self.n4()?, self.n4()?);
        let request = Request {
            unique: self.n8()?,
            fid: self.inode()?,
            caller: Caller {
                uid: self.n4()?,
                gid: self.n4()?,
            },
            pid: self.n4()?,
        };
        Ok((len, opcode, request))
    }

    /// `| flags 4 | 0 4 | handle 8 |`
    pub fn get_attr(&mut self) -> Result<Option<FileHandle>> {
        let (flags, (), fh) = (self.n4()?, self.skip(4)?, self.handle()?);
        Ok((flags & HAS_HANDLE != 0).then_some(fh))
    }

    /// `| valid 4 | 0 4 | handle 8 | size 8 | owner 8 | atime 8 | mtime 8 | ctime 8 | nanoseconds 4 + 4 + 4 | mode 4 | 0 4 | user 4 |
    /// group 4 | 0 4 |`
    pub fn set_attr(&mut self) -> Result<SetAttrRequest> {
        let valid = self.n4()?;
        let has = |bit: u32| valid & 1 << bit != 0;
        self.skip(4)?;
        let fh = self.handle()?;
        let size = self.n8()?;
        self.skip(8)?;
        let (atime, mtime, _) = (self.n8()? as i64, self.n8()? as i64, self.n8()?);
        let (atime_nanos, mtime_nanos, _) = (self.n4()?, self.n4()?, self.n4()?);
        let mode = self.n4()?;
        self.skip(4)?;
        let (uid, gid) = (self.n4()?, self.n4()?);
        let time = |set, now, secs, nanos| match (has(set), has(now)) {
            (false, _) => None,
            (true, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::At(Time { secs, nanos })),
        };
        Ok(SetAttrRequest {
            set: SetAttr {
                mode: has(0).then_some(mode & 0o7777),
                uid: has(1).then_some(uid),
                gid: has(2).then_some(gid),
                size: has(3).then_some(size),
                atime: time(4, 7, atime, atime_nanos),
                mtime: time(5, 8, mtime, mtime_nanos),
            },
            fh: has(6).then_some(fh),
            kills_set_ids: has(11),
            hands_over_time: is_kernel_mtime(valid),
        })
    }

    /// `| directory 8 | [flags 4 | 0 4 |] name | name |`
    pub fn rename(&mut self, has_flags: bool) -> Result<RenameRequest<'a>> {
        let to = self.inode()?;
        let flags = match has_flags {
            true => (self.n4()?, self.skip(4)?).0,
            false => 0,
        };
        Ok(RenameRequest {
            name: self.name()?,
            to,
            to_name: self.name()?,
            flags: RenameFlags::from_bits_retain(flags),
        })
    }

    /// `| flags 4 | mode 4 | umask 4 | open flags 4 | name |`; the name means nothing if the file is to have none.
    pub fn create(&mut self, named: bool) -> Result<CreateRequest<'a>> {
        let (flags, mode, ()) = (self.open_flags()?, self.n4()?, self.skip(8)?);
        let name = self.name()?;
        Ok(CreateRequest {
            name: named.then_some(name),
            mode,
            flags,
        })
    }

    /// `| handle 8 | offset 8 | size 4 | flags 4 | owner 8 | open flags 4 | 0 4 |`
    pub fn read(&mut self) -> Result<ReadRequest> {
        Ok(ReadRequest {
            fh: self.handle()?,
            offset: self.n8()?,
            size: self.n4()?,
            direct: (self.n4()? & HAS_OWNER != 0, self.skip(8)?).0,
        })
    }

    /// The same, and bytes.
    pub fn write(&mut self) -> Result<WriteRequest<'a>> {
        let (fh, offset, size) = (self.handle()?, self.n8()?, self.n4()?);
        let (how, ()) = (self.n4()?, self.skip(8)?);
        let (flags, ()) = (self.open_flags()?, self.skip(4)?);
        Ok(WriteRequest {
            fh,
            offset,
            data: self.take(size as usize)?,
            how: WriteFlags::from_bits_retain(how),
            flags,
            direct: how & HAS_OWNER != 0,
        })
    }

    /// `| handle 8 | offset 8 | length 8 | mode 4 | 0 4 |`
    pub fn allocate(&mut self) -> Result<AllocateRequest> {
        Ok(AllocateRequest {
            fh: self.handle()?,
            offset: self.n8()?,
            len: self.n8()?,
            mode: self.n4()? as i32,
        })
    }

    /// `| handle 8 | offset 8 | inode 8 | handle 8 | offset 8 | length 8 | flags 8 |`
    pub fn copy(&mut self) -> Result<CopyRequest> {
        Ok(CopyRequest {
            from: self.handle()?,
            from_offset: self.n8()?,
            to_fid: self.inode()?,
            to: self.handle()?,
            to_offset: self.n8()?,
            len: self.n8()?,
        })
    }

    /// `| handle 8 | owner 8 | start 8 | last 8 | type 4 | process 4 | flags 4 | 0 4 |`
    pub fn lock(&mut self, wait: bool) -> Result<LockRequest> {
        Ok(LockRequest {
            fh: self.handle()?,
            owner: self.n8()?,
            start: self.n8()?,
            last: self.n8()?,
            typ: self.n4()? as i32,
            pid: self.n4()?,
            flock: self.n4()? & 1 != 0,
            wait,
        })
    }
}

/// The opcode, the head and the rest of a request; `None`: it is none.
pub(super) fn request(bytes: &[u8]) -> Option<(u32, Request, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (len, opcode, request) = Arguments(head).head().ok()?;
    (len as usize == bytes.len()).then_some((opcode, request, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_it_says() {
        let mut bytes = [
            &48u32.to_ne_bytes()[..],
            &1u32.to_ne_bytes(),
            &[7; 32],
            b"a name\0\0",
        ]
        .concat();
        let (opcode, head, rest) = request(&bytes).unwrap();
        assert_eq!((opcode, head.caller.uid, rest.len()), (1, 0x0707_0707, 8));
        let mut arguments = Arguments(rest);
        assert_eq!(arguments.name().unwrap(), "a name");
        assert!(arguments.n4().is_err());
        bytes.pop();
        assert!(request(&bytes).is_none());
        assert!(request(&bytes[..20]).is_none());
    }

    #[test]
    fn only_both_times_and_nothing_else_hand_over_a_time() {
        assert!(is_kernel_mtime(MTIME | CTIME) && is_kernel_mtime(MTIME | CTIME | HANDLE));
        for other in (0..12).map(|bit| 1 << bit).filter(|bit| *bit != HANDLE) {
            assert!(!is_kernel_mtime((MTIME | CTIME) ^ other), "{other:#x}");
        }
    }

    #[test]
    fn times_are_whole_numbers_of_any_sign() {
        let valid = 1u32 << 4 | 1 << 5 | 1 << 8;
        let mut bytes = [valid.to_ne_bytes(), [0; 4]].concat();
        bytes.extend([0; 24]);
        for time in [i64::MIN, 5, 0] {
            bytes.extend(time.to_ne_bytes());
        }
        for nanos in [7u32, 0, 0] {
            bytes.extend(nanos.to_ne_bytes());
        }
        bytes.extend([0; 20]);
        let request = Arguments(&bytes).set_attr().unwrap();
        assert!(!request.hands_over_time);
        let SetAttrRequest { set, fh, .. } = request;
        let time = Time {
            secs: i64::MIN,
            nanos: 7,
        };
        assert_eq!(set.atime, Some(SetTime::At(time)));
        assert_eq!(set.mtime, Some(SetTime::Now));
        assert!(set.mode.is_none() && set.size.is_none() && fh.is_none());
        assert!(Arguments(&bytes[..80]).set_attr().is_err());
    }
}
