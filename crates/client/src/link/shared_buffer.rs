//! Memory that both ends of a connection have: a memfd that neither can shorten, mapped.
//!
//! Both copy into and out of it, and never look at a byte in it twice. So what one end changes meanwhile can only make the bytes of
//! that call wrong. Copying 1 MiB through the mapping takes half as long as by `pread` and `pwrite`, which look up each page.
//!
//! Invariant: every byte of a mapping can be touched without an error (`SIGBUS`). It is as long as the memfd, which is sealed against being
//! shortened. Who receives it seals it against holes too, once it is mapped, and then has the kernel allocate all of it. (Kernels before 5.1
//! do not have that seal: there a process of the same user could punch holes, and memory would have to run out then.) Huge pages are refused.
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// The file system of a memfd without huge pages (`linux/magic.h`).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct SharedBuffer {
    memory: OwnedFd,
    map: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and lives as long as the buffer. It is not `Sync`: two threads must not copy at once.
unsafe impl Send for SharedBuffer {}

impl SharedBuffer {
    /// A new one. Its memory is allocated at once.
    pub fn new(bytes: usize) -> io::Result<SharedBuffer> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("forebay-link", flags)?;
        rustix::fs::ftruncate(&memory, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
        let buffer = SharedBuffer::map(memory, bytes)?;
        buffer.allocate()?;
        Ok(buffer)
    }

    /// One that holds `bytes`.
    pub fn of(bytes: &[u8]) -> io::Result<SharedBuffer> {
        let shared = SharedBuffer::new(bytes.len())?;
        shared.write(bytes)?;
        Ok(shared)
    }

    /// One that came from the other end. `InvalidData` if it is not sealed, is of huge pages, is empty, or has not the length that `fits`.
    pub fn received(memory: OwnedFd, fits: impl Fn(u64) -> bool) -> io::Result<SharedBuffer> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no sealed memory");
        let seals = rustix::fs::fcntl_get_seals(&memory).map_err(|_| wrong())?;
        let is_ordinary = rustix::fs::fstatfs(&memory)?.f_type == TMPFS_MAGIC;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) || !is_ordinary {
            return Err(wrong());
        }
        let len = u64::try_from(rustix::fs::fstat(&memory)?.st_size).map_err(|_| wrong())?;
        let bytes = match usize::try_from(len) {
            Ok(bytes) if bytes > 0 && fits(len) => bytes,
            _ => return Err(wrong()),
        };
        let buffer = SharedBuffer::map(memory, bytes)?;
        // Refused if it cannot be sealed any more, but where the kernel does not know the seal.
        match rustix::fs::fcntl_add_seals(&buffer.memory, SealFlags::FUTURE_WRITE) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
        buffer.allocate()?;
        Ok(buffer)
    }

    /// Has the kernel allocate what is not yet.
    fn allocate(&self) -> io::Result<()> {
        let (flags, len) = (FallocateFlags::empty(), self.len as u64);
        // Some kernels interrupt it for any signal.
        retry_on_intr(|| rustix::fs::fallocate(&self.memory, flags, 0, len))?;
        Ok(())
    }

    /// Maps memory of this length, sealed against being shortened.
    fn map(memory: OwnedFd, len: usize) -> io::Result<SharedBuffer> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is touched.
        let map =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, &memory, 0) }?;
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedBuffer { memory, map, len })
    }

    /// Its length.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies its first bytes. `UnexpectedEof`: it is shorter.
    pub fn read(&self, into: &mut [u8]) -> io::Result<()> {
        if into.len() > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: that many bytes are mapped, and can be touched: see the head of this file. `into` is memory of this process alone, so the two do
        // not overlap. No other thread of this process copies at once. What the other process changes during the copy is outside of what
        // Rust describes; the machine copies old or new bytes, and any are a valid `u8`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.map.as_ptr(), into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    /// Replaces its first bytes. `UnexpectedEof`: it is shorter.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: as in `read`. No reference into the mapping exists in this process.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_ptr(), bytes.len());
        }
        Ok(())
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, into which nothing points any more.
        // Fails only for an address that is none of a mapping.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.len) };
    }
}

impl AsFd for SharedBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_writes_the_other_reads() {
        let ours = SharedBuffer::of(&[7; 10_000]).unwrap();
        let descriptor = ours.as_fd().try_clone_to_owned().unwrap();
        let theirs = SharedBuffer::received(descriptor, |len| len == 10_000).unwrap();
        theirs.write(&[9; 5000]).unwrap();
        let mut bytes = vec![0; 10_000];
        ours.read(&mut bytes).unwrap();
        assert!(bytes[..5000] == [9; 5000] && bytes[5000..] == [7; 5000]);
        assert!(ours.read(&mut [0; 10_001]).is_err());
        assert!(ours.write(&[0; 10_001]).is_err());
    }

    #[test]
    fn what_was_received_has_no_holes_and_gets_none() {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let ours = SharedBuffer::of(&[7; 1 << 20]).unwrap();
        rustix::fs::fallocate(&ours, flags, 4096, 1 << 19).unwrap();
        let blocks = || rustix::fs::fstat(&ours).unwrap().st_blocks * 512;
        assert!(blocks() < 1 << 20);
        let descriptor = ours.as_fd().try_clone_to_owned().unwrap();
        let theirs = SharedBuffer::received(descriptor, |_| true).unwrap();
        assert_eq!(blocks(), 1 << 20);
        assert_eq!(
            rustix::fs::fallocate(&ours, flags, 4096, 1 << 19),
            Err(Errno::PERM)
        );
        // Both can write it as before.
        ours.write(&[1; 100]).unwrap();
        theirs.write(&[2; 50]).unwrap();
        let mut bytes = [0; 100];
        ours.read(&mut bytes).unwrap();
        assert!(bytes[..50] == [2; 50] && bytes[50..] == [1; 50]);
    }

    #[test]
    fn memory_that_could_be_shortened_or_has_another_length_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("unsealed", flags).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();
        assert!(SharedBuffer::received(memory, |_| true).is_err());
        let memory = rustix::fs::memfd_create("empty", flags).unwrap();
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(SharedBuffer::received(memory, |_| true).is_err());
        let memory = rustix::fs::memfd_create("complete", flags).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        assert!(SharedBuffer::received(memory, |_| true).is_err());
        let descriptor = SharedBuffer::new(4096).unwrap().memory.try_clone().unwrap();
        assert!(SharedBuffer::received(descriptor, |len| len == 8192).is_err());
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(SharedBuffer::received(file.into(), |_| true).is_err());
    }
}
