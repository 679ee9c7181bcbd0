//! Commits over a network that loses requests and replies: an error never loses pending writes, a commit whose reply was
//! lost is not done twice, and what succeeded is what everybody reads.
use crate::common::*;
use crate::model::content::Content;
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_proto::placement::SliceMap;
use forebay_server::delegate::Delegate;
use forebay_server::{Caller, SetAttr, SetTime, Time};
use forebay_testkit::random::Random;
use rustix::io::Errno;

fn check(delegate: &Delegate, fid: forebay_server::Fid, content: &Content) {
    let open = delegate.open(fid, READ).unwrap();
    assert_eq!(open.attr.size, content.size);
    for base in [0, SLICE - 2000, 2 * SLICE - 2000] {
        assert_eq!(
            delegate.read(open.handle, base, 4000).unwrap()[..],
            content.read(base, 4000)[..],
            "at {base}"
        );
    }
    delegate.release(open.handle).unwrap();
}

#[test]
fn what_a_commit_says_is_true_whatever_was_lost() {
    let mut failed = 0;
    for seed in 0..8 {
        let (dir, faults, mut random) = (scratch(), Faults::new(seed), Random::new(seed));
        let service = start_faulty(&dir, config(3), &faults);
        let (fid, _) = create(&service.delegate(0), "f");
        // A writer on another member than the owner's, and one on the owner's.
        for writer in [1, 0] {
            let writer = service.delegate(writer);
            let handle = writer.open(fid, BOTH).unwrap().handle;
            let mut content = Content::default();
            check(&writer, fid, &content);
            let mut rounds = 0;
            while rounds < 15 {
                let base = *random.pick(&[0, SLICE - 1000, 2 * SLICE - 1000]);
                let (offset, len) = (base + random.below(1500), 1 + random.below(500));
                let data = random.nonzero_bytes(len as usize);
                writer.write(handle, offset, &data, ROOT).unwrap();
                content.put(offset, &data);
                faults.set(FaultRates {
                    lose_request: 150,
                    lose_reply: 150,
                    ..FaultRates::default()
                });
                let flushed = writer.flush(handle);
                faults.set(FaultRates::default());
                // This node sees its writes whatever became of the commit.
                assert_eq!(
                    writer.read(handle, offset, len as u32).unwrap()[..],
                    data[..]
                );
                match flushed {
                    Ok(()) => {
                        rounds += 1;
                        (0..3).for_each(|node| check(&service.delegate(node), fid, &content));
                    }
                    Err(e) => {
                        failed += 1;
                        assert_eq!(e.errno(), Errno::IO);
                    }
                }
                wait_until_idle(&service);
            }
            writer.release(handle).unwrap();
            (0..3).for_each(|node| check(&service.delegate(node), fid, &content));
            let cut = forebay_server::SetAttr {
                size: Some(0),
                ..Default::default()
            };
            writer.names.setattr(fid, &cut, None, ROOT).unwrap();
        }
        wait_until_empty(&service);
        service.stop().unwrap();
    }
    assert!(failed > 20, "faults hit {failed} commits only");
}

#[test]
fn a_dead_slice_owner_fails_the_commit_and_nothing_is_lost_when_it_is_back() {
    let (dir, faults) = (scratch(), Faults::new(1));
    let service = start_faulty(&dir, config(3), &faults);
    let writer = service.delegate(0);
    let (fid, handle) = create(&writer, "f");
    let other = SliceMap { members: 3 }.member(fid.owner(), SLICE);
    writer.write(handle, SLICE - 4, b"12345678", ROOT).unwrap();
    faults.kill(other.into());
    assert_eq!(writer.flush(handle).unwrap_err().errno(), Errno::IO);
    assert_eq!(&writer.read(handle, SLICE - 4, 8).unwrap()[..], b"12345678");
    // What does not need the dead member goes on.
    let (near, near_handle) = create(&writer, "g");
    if near.owner() != other {
        writer.write(near_handle, 0, b"near", ROOT).unwrap();
        writer.flush(near_handle).unwrap();
    }
    // Closing fails too, and keeps the writes for the next open of the file.
    assert_eq!(writer.release(handle).unwrap_err().errno(), Errno::IO);
    faults.revive(other.into());
    assert_eq!(service.delegate(2).names.getattr(fid).unwrap().size, 0);
    let again = writer.open(fid, READ).unwrap();
    assert_eq!(again.attr.size, SLICE + 4);
    assert_eq!(
        service.delegate(2).names.getattr(fid).unwrap().size,
        SLICE + 4
    );
    writer.release(again.handle).unwrap();
    wait_until_idle(&service);
    service.stop().unwrap();
}

#[test]
fn an_explicit_time_or_mode_outlives_a_commit_before_it_that_got_no_answer() {
    let (dir, faults) = (scratch(), Faults::new(1));
    let service = start_faulty(&dir, config(3), &faults);
    let (fid, first) = create(&service.delegate(0), "f");
    service.delegate(0).release(first).unwrap();
    let writer = service.delegate((fid.owner() + 1) % 3);
    let other = Caller { uid: 77, gid: 77 };
    let handle = writer.open(fid, BOTH).unwrap().handle;
    let time = |secs| Time {
        secs,
        ..Time::default()
    };
    // The commit reaches nobody, or only its answer is lost; then the file is closed or written again.
    for (round, lost) in [
        FaultRates {
            lose_request: 1000,
            ..FaultRates::default()
        },
        FaultRates {
            lose_reply: 1000,
            ..FaultRates::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        writer.write(handle, 0, b"before", other).unwrap();
        faults.set(lost);
        assert_eq!(writer.flush(handle).unwrap_err().errno(), Errno::IO);
        faults.set(FaultRates::default());
        let explicit = SetAttr {
            mtime: Some(SetTime::At(time(1000 + round as i64))),
            mode: Some(0o4755),
            ..SetAttr::default()
        };
        writer.names.setattr(fid, &explicit, None, ROOT).unwrap();
        writer.flush(handle).unwrap();
        for node in 0..3 {
            let attr = service.delegate(node).names.getattr(fid).unwrap();
            assert_eq!(attr.mtime, time(1000 + round as i64), "round {round}");
            assert_eq!((attr.mode & 0o7777, attr.size), (0o4755, 6));
        }
    }
    writer.release(handle).unwrap();
    wait_until_idle(&service);
    service.stop().unwrap();
}
