//! A file made with a mode that forbids writing is written through the handle that made it (git's objects), and is then
//! laminated softly; giving the write bit back begins a new generation.
use crate::common::*;
use forebay_server::{Fid, Lamination, SetAttr};
use rustix::io::Errno;

#[test]
fn a_file_of_mode_0444_is_written_by_its_maker() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let made = here
        .create(Fid::ROOT, b"object", 0o444, true, BOTH, ROOT)
        .unwrap();
    let fid = made.attr.fid;
    here.write(made.handle, 0, b"one ", ROOT).unwrap();
    here.fsync(made.handle).unwrap();
    here.write(made.handle, 4, b"two", ROOT).unwrap();
    here.release(made.handle).unwrap();
    assert_eq!(contents(&there, fid), b"one two");
    let attr = there.names.getattr(fid).unwrap();
    assert_eq!((attr.lamination, attr.mode), (Lamination::ByMode, 0o444));
    let writable = SetAttr {
        mode: Some(0o644),
        ..SetAttr::default()
    };
    let after = there.names.setattr(fid, &writable, None, ROOT).unwrap();
    assert_eq!(after.lamination, Lamination::None);
    let open = there.open(fid, BOTH).unwrap().handle;
    there.write(open, 0, b"ONE", ROOT).unwrap();
    there.release(open).unwrap();
    assert_eq!(contents(&here, fid), b"ONE two");
}

#[test]
fn a_laminated_file_is_never_written_again() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    here.write(handle, 0, b"final", ROOT).unwrap();
    assert_eq!(there.names.laminate(fid).unwrap_err().errno(), Errno::BUSY);
    here.release(handle).unwrap();
    there.names.laminate(fid).unwrap();
    assert_eq!(here.open(fid, BOTH).unwrap_err().errno(), Errno::PERM);
    let cut = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    assert_eq!(
        here.names
            .setattr(fid, &cut, None, ROOT)
            .unwrap_err()
            .errno(),
        Errno::PERM
    );
    assert_eq!(contents(&here, fid), b"final");
}
