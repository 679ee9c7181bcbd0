//! Asking for many files at once says what asking for each says.
use crate::common::*;
use forebay_server::{Delegate, Fid, Kind, NewInode};

fn write(delegate: &Delegate, fid: Fid, pieces: &[(u64, usize)]) {
    let handle = delegate.open(fid, BOTH).unwrap().handle;
    for (at, len) in pieces {
        delegate.write(handle, *at, &vec![7; *len], ROOT).unwrap();
    }
    delegate.release(handle).unwrap();
}

#[test]
fn a_survey_says_what_asking_for_each_file_says() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let mut fids = vec![Fid::ROOT];
    for n in 0..30u64 {
        let writer = service.delegate(n as u16 % 3);
        // Owned by different members.
        let new = NewInode::new(Kind::Dir, 0o755);
        let name = n.to_string();
        let below = writer
            .names
            .make(Fid::ROOT, name.as_bytes(), new, ROOT)
            .unwrap();
        let opened = writer.create(below.fid, b"f", 0o644, false, BOTH, ROOT);
        let opened = opened.unwrap();
        writer.release(opened.handle).unwrap();
        let fid = opened.attr.fid;
        match n {
            0 => {}
            // Goes beyond the first slice.
            1 => write(&writer, fid, &[(0, 100), (SLICE, 100)]),
            _ => {
                write(&writer, fid, &[(0, 1000 + n as usize)]);
                let other = service.delegate((n as u16 + 1) % 3);
                write(&other, fid, &[(500, n as usize), (9000, 10)]);
            }
        }
        if n % 4 == 0 {
            writer
                .names
                .setxattr(fid, b"user.x", b"1", false, false)
                .unwrap();
        }
        if n == 29 {
            writer.names.unlink(below.fid, b"f", ROOT).unwrap();
        }
        fids.extend([fid, below.fid]);
    }
    for k in 0..3 {
        let delegate = service.delegate(k);
        let all = delegate.names.survey(&fids).unwrap();
        assert_eq!(all.len(), fids.len());
        let (mut with, mut unknown) = (0, 0);
        for (fid, survey) in fids.iter().zip(all) {
            let Ok(attr) = delegate.names.getattr(*fid) else {
                assert!(survey.is_none());
                continue;
            };
            let survey = survey.unwrap();
            assert_eq!(survey.attr, attr);
            let xattrs = delegate.names.listxattr(*fid).unwrap();
            assert_eq!(survey.xattrs, !xattrs.is_empty());
            with += usize::from(survey.xattrs);
            match survey.held {
                Some(held) if attr.kind == Kind::File => {
                    let asked = delegate.locator.holders(*fid, 0..attr.size).unwrap();
                    assert_eq!(held, asked.into_iter().collect::<Vec<_>>());
                }
                Some(held) => assert!(held.is_empty()),
                None => {
                    assert!(attr.size > SLICE);
                    unknown += 1;
                }
            }
        }
        assert_eq!((with, unknown), (8, 1));
    }
    service.stop().unwrap();
}
