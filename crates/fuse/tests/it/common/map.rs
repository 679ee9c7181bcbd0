//! Memory mappings of files, and what of a file the page cache holds.
use std::fs::File;
use std::os::fd::AsRawFd;

/// A mapping of a file's start.
pub struct Map(*mut u8, usize);

impl Map {
    pub fn new(f: &File, len: usize, how: i32) -> std::io::Result<Map> {
        // SAFETY: a new mapping at an address the kernel chooses; the file is open for reading and writing.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                how,
                f.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(Map(at.cast(), len))
        }
    }
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `1` bytes long and lives as long as `self`; nothing else in this process touches it.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
    pub fn sync(&self) {
        // SAFETY: the mapping is whole and ours.
        let synced = unsafe { libc::msync(self.0.cast(), self.1, libc::MS_SYNC) };
        assert_eq!(synced, 0);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no slice of it can be alive.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Pages of the file in the page cache.
pub fn resident(f: &File, len: usize) -> usize {
    let mut pages = vec![0u8; len.div_ceil(4096)];
    // SAFETY: a fresh read-only mapping of `len` bytes, asked about and removed again; `pages` has a byte for each page.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_SHARED,
            f.as_raw_fd(),
            0,
        );
        assert!(at != libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.iter().filter(|p| **p & 1 != 0).count()
}
