//! Size, times and set-id bits as the writing node and the others see them.
use crate::common::*;
use forebay_server::delegate::{Fallocate, WriteOrigin};
use forebay_server::{Caller, SetAttr, SetTime, Time};

#[test]
fn a_time_set_after_the_writes_outlives_their_commit() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    here.write(handle, 0, b"data", ROOT).unwrap();
    let then = Time {
        secs: 1_000_000,
        nanos: 5,
    };
    let set = SetAttr {
        mtime: Some(SetTime::At(then)),
        ..SetAttr::default()
    };
    assert_eq!(
        here.names
            .setattr(fid, &set, Some(handle), ROOT)
            .unwrap()
            .mtime,
        then
    );
    here.release(handle).unwrap();
    assert_eq!(here.names.getattr(fid).unwrap().mtime, then);
    assert_eq!(there.names.getattr(fid).unwrap().mtime, then);
}

/// The kernel's times are finer than its ticks, by which writes past its page cache are stamped here.
#[test]
fn a_write_past_the_kernels_cache_is_not_before_what_the_kernel_has_stamped() {
    let dir = scratch();
    let service = start(&dir, config(1));
    let here = service.delegate(0);
    let (fid, handle) = create(&here, "f");
    for _ in 0..100 {
        let stamped = Time::now();
        here.write_back.observe_kernel_time(stamped);
        let taken = here.write_back.set_kernel_mtime(handle, stamped).unwrap();
        assert_eq!(taken.mtime, stamped);
        here.flush(handle).unwrap();
        let past_cache = WriteOrigin::Placed(ROOT);
        here.write_back
            .write(handle, 0, b"data", past_cache)
            .unwrap();
        assert!(here.names.getattr(fid).unwrap().mtime >= stamped);
    }
    here.release(handle).unwrap();
}

#[test]
fn pending_writes_show_here_and_only_here() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    let before = there.names.getattr(fid).unwrap();
    here.write(handle, 100, b"data", ROOT).unwrap();
    let mine = here.names.getattr(fid).unwrap();
    assert_eq!((mine.size, mine.bytes), (104, 4));
    assert!(mine.mtime > before.mtime);
    assert_eq!(there.names.getattr(fid).unwrap(), before);
    here.flush(handle).unwrap();
    let theirs = there.names.getattr(fid).unwrap();
    assert_eq!(
        (theirs.size, theirs.bytes, theirs.mtime),
        (104, 4, mine.mtime)
    );
    assert!(theirs.generation > before.generation);
    here.release(handle).unwrap();
}

/// Answers overtake each other: one from before a commit must not be taken for one from after it.
#[test]
fn a_file_made_longer_without_a_write_is_of_a_newer_generation() {
    let dir = scratch();
    let service = start(&dir, config(1));
    let here = service.delegate(0);
    let (fid, handle) = create(&here, "f");
    here.write(handle, 0, &[1; 1000], ROOT).unwrap();
    here.flush(handle).unwrap();
    let before = here.names.getattr(fid).unwrap();
    let longer = Fallocate {
        punch: false,
        zero: false,
        keep_size: false,
    };
    here.fallocate(handle, longer, 0, 5000).unwrap();
    here.flush(handle).unwrap();
    let after = here.names.getattr(fid).unwrap();
    assert!(after.size == 5000 && after.generation > before.generation);
    assert_eq!(here.names.as_seen(before).size, 5000);
    assert_eq!(here.read(handle, 0, 10_000).unwrap().len(), 5000);
    here.release(handle).unwrap();
}

#[test]
fn a_write_without_privilege_clears_set_id_bits() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    let set = SetAttr {
        mode: Some(0o6775),
        ..SetAttr::default()
    };
    here.names.setattr(fid, &set, None, ROOT).unwrap();
    here.write(handle, 0, b"x", ROOT).unwrap();
    here.flush(handle).unwrap();
    assert_eq!(here.names.getattr(fid).unwrap().mode, 0o6775, "root may");
    here.write(
        handle,
        0,
        b"y",
        Caller {
            uid: 1000,
            gid: 1000,
        },
    )
    .unwrap();
    assert_eq!(
        here.names.getattr(fid).unwrap().mode,
        0o775,
        "shown at once"
    );
    here.flush(handle).unwrap();
    assert_eq!(there.names.getattr(fid).unwrap().mode, 0o775);
    here.release(handle).unwrap();
}
