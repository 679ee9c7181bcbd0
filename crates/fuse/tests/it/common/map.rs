//! Memory mappings of files, and what of a file the page cache holds.
use std::fs::File;
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;

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

/// How many pages of the file's first bytes are in the page cache.
pub fn resident(f: &File, len: usize) -> usize {
    pages_held(f, 0, len).iter().filter(|held| **held).count()
}

/// Whether all pages of these bytes are in the page cache.
pub fn is_resident(f: &File, offset: usize, len: usize) -> bool {
    let first = offset / PAGE * PAGE;
    pages_held(f, first, offset + len - first)
        .iter()
        .all(|held| *held)
}

/// Which pages are in the page cache, from a page's beginning on.
fn pages_held(f: &File, first: usize, len: usize) -> Vec<bool> {
    let mut pages = vec![0u8; len.div_ceil(PAGE)];
    // SAFETY: a fresh read-only mapping of `len` bytes, asked about and removed again; `pages` has a byte for each page.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_SHARED,
            f.as_raw_fd(),
            first as i64,
        );
        assert!(at != libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.iter().map(|page| page & 1 != 0).collect()
}
