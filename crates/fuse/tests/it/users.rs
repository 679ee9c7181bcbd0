//! What a second user of the machine can reach.
use crate::common::{Harness, Setup, has_program, sh};
use forebay_testkit::turns;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Only root can become another user.
fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can run a program as another user");
    }
    root && has_program("setpriv")
}

/// Runs a script as nobody; its exit code and what it said.
fn as_nobody(dir: &Path, script: &str) -> (i32, String) {
    let _turn = turns::shared();
    let out = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "sh",
            "-c",
            script,
        ])
        .current_dir(dir)
        .output()
        .unwrap();
    (
        out.status.code().unwrap_or(-1),
        format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        ),
    )
}

#[test]
fn nobody_reads_what_its_mode_allows_and_never_the_store() {
    if !possible() {
        return;
    }
    let Some(h) = Harness::start(Setup {
        allow_other: true,
        ..Setup::default()
    }) else {
        return;
    };
    let m = h.mount(1);
    fs::write(m.join("secret"), "for me").unwrap();
    fs::set_permissions(m.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(m.join("open"), "for all").unwrap();
    fs::set_permissions(m.join("open"), PermissionsExt::from_mode(0o644)).unwrap();
    fs::create_dir(m.join("closed")).unwrap();
    fs::set_permissions(m.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(m.join("closed/inner"), "x").unwrap();
    fs::set_permissions(m.join("closed/inner"), PermissionsExt::from_mode(0o666)).unwrap();
    for n in 0..4 {
        let m = h.mount(n);
        assert_eq!(as_nobody(&m, "cat open"), (0, "for all".into()));
        for refused in [
            "cat secret",
            "echo x >> open",
            "cat closed/inner",
            "ls closed",
            "echo x > new",
            "rm -f open",
            "chmod 777 secret",
            "mkdir d",
        ] {
            let (code, said) = as_nobody(&m, refused);
            assert!(
                code != 0 && (said.contains("ermission denied") || said.contains("not permitted")),
                "{refused}: {code} {said}"
            );
        }
    }
    let store = h.store();
    for attempt in [
        format!("ls {}", store.display()),
        format!("find {} -type f -exec cat {{}} +", store.display()),
    ] {
        let (code, said) = as_nobody(Path::new("/"), &attempt);
        assert!(
            code != 0 && said.contains("ermission denied") && !said.contains("for me"),
            "{attempt}: {code} {said}"
        );
    }
    // A directory that is open to all: what nobody makes belongs to nobody, and the sticky bit protects it.
    fs::create_dir(m.join("tmp")).unwrap();
    fs::set_permissions(m.join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
    fs::write(m.join("tmp/roots"), "x").unwrap();
    assert_eq!(
        as_nobody(&h.mount(2), "echo mine > tmp/f; stat -c '%u %g' tmp/f").1,
        "65534 65534\n"
    );
    assert_ne!(as_nobody(&h.mount(2), "rm -f tmp/roots").0, 0);
    // Set-id bits go when someone else writes.
    fs::write(m.join("tmp/run"), "x").unwrap();
    fs::set_permissions(m.join("tmp/run"), PermissionsExt::from_mode(0o4777)).unwrap();
    assert_eq!(as_nobody(&h.mount(0), "echo more >> tmp/run").0, 0);
    assert_eq!(sh(&h.mount(3), "stat -c %a tmp/run"), "777\n");
    fs::set_permissions(m.join("tmp/run"), PermissionsExt::from_mode(0o4777)).unwrap();
    assert_eq!(as_nobody(&h.mount(0), "echo anew > tmp/run").0, 0);
    assert_eq!(sh(&h.mount(3), "stat -c %a tmp/run"), "777\n");
}

#[test]
fn without_allow_other_the_mount_is_closed() {
    if !possible() {
        return;
    }
    let Some(h) = Harness::start(Setup {
        nodes: 1,
        ..Setup::default()
    }) else {
        return;
    };
    fs::write(h.mount(0).join("f"), "x").unwrap();
    let (code, said) = as_nobody(Path::new("/"), &format!("ls {}", h.mount(0).display()));
    assert!(code != 0 && said.contains("ermission denied"), "{said}");
}

#[test]
fn an_ordinary_user_mounts_with_the_helper() {
    if !possible() || !has_program("fusermount3") {
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let reach = format!("test -x {} && test -w /dev/fuse", exe.display());
    if as_nobody(Path::new("/"), &reach).0 != 0 {
        eprintln!("skipped: another user cannot reach the test executable or /dev/fuse");
        return;
    }
    let Some(mut h) = Harness::start(Setup {
        nodes: 2,
        nobody: true,
        ..Setup::default()
    }) else {
        return;
    };
    let inside = |m: &Path, script: &str| {
        // Root cannot even enter the directory.
        as_nobody(Path::new("/"), &format!("cd {} && {script}", m.display()))
    };
    let (code, said) = inside(
        &h.mount(0),
        "echo text > f; mkdir d; mv f d; cat d/f; stat -c '%u' d",
    );
    assert_eq!((code, said.as_str()), (0, "text\n65534\n"));
    assert_eq!(inside(&h.mount(1), "cat d/f").1, "text\n");
    // Not even root uses another user's mount, unless it was mounted for others.
    assert!(fs::read(h.mount(0).join("d/f")).is_err());
    let ended = h.stop();
    assert!(
        ended.contains("STOPPED") && !ended.contains("STOP "),
        "{ended}"
    );
    // A dead mount of an ordinary user is cleared away by its next start, too.
    h.serve().unwrap();
    h.kill();
    h.serve().unwrap();
    assert_eq!(inside(&h.mount(1), "cat d/f").1, "text\n");
}

/// A script, and as whom it runs: arguments of `setpriv`.
type Change = (&'static [&'static str], &'static str);

const NOBODY: &[&str] = &["--reuid=65534", "--regid=65534", "--clear-groups"];
/// May keep set-id bits, unlike other users.
const TRUSTED_NOBODY: &[&str] = &[
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+fsetid",
    "--ambient-caps=+fsetid",
];
const ROOT: &[&str] = &["--reuid=0"];
/// May not keep set-id bits, unlike root.
const ROOT_WITHOUT_FSETID: &[&str] = &["--bounding-set=-fsetid", "--regid=65534", "--clear-groups"];

#[test]
fn set_id_bits_go_when_they_go_on_the_local_disk() {
    if !possible() || !has_program("fallocate") || !has_program("truncate") {
        return;
    }
    let _turn = turns::shared();
    let mut changes: Vec<Change> = Vec::new();
    for by in [NOBODY, TRUSTED_NOBODY, ROOT, ROOT_WITHOUT_FSETID] {
        for script in [
            "echo more >> f",
            "printf x | dd of=f conv=notrunc status=none",
            ": > f",
            "truncate -s 3 f",
            "truncate -s 70000 f",
            "touch f",
            "cat f",
            // Written before it got them, and again after that, through one handle.
            "exec 9>>f; printf x >&9; chmod 6777 f; printf y >&9; exec 9>&-",
        ] {
            changes.push((by, script));
        }
    }
    for by in [NOBODY, ROOT] {
        for script in ["fallocate -l 9000 f", "fallocate -p -o 0 -l 4096 f"] {
            changes.push((by, script));
        }
    }
    changes.extend([
        (ROOT, "chown 1 f"),
        (ROOT, "chgrp 1 f"),
        (NOBODY, "chown 65534:65534 f"),
    ]);
    let try_all = |dir: &Path| {
        let mut modes = Vec::new();
        for (by, script) in &changes {
            for mode in ["6777", "2767", "4766", "6666"] {
                let new = format!(
                    "rm -f f; yes | head -c 20000 > f; chown 65534:65534 f; chmod {mode} f"
                );
                sh(dir, &new);
                let mut command = Command::new("setpriv");
                let run = command.args(*by).args(["sh", "-c", script]);
                let out = run.current_dir(dir).output().unwrap();
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(out.status.success(), "{by:?}: {script}: {said}");
                modes.push((by, script, mode, sh(dir, "stat -c %a f")));
            }
        }
        modes
    };
    let local = tempfile::tempdir().unwrap();
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let right = try_all(local.path());
    for nodes in [1, 2] {
        let Some(h) = Harness::start(Setup {
            nodes,
            allow_other: true,
            ..Setup::default()
        }) else {
            return;
        };
        let here = try_all(&h.mount((nodes - 1).into()));
        let pairs = here
            .iter()
            .zip(&right)
            .filter(|(here, right)| here != right);
        let wrong: Vec<String> = pairs
            .map(|((by, script, mode, now), (.., right))| {
                format!("{by:?}: {script}: {mode} is {now:?}, not {right:?}")
            })
            .collect();
        assert!(wrong.is_empty(), "{nodes} nodes: {wrong:#?}");
    }
}
