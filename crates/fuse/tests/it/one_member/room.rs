//! A store without room, in a service of one member: who hears of it, and what stays.
use super::writer::{WriterProcess, close, free, used};
use super::{MIB, WAYS, keeps_dirty_pages};
use crate::common::{Harness, Setup, create_new, has_program, run, sh};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::wait::until;
use rustix::fs::getxattr;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const QUOTA: usize = 512 * MIB;

/// A service whose room is that of the quota.
fn start(setup: Setup, quota: usize) -> Option<Harness> {
    Harness::start(Setup {
        quota: Some(quota as u64),
        ..setup
    })
}

/// Leaves about so much room, by files that are synced.
fn fill(mount: &Path, left: u64) {
    let piece = seeded_bytes(8, 4 * MIB);
    let mut n = 0;
    while free(mount) > left + 4 * MIB as u64 {
        let f = create_new(&mount.join(format!("filler{n}")));
        f.write_all_at(&piece, 0).unwrap();
        f.sync_all().unwrap();
        n += 1;
    }
    let rest = free(mount).saturating_sub(left) as usize;
    let f = create_new(&mount.join("filler"));
    f.write_all_at(&piece[..rest.min(piece.len())], 0).unwrap();
    f.sync_all().unwrap();
}

#[test]
fn each_writer_of_a_full_store_hears_of_it_whoever_closes_first() {
    for setup in WAYS {
        let Some(h) = start(setup, QUOTA) else { return };
        let m = h.mount(0);
        let path = m.join("f");
        drop(create_new(&path));
        fill(&m, 2 * MIB as u64);
        let mut writers = [0, 1].map(|_| WriterProcess::start(&path));
        // More than there is room for, by both; each hears at the write, or at the close.
        let mut heard: Vec<bool> = (0..)
            .zip(&mut writers)
            .map(|(n, writer)| {
                let written = (0..6).map(|k| writer.write((n * 6 + k) * MIB, MIB, 1));
                written.fold(false, |heard, e| {
                    assert!(e == 0 || e == libc::ENOSPC, "{e}");
                    heard || e == libc::ENOSPC
                })
            })
            .collect();
        // Which may say that there is no room.
        sh(&m, "sync -f . || true");
        // Readers come and go; the kernel may tell one of them, and never tells it again.
        for _ in 0..3 {
            let _ = close(File::open(&path).unwrap());
        }
        let closed = writers.each_mut().map(|writer| writer.number("close"));
        for (heard, e) in heard.iter_mut().zip(closed) {
            assert!(e == 0 || e == libc::ENOSPC, "{e}");
            *heard |= e == libc::ENOSPC;
        }
        drop(writers);
        assert!(heard.iter().all(|heard| *heard), "{setup:?}: {heard:?}");
        // One that comes later, and writes nothing, has lost nothing.
        let mut third = WriterProcess::start(&path);
        assert_eq!(third.number("close"), 0, "{setup:?}");
    }
}

#[test]
fn an_fsync_tells_of_a_full_store_and_earlier_bytes_stay() {
    for setup in WAYS {
        let Some(mut h) = start(setup, QUOTA) else {
            return;
        };
        let m = h.mount(0);
        let kept = seeded_bytes(4, 4 * MIB);
        let f = create_new(&m.join("kept"));
        f.write_all_at(&kept, 0).unwrap();
        f.sync_all().unwrap();
        fill(&m, 3 * MIB as u64);
        // Overwritten and made longer, until it is told.
        let later = seeded_bytes(5, MIB);
        let told = (0..64).find_map(|n| {
            let done = f.write_all_at(&later, n * MIB as u64);
            done.and_then(|()| f.sync_all()).err()
        });
        let told = told.expect("64 MiB fit into 3");
        assert_eq!(told.raw_os_error(), Some(libc::ENOSPC), "{setup:?}");
        let _ = close(f);
        // What is shown is stored: the same after a restart, each MiB as it was or as it was written later. The kernel hears how much
        // that is a moment after the close.
        let stored = || {
            let mut text = vec![0; 64 << 10];
            let len = getxattr(m.join("kept"), "user.forebay.extents", &mut text[..]).unwrap();
            let described: serde_json::Value = serde_json::from_slice(&text[..len]).unwrap();
            described["size"].as_u64().unwrap()
        };
        until("the size is that of what is stored", || {
            fs::metadata(m.join("kept")).unwrap().len() == stored()
        });
        let shown = fs::read(m.join("kept")).unwrap();
        h.restart();
        let read = fs::read(m.join("kept")).unwrap();
        assert_eq!(read.len(), shown.len(), "{setup:?}");
        assert!(
            read == shown,
            "{setup:?}: bytes were shown that are not stored"
        );
        assert!(read.len() >= 4 * MIB);
        for (n, piece) in read.chunks(64 << 10).enumerate() {
            let at = n * (64 << 10);
            let new = &later[at % MIB..][..piece.len()];
            let old = kept.get(at..at + piece.len());
            let hole = at >= 4 * MIB && piece.iter().all(|b| *b == 0);
            assert!(
                piece == new || old == Some(piece) || hole,
                "{setup:?}: at {at}"
            );
        }
        // Names can still be made, and room comes back.
        fs::create_dir(m.join("d")).unwrap();
        for entry in fs::read_dir(&m).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_str().unwrap().starts_with("filler") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        until("removed bytes come back", || {
            free(&m) > QUOTA as u64 / 2 && fs::write(m.join("more"), &kept).is_ok()
        });
        h.restart();
        assert!(fs::read(m.join("more")).unwrap() == kept, "{setup:?}");
    }
}

