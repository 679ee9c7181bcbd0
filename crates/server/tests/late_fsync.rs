//! An fsync reaches what was written and closed long before it, also if the node has forgotten the file meanwhile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
use common::*;
use forebay_server::{Config, Fid, Service};
use forebay_storage::fault::FaultIo;
use std::path::Path;
use std::sync::Arc;

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
