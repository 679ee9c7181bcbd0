//! The kernel may keep its pages of a file exactly while nobody else has changed it.
use crate::common::*;
use forebay_server::delegate::OpenedFile;
use forebay_server::{Config, Consistency, KernelInvalidation, OpenFlags};
use std::sync::{Arc, Mutex};

#[test]
fn an_fsync_shows_what_others_had_published_and_says_that_pages_are_old() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    here.write(handle, 0, b"data", ROOT).unwrap();
    // Its own commit makes no page old.
    assert!(here.fsync(handle).unwrap().is_none());
    let foreign = there.open(fid, BOTH).unwrap();
    there.write(foreign.handle, 0, b"else", ROOT).unwrap();
    there.flush(foreign.handle).unwrap();
    // Until the next fsync both are right: the old bytes, unless they were freed already.
    let before = here.read(handle, 0, 10).unwrap();
    assert!([b"data", b"else"].contains(&before[..].try_into().unwrap()));
    let stale = here.fsync(handle).unwrap();
    assert_eq!(&here.read(handle, 0, 10).unwrap()[..], b"else");
    here.kernel_pages.dropped_pages(stale.unwrap());
    assert!(here.fsync(handle).unwrap().is_none(), "they are dropped");
    // With a commit of its own, too.
    there.write(foreign.handle, 2, b"ZZ", ROOT).unwrap();
    there.flush(foreign.handle).unwrap();
    here.write(handle, 0, b"E", ROOT).unwrap();
    assert!(here.fsync(handle).unwrap().is_some());
    assert_eq!(&here.read(handle, 0, 10).unwrap()[..], b"ElZZ");
}

#[test]
fn pages_are_kept_over_own_commits_and_dropped_after_a_foreign_one() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    here.write(handle, 0, b"data", ROOT).unwrap();
    here.flush(handle).unwrap();
    here.release(handle).unwrap();
    let open_here = || {
        let opened = here.open(fid, BOTH).unwrap();
        if let Some(stale) = opened.stale.clone() {
            here.kernel_pages.dropped_pages(stale);
        }
        here.read(opened.handle, 0, 10).unwrap();
        opened
    };
    let first = open_here();
    let again = open_here();
    assert!(again.stale.is_none(), "unchanged since the kernel read it");
    here.write(first.handle, 0, b"DATA", ROOT).unwrap();
    here.release(first.handle).unwrap();
    here.release(again.handle).unwrap();
    let own = open_here();
    assert!(own.stale.is_none(), "only this node wrote");
    let foreign = there.open(fid, BOTH).unwrap();
    there.write(foreign.handle, 0, b"else", ROOT).unwrap();
    there.release(foreign.handle).unwrap();
    let after = open_here();
    assert!(after.stale.is_some(), "another node wrote");
    assert_eq!(&here.read(after.handle, 0, 10).unwrap()[..], b"else");
    here.release(own.handle).unwrap();
    here.release(after.handle).unwrap();
    // A foreign change between two own commits must not be forgotten.
    let mine = open_here();
    let foreign = there.open(fid, BOTH).unwrap();
    there.write(foreign.handle, 2, b"ZZ", ROOT).unwrap();
    there.release(foreign.handle).unwrap();
    here.write(mine.handle, 0, b"e", ROOT).unwrap();
    here.release(mine.handle).unwrap();
    let last = open_here();
    assert!(
        last.stale.is_some(),
        "a foreign commit came before the own one"
    );
    here.release(last.handle).unwrap();
}

#[test]
fn pages_are_old_until_they_are_dropped_whoever_opens_and_reads_the_file() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    here.write(handle, 0, b"data", ROOT).unwrap();
    here.release(handle).unwrap();
    let foreign = there.open(fid, BOTH).unwrap();
    there.write(foreign.handle, 0, b"else", ROOT).unwrap();
    there.release(foreign.handle).unwrap();
    // A library of the process drops no pages.
    let library = here.open(fid, BOTH).unwrap();
    here.read(library.handle, 0, 10).unwrap();
    here.release(library.handle).unwrap();
    assert!(here.open(fid, BOTH).unwrap().stale.is_some());
}

