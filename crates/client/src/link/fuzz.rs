//! Fuzzers of the link: a server that gets mutated packets answers or closes the connection, keeps serving others, and keeps
//! nothing; a client that gets mutated replies fails or reads a value.
//!
//! Short form: some thousand mutations; `SOAK=1`: ten minutes each (or `SOAK_SECONDS`), and a million packets to a server at least.
mod replies;

use super::address::connect;
use super::request::*;
use super::server::{LinkLimits, LinkServer};
use super::shared_buffer::SharedBuffer;
use super::socket::PacketSocket;
use super::socket_of;
use super::wire::{
    Hello, MAX_PACKET_BYTES, Packet, PacketPrefix, SHARED_BYTES, Secret, ServedMember, VERSION,
    Welcome,
};
use crate::embedded::FileLock;
use crate::{Client, OpenOptions, TeamSpec};
use forebay_server::proto::locks::{LockMode, LockSpace};
use forebay_server::{Caller, Config, Fid, Kind, Service, SetAttr};
use forebay_storage::fault::FaultIo;
use forebay_testkit::mutation::{fuzz, fuzz_at_least};
use forebay_testkit::wait::until;
use parking_lot::Mutex;
use rustix::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(5);

/// Held by fuzzers of whole servers and clients: one measures the memory of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn caller() -> Caller {
    Caller { uid: 0, gid: 0 }
}

/// One of each kind, on files of which there are some, and on none.
fn requests() -> Vec<Request<'static>> {
    let path: &[u8] = b"/d/f";
    let open = OpenPath {
        path,
        options: OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .bits(),
        mode: 0o644,
    };
    let lock = FileLock {
        space: LockSpace::Record,
        range: 0..10,
        mode: LockMode::Exclusive,
    };
    let calls: Vec<PathRequest<'static>> = vec![
        Stat { path, follow: true }.into(),
        List {
            path: b"/",
            bytes: 1000,
        }
        .into(),
        ListAfter {
            path: b"d",
            dir: Fid::ROOT,
            bytes: 1000,
        }
        .into(),
        Make {
            path: b"/new",
            kind: Kind::Dir,
            mode: 0o755,
            target: b"",
        }
        .into(),
        Make {
            path: b"/link",
            kind: Kind::Symlink,
            mode: 0o777,
            target: b"d/f",
        }
        .into(),
        RemoveFile { path: b"/d/h" }.into(),
        RemoveDir { path: b"/new" }.into(),
        Rename {
            path: b"/d/f",
            to: b"/d/g",
        }
        .into(),
        ReadLink { path: b"/link" }.into(),
        HardLink { path, to: b"/d/h" }.into(),
        Describe { path }.into(),
        Space { path: b"/" }.into(),
        SetAttributes {
            path,
            set: SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            },
        }
        .into(),
        GetXattr {
            path,
            name: b"user.k",
        }
        .into(),
        SetXattr {
            path,
            name: b"user.k",
            value: b"value",
        }
        .into(),
        ListXattrs { path }.into(),
        RemoveXattr {
            path,
            name: b"user.k",
        }
        .into(),
    ];
    let files = [
        FileRequest::Read {
            offset: 1,
            len: 100,
        },
        FileRequest::ReadAhead(StridedRecords {
            start: 0,
            len: 100,
            stride: 200,
            count: 9,
        }),
        FileRequest::ReadAhead(StridedRecords {
            start: u64::MAX - 5,
            len: 10,
            stride: 1 << 60,
            count: 5000,
        }),
        FileRequest::ReadAhead(StridedRecords {
            start: 0,
            len: 0,
            stride: 0,
            count: 0,
        }),
        FileRequest::Write { offset: 3 },
        FileRequest::Commit,
        FileRequest::SetLen(5000),
        FileRequest::Attributes,
        FileRequest::Allocate {
            punch: true,
            zero: false,
            keep_size: true,
            offset: 1,
            len: 9,
        },
        FileRequest::Seek {
            offset: 0,
            hole: true,
        },
        FileRequest::Lock {
            lock: lock.clone(),
            wait: false,
        },
        FileRequest::Unlock {
            space: LockSpace::Record,
            range: 0..5,
        },
        FileRequest::TestLock(lock),
        FileRequest::Locate {
            records: StridedRecords::one(0, 1 << 20),
            most: 33,
        },
        FileRequest::Locate {
            records: StridedRecords::one(u64::MAX - 1, u32::MAX),
            most: u32::MAX,
        },
        FileRequest::Locate {
            records: StridedRecords {
                start: 0,
                len: 4096,
                stride: 16384,
                count: 64,
            },
            most: 3,
        },
        FileRequest::CountReads {
            reads: 3,
            bytes: u64::MAX,
        },
        FileRequest::Close,
    ];
    let team = TeamSpec {
        number: 3,
        members: vec![0],
        here: 1,
    };
    let mut all: Vec<Request<'static>> = calls
        .into_iter()
        .map(|call| Request::Path(caller(), call))
        .collect();
    // The first number that a session gives after its connection's.
    all.extend(files.into_iter().map(|request| Request::File(2, request)));
    all.extend([
        Request::Open(caller(), open),
        Request::Reopen(
            caller(),
            ReopenFile {
                fid: Fid(2),
                options: 1,
            },
        ),
        Request::Join(caller(), team),
        Request::Team(3, TeamRequest::Stat { path }),
        Request::Team(3, TeamRequest::Open(open)),
        Request::Team(3, TeamRequest::Close { file: 2 }),
        Request::Team(3, TeamRequest::Leave),
        Request::Progress(1, 1),
        Request::ShareBuffer,
        Request::ChangeCounters,
        Request::Segment(1),
    ]);
    all
}

