//! What the kernel keeps of files is never older than what the mount promises: sizes under locks, and calls that read the
//! page cache without asking.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Harness, Setup, pattern, turn};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn roles() {
    common::roles(|_, _| false);
}

fn nodes(nodes: u16, posix: bool) -> Option<Harness> {
    Harness::start(Setup {
        nodes,
        posix,
        ..Setup::default()
    })
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

/// Locks or unlocks the whole file for this open file (OFD), waiting.
fn lock(f: &File, typ: i32) {
    // SAFETY: `flock` is plain data, and zero is the whole file; it outlives the call on an open descriptor.
    let done = unsafe {
        let mut l: libc::flock = std::mem::zeroed();
        l.l_type = typ as i16;
        libc::fcntl(f.as_raw_fd(), libc::F_OFD_SETLKW, &l)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn locked<T>(f: &File, act: impl FnOnce(&File) -> T) -> T {
    lock(f, libc::F_WRLCK);
    let done = act(f);
    lock(f, libc::F_UNLCK);
    done
}

/// What one `pread` of so many bytes gives.
fn read_at(f: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xA5; len];
    let read = f.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(read);
    bytes
}

/// A file outside the mounts.
fn plain() -> File {
    tempfile::tempfile().unwrap()
}

fn contents(mut f: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    f.seek(SeekFrom::Start(0)).unwrap();
    f.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Ways of reading that the kernel serves from its page cache, up to the size that it knows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Sendfile,
    Splice,
    Copy,
}

const WAYS: [Way; 3] = [Way::Sendfile, Way::Splice, Way::Copy];

/// All that `way` reads of `f` from its start, as a program does that goes on until it is told of the end.
fn all_by(way: Way, f: &File, scratch: &Path) -> std::io::Result<Vec<u8>> {
    const STEP: usize = 64 << 10;
    let out = match way {
        // On the same mount, or it is no copy of the file system's.
        Way::Copy => open(scratch),
        _ => plain(),
    };
    let mut offset: libc::loff_t = 0;
    loop {
        // SAFETY: the descriptors are open and `offset` lives through each call.
        let moved = unsafe {
            match way {
                Way::Sendfile => {
                    libc::sendfile(out.as_raw_fd(), f.as_raw_fd(), &raw mut offset, STEP)
                }
                Way::Copy => libc::copy_file_range(
                    f.as_raw_fd(),
                    &raw mut offset,
                    out.as_raw_fd(),
                    std::ptr::null_mut(),
                    STEP,
                    0,
                ),
                Way::Splice => {
                    let mut ends = [0; 2];
                    assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                    let [from, to] = ends;
                    let null = std::ptr::null_mut();
                    let moved = libc::splice(f.as_raw_fd(), &raw mut offset, to, null, STEP, 0);
                    let error = std::io::Error::last_os_error();
                    let mut left = moved;
                    while left > 0 {
                        let on = libc::splice(from, null, out.as_raw_fd(), null, left as usize, 0);
                        assert!(on > 0, "{}", std::io::Error::last_os_error());
                        left -= on;
                    }
                    libc::close(from);
                    libc::close(to);
                    if moved < 0 {
                        return Err(error);
                    }
                    moved
                }
            }
        };
        match moved {
            0 => return Ok(contents(out)),
            n if n < 0 => return Err(std::io::Error::last_os_error()),
            _ => {}
        }
    }
}

#[test]
fn a_lock_shows_how_short_a_file_has_become() {
    let _turn = turn();
    let Some(h) = nodes(2, false) else { return };
    const LONG: usize = 8 << 20;
    let mut wrong = Vec::new();
    for round in 0..40 {
        let name = format!("f{round}");
        let a = open(&h.mount(0).join(&name));
        let bytes = pattern(round, LONG);
        a.write_all_at(&bytes, 0).unwrap();
        a.sync_all().unwrap();
        let b = open(&h.mount(1).join(&name));
        assert_eq!(b.metadata().unwrap().len(), LONG as u64);
        locked(&a, |a| a.set_len(1000).unwrap());
        let seen = locked(&b, |b| read_at(b, 0, LONG));
        if seen != bytes[..1000] {
            wrong.push(seen.len());
        }
        // Of a part that is gone nothing is left.
        let a = open(&h.mount(0).join(&name));
        locked(&a, |a| a.set_len(100).unwrap());
        let seen = locked(&b, |b| read_at(b, 500, 100));
        assert_eq!(seen, b"", "round {round}");
    }
    assert!(wrong.is_empty(), "of 1000 bytes were read: {wrong:?}");
}

#[test]
fn calls_that_read_the_page_cache_see_under_a_lock_what_read_does() {
    let _turn = turn();
    let Some(h) = nodes(2, false) else { return };
    let a = open(&h.mount(0).join("f"));
    let b = open(&h.mount(1).join("f"));
    let scratch = |n: usize| h.mount(1).join(format!("scratch{n}"));
    let mut wrong = Vec::new();
    // Grown, overwritten, cut, grown again.
    for (round, len) in [300_000, 300_000, 4096, 5000, 1, 0, 200_000]
        .into_iter()
        .enumerate()
    {
        for (n, way) in WAYS.into_iter().enumerate() {
            let bytes = pattern((round * 3 + n) as u64, len);
            locked(&a, |a| {
                a.set_len(len as u64).unwrap();
                a.write_all_at(&bytes, 0).unwrap();
            });
            let scratch = scratch(round * 3 + n);
            let seen = locked(&b, |b| all_by(way, b, &scratch).unwrap());
            if seen != bytes {
                wrong.push((round, way, bytes.len(), seen.len()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "round, way, bytes there, bytes seen: {wrong:?}"
    );
}
