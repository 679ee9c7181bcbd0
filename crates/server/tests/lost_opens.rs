//! Opens and closes over a network that loses requests and replies: each counts once, so that a file held open stays, and a
//! removed one goes with its last close.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
use common::*;
use forebay_fabric::fault::{FaultFabric, Faults, Odds};
use forebay_server::{Fid, Service};
use forebay_storage::OsIo;
use rustix::io::Errno;
use std::sync::Arc;

#[test]
fn each_open_counts_once_and_each_close_too() {
    for seed in 0..6 {
        let (dir, faults) = (scratch(), Faults::new(seed));
        let wrap = |end| {
            Arc::new(FaultFabric::new(end, faults.clone())) as Arc<dyn forebay_fabric::Fabric>
        };
        let store = dir.path().join("store");
        let service = Service::start_over(Arc::new(OsIo), &store, config(2), wrap).unwrap();
        let (owner, other) = (service.delegate(0), service.delegate(1));
        let (fid, made) = create(&owner, "f");
        owner.write(made, 0, b"kept", ROOT).unwrap();
        owner.release(made).unwrap();
        let kept = other.open(fid, READ).unwrap().handle;
        owner.unlink(Fid::ROOT, b"f", ROOT).unwrap();
        faults.set(Odds {
            lose_request: 200,
            lose_reply: 200,
            ..Odds::default()
        });
        for _ in 0..40 {
            match other.open(fid, READ) {
                // A close that cannot be told now is told with the next one.
                Ok(opened) => drop(other.release(opened.handle)),
                Err(e) => assert_eq!(e.errno(), Errno::IO),
            }
        }
        faults.set(Odds::default());
        settle(&service);
        assert_eq!(&other.read(kept, 0, 9).unwrap()[..], b"kept", "seed {seed}");
        // One more call to that member tells it of all that was lost.
        let last = other.open(fid, READ).unwrap().handle;
        other.release(last).unwrap();
        other.release(kept).unwrap();
        settle_to_nothing(&service);
        service.stop().unwrap();
    }
}
