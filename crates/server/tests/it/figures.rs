//! The figures of a member say what it holds and has done, also when they are not counted anew each time.
use crate::common::{READ, ROOT, SLICE, config, create, scratch, start, wait_until_empty};
use forebay_server::{Fid, MemberStatus};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn what_was_written_read_and_removed_is_counted() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (one, other) = (service.delegate(0), service.delegate(1));
    let before = MemberStatus::sum(&service.status().unwrap());
    assert_eq!(before.files, Some(1), "the root");
    assert_eq!((before.logical_bytes, before.data_bytes), (Some(0), 0));

    let (fid, handle) = create(&one, "f");
    one.write(handle, 0, &[7; 5000], ROOT).unwrap();
    // Far behind it, in the other member's slice: a hole between.
    one.write(handle, SLICE, &[8; 3000], ROOT).unwrap();
    one.release(handle).unwrap();
    let opened = other.open(fid, READ).unwrap();
    assert_eq!(other.read(opened.handle, 0, 5000).unwrap().len(), 5000);

    let members = service.status().unwrap();
    let all = MemberStatus::sum(&members);
    assert_eq!((all.files, all.extents), (Some(2), Some(2)));
    assert_eq!(all.logical_bytes, Some(SLICE + 3000));
    assert_eq!(all.data_bytes, 8000);
    assert!(all.disk_bytes.unwrap() >= 8000, "{all:?}");
    assert_eq!(
        (members[0].traffic.writes, members[0].traffic.written_bytes),
        (2, 8000)
    );
    assert_eq!(
        (members[1].traffic.reads, members[1].traffic.read_bytes),
        (1, 5000)
    );
    assert_eq!(
        (members[0].traffic.reads, members[1].traffic.writes),
        (0, 0)
    );
    assert_eq!(members[0].traffic.others, 2, "create, release");
    assert_eq!((members[1].traffic.others, members[1].open_files), (1, 1));
    // The bytes of another node came from it.
    assert!(members[1].asked > 0 && members[0].served > 0, "{members:?}");
    assert_eq!((all.working, all.serving, all.asking), (0, 0, 0));
    let parts = all.index_memory_bytes + all.cache_memory_bytes + all.buffer_memory_bytes;
    assert_eq!(all.memory_bytes, parts);

    other.release(opened.handle).unwrap();
    one.names.unlink(Fid::ROOT, b"f", ROOT).unwrap();
    wait_until_empty(&service);
    let after = MemberStatus::sum(&service.status().unwrap());
    assert_eq!((after.files, after.logical_bytes), (Some(1), Some(0)));
    service.stop().unwrap();
}

#[test]
fn a_cached_status_comes_to_the_same_figures() {
    let dir = scratch();
    let service = start(&dir, config(2));
    for i in 0..50 {
        let delegate = service.delegate(i % 2);
        let (_, handle) = create(&delegate, &format!("f{i}"));
        delegate.write(handle, 0, &[1; 100], ROOT).unwrap();
        delegate.release(handle).unwrap();
        let until = Instant::now() + LONG;
        // A slow machine may have looked long at it, and then waits before it looks again.
        loop {
            let seen = MemberStatus::sum(&service.cached_status(LONG).unwrap());
            if seen.files == Some(u64::from(i) + 2) {
                assert_eq!(seen.logical_bytes, Some(u64::from(i + 1) * 100));
                break;
            }
            assert!(Instant::now() < until, "{seen:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    service.stop().unwrap();
}
