//! Opens and closes over a network that loses requests and replies: each counts once, so that a file held open stays, and a
//! removed one goes with its last close.
use crate::common::*;
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_server::{Fid, OpenFlags};
use rustix::io::Errno;

#[test]
fn each_open_counts_once_and_each_close_too() {
    for seed in 0..6 {
        let (dir, faults) = (scratch(), Faults::new(seed));
        let service = start_faulty(&dir, config(2), &faults);
        let (owner, other) = (service.delegate(0), service.delegate(1));
        let (fid, made) = create(&owner, "f");
        owner.write(made, 0, b"kept", ROOT).unwrap();
        owner.release(made).unwrap();
        let kept = other.open(fid, READ).unwrap().handle;
        owner.names.unlink(Fid::ROOT, b"f", ROOT).unwrap();
        faults.set(FaultRates {
            lose_request: 200,
            lose_reply: 200,
            ..FaultRates::default()
        });
        for _ in 0..40 {
            match other.open(fid, READ) {
                // A close that cannot be told now is told with the next one.
                Ok(opened) => drop(other.release(opened.handle)),
                Err(e) => assert_eq!(e.errno(), Errno::IO),
            }
        }
        faults.set(FaultRates::default());
        wait_until_idle(&service);
        assert_eq!(&other.read(kept, 0, 9).unwrap()[..], b"kept", "seed {seed}");
        // One more call to that member tells it of all that was lost.
        let last = other.open(fid, READ).unwrap().handle;
        other.release(last).unwrap();
        other.release(kept).unwrap();
        wait_until_empty(&service);
        service.stop().unwrap();
    }
}

/// Several at once, which are combined, and which empty the file on the way: whatever of that is lost, each handle that there is works,
/// and nothing stays open for nobody.
#[test]
fn opens_that_empty_and_creates_leave_nothing_open_when_a_part_of_them_is_lost() {
    let emptied = OpenFlags {
        truncate: true,
        ..BOTH
    };
    let (mut worked, mut failed) = (0, 0);
    for seed in 0..4 {
        let (dir, faults) = (scratch(), Faults::new(seed));
        let service = start_faulty(&dir, config(2), &faults);
        let other = service.delegate(1);
        faults.set(FaultRates {
            lose_request: 150,
            lose_reply: 150,
            latency: std::time::Duration::from_millis(1),
            ..FaultRates::default()
        });
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let work = |thread: usize| {
                let other = &other;
                move || -> Vec<bool> {
                    let once = |k: usize| {
                        let name = format!("f{}", k / 4);
                        let flags = if thread.is_multiple_of(2) {
                            emptied
                        } else {
                            BOTH
                        };
                        let made =
                            other.create(Fid::ROOT, name.as_bytes(), 0o600, false, flags, ROOT);
                        match made {
                            Ok(opened) => {
                                let (fid, handle) = (opened.attr.fid, opened.handle);
                                other.write(handle, 0, b"x", ROOT).unwrap();
                                let _ = other.release(handle);
                                if let Ok(again) = other.open(fid, emptied) {
                                    let _ = other.release(again.handle);
                                }
                                true
                            }
                            Err(e) => {
                                assert_eq!(e.errno(), Errno::IO);
                                false
                            }
                        }
                    };
                    (0..12).map(once).collect()
                }
            };
            let threads: Vec<_> = (0..6).map(|t| scope.spawn(work(t))).collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        worked += outcomes.iter().filter(|ok| **ok).count();
        failed += outcomes.iter().filter(|ok| !**ok).count();
        faults.set(FaultRates::default());
        // What was lost is told in the background, or with the next call.
        let last = create(&other, "last");
        other.release(last.1).unwrap();
        let held = || service.nodes()[0].files.open_files() + other.open_files() as u64;
        for _ in 0..5000 {
            wait_until_idle(&service);
            if held() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(held(), 0, "seed {seed}");
        service.stop().unwrap();
    }
    assert!(worked > 0 && failed > 0, "{worked} worked, {failed} failed");
}
