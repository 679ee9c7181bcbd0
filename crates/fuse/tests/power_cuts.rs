//! Power cuts under a service that is used through its mounts: the store lies on a recording disk, whose power is cut at
//! points of what was written and flushed. What an fsync promised is there afterwards as it was or as it was later.
//!
//! A test runs in a mount namespace of its own, as root; see `forebay_testkit::disk` for what it needs, and for what is lost.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
mod cuts;

use common::{Rng, pattern, role_apart};
use cuts::rig::{Rig, Setup, serve};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn roles() {
    common::roles(|name, args| {
        match (name, args) {
            ("disk", [at, spool, bytes]) => {
                let bytes = bytes.parse().unwrap();
                forebay_testkit::disk::serve(Path::new(at), Path::new(spool), bytes).unwrap();
            }
            ("service", args) => serve(args),
            ("renames over members", _) => renames_over_members(),
            _ => return false,
        }
        true
    });
}

/// Runs a role in a mount namespace of its own, and fails with it. Whoever is stuck for `limit` is ended.
fn apart(name: &str, args: &[&str], limit: Duration) {
    if !forebay_testkit::disk::can_record() {
        return;
    }
    let mut child = role_apart(name, args).stdin(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name} {args:?} is stuck");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{name} {args:?}: {status}");
}

const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn renames_over_members_leave_each_synced_file_in_one_place() {
    apart("renames over members", &[], LIMIT);
}

fn put(path: &Path, bytes: &[u8], sync: bool) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    if sync {
        file.sync_all().unwrap();
    }
}

fn renames_over_members() {
    let rig = Rig::start();
    let setup = Setup {
        nodes: 4,
        disk: false,
    };
    let served = rig.serve(&rig.store(), setup);
    let m = served.mount(0);
    let bytes = |i: u64| pattern(i, 3000);
    for i in 0..16 {
        let dir = m.join(format!("d{i}"));
        fs::create_dir(&dir).unwrap();
        put(&dir.join("f"), &bytes(i), true);
        put(&dir.join("other"), b"as it was", true);
        File::open(&dir).unwrap().sync_all().unwrap();
    }
    File::open(m).unwrap().sync_all().unwrap();
    let begin = rig.position();
    for i in 0..16 {
        let to = m.join(format!("d{}/g{i}", (i + 5) % 16));
        fs::rename(m.join(format!("d{i}/f")), to).unwrap();
    }
    put(&m.join("d0/other"), b"later", true);
    let end = rig.position();
    let recording = rig.end(served);
    let mut random = Rng(5);
    for cut in 0..if common::soak() { 40 } else { 6 } {
        let at = if cut == 0 {
            end
        } else {
            begin + random.below((end - begin + 1) as u64) as usize
        };
        let (loss, after) = rig.cut(&recording, at, cut, setup);
        let m = after.mount(1);
        let mut wrong = Vec::new();
        for i in 0..16 {
            let places = [format!("d{i}/f"), format!("d{}/g{i}", (i + 5) % 16)].map(|p| m.join(p));
            let found: Vec<_> = places.iter().filter(|p| p.exists()).collect();
            match found[..] {
                [place] => match fs::read(place) {
                    Ok(read) if read == bytes(i) => fs::remove_file(place).unwrap(),
                    read => wrong.push(format!("{i}: {} is {read:?}", place.display())),
                },
                _ => wrong.push(format!("{i}: found at {found:?}")),
            }
            let other = fs::read(m.join(format!("d{i}/other")));
            let whole = matches!(other.as_deref(), Ok(b"as it was")) || i == 0 && other.is_ok();
            if !whole {
                wrong.push(format!("d{i}/other is {other:?}"));
            }
        }
        for i in 0..16 {
            for entry in fs::read_dir(m.join(format!("d{i}"))).unwrap() {
                let entry = entry.unwrap();
                if let Err(e) = entry.metadata() {
                    wrong.push(format!("d{i}/{:?} leads nowhere: {e}", entry.file_name()));
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "cut {cut} at {at} of {begin}..{end}, {loss:?}: {wrong:#?}"
        );
        rig.end_of_cut(after);
    }
}
