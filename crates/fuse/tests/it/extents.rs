//! Where a file's bytes are, through the attribute that a mount answers; and patterns seen by programs of several mounts.
use crate::common::{Harness, Setup, errno, open_to_write};
use forebay_testkit::turns;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const NAME: &str = "user.forebay.extents";

fn described(path: &Path) -> serde_json::Value {
    let mut buffer = vec![0u8; 64 << 10];
    let n = getxattr(path, NAME, &mut buffer[..]).unwrap();
    serde_json::from_slice(&buffer[..n]).unwrap()
}

#[test]
fn strides_of_four_mounts_are_one_pattern() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    for (node, mount) in h.all().iter().enumerate() {
        // One handle a node: the end of another one would commit what is written till then.
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(mount.join("f")).unwrap();
        for row in 0..100u64 {
            let at = (row * 4 + node as u64) * 8192;
            file.write_all_at(&[node as u8 + 1; 8192], at).unwrap();
        }
    }
    let mut want = Vec::new();
    for _ in 0..100 {
        (1..=4).for_each(|byte| want.extend_from_slice(&[byte; 8192]));
    }
    for mount in h.all() {
        let path = mount.join("f");
        assert!(fs::read(&path).unwrap() == want);
        let shown = described(&path);
        assert_eq!(shown["layout"], "Patterned");
        let text = &shown["patterns"]["rows"][0]["text"];
        assert_eq!(text, "at 0 B: 4 x [100 x 8 KiB stride 32 KiB] stride 8 KiB");
        assert_eq!(shown["extents"]["extents"], 0);
    }
    // Written over, cut and made longer: by the same programs.
    let path = h.mount(2).join("f");
    let file = open_to_write(&path);
    for k in 0..50usize {
        file.write_all_at(&[9; 100], k as u64 * 5000).unwrap();
        want[k * 5000..][..100].fill(9);
    }
    drop(file);
    want.truncate(1_000_001);
    want.resize(2_000_000, 0);
    let there = open_to_write(&h.mount(1).join("f"));
    there.set_len(1_000_001).unwrap();
    there.set_len(2_000_000).unwrap();
    drop(there);
    for mount in h.all() {
        assert!(fs::read(mount.join("f")).unwrap() == want);
    }
}

#[test]
fn the_attribute_is_not_listed_and_cannot_be_set() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::start(Setup {
        nodes: 1,
        ..Setup::default()
    }) else {
        return;
    };
    let path = h.mount(0).join("f");
    fs::write(&path, "abc").unwrap();
    let shown = described(&path);
    assert_eq!((&shown["size"], &shown["stored"]), (&3.into(), &3.into()));
    let mut list = [0u8; 1000];
    assert_eq!(listxattr(&path, &mut list[..]).unwrap(), 0);
    let set = setxattr(&path, NAME, b"x", XattrFlags::empty());
    assert_eq!(errno(set), libc::EOPNOTSUPP);
    assert_eq!(errno(removexattr(&path, NAME)), libc::ENODATA);
    let mut small = [0u8; 8];
    assert_eq!(errno(getxattr(&path, NAME, &mut small[..])), libc::ERANGE);
    let dir = getxattr(h.mount(0), NAME, &mut list[..]);
    assert_eq!(errno(dir), libc::EISDIR);
}
