//! A client that gets mutated replies: every call of it ends soon, with an error or a value.
//!
//! The replies are those of a real server. A server of the test gives them out, mutated, mostly to requests like those that they answered;
//! only a file is opened as it should be, so that there is one to read.
use super::*;
use crate::link::address::listen;
use forebay_testkit::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Gives out replies.
struct ReplyServer {
    /// Of a real server, by the kind of request.
    by_kind: BTreeMap<String, Vec<u8>>,
    random: Mutex<Random>,
    /// The one for requests that no real server was asked, and for some others.
    reply: Mutex<Vec<u8>>,
    ended: AtomicBool,
}

/// The names in a request, without its numbers: alike for requests that are answered alike.
fn kind(request: &Request<'_>) -> String {
    let text = format!("{request:?}");
    let names = text.chars().filter(|c| !c.is_ascii_digit());
    names.take(60).collect()
}

impl ReplyServer {
    /// Accepts until the test ends.
    fn run(self: &Arc<ReplyServer>, listening: &rustix::fd::OwnedFd) {
        while !self.ended.load(Ordering::SeqCst) {
            match rustix::net::accept(listening) {
                Ok(socket) => {
                    let server = self.clone();
                    std::thread::spawn(move || server.serve(socket));
                }
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    fn serve(&self, socket: rustix::fd::OwnedFd) -> Option<()> {
        let socket = PacketSocket::new(socket, LIMIT).ok()?;
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        let received = socket.receive(&mut buffer).ok()?;
        Hello::decode(&buffer[..received.bytes])?;
        let served = ServedMember {
            session: Secret::default(),
            connection: 1,
            member: 0,
            members: 1,
            deadline_ms: 100,
        };
        socket.send_raw(&Welcome::Served(served).encode()).ok()?;
        loop {
            let received = socket.receive(&mut buffer).ok()?;
            let packet = Packet::decode(&buffer[..received.bytes])?;
            let number = packet.prefix.number;
            let request = postcard::from_bytes::<Request<'_>>(packet.head);
            let mut reply = self.reply.lock().clone();
            let mut random = self.random.lock();
            let known = request.ok().and_then(|request| {
                let known = self.by_kind.get(&kind(&request))?;
                Some((known.clone(), matches!(request, Request::Open(..))))
            });
            match known {
                Some((known, true)) => reply = known,
                Some((mut known, _)) if random.chance(80) => {
                    if random.chance(60) {
                        random.mutate(&mut known, &reply);
                    }
                    reply = known;
                }
                _ => {}
            }
            drop(random);
            // The one that is expected, or nothing else would ever be looked at.
            if let Some(place) = reply.get_mut(..4) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            socket.send_raw(&reply).ok()?;
        }
    }
}

/// Ends the server when it goes, also by a failed assertion.
struct EndOfServer<'a>(&'a AtomicBool);

impl Drop for EndOfServer<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What a real server answers, by the kind of request.
fn replies() -> BTreeMap<String, Vec<u8>> {
    let fuzzed = Fuzzed::start();
    let embedded = Client::new(fuzzed.service.delegate(0));
    embedded.create_dir("/d").unwrap();
    embedded.write("/d/f", &[7; 100_000]).unwrap();
    let mut client = fuzzed.client();
    let mut all = BTreeMap::new();
    for request in requests() {
        // One ends the file that the others are on, the other would wait for the rest of a team.
        if matches!(
            request,
            Request::File(_, FileRequest::Close) | Request::Join(..)
        ) {
            continue;
        }
        client.number += 1;
        let asked = packet(client.number, &request, b"", 0);
        client.calls.send_raw(&asked).unwrap();
        let Some(reply) = client.reply() else {
            // It is closed after a request that does not fit.
            client = fuzzed.client();
            continue;
        };
        all.insert(kind(&request), reply);
    }
    drop(client);
    fuzzed.service.stop().unwrap();
    all
}

#[test]
fn a_client_fails_or_reads_a_value_whatever_it_is_answered() {
    let _turn = ONE_AT_A_TIME.lock();
    let by_kind = replies();
    let corpus: Vec<Vec<u8>> = by_kind.values().cloned().collect();
    assert!(corpus.len() > 20, "{:?}", by_kind.keys());
    let dir = tempfile::tempdir().unwrap();
    let listening = listen(&socket_of(dir.path(), 0)).unwrap();
    let server = Arc::new(ReplyServer {
        by_kind,
        random: Mutex::new(Random::new(1)),
        reply: Mutex::default(),
        ended: AtomicBool::new(false),
    });
    let (mut values, mut errors) = (0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&listening));
        let _end = EndOfServer(&server.ended);
        let mut session: Option<(Client, crate::File)> = None;
        let mut buffer = vec![0; 300_000];
        fuzz("replies of the link", 3000, &corpus, |random, _, bytes| {
            *server.reply.lock() = bytes;
            let begun = Instant::now();
            let opened = session.take().or_else(|| {
                let client = Client::connect(dir.path()).ok()?;
                let file = client.open("/d/f").ok()?;
                Some((client, file))
            });
            let Some((client, file)) = opened else {
                errors += 1;
                return;
            };
            let offset = random.below(1 << 20);
            let is_value = match random.below(9) {
                0 => client.metadata("/d/f").is_ok(),
                1 => client
                    .read_dir("/d")
                    .is_ok_and(|mut entries| entries.next().is_some_and(|entry| entry.is_ok())),
                2 => file.read_at(&mut buffer[..4096], offset).is_ok(),
                3 => file.read_at(&mut buffer, offset).is_ok(),
                4 => (0..8).all(|n| file.read_at(&mut buffer[..4096], n * 16384).is_ok()),
                5 => file.write_at(b"bytes", offset).is_ok(),
                6 => client.read_link("/d/f").is_ok(),
                7 => client.describe("/d/f").is_ok(),
                _ => file.metadata().is_ok(),
            };
            assert!(begun.elapsed() < 4 * LIMIT, "{:?}", server.reply.lock());
            match is_value {
                true => values += 1,
                false => errors += 1,
            }
            // A connection that broke would have each later call fail at once.
            if is_value || random.chance(50) {
                session = Some((client, file));
            }
        });
    });
    println!("{values} values, {errors} errors");
    assert!(values > 50 && errors > 500, "{values} {errors}");
}
