//! An fsync reaches what was written and closed long before it, also if the node has forgotten the file meanwhile.
use crate::common::*;
use forebay_fabric::fault::{Intercept, InterceptedCall, intercepted};
use forebay_fabric::{Error, Fabric, Message};
use forebay_proto::placement::SliceMap;
use forebay_server::{Fid, Service};
use forebay_storage::fault::FaultIo;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_power_failure_after_it_loses_nothing_of_the_file() {
    // 10 other files: the node still knows the file. 5,000: it has forgotten it.
    for others in [10, 5000] {
        let disk = FaultIo::new(others);
        let service = start_on(&disk, config(2));
        let delegate = service.delegate(0);
        let (fid, handle) = create(&delegate, "f");
        delegate.write(handle, 0, &[1; 50_000], ROOT).unwrap();
        delegate
            .write(handle, SLICE - 100, &[2; 200], ROOT)
            .unwrap();
        delegate.release(handle).unwrap();
        for i in 0..others {
            let (_, handle) = create(&delegate, &format!("other{i}"));
            delegate.write(handle, 0, b"x", ROOT).unwrap();
            delegate.release(handle).unwrap();
        }
        let handle = delegate.open(fid, READ).unwrap().handle;
        delegate.fsync(handle).unwrap();
        delegate.names.sync_directory(Fid::ROOT).unwrap();
        let after = FaultIo::with_image(&disk.crash(), 1);
        drop((delegate, service));
        let service = start_on(&after, config(2));
        let delegate = service.delegate(1);
        let fid = delegate.names.lookup(Fid::ROOT, b"f").unwrap().fid;
        let handle = delegate.open(fid, READ).unwrap().handle;
        assert_eq!(delegate.read(handle, 0, 50_000).unwrap()[..], [1; 50_000]);
        assert_eq!(
            delegate.read(handle, SLICE - 100, 1000).unwrap()[..],
            [2; 200]
        );
    }
}

/// While set, the member gets no answer from member 0.
#[derive(Default)]
struct Deaf(AtomicBool);

impl Intercept for Deaf {
    fn call(&self, call: InterceptedCall<'_>) -> Result<Message, Error> {
        let (to, after) = (call.to, call.deadline);
        let reply = call.proceed();
        match to == 0 && self.0.load(Ordering::SeqCst) {
            true => Err(Error::Deadline { rank: to, after }),
            false => reply,
        }
    }
}

#[test]
fn it_reaches_a_part_that_was_published_by_a_commit_whose_answer_was_lost() {
    for seed in 0..4 {
        let (disk, deaf) = (FaultIo::new(seed), Arc::new(Deaf::default()));
        // Only the writer misses the answer; the owner reaches everybody.
        let wrap = |inner: Arc<dyn Fabric>| match inner.rank() {
            1 => intercepted(inner, deaf.clone()),
            _ => inner,
        };
        let path = Path::new("/nowhere/store");
        let service = Service::start_over(Arc::new(disk.clone()), path, config(3), wrap).unwrap();
        let writer = service.delegate(1);
        let (fid, handle) = create(&writer, "f");
        let map = SliceMap { members: 3 };
        let slices = [SLICE, 2 * SLICE];
        let at = slices
            .into_iter()
            .find(|s| map.member(fid.owner(), *s) == 2);
        let at = at.unwrap();
        writer.write(handle, at, &[7; 5000], ROOT).unwrap();
        deaf.0.store(true, Ordering::SeqCst);
        assert!(writer.flush(handle).is_err());
        deaf.0.store(false, Ordering::SeqCst);
        writer.fsync(handle).unwrap();
        let after = FaultIo::with_image(&disk.crash(), 1);
        drop((writer, service));
        let service = start_on(&after, config(3));
        let reader = service.delegate(0);
        let handle = reader.open(fid, READ).unwrap().handle;
        let bytes = reader.read(handle, at, 5000).unwrap();
        assert!(bytes[..] == [7; 5000], "lost with seed {seed}");
    }
}