fn packet(number: u32, request: &Request<'_>, inline: &[u8], shared: u32) -> Vec<u8> {
    let head = postcard::to_stdvec(request).unwrap();
    let prefix = PacketPrefix {
        number,
        head: head.len() as u32,
        inline: inline.len() as u32,
        shared,
    };
    [&prefix.encode()[..], &head, inline].concat()
}

#[test]
fn requests_are_read_or_refused() {
    let corpus: Vec<Vec<u8>> = requests()
        .iter()
        .map(|request| postcard::to_stdvec(request).unwrap())
        .collect();
    let mut read = 0u64;
    fuzz("requests of the link", 30_000, &corpus, |_, _, bytes| {
        if let Ok(request) = postcard::from_bytes::<Request<'_>>(&bytes) {
            read += 1;
            let again = postcard::to_stdvec(&request).unwrap();
            assert_eq!(
                postcard::from_bytes::<Request<'_>>(&again).unwrap(),
                request
            );
        }
    });
    assert!(read > 1000, "{read}");
}

#[test]
fn hellos_welcomes_and_packets_are_read_or_refused() {
    let served = Welcome::Served(ServedMember {
        session: [7; 16],
        connection: 9,
        member: 1,
        members: 3,
        deadline_ms: 10_000,
    });
    let hello = |session| {
        Hello {
            version: VERSION,
            session,
        }
        .encode()
        .to_vec()
    };
    let mut corpus = vec![hello(None), hello(Some(Secret::default())), served.encode()];
    corpus.push(Welcome::Refused(super::wire::Refusal::Full, VERSION, "too many".into()).encode());
    corpus.extend(requests().iter().map(|r| packet(1, r, b"bytes", 0)));
    fuzz("hellos of the link", 60_000, &corpus, |_, _, bytes| {
        if let Some(hello) = Hello::decode(&bytes).filter(|hello| hello.version == VERSION) {
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        if let Some(welcome @ Welcome::Served(_)) = Welcome::decode(&bytes) {
            assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        }
        if let Some(packet) = Packet::decode(&bytes) {
            let prefix = packet.prefix;
            assert_eq!(prefix.head as usize, packet.head.len());
            assert!(prefix.inline == 0 || prefix.shared == 0);
        }
    });
}

/// A service of one member whose link is fuzzed.
struct Fuzzed {
    service: Service,
    server: LinkServer,
    dir: tempfile::TempDir,
}

impl Fuzzed {
    fn start() -> Fuzzed {
        let config = Config {
            memory: 16 << 20,
            deadline: Duration::from_millis(200),
            ..Config::default()
        };
        let io = Arc::new(FaultIo::new(1));
        let service = Service::start(io, Path::new("/store"), config).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let limits = LinkLimits {
            deadline: LIMIT,
            files: 64,
            teams: 4,
            ..LinkLimits::default()
        };
        let socket = socket_of(dir.path(), 0);
        let server = LinkServer::start(&socket, service.delegate(0), limits).unwrap();
        Fuzzed {
            service,
            server,
            dir,
        }
    }

    fn socket(&self) -> PacketSocket {
        let socket = connect(&socket_of(self.dir.path(), 0), LIMIT).unwrap();
        PacketSocket::new(socket, LIMIT).unwrap()
    }

    /// What the server says to a hello.
    fn greet(&self, session: Option<Secret>) -> (PacketSocket, ServedMember) {
        let socket = self.socket();
        let version = VERSION;
        socket
            .send_raw(&Hello { version, session }.encode())
            .unwrap();
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        let received = socket.receive(&mut buffer).unwrap();
        match Welcome::decode(&buffer[..received.bytes]) {
            Some(Welcome::Served(served)) => (socket, served),
            other => panic!("{other:?}"),
        }
    }

    /// A client with a file open, as the requests name it.
    fn client(&self) -> FuzzedClient {
        let (life, served) = self.greet(None);
        let (calls, _) = self.greet(Some(served.session));
        let mut client = FuzzedClient {
            _life: life,
            calls,
            number: 0,
            shared: false,
        };
        let requests = requests();
        let opens = requests.iter().find(|r| matches!(r, Request::Open(..)));
        client.number += 1;
        let open = packet(client.number, opens.unwrap(), b"", 0);
        client.calls.send_raw(&open).unwrap();
        client.reply().unwrap();
        client
    }
}

struct FuzzedClient {
    _life: PacketSocket,
    calls: PacketSocket,
    number: u32,
    shared: bool,
}

impl FuzzedClient {
    /// `None`: the connection is closed.
    fn reply(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        let received = self.calls.receive(&mut buffer).unwrap();
        buffer.truncate(received.bytes);
        (received.bytes > 0).then_some(buffer)
    }

    fn share(&mut self) {
        let memory = SharedBuffer::new(SHARED_BYTES).unwrap();
        let head = postcard::to_stdvec(&Request::ShareBuffer).unwrap();
        self.number += 1;
        let prefix = PacketPrefix {
            number: self.number,
            head: head.len() as u32,
            ..PacketPrefix::default()
        };
        self.calls
            .send(prefix, &head, &[], Some(memory.as_fd()))
            .unwrap();
        self.reply().unwrap();
        self.shared = true;
    }
}

#[test]
fn a_server_answers_or_closes_whatever_it_is_sent() {
    let _turn = ONE_AT_A_TIME.lock();
    let fuzzed = Fuzzed::start();
    let embedded = Client::new(fuzzed.service.delegate(0));
    embedded.create_dir("/d").unwrap();
    let corpus: Vec<Vec<u8>> = requests()
        .iter()
        .flat_map(|request| {
            let with = |inline: &[u8], shared| packet(0, request, inline, shared);
            [with(b"", 0), with(b"some bytes", 0), with(b"", 70_000)]
        })
        .collect();
    let mut client = None;
    let (mut answered, mut closed, mut round) = (0u64, 0u64, 0u64);
    let mut first_memory = None;
    fuzz_at_least(
        "packets of the link",
        20_000,
        1_000_000,
        &corpus,
        |random, _, mut bytes| {
            round += 1;
            if round == 2000 {
                first_memory = Some(resident());
            }
            // What mutations do to names is removed from time to time.
            if round.is_multiple_of(5000) {
                client = None;
                for entry in embedded.read_dir("/").unwrap() {
                    let _ = embedded.remove_dir_all(entry.unwrap().path());
                }
                let _ = embedded.create_dir("/d");
            }
            let current = client.get_or_insert_with(|| {
                let mut client = fuzzed.client();
                if random.chance(50) {
                    client.share();
                }
                client
            });
            // Mostly the one that is expected, or nothing else would ever be looked at.
            if random.chance(95) && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&(current.number + 1).to_le_bytes());
            }
            let begun = Instant::now();
            let sent = current.calls.send_raw(&bytes);
            let reply = match sent.is_ok() && !bytes.is_empty() {
                true => current.reply(),
                false => None,
            };
            assert!(begun.elapsed() < LIMIT, "{bytes:?}");
            match reply {
                Some(reply) => {
                    answered += 1;
                    current.number += 1;
                    assert!(Packet::decode(&reply).is_some());
                }
                None => {
                    closed += 1;
                    client = None;
                }
            }
        },
    );
    println!("{answered} answered, {closed} closed");
    assert!(answered > 500 && closed > 500, "{answered} {closed}");
    drop(client);
    // Others are served, and nothing is left.
    let other = Client::connect(fuzzed.dir.path()).unwrap();
    other.write("/after", b"all that").unwrap();
    assert_eq!(other.read("/after").unwrap(), b"all that");
    drop(other);
    until("all sessions are gone", || {
        fuzzed.server.clients() == (0, 0)
    });
    until("no file is open", || {
        fuzzed.service.delegate(0).open_files() == 0
    });
    let grown = resident().saturating_sub(first_memory.unwrap());
    assert!(grown < 200 << 20, "{grown} bytes more than at the begin");
    drop(fuzzed.server);
    fuzzed.service.stop().unwrap();
}

/// Resident memory of this process, which other tests use too.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
