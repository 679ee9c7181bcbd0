//! A commit whose extents lie with several members is seen whole or not at all, by readers that never stop.
use crate::common::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Eight bytes in three places, in slices owned by three members (the second is half in one slice and half in the next);
/// every commit writes one number twice into all of them.
const PLACES: [u64; 3] = [0, SLICE - 4, 2 * SLICE];
/// The writer commits at least so often, and goes on until every reader has seen so many different commits.
const COMMITS: u32 = 200;
const SEEN: u32 = 10;

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

#[test]
fn readers_on_other_nodes_see_one_number() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let writer = service.delegate(0);
    let (fid, handle) = create(&writer, "f");
    let begun = AtomicU32::new(1);
    let write = |n: u32| {
        begun.store(n, Ordering::SeqCst);
        for at in PLACES {
            writer
                .write(handle, at, &[n.to_be_bytes(); 2].concat(), ROOT)
                .unwrap();
        }
        writer.flush(handle).unwrap();
    };
    write(1);
    let done = AtomicBool::new(false);
    let seen = [AtomicU32::new(0), AtomicU32::new(0)];
    let mut last = 1;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..3)
            .zip(&seen)
            .map(|(node, distinct)| {
                let (delegate, done, begun) = (service.delegate(node), &done, &begun);
                scope.spawn(move || {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        // One read that spans all slices is one state.
                        let open = delegate.open(fid, READ).unwrap().handle;
                        let across = delegate.read(open, SLICE - 4, 8).unwrap();
                        let one = number(&across[..4]);
                        assert_eq!(one, number(&across[4..]), "half a commit: {across:?}");
                        // Later reads of the same handle may show a later commit, never an earlier one.
                        for at in PLACES {
                            let later = number(&delegate.read(open, at, 4).unwrap());
                            assert!(later >= one, "{later} after {one}");
                            assert!(
                                later <= begun.load(Ordering::SeqCst),
                                "{later} out of nothing"
                            );
                        }
                        assert!(one >= last);
                        if one > last {
                            distinct.fetch_add(1, Ordering::Relaxed);
                        }
                        last = one;
                        delegate.release(open).unwrap();
                    }
                })
            })
            .collect();
        // A reader that failed sees nothing more, and is not waited for.
        while !readers.iter().any(|reader| reader.is_finished())
            && (last < COMMITS || seen.iter().any(|n| n.load(Ordering::Relaxed) < SEEN))
        {
            last += 1;
            write(last);
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert!(last >= COMMITS);
    for distinct in seen {
        assert!(
            distinct.into_inner() >= SEEN,
            "the reader saw several commits"
        );
    }
    println!("{last} commits");
    assert_eq!(
        contents(&service.delegate(2), fid)[SLICE as usize - 4..SLICE as usize + 4],
        [last.to_be_bytes(); 2].concat()
    );
}
