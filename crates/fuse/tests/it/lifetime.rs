//! A service over its life: restarts, kills, a full store, one member alone.
use crate::common::{Harness, Setup, errno, run};
use forebay_testkit::random::seeded_bytes;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

#[test]
fn a_service_of_one_member_caches_names() {
    let Some(h) = Harness::start(Setup {
        nodes: 1,
        ..Setup::default()
    }) else {
        return;
    };
    let m = h.mount(0);
    assert_eq!(errno(fs::metadata(m.join("soon"))), libc::ENOENT);
    fs::write(m.join("soon"), "now").unwrap();
    assert_eq!(fs::read(m.join("soon")).unwrap(), b"now");
    fs::rename(m.join("soon"), m.join("later")).unwrap();
    assert_eq!(errno(fs::metadata(m.join("soon"))), libc::ENOENT);
    assert_eq!(fs::metadata(m.join("later")).unwrap().len(), 3);
    let mut f = OpenOptions::new()
        .append(true)
        .open(m.join("later"))
        .unwrap();
    f.write_all(b" and then").unwrap();
    assert_eq!(fs::read(m.join("later")).unwrap(), b"now and then");
}

#[test]
fn data_survives_a_restart() {
    let Some(mut h) = Harness::four() else { return };
    let bytes = seeded_bytes(6, 5_000_000);
    for (n, m) in h.all().iter().enumerate() {
        fs::create_dir(m.join(format!("d{n}"))).unwrap();
        fs::write(m.join(format!("d{n}/f")), &bytes[n..]).unwrap();
    }
    let said = h.stop();
    assert!(
        said.contains("STOPPED") && !said.contains("STOP "),
        "{said}"
    );
    h.serve().unwrap();
    for (n, m) in h.all().iter().enumerate() {
        for k in 0..4 {
            assert!(
                fs::read(m.join(format!("d{k}/f"))).unwrap() == bytes[k..],
                "file {k} through mount {n}"
            );
        }
    }
    // Committed data survives a killed server, too; the dead mounts are cleared away by the next one.
    fs::write(h.mount(1).join("last"), "words").unwrap();
    h.kill();
    h.serve().unwrap();
    assert_eq!(fs::read(h.mount(2).join("last")).unwrap(), b"words");
}

#[test]
fn programs_run_from_the_mount() {
    let Some(h) = Harness::four() else { return };
    // Copied by another process: what a test beside this starts would hold this one's file open for writing till it runs.
    let copy = h.mount(0).join("echo");
    run(&h.mount(0), "cp", &["/bin/echo", copy.to_str().unwrap()]);
    assert_eq!(
        run(&h.mount(1), h.mount(1).join("echo"), &["hello"]),
        "hello\n"
    );
}

#[test]
fn a_full_store_says_so_keeps_what_it_has_and_takes_more_after_deletes() {
    let setup = Setup {
        nodes: 2,
        quota: Some(48 << 20),
        ..Setup::default()
    };
    let Some(h) = Harness::start(setup) else {
        return;
    };
    let m = h.mount(0);
    let piece = seeded_bytes(8, 1 << 20);
    fs::write(m.join("kept"), &piece).unwrap();
    let fill = || {
        let f = File::create(m.join("filler")).unwrap();
        (0..1000).find_map(|n| f.write_all_at(&piece, n << 20).err().map(|e| (n, e)))
    };
    let (written, refused) = fill().expect("a quota of 48 MiB took 1000 MiB");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    assert!(written >= 16, "only {written} MiB fit");
    assert!(fs::read(h.mount(1).join("kept")).unwrap() == piece);
    // Names can still be made and removed on a full store.
    fs::create_dir(m.join("d")).unwrap();
    fs::rename(m.join("kept"), m.join("d/kept")).unwrap();
    fs::remove_file(m.join("filler")).unwrap();
    // The removed bytes come back in the background.
    let mut tries = 0;
    while let Err(e) = fs::write(m.join("more"), &piece[..1 << 19]) {
        assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
        tries += 1;
        assert!(tries < 6_000, "removed bytes never came back");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(fs::read(h.mount(1).join("more")).unwrap() == piece[..1 << 19]);
    assert!(fs::read(h.mount(1).join("d/kept")).unwrap() == piece);
}
