//! Files that become read-only for ever, or until their write bits come back.
use crate::common::{Harness, errno};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const NAME: &str = "user.forebay.laminated";

fn state(path: &Path) -> String {
    let mut buffer = [0u8; 16];
    let n = getxattr(path, NAME, &mut buffer[..]).unwrap();
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn hard_lamination_is_for_ever() {
    let Some(h) = Harness::four() else { return };
    let (here, there) = (h.mount(0).join("f"), h.mount(3).join("f"));
    fs::write(&here, "final").unwrap();
    assert_eq!(state(&there), "none");
    let writer = OpenOptions::new().write(true).open(&there).unwrap();
    assert_eq!(
        errno(setxattr(&here, NAME, b"1", XattrFlags::empty())),
        libc::EBUSY
    );
    drop(writer);
    // The release of a closed file reaches its owner a moment after the close.
    let mut tries = 0;
    while let Err(e) = setxattr(&here, NAME, b"1", XattrFlags::empty()) {
        assert_eq!(e.raw_os_error(), libc::EBUSY);
        tries += 1;
        assert!(tries < 30_000, "the writer's release never arrived");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for m in h.all() {
        let path = m.join("f");
        assert_eq!(state(&path), "hard");
        let refused = errno(OpenOptions::new().write(true).open(&path));
        assert!(
            [libc::EPERM, libc::EROFS, libc::EACCES].contains(&refused),
            "{refused}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"final");
    }
    assert_eq!(
        errno(setxattr(&here, NAME, b"0", XattrFlags::empty())),
        libc::EINVAL
    );
    // Its name is not for ever.
    fs::rename(&there, h.mount(3).join("g")).unwrap();
    assert_eq!(fs::read(h.mount(1).join("g")).unwrap(), b"final");
    fs::remove_file(h.mount(2).join("g")).unwrap();
    assert_eq!(errno(fs::metadata(h.mount(0).join("g"))), libc::ENOENT);
}

#[test]
fn taking_the_write_bits_laminates_softly() {
    let Some(h) = Harness::four() else { return };
    let (here, there) = (h.mount(1).join("f"), h.mount(2).join("f"));
    fs::write(&here, "one").unwrap();
    chmod(&here, 0o444);
    let mut tries = 0;
    while state(&there) != "soft" {
        tries += 1;
        assert!(tries < 30_000, "{}", state(&there));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(fs::read(&there).unwrap(), b"one");
    // The owner takes it back: a new generation, seen by every node.
    chmod(&there, 0o644);
    assert_eq!(state(&here), "none");
    fs::write(&there, "two!").unwrap();
    for m in h.all() {
        assert_eq!(fs::read(m.join("f")).unwrap(), b"two!");
    }
}

#[test]
fn a_file_made_read_only_while_written_is_written_to_its_end() {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let Some(h) = Harness::four() else { return };
    // As git writes its objects: mode 0444 from the start, written through the handle that made it.
    let mut f = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(h.mount(0).join("object"))
        .unwrap();
    f.write_all(b"part one, ").unwrap();
    assert_eq!(state(&h.mount(1).join("object")), "none");
    f.write_all(b"part two").unwrap();
    drop(f);
    for m in h.all() {
        assert_eq!(fs::read(m.join("object")).unwrap(), b"part one, part two");
    }
}
