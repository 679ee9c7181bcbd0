//! Files by handle (`name_to_handle_at`, `open_by_handle_at`), as backup programs and NFS servers use them.
use crate::common::{Harness, errno};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `struct file_handle` with room for the longest.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: [u8; 128],
}

fn handle_of(path: &Path) -> Result<Handle, Error> {
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        id: [0; 128],
    };
    let (name, mut mount) = (CString::new(path.as_os_str().as_bytes()).unwrap(), 0);
    // SAFETY: the name ends in a zero, and the structure has the room that it says.
    let done = unsafe {
        let handle = std::ptr::from_mut(&mut handle).cast();
        libc::name_to_handle_at(libc::AT_FDCWD, name.as_ptr(), handle, &mut mount, 0)
    };
    match done {
        0 => Ok(handle),
        _ => Err(Error::last_os_error()),
    }
}

/// `mount`: anything in the file system that the handle is of.
fn open(mount: &Path, handle: &Handle, flags: i32) -> Result<File, Error> {
    let mount = File::open(mount)?;
    let mut handle = *handle;
    // SAFETY: the structure holds as many bytes as it says; the descriptor is new.
    unsafe {
        let handle = std::ptr::from_mut(&mut handle).cast();
        match libc::open_by_handle_at(mount.as_raw_fd(), handle, flags) {
            fd @ 0.. => Ok(File::from_raw_fd(fd)),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// Only root opens by handle, and not in every container.
fn possible() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let possible = handle_of(dir.path()).and_then(|h| open(dir.path(), &h, libc::O_RDONLY));
    if let Err(e) = &possible {
        eprintln!("skipped: this user cannot open by handle on a plain disk: {e}");
    }
    possible.is_ok()
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_handle_finds_its_file_through_every_mount_and_after_a_restart() {
    if !possible() {
        return;
    }
    let Some(mut h) = Harness::four() else { return };
    let m = h.mount(0);
    fs::create_dir_all(m.join("a/b/c")).unwrap();
    fs::write(m.join("a/b/c/f"), "content").unwrap();
    let [file, dir, root] = ["a/b/c/f", "a/b/c", "."].map(|p| handle_of(&m.join(p)).unwrap());
    let ino = |path: &Path| fs::metadata(path).unwrap().ino();
    let look = |h: &Harness| {
        for mount in h.all() {
            assert_eq!(
                text(open(&mount, &file, libc::O_RDONLY).unwrap()),
                "content"
            );
            let flags = libc::O_RDONLY | libc::O_DIRECTORY;
            let opened = open(&mount, &dir, flags).unwrap();
            assert_eq!(opened.metadata().unwrap().ino(), ino(&mount.join("a/b/c")));
            // Its path is known again, with every directory above it.
            let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
            assert_eq!(path, fs::canonicalize(mount.join("a/b/c")).unwrap());
            let opened = open(&mount, &root, flags).unwrap();
            assert_eq!(opened.metadata().unwrap().ino(), ino(&mount));
        }
    };
    look(&h);
    assert_eq!(h.stop(), "STOPPED\n");
    h.serve().unwrap();
    // The kernel knows none of them any more.
    look(&h);
    let mut opened = open(&h.mount(2), &file, libc::O_WRONLY | libc::O_TRUNC).unwrap();
    opened.write_all(b"new").unwrap();
    drop(opened);
    fs::rename(h.mount(1).join("a/b/c/f"), h.mount(1).join("moved")).unwrap();
    assert_eq!(
        text(open(&h.mount(3), &file, libc::O_RDONLY).unwrap()),
        "new"
    );
}

#[test]
fn the_handle_of_what_was_removed_is_stale_for_ever() {
    if !possible() {
        return;
    }
    let Some(mut h) = Harness::four() else { return };
    let (m, other) = (h.mount(0), h.mount(1));
    fs::create_dir_all(m.join("a/b")).unwrap();
    fs::write(m.join("a/b/f"), "content").unwrap();
    let handles = ["a/b/f", "a/b"].map(|p| handle_of(&m.join(p)).unwrap());
    let open_file = File::open(m.join("a/b/f")).unwrap();
    fs::remove_dir_all(other.join("a")).unwrap();
    for mount in [h.mount(2), h.mount(1)] {
        for handle in &handles {
            assert_eq!(errno(open(&mount, handle, libc::O_RDONLY)), libc::ESTALE);
        }
    }
    assert_eq!(text(open_file), "content");
    // Others of the same names, in the same places.
    fs::create_dir_all(m.join("a/b")).unwrap();
    fs::write(m.join("a/b/f"), "another").unwrap();
    assert_eq!(h.stop(), "STOPPED\n");
    h.serve().unwrap();
    for mount in h.all() {
        for handle in &handles {
            assert_eq!(errno(open(&mount, handle, libc::O_RDONLY)), libc::ESTALE);
        }
        // A number that no member has ever given, and one of a member that there is not.
        for ino in [999_999u64, u64::MAX - 77] {
            let mut made_up = handles[0];
            // The kernel puts the upper half first.
            made_up.id[..4].copy_from_slice(&((ino >> 32) as u32).to_ne_bytes());
            made_up.id[4..8].copy_from_slice(&(ino as u32).to_ne_bytes());
            assert_eq!(errno(open(&mount, &made_up, libc::O_RDONLY)), libc::ESTALE);
        }
    }
}
