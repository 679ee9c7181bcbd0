//! Fuzzers of what the clients of a team say to each other: mutated requests are refused or are requests, the root answers each,
//! and a mutated answer is refused or is one.
//!
//! Short form: some thousand mutations each; `SOAK=1`: ten minutes each (or `SOAK_SECONDS`).
use super::ask::{Answer, Ask, What, combine, decode, encode};
use super::user::User;
use super::work::Work;
use crate::Client;
use bytes::Bytes;
use forebay_server::files::proto::Spans;
use forebay_server::proto::WireError;
use forebay_server::{Attr, Caller, Config, Fid, Member, Service};
use forebay_storage::fault::FaultIo;
use forebay_testkit::mutation::fuzz;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: Member = 3;

/// On a file of each kind, and where there is none.
fn asks(files: &[Fid]) -> Vec<Vec<u8>> {
    let stat = |path: &str| What::Stat { path: path.into() };
    let open = |path: &str, create, create_new| What::Open {
        path: path.into(),
        create,
        create_new,
    };
    let close = |fid, token| What::Close { fid, token };
    let mut whats = vec![
        stat("/d/f"),
        stat("/d/none/f"),
        stat("/link"),
        open("/d/f", false, false),
        open("/d/new", true, false),
        open("/d/../d/f", true, true),
        open("/link", true, false),
    ];
    whats.extend(files.iter().map(|fid| close(*fid, Some(7))));
    whats.push(close(Fid(u64::MAX), None));
    let caller = |uid| Caller { uid, gid: uid };
    let ask = |(i, what): (usize, What)| {
        let i = i as u32;
        let mut ask = Ask::new(what, (i % 3) as Member, caller(i % 2));
        ask.first.2 = 0o640;
        let each = |n| i.is_multiple_of(n);
        (ask.read, ask.write) = (each(2), each(3));
        (ask.read_only, ask.truncate) = (each(5), each(7));
        ask.users = User::new(caller(i % 3), vec![0, 5]).into_iter().collect();
        ask.kept = (0..(i % 4) as Member).collect();
        encode(&ask).to_vec()
    };
    whats.into_iter().enumerate().map(ask).collect()
}

#[test]
fn requests_and_their_combination() {
    let corpus = asks(&[Fid(2), Fid(1 << 48)]);
    let mut read = 0u64;
    fuzz("requests of teams", 30_000, &corpus, |random, _, bytes| {
        if let Some(ask) = decode::<Ask>(&bytes) {
            read += 1;
            assert_eq!(decode::<Ask>(&encode(&ask)), Some(ask));
        }
        let other = &corpus[random.index(corpus.len())];
        let whole = combine(bytes.clone().into(), other.clone().into());
        let readable = decode::<Ask>(&bytes).is_some();
        assert_eq!(decode::<Ask>(&whole).is_some(), readable);
        assert!(whole.len() <= bytes.len() + other.len() + 16);
    });
    assert!(read > 1000, "{read}");
}

/// A service with a few files, and these files.
fn service() -> (Service, Vec<Fid>) {
    let config = Config {
        nodes: NODES,
        memory: 16 << 20,
        deadline: Duration::from_secs(2),
        ..Config::default()
    };
    let io = Arc::new(FaultIo::new(1));
    let service = Service::start(io, Path::new("/store"), config).unwrap();
    let client = Client::new(service.delegate(0));
    client.create_dir("/d").unwrap();
    client.write("/d/f", b"some bytes").unwrap();
    client.symlink("d/f", "/link").unwrap();
    let fid = |path: &str| Fid(client.metadata(path).unwrap().ino());
    let files = vec![fid("/d/f"), fid("/d")];
    (service, files)
}

#[test]
fn the_root_answers_whatever_it_is_asked() {
    let (mut world, files) = service();
    let corpus = asks(&files);
    let members: Vec<Member> = (0..NODES).collect();
    let (mut count, mut answers) = (0, [0u64; 5]);
    fuzz("the root of a team", 4_000, &corpus, |_, _, bytes| {
        count += 1;
        if count % 20_000 == 0 {
            world = service().0;
        }
        let delegate = world.delegate(1);
        let work = Work {
            delegate: &delegate,
            members: &members,
            token: count,
        };
        let begun = Instant::now();
        let answer = work.execute(bytes.into());
        assert!(begun.elapsed() < Duration::from_secs(30));
        let answer = decode::<Answer>(&answer).unwrap();
        answers[match &answer {
            Answer::Attr(_) => 0,
            Answer::Opened { .. } => 1,
            Answer::Closed { .. } => 2,
            Answer::Failed(_) => 3,
            Answer::Differ => 4,
        }] += 1;
        if let Answer::Opened { attr, .. } = answer {
            let what = What::Close {
                fid: attr.fid,
                token: Some(count),
            };
            let close = Ask::new(what, 0, Caller { uid: 0, gid: 0 });
            let closed = work.execute(encode(&close));
            assert!(matches!(decode(&closed), Some(Answer::Closed { .. })));
        }
    });
    assert!(answers.iter().all(|n| *n > 10), "{answers:?}");
    let client = Client::new(world.delegate(2));
    client.write("/after", b"all that").unwrap();
    assert_eq!(client.read("/after").unwrap(), b"all that");
}

#[test]
fn answers() {
    let (service, files) = service();
    let attr: Attr = service.delegate(1).getattr(files[0]).unwrap();
    let answers = [
        Answer::Attr(attr.clone()),
        Answer::Opened {
            attr: attr.clone(),
            made: true,
            no_writers: Some(WireError::Other("busy".into())),
        },
        Answer::Closed {
            attr,
            kept: Spans::of([0, 1, 5]),
        },
        Answer::Failed(WireError::Errno(5)),
        Answer::Differ,
    ];
    let corpus: Vec<Vec<u8>> = answers.iter().map(|a| encode(a).to_vec()).collect();
    fuzz("answers of teams", 30_000, &corpus, |_, _, bytes| {
        if let Some(answer) = decode::<Answer>(&bytes) {
            let again: Bytes = encode(&answer);
            assert_eq!(decode::<Answer>(&again).as_ref(), Some(&answer));
            if let Answer::Failed(error) = answer {
                let _ = error.into_error(1).errno();
            }
        }
    });
}