#[test]
fn programs_that_write_into_a_full_store_end() {
    if !has_program("dd") {
        return;
    }
    for setup in WAYS {
        let Some(h) = start(setup, QUOTA) else { return };
        let m = h.mount(0);
        fs::write(m.join("remove me"), seeded_bytes(3, 30 * MIB)).unwrap();
        let mut dd = Command::new("dd");
        let dd = dd
            .args(["if=/dev/zero", "of=zeros", "bs=1M"])
            .current_dir(&m);
        let mut dd = dd.stderr(Stdio::piped()).spawn().unwrap();
        until("the store is full, or dd ends", || {
            free(&m) < 16 * MIB as u64 || dd.try_wait().unwrap().is_some()
        });
        // Names are answered meanwhile.
        let start = Instant::now();
        fs::create_dir(m.join("d")).unwrap();
        let waited = start.elapsed();
        let out = dd.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && said.contains("No space left"),
            "{said}"
        );
        assert!(waited < Duration::from_secs(30), "{setup:?}: {waited:?}");
        println!("{setup:?}: mkdir took {waited:?}; {said}");
        let len = fs::metadata(m.join("zeros")).unwrap().len();
        let most = QUOTA + 64 * MIB;
        assert!(
            len <= most as u64,
            "{setup:?}: {len} bytes in a quota of {QUOTA}"
        );
        fs::remove_file(m.join("remove me")).unwrap();
        fs::remove_file(m.join("zeros")).unwrap();
        until("it can be written to again", || {
            fs::write(m.join("again"), "x").is_ok()
        });
    }
}

#[test]
fn what_is_promised_has_room() {
    for setup in WAYS {
        let Some(mut h) = start(setup, QUOTA) else {
            return;
        };
        let m = h.mount(0);
        // Three quarters of the room, by four processes at once.
        let script = format!(
            "dd if=/dev/zero of=f$0 bs=1M count={} status=none",
            QUOTA / MIB / 16 * 3
        );
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let mut sh = Command::new("sh");
                let sh = sh.args(["-e", "-c", &script, &n.to_string()]);
                sh.current_dir(&m).spawn().unwrap()
            })
            .collect();
        for mut writer in writers {
            assert!(writer.wait().unwrap().success(), "{setup:?}");
        }
        h.restart();
        for n in 0..4 {
            run(
                &m,
                "cmp",
                &[
                    "-n",
                    &(QUOTA / 16 * 3).to_string(),
                    &format!("f{n}"),
                    "/dev/zero",
                ],
            );
        }
    }
}

/// The kernel's limit of dirty pages that it keeps of a mount.
fn kept_limit(mount: &Path) -> Option<usize> {
    let device = fs::metadata(mount).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let limit = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/max_bytes"));
    limit.ok()?.trim().parse().ok()
}

#[test]
fn a_store_with_little_room_counts_what_was_written_before_it_takes_more() {
    const PIECE: usize = 64 << 10;
    let Some(h) = Harness::start(Setup::ALONE) else {
        return;
    };
    let limit = kept_limit(&h.mount(0)).filter(|limit| *limit < 128 * MIB);
    drop(h);
    let Some(limit) = limit.filter(|_| keeps_dirty_pages()) else {
        eprintln!(
            "skipped: the kernel keeps no written pages, or so many that filling a store takes too long"
        );
        return;
    };
    let Some(h) = start(Setup::ALONE, 9 * limit) else {
        return;
    };
    let m = h.mount(0);
    // How much of eight writes has arrived when the last has returned.
    let arrived = |name: &str| {
        let mut f = create_new(&m.join(name));
        let before = used(&m);
        for n in 0..8 {
            f.write_all_at(&[7; PIECE], n * PIECE as u64).unwrap();
        }
        let arrived = used(&m) - before;
        // For this the kernel may ask too, with its lock of the file held.
        assert_eq!(f.seek(SeekFrom::End(0)).unwrap(), 8 * PIECE as u64);
        arrived
    };
    // Where there is room the kernel keeps them, unless somebody syncs just then.
    let seen: Vec<u64> = (0..4).map(|n| arrived(&format!("roomy{n}"))).collect();
    assert!(seen.contains(&0), "{seen:?}");
    fill(&m, 3 * limit as u64);
    let seen = arrived("tight");
    assert!(seen >= 7 * PIECE as u64, "{seen}");
    // With room again, it is as before.
    for entry in fs::read_dir(&m).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    until("the store has room again", || {
        let n = used(&m);
        free(&m) > 8 * limit as u64 && arrived(&format!("again{n}")) == 0
    });
}
