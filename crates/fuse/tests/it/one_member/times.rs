//! Times of files, whenever the kernel writes back what they were written.
use super::WAYS;
use super::writer::used;
use crate::common::{Harness, Map, create_new, sh};
use forebay_testkit::wait::until;
use rustix::fs::{Timespec, Timestamps};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

fn mtime(m: &fs::Metadata) -> (i64, i64) {
    (m.mtime(), m.mtime_nsec())
}

/// Has the kernel write back all that it keeps of a file, without a commit.
fn wait_until_written_back(mount: &Path, before: u64, len: u64) {
    // The kernel's own thread does that once pages are some seconds old, and at once if it is asked to free memory or to sync.
    sh(mount, "sync -f .");
    until("pages are written back", || used(mount) >= before + len);
}

#[test]
fn times_are_those_of_the_writes_not_of_their_way_back() {
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let m = h.mount(0);
        let mut want = Vec::new();
        let mut expect = |name: &str, time: (i64, i64)| want.push((name.to_string(), time));
        let nap = || std::thread::sleep(Duration::from_millis(50));
        let old = Timestamps {
            last_access: Timespec {
                tv_sec: 5,
                tv_nsec: 6,
            },
            last_modification: Timespec {
                tv_sec: 1_000_000_007,
                tv_nsec: 123_456_789,
            },
        };

        let f = create_new(&m.join("written"));
        let before = used(&m);
        f.write_all_at(&[1; 9000], 0).unwrap();
        let time = mtime(&f.metadata().unwrap());
        nap();
        wait_until_written_back(&m, before, 4096);
        assert_eq!(mtime(&f.metadata().unwrap()), time);
        drop(f);
        assert_eq!(mtime(&fs::metadata(m.join("written")).unwrap()), time);
        expect("written", time);

        let f = create_new(&m.join("mapped"));
        f.set_len(9000).unwrap();
        nap();
        let mut map = Map::new(&f, 9000, libc::MAP_SHARED).unwrap();
        map.bytes()[5000] = 1;
        map.sync();
        let time = mtime(&f.metadata().unwrap());
        drop((map, f));
        expect("mapped", mtime(&fs::metadata(m.join("mapped")).unwrap()));
        assert!(time <= mtime(&fs::metadata(m.join("mapped")).unwrap()));

        // A time that is set between writes: the next write sets another, a late page of the one before does not.
        let f = create_new(&m.join("set"));
        f.write_all_at(&[1; 9000], 0).unwrap();
        rustix::fs::futimens(&f, &old).unwrap();
        nap();
        f.sync_all().unwrap();
        drop(f);
        expect("set", (1_000_000_007, 123_456_789));
        let f = create_new(&m.join("set and written"));
        f.write_all_at(&[1; 9000], 0).unwrap();
        rustix::fs::futimens(&f, &old).unwrap();
        f.write_all_at(&[2; 10], 100).unwrap();
        let time = mtime(&f.metadata().unwrap());
        assert!(time.0 > 1_000_000_007);
        drop(f);
        expect("set and written", time);

        // What changes a name or the mode, with dirty pages kept, changes no time of modification.
        for (name, act) in [
            (
                "renamed",
                (|m, n| fs::rename(m, n).unwrap()) as fn(&Path, &Path),
            ),
            ("linked", |m, n| fs::hard_link(m, n).unwrap()),
            ("mode", |m, _| {
                fs::set_permissions(m, PermissionsExt::from_mode(0o600)).unwrap();
            }),
            ("unlinked", |m, n| {
                fs::hard_link(m, n).unwrap();
                fs::remove_file(m).unwrap();
            }),
        ] {
            let (path, other) = (m.join(name), m.join(format!("{name} 2")));
            let f = create_new(&path);
            f.write_all_at(&[3; 5000], 0).unwrap();
            let time = mtime(&f.metadata().unwrap());
            nap();
            act(&path, &other);
            assert_eq!(mtime(&f.metadata().unwrap()), time, "{setup:?}: {name}");
            drop(f);
            let left = if other.exists() { other } else { path };
            expect(left.file_name().unwrap().to_str().unwrap(), time);
        }
        // A cut of dirty pages, and an open that empties.
        let f = create_new(&m.join("cut"));
        f.write_all_at(&[3; 5000], 0).unwrap();
        nap();
        f.set_len(100).unwrap();
        let time = mtime(&f.metadata().unwrap());
        nap();
        drop(f);
        expect("cut", time);
        fs::write(m.join("emptied"), "x").unwrap();
        nap();
        let f = File::create(m.join("emptied")).unwrap();
        let time = mtime(&f.metadata().unwrap());
        nap();
        drop(f);
        expect("emptied", time);

        let look = |h: &Harness, what: &str| {
            for (name, time) in &want {
                let found = mtime(&fs::metadata(h.mount(0).join(name)).unwrap());
                assert_eq!(found, *time, "{setup:?}: {name}, {what}");
            }
        };
        look(&h, "at once");
        h.restart();
        look(&h, "after a restart");
    }
}
