//! Another user of the machine can neither read a store nor ask its service, even where modes were opened by mistake; and one who was
//! let in is not cut off.
use crate::common::{Place, assert_fails, command, forebay, has_fuse, outcome, run};
use forebay_testkit::prerequisites::has_program;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Debian's own, which other users may run.
const PYTHON: &str = "/usr/bin/python3";

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

/// Sets the permissions of a file or directory.
fn open(path: &str, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_stranger_gets_neither_the_store_nor_an_answer() {
    if !has_fuse() || !rustix::process::geteuid().is_root() || !has_program(PYTHON) {
        return;
    }
    let place = Place::new();
    open(&place.text("."), 0o755);
    place.mount_well(&[]);
    std::fs::write(place.path("m/f"), "secret").unwrap();
    let (store, socket) = (place.store(), place.text("s/control"));
    assert_ne!(stranger("ls", &[&store]).0, 0);
    assert_ne!(stranger("cat", &[&place.text("m/f")]).0, 0);
    let (code, _, err) = stranger(PYTHON, &["-c", ASK, &socket]);
    assert!(code != 0 && err.contains("Permission denied"), "{err}");
    // Opened by mistake: the server asks the kernel who is there.
    open(&store, 0o755);
    open(&socket, 0o666);
    let (code, out, err) = stranger(PYTHON, &["-c", ASK, &socket]);
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

/// Says hello on a link, of the version that is given, and prints the answer.
const HELLO: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(10)
s.connect(sys.argv[1])
try:
    s.send(b"FBAYLINK" + int(sys.argv[2]).to_bytes(4, "little") + bytes([1, 0, 0, 0]) + bytes(16))
except OSError:
    pass
print(s.recv(4096)[48:].decode())
"#;

#[test]
fn a_second_user_gets_nothing_by_the_link_and_right_answers_by_the_mount() {
    if !has_fuse() || !rustix::process::geteuid().is_root() || !has_program(PYTHON) {
        return;
    }
    let place = Place::new();
    open(&place.text("."), 0o755);
    place.mount_well(&["--allow-other"]);
    let (public, private) = (place.text("m/public"), place.text("m/private"));
    let client = forebay_client::Client::connect(place.store()).unwrap();
    client.write("/public", b"for all").unwrap();
    client.write("/private", b"secret").unwrap();
    open(&public, 0o644);
    open(&private, 0o600);
    // Opened by mistake: the kernel says who is there.
    open(&place.store(), 0o755);
    let link = place.text("s/link-0");
    open(&link, 0o666);
    let version = forebay_client::link::wire::VERSION.to_string();
    let (code, out, err) = stranger(PYTHON, &["-c", HELLO, &link, &version]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("you are user 12345; use the mount"), "{out}");
    let (code, out, err) = stranger("cat", &[&public]);
    assert_eq!((code, &*out), (0, "for all"), "{err}");
    let (code, out, err) = stranger("cat", &[&private]);
    assert!(
        code != 0 && out.is_empty() && err.contains("Permission denied"),
        "{err}"
    );
    let (code, _, err) = stranger("sh", &["-c", "echo more >> $0", &public]);
    assert!(code != 0, "{err}");
    assert_eq!(client.read("/public").unwrap(), b"for all");
    let file = client.open("/public").unwrap();
    let (code, out, err) = forebay(&["status", &place.store()]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains(", 1 client over the link with 1 open file"),
        "{out}"
    );
    drop(file);
    // What it may write, the link shows at once.
    open(&public, 0o666);
    let (code, _, err) = stranger("sh", &["-c", "printf more >> $0", &public]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(client.read("/public").unwrap(), b"for allmore");
    drop(client);
    place.umount_well();
}

/// Holds a file open, says so, and adds each line that it is told.
const HOLD: &str = r#"exec 3>>"$1" && echo open && while read -r line; do echo "$line" >&3 || exit 1; echo written; done"#;

#[test]
fn a_file_that_another_user_holds_open_keeps_the_service_from_being_stopped() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    open(&place.text("."), 0o755);
    // As an ordinary user's would, this server cannot look into processes of others.
    let mut mount = Command::new("setpriv");
    mount
        .arg("--bounding-set=-sys_ptrace")
        .arg("--inh-caps=-sys_ptrace");
    mount
        .arg(command(&[]).get_program())
        .args(["mount", "--allow-other", "--nodes", "2"]);
    mount
        .args([place.store(), place.mount_point()])
        .stdin(Stdio::null());
    let (code, out, err) = outcome(&run(&mut mount));
    assert_eq!(code, 0, "{out}{err}");
    open(&place.mount_point(), 0o755);
    std::fs::create_dir(place.path("m/1/dir")).unwrap();
    open(&place.text("m/1/dir"), 0o777);
    let mut holder = Command::new("bash")
        .args(["-c", HOLD, "hold", &place.text("m/1/dir/held")])
        .uid(12345)
        .gid(12345)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    let mut told = holder.stdin.take().unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "open");
    for _ in 0..2 {
        let refused = forebay(&["umount", &place.store()]);
        let pid = format!("(pid {})", holder.id());
        assert_fails(
            &refused,
            1,
            &["m/1 (node 1)", "dir/held", "bash", &pid, "--force"],
        );
        writeln!(told, "a line").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "written");
    }
    drop(told);
    assert!(holder.wait().unwrap().success());
    let held = std::fs::read_to_string(place.path("m/0/dir/held")).unwrap();
    assert_eq!(held, "a line\na line\n");
    place.umount_well();
}
