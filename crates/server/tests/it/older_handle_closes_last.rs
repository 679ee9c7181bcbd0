//! Pending writes belong to the node and the file: the handle that closes last does not bring older bytes back.
use crate::common::*;

#[test]
fn the_later_write_wins_whoever_closes_last() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, older) = create(&here, "f");
    let newer = here.open(fid, BOTH).unwrap().handle;
    here.write(older, 0, b"first first", ROOT).unwrap();
    here.write(newer, 0, b"SECOND", ROOT).unwrap();
    assert_eq!(&here.read(older, 0, 100).unwrap()[..], b"SECONDfirst");
    here.release(newer).unwrap();
    assert_eq!(contents(&there, fid), b"SECONDfirst");
    here.release(older).unwrap();
    assert_eq!(contents(&there, fid), b"SECONDfirst");
    assert_eq!(contents(&here, fid), b"SECONDfirst");
}

#[test]
fn any_close_publishes_the_writes_of_all_handles_of_the_node() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, a) = create(&here, "f");
    let b = here.open(fid, BOTH).unwrap().handle;
    here.write(a, 0, b"aaaa", ROOT).unwrap();
    assert_eq!(contents(&there, fid), b"");
    here.release(b).unwrap();
    assert_eq!(contents(&there, fid), b"aaaa");
    here.write(a, 2, b"cc", ROOT).unwrap();
    assert_eq!(contents(&there, fid), b"aaaa");
    here.fsync(a).unwrap();
    assert_eq!(contents(&there, fid), b"aacc");
    here.release(a).unwrap();
}
