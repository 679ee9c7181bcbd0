//! Peers that are not served: of another user, of another version, of no protocol at all.
use super::children::JobProcess;
use crate::backends::{BackendKind, World};
use forebay_client::link::server::LinkLimits;
use forebay_client::link::socket_of;
use forebay_client::link::wire::{HELLO_BYTES, Hello, Refusal, VERSION, Welcome};
use forebay_client::{Client, LockMode, LockRange, OpenOptions};
use forebay_server::Config;
use forebay_testkit::prerequisites::skip;
use forebay_testkit::turns;
use forebay_testkit::wait::until;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// A socket of the link's kind, connected but silent.
pub fn raw(socket: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let end = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_timeout(&end, Timeout::Recv, Some(LIMIT)).unwrap();
    set_socket_timeout(&end, Timeout::Send, Some(LIMIT)).unwrap();
    rustix::net::connect(&end, &SocketAddrUnix::new(socket).unwrap()).unwrap();
    end
}

pub fn send(end: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    rustix::net::send(end, bytes, SendFlags::NOSIGNAL).map(drop)
}

/// What comes; empty at the end of the connection.
pub fn receive(end: &OwnedFd) -> Vec<u8> {
    let mut buffer = vec![0; 100_000];
    let received = rustix::net::recv(end, &mut buffer[..], RecvFlags::empty());
    let (bytes, _) = received.unwrap();
    buffer.truncate(bytes);
    buffer
}

#[test]
fn another_version_hears_both_versions_and_nonsense_is_refused() {
    let world = World::start(1, BackendKind::Embedded);
    let socket = socket_of(&world.place(), 0);
    let newer = Hello {
        version: VERSION + 1,
        session: None,
    };
    let unknown = Hello {
        version: VERSION,
        session: Some([9; 16]),
    };
    let own = format!("version {VERSION}");
    let cases: [(&[u8], Refusal, &str); 4] = [
        (&newer.encode(), Refusal::Version, &own),
        (&unknown.encode(), Refusal::UnknownSession, "connect again"),
        (b"GET / HTTP/1.1", Refusal::NoHello, "hello"),
        (&[7; HELLO_BYTES], Refusal::NoHello, "hello"),
    ];
    for (said, why, word) in cases {
        let end = raw(&socket);
        send(&end, said).unwrap();
        match Welcome::decode(&receive(&end)) {
            Some(Welcome::Refused(refusal, VERSION, text)) => {
                assert_eq!(refusal, why);
                assert!(text.contains(word), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert!(receive(&end).is_empty());
    }
    assert_eq!(world.link(0).clients(), (0, 0));
    world.stop();
}

#[test]
fn a_client_that_does_not_read_its_answers_is_cut_off_and_hinders_nobody() {
    let limits = LinkLimits {
        deadline: Duration::from_millis(500),
        ..LinkLimits::default()
    };
    let world = World::with(Config::default(), limits, BackendKind::Link);
    world.clients[0].write("/f", &[7; 60_000]).unwrap();
    let socket = socket_of(&world.place(), 0);
    let life = raw(&socket);
    let begin = Hello {
        version: VERSION,
        session: None,
    };
    send(&life, &begin.encode()).unwrap();
    let Some(Welcome::Served(served)) = Welcome::decode(&receive(&life)) else {
        panic!("not served");
    };
    let end = raw(&socket);
    let join = Hello {
        version: VERSION,
        session: Some(served.session),
    };
    send(&end, &join.encode()).unwrap();
    receive(&end);
    // Requests for a value that does not exist, one after the other, whose answers nobody takes.
    let begun = Instant::now();
    let mut sent = 0u32;
    let cut = loop {
        sent += 1;
        // `Request::Progress(1, 1)`.
        let head = [6, 1, 1];
        let mut packet = sent.to_le_bytes().to_vec();
        packet.extend([3u32, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        packet.extend(head);
        if let Err(e) = send(&end, &packet) {
            break e;
        }
        assert!(begun.elapsed() < LIMIT, "never cut off");
    };
    assert!(matches!(cut, Errno::PIPE | Errno::CONNRESET), "{cut}");
    assert_eq!(world.clients[0].read("/f").unwrap().len(), 60_000);
    drop((life, end));
    world.stop_and_check();
}

#[test]
fn another_user_is_refused() {
    let _turn = turns::shared();
    if !rustix::process::geteuid().is_root() {
        skip(
            "a link refuses another user",
            "only root can be another user",
        );
        return;
    }
    let world = World::start(1, BackendKind::Embedded);
    // Everything that file permissions could refuse is permitted, so that only the server can.
    let open = |path: &Path| {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, all).unwrap();
    };
    let socket = socket_of(&world.place(), 0);
    open(&world.place());
    open(&socket);
    let script = "import socket,sys\n\
        s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
        s.connect(sys.argv[1])\n\
        s.settimeout(20)\n\
        try:\n s.send(b'FBAYLINK'+bytes([1,0,0,0,1,0,0,0])+bytes(16))\n\
        except OSError: pass\n\
        sys.stdout.buffer.write(s.recv(4096))";
    let ran = std::os::unix::process::CommandExt::uid(
        std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&socket),
        65_534,
    )
    .output();
    let Ok(ran) = ran else {
        skip("a link refuses another user", "there is no python3");
        return;
    };
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    match Welcome::decode(&ran.stdout) {
        Some(Welcome::Refused(Refusal::User, _, text)) => {
            assert!(
                text.contains("user 65534") && text.contains("mount"),
                "{text}"
            );
        }
        other => panic!("{other:?}: {said}"),
    }
    assert_eq!(world.link(0).clients(), (0, 0));
    world.stop();
}

#[test]
fn nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    for place in [
        dir.path().to_path_buf(),
        socket_of(dir.path(), 0),
        dir.path().join("none"),
    ] {
        let error = Client::connect(&place).err().unwrap();
        assert_eq!(error.errno(), Errno::CONNREFUSED, "{error}");
        assert!(error.to_string().contains("forebay"), "{error}");
    }
    // A socket that a killed server left.
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("left")).unwrap());
    assert!(Client::connect(dir.path().join("left")).is_err());
}

#[test]
fn processes_that_cannot_see_each_other_are_served_and_their_end_is_noticed() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Embedded);
    // A client that cannot see the server.
    let Some(mut holder) = JobProcess::start_in_pid_namespace("hold lock", &world.place()) else {
        return;
    };
    assert_eq!(holder.line().as_deref(), Some("holds"));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let file = options.open(&world.clients[0], "/held").unwrap();
    let range = LockRange::bytes(..);
    assert!(!file.try_lock(&range, LockMode::Exclusive).unwrap());
    holder.kill();
    until("its lock is free", || {
        file.try_lock(&range, LockMode::Exclusive).unwrap()
    });
    drop(file);
    // A server that cannot see its client.
    let nowhere = tempfile::tempdir().unwrap();
    let mut server = JobProcess::start_in_pid_namespace("serve", nowhere.path()).unwrap();
    let client = Client::connect(server.line().unwrap()).unwrap();
    client.write("/f", b"seen").unwrap();
    assert_eq!(client.read("/f").unwrap(), b"seen");
    drop(client);
    server.kill();
    world.stop();
}
