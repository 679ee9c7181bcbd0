//! Memory that both ends of a connection have: a memfd that neither can shorten.
//!
//! Both read and write it by system calls, into and out of memory of their own. So what one end changes meanwhile can only make
//! the bytes of that call wrong, and nothing is looked at that can still change.
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct SharedBuffer(File);

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
        Ok(SharedBuffer(File::from(memory)))
    }

    /// One that holds `bytes`.
    pub fn of(bytes: &[u8]) -> io::Result<SharedBuffer> {
        let shared = SharedBuffer::new(bytes.len())?;
        shared.write(bytes)?;
        Ok(shared)
    }

    /// One that came from the other end. `InvalidData` if it is not sealed, or has not the length that `fits`.
    pub fn received(descriptor: OwnedFd, fits: impl Fn(u64) -> bool) -> io::Result<SharedBuffer> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no sealed memory");
        let seals = rustix::fs::fcntl_get_seals(&descriptor).map_err(|_| wrong())?;
        let file = File::from(descriptor);
        let sealed = seals.contains(SealFlags::SHRINK | SealFlags::GROW);
        match sealed && fits(file.metadata()?.len()) {
            true => Ok(SharedBuffer(file)),
            false => Err(wrong()),
        }
    }

    /// Its length.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Copies its first bytes.
    pub fn read(&self, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, 0)
    }

    /// Replaces its first bytes.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, 0)
    }
}

impl AsFd for SharedBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
