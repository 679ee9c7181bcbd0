//! Unmodified programs on the mount; after each, every file is the same through every other mount, and after a
//! restart.
use crate::common::{Harness, Setup, has_program, run, sh};
use forebay_testkit::prerequisites::skip;
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::seeds;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Kinds, modes, sizes, link targets and checksums of everything below `dir`.
fn census(dir: &Path) -> String {
    sh(
        dir,
        "find . -mindepth 1 \\( -type f -printf '%P %y %m %s %n %T@\\n' -o -printf '%P %y %m %l\\n' \\) | sort; \
         find . -type f -print0 | sort -z | xargs -0 -r cksum",
    )
}

/// Fails with the lines that differ, and no others.
fn equal(what: &str, here: &str, there: &str) {
    let lines: BTreeSet<&str> = here.lines().collect();
    let others: BTreeSet<&str> = there.lines().collect();
    let differ: Vec<_> = lines.symmetric_difference(&others).take(12).collect();
    assert!(differ.is_empty(), "{what} differs: {differ:#?}");
}

/// The same through every mount.
fn same_everywhere(h: &Harness, dir: &str) {
    let mounts = h.all();
    let here = census(&mounts[0].join(dir));
    assert!(!here.is_empty());
    for m in &mounts[1..] {
        equal(m.to_str().unwrap(), &here, &census(&m.join(dir)));
    }
}

/// A service of four members, and one of one member, whose kernel keeps dirty pages. After that the same is there, times included,
/// when it was started again, and no cache of the kernel answers.
fn on_each_service(test: impl Fn(&Harness)) {
    for setup in [Setup::default(), Setup::ALONE] {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        println!("{setup:?}");
        test(&h);
        let before = census(&h.at(0));
        h.restart();
        equal("after a restart", &before, &census(&h.at(0)));
    }
}

