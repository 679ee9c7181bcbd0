//! Programs beside one that writes, and many that write at once.
use super::{MIB, WAYS};
use crate::common::{Harness, create_new, errno, has_program, open, open_to_write, sh, start_role};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns;
use rustix::fs::SeekFrom;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The process that writes file after file until it is told to end.
pub fn dirtier(directory: &Path, number: &str) {
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        end.store(true, Ordering::SeqCst);
    });
    let bytes = vec![7; MIB];
    println!("\nREADY");
    while !ended.load(Ordering::SeqCst) {
        for n in 0..16 {
            let path = directory.join(format!("dirty-{number}-{n}"));
            open(&path).write_all_at(&bytes, 0).unwrap();
        }
    }
}

#[test]
fn seeking_and_sparse_copies_find_what_was_just_written() {
    for setup in WAYS {
        let Some(h) = Harness::start(setup) else {
            return;
        };
        let m = h.mount(0);
        let path = m.join("sparse");
        let f = create_new(&path);
        let (part, gap) = (seeded_bytes(9, 8192), 1 << 20);
        for n in 0..5 {
            f.write_all_at(&part, n * gap).unwrap();
        }
        let meta = f.metadata().unwrap();
        assert!(
            meta.blocks() > 0,
            "{setup:?}: programs take it for one hole"
        );
        for n in 0..5 {
            let data = rustix::fs::seek(&f, SeekFrom::Data(n * gap)).unwrap();
            assert_eq!(data, n * gap, "{setup:?}");
            let hole = rustix::fs::seek(&f, SeekFrom::Hole(n * gap)).unwrap();
            assert_eq!(hole, n * gap + 8192, "{setup:?}");
            if n > 0 {
                // Written again meanwhile, through the handle that seeks.
                f.write_all_at(&part, n * gap - 4096 * 20).unwrap();
                let data = rustix::fs::seek(&f, SeekFrom::Data((n - 1) * gap + 8192)).unwrap();
                assert_eq!(data, n * gap - 4096 * 20, "{setup:?}");
            }
        }
        assert_eq!(
            errno(rustix::fs::seek(&f, SeekFrom::Data(5 * gap))),
            libc::ENXIO
        );
        // By programs, while this process has it open and what it wrote last is kept.
        let programs = [
            (
                "cp",
                "cp --sparse=always sparse copy && cp sparse copy2 && cmp sparse copy && cmp sparse copy2",
            ),
            (
                "tar",
                "tar --sparse -cf a.tar sparse && mkdir out && tar -C out -xf a.tar && cmp sparse out/sparse",
            ),
            ("rsync", "rsync -S sparse synced && cmp sparse synced"),
        ];
        for (program, script) in programs {
            f.write_all_at(&seeded_bytes(10, 50_000), 3 * gap + 77_777)
                .unwrap();
            if has_program(program) {
                sh(&m, script);
            }
        }
        // One that was empty, and known to the kernel, before it was written.
        let empty = m.join("empty");
        drop(create_new(&empty));
        assert_eq!(fs::metadata(&empty).unwrap().blocks(), 0);
        let f = open_to_write(&empty);
        f.write_all_at(b"no hole", 0).unwrap();
        assert!(fs::metadata(&empty).unwrap().blocks() > 0, "{setup:?}");
    }
}

#[test]
fn many_files_that_are_written_do_not_stop_names() {
    let _turn = turns::exclusive();
    for setup in WAYS {
        let Some(h) = Harness::start(setup) else {
            return;
        };
        let m = h.mount(0);
        let text = m.to_str().unwrap();
        // 64 files, again and again, as fast as it goes.
        let mut writers: Vec<Child> = (0..4)
            .map(|n| {
                let (child, mut said) = start_role("dirtier", &[text, &n.to_string()]);
                said.find(|line| line == "READY").unwrap();
                child
            })
            .collect();
        let mut waits: Vec<Duration> = (0..40)
            .map(|n| {
                let start = Instant::now();
                fs::create_dir(m.join(format!("d{n}"))).unwrap();
                fs::metadata(m.join("dirty-0-0")).unwrap();
                start.elapsed()
            })
            .collect();
        for writer in &mut writers {
            assert!(writer.try_wait().unwrap().is_none(), "a writer ended early");
            drop(writer.stdin.take());
        }
        for mut writer in writers {
            assert!(writer.wait().unwrap().success());
        }
        waits.sort_unstable();
        println!("{setup:?}: median {:?}, longest {:?}", waits[20], waits[39]);
        // Far more than it takes, far less than writing back what is kept.
        assert!(waits[20] < Duration::from_secs(2), "{setup:?}: {waits:?}");
    }
}

#[test]
fn sqlite_by_two_processes_of_one_member() {
    if !has_program("sqlite3") {
        return;
    }
    let script = "for i in $(seq 15); do sqlite3 -cmd '.timeout 60000' db \"begin immediate; with recursive n(i) as \
        (select 1 union all select i+1 from n where i<100) insert into t(b) select '$0 ' || i from n; commit;\"; done";
    for setup in WAYS {
        for journal in ["wal", "delete"] {
            let Some(mut h) = Harness::start(setup) else {
                return;
            };
            let m = h.mount(0);
            let make = format!(
                "sqlite3 db 'pragma journal_mode={journal}; create table t(a integer primary key, b text);'"
            );
            assert_eq!(sh(&m, &make).trim(), journal);
            let start = |w: u32| {
                let mut writer = Command::new("sh");
                let writer = writer.args(["-e", "-c", script, &format!("writer{w}")]);
                writer.current_dir(&m).spawn().unwrap()
            };
            let writers = [1, 2].map(start);
            for mut writer in writers {
                assert!(writer.wait().unwrap().success());
            }
            let look = |m: &Path| {
                let ask = "sqlite3 db 'select count(*), count(distinct b) from t; pragma integrity_check;'";
                assert_eq!(sh(m, ask), "3000|200\nok\n", "{setup:?}, {journal}");
            };
            look(&m);
            h.restart();
            look(&m);
        }
    }
}
