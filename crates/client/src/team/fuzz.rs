//! Fuzzers of the messages between the clients of a team: a mutated request or answer is refused, or decodes to a value that
//! encodes and decodes to itself; the root answers every request.
//!
//! Short form: some thousand mutations each; `SOAK=1`: ten minutes each (or `SOAK_SECONDS`).
use super::mount_user::MountUser;
use super::request::{TeamAction, TeamAnswer, TeamRequest, combine, decode, encode};
use super::root::RootExecutor;
use crate::Client;
use bytes::Bytes;
use forebay_server::proto::WireError;
use forebay_server::proto::files::MemberSet;
use forebay_server::{Attr, Caller, Config, Fid, Member, Service};
use forebay_storage::fault::FaultIo;
use forebay_testkit::mutation::fuzz;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: Member = 3;

/// On a file of each kind, and where there is none.
fn requests(files: &[Fid]) -> Vec<Vec<u8>> {
    let stat = |path: &str| TeamAction::Stat { path: path.into() };
    let open = |path: &str, create, create_new| TeamAction::Open {
        path: path.into(),
        create,
        create_new,
    };
    let close = |fid, token| TeamAction::Close { fid, token };
    let mut actions = vec![
        stat("/d/f"),
        stat("/d/none/f"),
        stat("/link"),
        open("/d/f", false, false),
        open("/d/new", true, false),
        open("/d/../d/f", true, true),
        open("/link", true, false),
    ];
    actions.extend(files.iter().map(|fid| close(*fid, Some(7))));
    actions.push(close(Fid(u64::MAX), None));
    let caller = |uid| Caller { uid, gid: uid };
    let request = |(i, action): (usize, TeamAction)| {
        let i = i as u32;
        let mut request = TeamRequest::new(action, (i % 3) as Member, caller(i % 2));
        request.first.2 = 0o640;
        let each = |n| i.is_multiple_of(n);
        (request.read, request.write) = (each(2), each(3));
        (request.read_only, request.truncate) = (each(5), each(7));
        request.users = MountUser::new(caller(i % 3), vec![0, 5])
            .into_iter()
            .collect();
        request.kept = (0..(i % 4) as Member).collect();
        encode(&request).unwrap().to_vec()
    };
    actions.into_iter().enumerate().map(request).collect()
}

#[test]
fn requests_and_their_combination() {
    let corpus = requests(&[Fid(2), Fid(1 << 48)]);
    let mut read = 0u64;
    fuzz("requests of teams", 30_000, &corpus, |random, _, bytes| {
        if let Ok(request) = decode::<TeamRequest>(&bytes) {
            read += 1;
            let again = encode(&request).unwrap();
            assert_eq!(decode::<TeamRequest>(&again).unwrap(), request);
        }
        let other = &corpus[random.index(corpus.len())];
        let whole = combine(bytes.clone().into(), other.clone().into());
        let readable = decode::<TeamRequest>(&bytes).is_ok();
        assert_eq!(decode::<TeamRequest>(&whole).is_ok(), readable);
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
    let corpus = requests(&files);
    let members: Vec<Member> = (0..NODES).collect();
    let (mut count, mut answers) = (0, [0u64; 5]);
    fuzz("the root of a team", 4_000, &corpus, |_, _, bytes| {
        count += 1;
        if count % 20_000 == 0 {
            world = service().0;
        }
        let delegate = world.delegate(1);
        let executor = RootExecutor {
            delegate: &delegate,
            members: &members,
            token: count,
        };
        let begun = Instant::now();
        let answer = executor.execute(bytes.into());
        assert!(begun.elapsed() < Duration::from_secs(30));
        let answer = decode::<TeamAnswer>(&answer).unwrap();
        answers[match &answer {
            TeamAnswer::Attr(_) => 0,
            TeamAnswer::Opened { .. } => 1,
            TeamAnswer::Closed { .. } => 2,
            TeamAnswer::Failed(_) => 3,
            TeamAnswer::Differ => 4,
        }] += 1;
        if let TeamAnswer::Opened { attr, .. } = answer {
            let action = TeamAction::Close {
                fid: attr.fid,
                token: Some(count),
            };
            let close = TeamRequest::new(action, 0, Caller { uid: 0, gid: 0 });
            let closed = executor.execute(encode(&close).unwrap());
            assert!(matches!(decode(&closed), Ok(TeamAnswer::Closed { .. })));
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
    let attr: Attr = service.delegate(1).names.getattr(files[0]).unwrap();
    let answers = [
        TeamAnswer::Attr(attr.clone()),
        TeamAnswer::Opened {
            attr: attr.clone(),
            made: true,
            no_writers: Some(WireError::Other("busy".into())),
        },
        TeamAnswer::Closed {
            attr,
            kept: MemberSet::of([0, 1, 5]),
        },
        TeamAnswer::Failed(WireError::Errno(5)),
        TeamAnswer::Differ,
    ];
    let corpus: Vec<Vec<u8>> = answers
        .iter()
        .map(|a| encode(a).unwrap().to_vec())
        .collect();
    fuzz("answers of teams", 30_000, &corpus, |_, _, bytes| {
        if let Ok(answer) = decode::<TeamAnswer>(&bytes) {
            let again: Bytes = encode(&answer).unwrap();
            assert_eq!(decode::<TeamAnswer>(&again).unwrap(), answer);
            if let TeamAnswer::Failed(error) = answer {
                let _ = error.into_error(1).errno();
            }
        }
    });
}
