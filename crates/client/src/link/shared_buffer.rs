//! Memory that both ends of a connection have: a memfd that neither can shorten, mapped.
//!
//! Both copy into and out of it, and never look at a byte in it twice. So what one end changes meanwhile can only make the bytes of
//! that call wrong. Mapped, a copy takes half of the time of a system call's, which looks up each page.
//!
//! Invariant: the mapping is as long as the memfd, which is sealed against being shortened: so every byte of it can be touched.
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct SharedBuffer {
    memory: OwnedFd,
    map: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and lives as long as the buffer.
unsafe impl Send for SharedBuffer {}
// SAFETY: threads that copy at once can make each other's bytes wrong, as the other process can, but nothing else: nobody has a reference
// into the mapping.
unsafe impl Sync for SharedBuffer {}

impl SharedBuffer {
    /// A new one. Its memory is taken at once.
    pub fn new(bytes: usize) -> io::Result<SharedBuffer> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("forebay-link", flags)?;
        rustix::fs::ftruncate(&memory, bytes as u64)?;
        // Some kernels interrupt it for any signal.
        let flags = FallocateFlags::empty();
        retry_on_intr(|| rustix::fs::fallocate(&memory, flags, 0, bytes as u64))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        SharedBuffer::map(memory, bytes)
    }

    /// One that holds `bytes`.
    pub fn of(bytes: &[u8]) -> io::Result<SharedBuffer> {
        let shared = SharedBuffer::new(bytes.len())?;
        shared.write(bytes)?;
        Ok(shared)
    }

    /// One that came from the other end. `InvalidData` if it is not sealed, or has not the length that `fits`.
    pub fn received(memory: OwnedFd, fits: impl Fn(u64) -> bool) -> io::Result<SharedBuffer> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no sealed memory");
        let seals = rustix::fs::fcntl_get_seals(&memory).map_err(|_| wrong())?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(wrong());
        }
        let len = u64::try_from(rustix::fs::fstat(&memory)?.st_size).map_err(|_| wrong())?;
        match usize::try_from(len) {
            Ok(bytes) if fits(len) => SharedBuffer::map(memory, bytes),
            _ => Err(wrong()),
        }
    }

    /// Maps memory of this length, sealed against being shortened.
    fn map(memory: OwnedFd, len: usize) -> io::Result<SharedBuffer> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
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
        // SAFETY: that many bytes are mapped, and stay so: see the head of this file. `into` is memory of this process alone, so the two do not
        // overlap. Bytes that another process changes during the copy come as either; any are a valid `u8`.
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
