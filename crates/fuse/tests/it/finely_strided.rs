//! Files of very many small pieces, written on one mount and read on another.
use crate::common::{Harness, Setup};
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// More pieces than a file's cached extents may have, in one request of the kernel and in many. A request that never
/// comes to an end is cut off by the watchdog.
#[test]
fn a_megabyte_of_two_byte_records_is_read_on_another_node() {
    const LEN: usize = 1 << 20;
    let setup = Setup {
        nodes: 2,
        ..Setup::default()
    };
    let Some(h) = Harness::start(setup) else {
        return;
    };
    let (here, there) = (h.mount(0).join("f"), h.mount(1).join("f"));
    let f = fs::File::create(&here).unwrap();
    f.set_len(LEN as u64).unwrap();
    let mut want = vec![0; LEN];
    for (i, at) in (0..LEN).step_by(16).enumerate() {
        let record = [b'a' + (i % 26) as u8, b'A' + (i / 26 % 26) as u8];
        f.write_all_at(&record, at as u64).unwrap();
        want[at..at + 2].copy_from_slice(&record);
    }
    drop(f);
    let mut direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&there)
        .unwrap();
    let mut bytes = vec![0; LEN];
    direct.read_exact(&mut bytes).unwrap();
    assert!(bytes == want);
    assert!(fs::read(&there).unwrap() == want);
}
