//! Out of quota: `ENOSPC` to the writer, earlier data intact, and deleting makes room again.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
use common::*;
use forebay_server::{Config, Fid};
use rustix::io::Errno;

#[test]
fn deleting_on_a_full_store_makes_room() {
    let dir = scratch();
    let service = start(
        &dir,
        Config {
            quota: Some(1 << 20),
            ..config(2)
        },
    );
    let (here, there) = (service.delegate(0), service.delegate(1));
    let mut files = Vec::new();
    let error = loop {
        let (fid, handle) = create(&here, &format!("f{}", files.len()));
        let wrote = here.write(handle, 0, &[files.len() as u8; 100_000], ROOT);
        here.release(handle).unwrap();
        match wrote {
            Ok(()) => files.push(fid),
            Err(e) => break e,
        }
    };
    assert_eq!((error.errno(), files.len()), (Errno::NOSPC, 10));
    for (i, fid) in files.iter().enumerate() {
        assert_eq!(contents(&there, *fid), vec![i as u8; 100_000]);
    }
    assert!(
        here.statfs().unwrap().free >= 1 << 20,
        "the other member has room"
    );
    here.unlink(Fid::ROOT, b"f0", ROOT).unwrap();
    here.unlink(Fid::ROOT, b"f1", ROOT).unwrap();
    settle(&service);
    let (fid, handle) = create(&here, "new");
    here.write(handle, 0, &[77; 150_000], ROOT).unwrap();
    here.release(handle).unwrap();
    assert_eq!(contents(&there, fid), vec![77; 150_000]);
}
