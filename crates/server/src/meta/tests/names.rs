//! Names appear, are found and listed, and go, by POSIX rules; on one member and over several.
use super::net::*;
use crate::*;
use rustix::io::Errno;

#[test]
fn files_and_directories_are_made_found_listed_and_removed() {
    for members in [1, 3] {
        let net = Net::new(members);
        let d = net.create(Fid::ROOT, "d", dir(0o750)).unwrap();
        assert_eq!((d.kind, d.mode, d.nlink), (Kind::Dir, 0o750, 2));
        assert_eq!(net.getattr(Fid::ROOT).unwrap().nlink, 3);
        let f = net.create(d.fid, "f", file(0o640)).unwrap();
        assert_eq!((f.kind, f.nlink, f.size), (Kind::File, 1, 0));
        assert_eq!(
            f.fid.owner(),
            d.fid.owner(),
            "a file lives with its directory"
        );
        assert_eq!(net.lookup(d.fid, "f").unwrap(), f);
        assert_eq!(errno(net.create(d.fid, "f", file(0o640))), Errno::EXIST);
        assert_eq!(errno(net.create(d.fid, "f", dir(0o640))), Errno::EXIST);
        assert_eq!(errno(net.lookup(f.fid, "x")), Errno::NOTDIR);
        assert_eq!(errno(net.create(f.fid, "x", file(0))), Errno::NOTDIR);
        assert_eq!(errno(net.rmdir(Fid::ROOT, "d")), Errno::NOTEMPTY);
        assert_eq!(errno(net.unlink(Fid::ROOT, "d", ROOT)), Errno::ISDIR);
        assert_eq!(errno(net.rmdir(d.fid, "f")), Errno::NOTDIR);
        net.unlink(d.fid, "f", ROOT).unwrap();
        assert_eq!(errno(net.lookup(d.fid, "f")), Errno::NOENT);
        assert_eq!(errno(net.getattr(f.fid)), Errno::STALE);
        net.rmdir(Fid::ROOT, "d").unwrap();
        assert_eq!(errno(net.create(d.fid, "late", file(0))), Errno::NOENT);
        assert_eq!(
            net.getattr(d.fid).unwrap().nlink,
            0,
            "who is in a removed directory can still look at it"
        );
        assert_eq!(net.readdir(d.fid, None, 10).unwrap(), vec![]);
        assert_eq!(net.getattr(Fid::ROOT).unwrap().nlink, 2);
        assert_eq!(net.check(), vec![]);
        net.restart();
        assert_eq!(errno(net.getattr(d.fid)), Errno::STALE);
        assert_eq!(net.check(), vec![]);
    }
}
