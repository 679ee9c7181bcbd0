//! An fsync reaches what was written and closed long before it, also if the node has forgotten the file meanwhile.
use crate::common::*;
use forebay_fabric::{Error, Fabric, Handler, Message, Rank};
use forebay_index::RangeMap;
use forebay_server::{Config, Fid, Service};
use forebay_storage::fault::FaultIo;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn start_on(disk: &FaultIo) -> Service {
    let config = Config {
        nodes: 2,
        memory: 16 << 20,
        ..Config::default()
    };
    Service::start(Arc::new(disk.clone()), Path::new("/nowhere/store"), config).unwrap()
}

#[test]
fn a_power_failure_after_it_loses_nothing_of_the_file() {
    // 10 other files: the node still knows the file. 5,000: it has forgotten it.
    for others in [10, 5000] {
        let disk = FaultIo::new(others);
        let service = start_on(&disk);
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
        delegate.sync_directory(Fid::ROOT).unwrap();
        let after = FaultIo::with_image(&disk.crash(), 1);
        drop((delegate, service));
        let service = start_on(&after);
        let delegate = service.delegate(1);
        let fid = delegate.lookup(Fid::ROOT, b"f").unwrap().fid;
        let handle = delegate.open(fid, READ).unwrap().handle;
        assert_eq!(delegate.read(handle, 0, 50_000).unwrap()[..], [1; 50_000]);
        assert_eq!(
            delegate.read(handle, SLICE - 100, 1000).unwrap()[..],
            [2; 200]
        );
    }
}

/// The end of a member that gets no answer from member 0 while `deaf`.
struct Deaf {
    inner: Arc<dyn Fabric>,
    deaf: Arc<AtomicBool>,
}

impl Fabric for Deaf {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }
    fn size(&self) -> u32 {
        self.inner.size()
    }
    fn call(&self, to: Rank, message: Message, after: Duration) -> Result<Message, Error> {
        let reply = self.inner.call(to, message, after);
        match to == 0 && self.deaf.load(Ordering::SeqCst) {
            true => Err(Error::Deadline { rank: to, after }),
            false => reply,
        }
    }
    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.inner.send(to, message)
    }
    fn serve(&self, handler: Arc<dyn Handler>) {
        self.inner.serve(handler);
    }
    fn close(&self) {
        self.inner.close();
    }
}

#[test]
fn it_reaches_a_part_that_was_published_by_a_commit_whose_answer_was_lost() {
    for seed in 0..4 {
        let (disk, deaf) = (FaultIo::new(seed), Arc::new(AtomicBool::new(false)));
        let config = Config {
            nodes: 3,
            memory: 16 << 20,
            ..Config::default()
        };
        // Only the writer misses the answer; the owner reaches everybody.
        let wrap = |inner: Arc<dyn Fabric>| match inner.rank() {
            1 => Arc::new(Deaf {
                inner,
                deaf: deaf.clone(),
            }) as Arc<dyn Fabric>,
            _ => inner,
        };
        let path = Path::new("/nowhere/store");
        let service =
            Service::start_over(Arc::new(disk.clone()), path, config.clone(), wrap).unwrap();
        let writer = service.delegate(1);
        let (fid, handle) = create(&writer, "f");
        let map = RangeMap { members: 3 };
        let slices = [SLICE, 2 * SLICE];
        let at = slices
            .into_iter()
            .find(|s| map.member(fid.owner(), *s) == 2);
        let at = at.unwrap();
        writer.write(handle, at, &[7; 5000], ROOT).unwrap();
        deaf.store(true, Ordering::SeqCst);
        assert!(writer.flush(handle).is_err());
        deaf.store(false, Ordering::SeqCst);
        writer.fsync(handle).unwrap();
        let after = FaultIo::with_image(&disk.crash(), 1);
        drop((writer, service));
        let service = Service::start(Arc::new(after), path, config).unwrap();
        let reader = service.delegate(0);
        let handle = reader.open(fid, READ).unwrap().handle;
        let bytes = reader.read(handle, at, 5000).unwrap();
        assert!(bytes[..] == [7; 5000], "lost with seed {seed}");
    }
}
