//! A commit whose extents lie with several members is seen whole or not at all, by readers that never stop.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
use common::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// One byte in each of three slices, owned by three members; every commit writes one number into all three.
const PLACES: [u64; 3] = [0, SLICE - 4, 2 * SLICE];

#[test]
fn readers_on_other_nodes_see_one_number() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let writer = service.delegate(0);
    let (fid, handle) = create(&writer, "f");
    let write = |n: u8| {
        for at in PLACES {
            writer.write(handle, at, &[n; 8], ROOT).unwrap();
        }
        writer.flush(handle).unwrap();
    };
    write(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..3)
            .map(|node| {
                let (delegate, done) = (service.delegate(node), &done);
                scope.spawn(move || {
                    let (mut last, mut distinct) = (0, 0);
                    while !done.load(Ordering::Relaxed) {
                        // One read that spans all slices is one state.
                        let open = delegate.open(fid, READ).unwrap().handle;
                        let across = delegate.read(open, SLICE - 4, 8).unwrap();
                        assert!(
                            across.iter().all(|b| *b == across[0]),
                            "half a commit: {across:?}"
                        );
                        // Later reads of the same handle may show a later commit, never an earlier one.
                        for at in PLACES {
                            let byte = delegate.read(open, at, 1).unwrap()[0];
                            assert!(byte >= across[0], "{byte} after {}", across[0]);
                        }
                        assert!(across[0] >= last);
                        distinct += u32::from(across[0] > last);
                        last = across[0];
                        delegate.release(open).unwrap();
                    }
                    distinct
                })
            })
            .collect();
        for n in 2..=200 {
            write(n);
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 1, "the reader saw several commits");
        }
    });
    assert_eq!(
        contents(&service.delegate(2), fid)[SLICE as usize - 4..SLICE as usize + 4],
        [200; 8]
    );
}
