//! Appends of several nodes never overlap, and appends of one node follow each other.
use crate::common::*;
use forebay_server::{Config, Consistency, OpenFlags};

const APPEND: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: true,
    truncate: false,
};
const RECORD: usize = 100;
const EACH: usize = 200;

#[test]
fn every_record_is_there_once_and_whole() {
    for consistency in [Consistency::Commit, Consistency::Posix] {
        let dir = scratch();
        let service = start(
            &dir,
            Config {
                consistency,
                ..config(3)
            },
        );
        let (fid, handle) = create(&service.delegate(0), "log");
        std::thread::scope(|scope| {
            for node in 0..3u8 {
                for thread in 0..2u8 {
                    let delegate = service.delegate(node.into());
                    scope.spawn(move || {
                        let opened = delegate.open(fid, APPEND).unwrap();
                        assert!(opened.direct);
                        for i in 0..EACH {
                            let mut record = [node * 2 + thread + 1; RECORD];
                            record[0] = i as u8;
                            delegate.write(opened.handle, 0, &record, ROOT).unwrap();
                        }
                        delegate.release(opened.handle).unwrap();
                    });
                }
            }
        });
        let all = contents(&service.delegate(1), fid);
        assert_eq!(all.len(), 6 * EACH * RECORD);
        let mut next = [0; 7];
        for record in all.chunks(RECORD) {
            let who = usize::from(record[1]);
            assert!(record[1..].iter().all(|b| *b == record[1]), "a torn record");
            assert_eq!(
                record[0], next[who] as u8,
                "records of one thread are in order"
            );
            next[who] += 1;
        }
        assert_eq!(next, [0, EACH, EACH, EACH, EACH, EACH, EACH]);
        service.delegate(0).release(handle).unwrap();
    }
}