#[test]
fn the_kernel_of_a_node_that_has_the_file_open_hears_of_what_it_may_keep_in_posix_consistency() {
    let dir = scratch();
    let posix = Config {
        consistency: Consistency::Posix,
        ..config(2)
    };
    let service = start(&dir, posix);
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    there.kernel_pages.set_kernel_invalidator(Some(Arc::new(
        move |news, told: forebay_server::InvalidationDone| {
            hears.lock().unwrap().push(news);
            told(Ok(()));
        },
    )));
    let write = |at, bytes: &[u8]| {
        here.write(handle, at, bytes, ROOT).unwrap();
        here.kernel_pages.show_elsewhere(fid).unwrap();
        assert!(!here.kernel_pages.has_unshown(fid));
        heard
            .lock()
            .unwrap()
            .drain(..)
            .map(|news| match news {
                KernelInvalidation::Changed(attr) => there.kernel_pages.changed_elsewhere(&attr),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(write(0, b"nobody there"), []);
    let open = there.open(fid, BOTH).unwrap();
    there.kernel_pages.drop_all(fid, || ()).unwrap();
    // What the open told it, it may not have taken.
    assert_eq!(write(0, b"NOBODY"), [Some(false)]);
    there.kernel_pages.note_kernel_size(fid, 12);
    assert_eq!(write(0, b"nobody"), [None]);
    assert_eq!(write(10, b"longer"), [Some(false)]);
    there.kernel_pages.note_kernel_size(fid, 16);
    there.kernel_pages.enters_page_cache(open.handle).unwrap();
    assert_eq!(write(0, b"NOBODY"), [Some(true)]);
    there.kernel_pages.drop_all(fid, || ()).unwrap();
    assert_eq!(write(0, b"nobody"), [None]);
    // Its own write may have the kernel think otherwise.
    there.write(open.handle, 0, b"x", ROOT).unwrap();
    assert_eq!(write(0, b"NOBODY"), [Some(false)]);
    there.release(open.handle).unwrap();
    assert_eq!(write(0, b"nobody"), []);
}

const WRITE_ONLY: OpenFlags = OpenFlags {
    read: false,
    write: true,
    append: false,
    truncate: false,
};

#[test]
fn a_handle_that_only_writes_is_direct_while_none_of_its_node_uses_the_page_cache() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, reads) = create(&here, "f");
    let writer = || here.open(fid, WRITE_ONLY).unwrap();
    let beside = writer();
    assert!(!beside.direct, "a reader has it open");
    assert!(there.open(fid, WRITE_ONLY).unwrap().direct, "but not there");
    here.release(reads).unwrap();
    let with_cached = writer();
    assert!(!with_cached.direct, "one that writes uses the page cache");
    let pages = &here.kernel_pages;
    pages.enters_page_cache(with_cached.handle).unwrap();
    for opened in [beside, with_cached] {
        here.release(opened.handle).unwrap();
    }
    // Pages that may be left go at this open, so nothing is dropped after a write.
    let first = writer();
    assert!(first.direct && first.stale.is_some());
    pages.drop_all(fid, || ()).unwrap();
    let after = |opened: &OpenedFile| pages.after_direct_write(opened.handle, 0, 0).unwrap();
    assert!(!after(&first).drop_pages);
    // A reader that comes later changes nothing for it, except that its pages are dropped.
    let reads = here.open(fid, BOTH).unwrap();
    assert!(!reads.direct);
    pages.enters_page_cache(reads.handle).unwrap();
    assert!(after(&first).drop_pages);
    assert!(!writer().direct);
}

#[test]
fn of_one_member_handles_that_only_write_use_the_page_cache() {
    let dir = scratch();
    let service = start(&dir, config(1));
    let here = service.delegate(0);
    let (fid, handle) = create(&here, "f");
    here.release(handle).unwrap();
    assert!(!here.open(fid, WRITE_ONLY).unwrap().direct);
}