/// A directory with the kinds of files that programs copy.
fn sample(dir: &Path) {
    fs::create_dir_all(dir.join("sub/deep/er")).unwrap();
    for (n, size) in [
        0usize, 1, 100, 4095, 4096, 4097, 65_536, 1_000_003, 9_000_000,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(
            dir.join(format!("sub/file{n}")),
            seeded_bytes(n as u64, size),
        )
        .unwrap();
    }
    for n in 0..100 {
        fs::write(
            dir.join(format!("sub/deep/er/small{n}")),
            format!("small file {n}\n").repeat(n),
        )
        .unwrap();
    }
    std::os::unix::fs::symlink("sub/file3", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
    fs::hard_link(dir.join("sub/file7"), dir.join("hard")).unwrap();
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse
        .write_all_at(b"end of a sparse file", 50 << 20)
        .unwrap();
    fs::set_permissions(dir.join("sub/file1"), PermissionsExt::from_mode(0o400)).unwrap();
    fs::set_permissions(dir.join("sub/file2"), PermissionsExt::from_mode(0o755)).unwrap();
    sh(
        dir,
        "touch -d '2001-02-03 04:05:06.789' sub/file4; mkfifo pipe",
    );
}

#[test]
fn cp_tar_and_rsync() {
    on_each_service(|h| {
        let source = tempfile::tempdir().unwrap();
        sample(source.path());
        let from = source.path().to_str().unwrap();
        let original = census(source.path());
        sh(&h.at(0), &format!("cp -a {from} copy"));
        equal("copy", &census(&h.at(1).join("copy")), &original);
        same_everywhere(h, "copy");
        let blocks = sh(&h.at(2), "stat -c %b copy/sparse");
        assert!(
            blocks.trim().parse::<u64>().unwrap() < 2048,
            "the copy of a sparse file is sparse: {blocks}"
        );
        if has_program("tar") {
            sh(
                &h.at(1),
                "tar -C copy --format=posix -cf archive.tar . && mkdir untar && tar -C untar -xpf archive.tar",
            );
            equal("untar", &census(&h.at(2).join("untar")), &original);
            same_everywhere(h, "untar");
        }
        if has_program("rsync") {
            sh(
                &h.at(2),
                &format!("rsync -aH --exclude=pipe {from}/ synced/"),
            );
            // A second run on another node finds nothing to do.
            let again = sh(
                &h.at(3),
                &format!("rsync -aHi --exclude=pipe {from}/ synced/"),
            );
            assert_eq!(again, "");
            fs::write(source.path().join("sub/file7"), seeded_bytes(99, 1_000_003)).unwrap();
            fs::remove_file(source.path().join("link")).unwrap();
            sh(
                &h.at(0),
                &format!("rsync -aH --inplace --delete --exclude=pipe {from}/ synced/"),
            );
            fs::remove_file(source.path().join("pipe")).unwrap();
            equal(
                "synced",
                &census(&h.at(1).join("synced")),
                &census(source.path()),
            );
            same_everywhere(h, "synced");
        }
    });
}

#[test]
fn git() {
    if !has_program("git") {
        return;
    }
    on_each_service(|h| {
        let git = "git -c user.name=a -c user.email=a@b -c safe.directory='*' -c gc.autoDetach=false -c init.defaultBranch=main";
        sh(
            &h.at(0),
            &format!(
                "{git} init -q repo; cd repo; for i in $(seq 60); do mkdir -p d$((i%7)); seq $i $((i*20)) > d$((i%7))/f$i; done; \
             {git} add .; {git} commit -qm one; for i in $(seq 20); do echo $i >> d$((i%7))/f$i; {git} commit -qam \"c$i\"; done; \
             {git} branch side; {git} gc -q --prune=now; {git} fsck --full --strict"
            ),
        );
        // Another node goes on with the same repository.
        sh(
            &h.at(1),
            &format!(
                "cd repo; {git} status --porcelain | (! grep .); {git} checkout -q side; echo more >> d1/f1; {git} commit -qam side; \
             {git} checkout -q main; {git} merge -q --no-edit side; {git} fsck --full --strict; cd ..; {git} clone -q repo clone; \
             cd clone; {git} fsck --full --strict; {git} log --oneline | wc -l"
            ),
        );
        same_everywhere(h, "repo");
        same_everywhere(h, "clone");
    });
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    if !has_program("sqlite3") {
        return;
    }
    on_each_service(|h| {
        let m = h.at(1);
        let mode = sh(
            &m,
            "sqlite3 db 'pragma journal_mode=wal; create table t(a integer primary key, b text);'",
        );
        assert_eq!(mode, "wal\n");
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do \
        sqlite3 -cmd '.timeout 60000' db \"begin immediate; with recursive n(i) as (select 1 union all select i+1 from n where i<100) \
        insert into t(b) select '$0 ' || i from n; commit;\"; done";
        let writers: Vec<_> = (0..3)
            .map(|w| {
                Command::new("sh")
                    .args(["-e", "-c", script, &format!("writer{w}")])
                    .current_dir(&m)
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut writer in writers {
            assert!(writer.wait().unwrap().success());
        }
        assert_eq!(
            sh(
                &m,
                "sqlite3 db 'select count(*), count(distinct b) from t; pragma integrity_check;'"
            ),
            "3000|300\nok\n"
        );
        // After the last close the log is folded in; another node opens the database.
        assert_eq!(
            sh(
                &h.at(3),
                "sqlite3 db 'select count(*) from t; pragma integrity_check;'"
            ),
            "3000\nok\n"
        );
        sh(
            &h.at(2),
            "sqlite3 db \"pragma journal_mode=delete; delete from t where a % 2; vacuum;\"",
        );
        assert_eq!(
            sh(
                &h.at(0),
                "sqlite3 db 'select count(*) from t; pragma integrity_check;'"
            ),
            "1500\nok\n"
        );
        same_everywhere(h, ".");
    });
}

/// A Python that has the modules; the system's first, as distributions install theirs there.
fn python(modules: &str) -> Option<&'static str> {
    let found = ["/usr/bin/python3", "python3"].into_iter().find(|p| {
        Command::new(p)
            .args(["-c", &format!("import {modules}")])
            .output()
            .is_ok_and(|o| o.status.success())
    });
    if found.is_none() {
        skip("PROGRAMS", format_args!("no python3 has {modules}"));
    }
    found
}

#[test]
fn python_with_hdf5_and_memory_maps() {
    let Some(python) = python("h5py, numpy") else {
        return;
    };
    on_each_service(|h| {
        run(
            &h.at(0),
            python,
            &[
                "-c",
                "
import h5py, numpy as np
rng = np.random.default_rng(7)
with h5py.File('data.h5', 'w') as f:
    f['grid'] = rng.random((300, 400))
    d = f.create_dataset('chunked', (1000, 1000), chunks=(100, 100), compression='gzip', dtype='f4')
    for i in range(0, 1000, 100):
        d[i:i+100] = rng.random((100, 1000), dtype='f4')
    f.attrs['name'] = 'checkpoint'
with h5py.File('data.h5', 'a') as f:
    f['chunked'][500:600] = 1
    f.create_dataset('later', data=np.arange(100000))
m = np.memmap('map.bin', dtype='f8', mode='w+', shape=(1000, 1000))
m[:] = np.arange(1000000).reshape(1000, 1000)
m.flush()
m[10, :] = -1
del m
",
            ],
        );
        for n in 1..4 {
            run(
                &h.at(n),
                python,
                &[
                    "-c",
                    "
import h5py, numpy as np
rng = np.random.default_rng(7)
with h5py.File('data.h5', 'r') as f:
    assert (f['grid'][:] == rng.random((300, 400))).all()
    for i in range(0, 1000, 100):
        want = rng.random((100, 1000), dtype='f4')
        assert (f['chunked'][i:i+100] == (1 if i == 500 else want)).all(), i
    assert f.attrs['name'] == 'checkpoint' and f['later'][99999] == 99999
m = np.memmap('map.bin', dtype='f8', mode='r', shape=(1000, 1000))
want = np.arange(1000000, dtype='f8').reshape(1000, 1000)
want[10, :] = -1
assert (m == want).all()
m = np.memmap('map.bin', dtype='f8', mode='c', shape=(1000, 1000))
m[0, 0] = 5
",
                ],
            );
        }
        same_everywhere(h, ".");
    });
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !has_program("fio") {
        return;
    }
    on_each_service(|h| {
        let size = seeds::count("24m", "512m");
        for (n, how) in [
            "--rw=randrw --bs=4k",
            "--rw=write --bs=1m",
            "--rw=randwrite --bsrange=1k-128k --direct=1",
            "--rw=randrw --bs=16k --ioengine=mmap",
        ]
        .into_iter()
        .enumerate()
        {
            let engine = if how.contains("ioengine") {
                ""
            } else {
                "--ioengine=psync"
            };
            sh(
                &h.at(n),
                &format!(
                    "fio --name=j{n} --directory=. --size={size} --numjobs=2 {engine} {how} --verify=crc32c --verify_fatal=1 \
                 --do_verify=1 --randseed=42 --end_fsync=1 --output-format=terse --allow_mounted_write=1"
                ),
            );
        }
        same_everywhere(h, ".");
    });
}

#[test]
fn churn_of_small_files() {
    on_each_service(|h| {
        let rounds = seeds::count(4, 50);
        let script = format!(
            "mkdir w$0; for r in $(seq {rounds}); do for i in $(seq 40); do echo \"$0 $r $i\" > w$0/t$i; cat w$0/t$i > w$0/u$i; \
         mv w$0/t$i w$0/v$i; done; for i in $(seq 1 2 40); do rm w$0/u$i; done; mkdir w$0/d; mv w$0/v* w$0/d; \
         rm -r w$0/d/v1*; mv w$0/d w$0/d$r; ls -l w$0 > /dev/null; done"
        );
        let workers: Vec<_> = (0..4)
            .map(|w| {
                Command::new("sh")
                    .args(["-e", "-c", &script, &w.to_string()])
                    .current_dir(h.at(w))
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut worker in workers {
            assert!(worker.wait().unwrap().success());
        }
        same_everywhere(h, ".");
        if has_program("dbench") {
            let seconds = seeds::count(3, 60);
            let load = "/usr/share/dbench/client.txt";
            let load = if Path::new(load).exists() {
                format!("-c {load}")
            } else {
                String::new()
            };
            let said = sh(
                &h.at(2),
                &format!("mkdir bench; dbench -t {seconds} {load} -D bench 2"),
            );
            assert!(said.contains("Throughput"), "{said}");
            same_everywhere(h, ".");
        }
    });
}

#[test]
fn a_compiler_builds_a_program() {
    if !has_program("gcc") {
        return;
    }
    on_each_service(|h| {
        sh(
            &h.at(0),
            "mkdir p; cd p; for i in $(seq 12); do printf 'int f%d(int x) { return x + %d; }\\n' $i $i > f$i.c; done; \
         { for i in $(seq 12); do echo \"int f$i(int);\"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'; \
         for i in $(seq 12); do echo \"s += f$i(s);\"; done; printf '%s\\n' 'printf(\"%d\", s); return 0; }'; } > main.c; \
         for f in *.c; do gcc -O1 -g -c $f & done; wait; ar rcs libf.a f*.o; gcc -o prog main.o libf.a",
        );
        let answers: Vec<String> = h
            .all()
            .iter()
            .map(|m| run(m, m.join("p/prog"), &[]))
            .collect();
        let expected = (1..=12).fold(0i64, |s, i| s + s + i);
        for answer in answers {
            assert_eq!(answer.trim().parse::<i64>().unwrap(), expected);
        }
        same_everywhere(h, "p");
    });
}
