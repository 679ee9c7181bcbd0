//! Settings of the C library's allocator, so that what the process holds follows what it uses.
//!
//! A server frees on one thread what another allocated (cached blocks, write buffers). By default each thread has an arena of its
//! own, and memory that is free in one cannot be used by the others: with a million files the process held several times its
//! caches, and more with every thread that ever scanned. With one arena all of it is used again. Small allocations seldom contend
//! for its lock, because each thread caches some.
//!
//! Allocations of `MMAP_THRESHOLD` and more are mapped from the kernel, and go back to it when they are freed. Smaller ones, to which
//! all buffers of requests belong, come from the heap, so that their pages are not mapped and unmapped again for each request.

/// Larger pieces come from the kernel and go back to it. Above the largest request of a mount.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: i32 = 4 << 20;
/// Free memory at the end of the heap that is kept, so that requests' buffers do not come and go as pages.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: i32 = 8 << 20;

/// Sets it; the first thing a process does. Nothing happens with an allocator that has no such settings.
pub fn set() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
        (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD),
    ] {
        // SAFETY: it takes two numbers and may be called at any time. A refused setting changes nothing.
        unsafe { libc::mallopt(parameter, value) };
    }
}
