//! Another user of the machine can neither read a store nor ask its service, even where modes were opened by mistake.
#![allow(clippy::unwrap_used)] // A test fails by panicking.
mod common;
use common::{Place, fuse, outcome, run};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Says hello on a socket and prints the answer.
const ASK: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
s.sendall(b'{"forebay":1,"program":"x"}\n"Status"\n')
print(s.recv(65536).decode())
"#;

/// Runs a program as a user who owns nothing here.
fn stranger(program: &str, args: &[&str]) -> (i32, String, String) {
    outcome(&run(Command::new(program)
        .args(args)
        .uid(12345)
        .gid(12345)
        .current_dir("/")))
}

#[test]
fn a_stranger_gets_neither_the_store_nor_an_answer() {
    if !fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let open = |path: &str, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    let place = Place::new();
    open(&place.text("."), 0o755);
    place.mount_well(&[]);
    std::fs::write(place.path("m/f"), "secret").unwrap();
    let (store, socket) = (place.store(), place.text("s/control"));
    assert_ne!(stranger("ls", &[&store]).0, 0);
    assert_ne!(stranger("cat", &[&place.text("m/f")]).0, 0);
    let (code, _, err) = stranger("/usr/bin/python3", &["-c", ASK, &socket]);
    assert!(code != 0 && err.contains("Permission denied"), "{err}");
    // Opened by mistake: the server asks the kernel who is there.
    open(&store, 0o755);
    open(&socket, 0o666);
    let (code, out, err) = stranger("/usr/bin/python3", &["-c", ASK, &socket]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("Refused") && out.contains("belongs to user 0") && !out.contains("members"),
        "{out}"
    );
    assert!(
        place.log().contains("refused user 12345"),
        "{}",
        place.log()
    );
    place.umount_well();
}
