//! Fuzzer of what members ask and answer each other. Messages of a real service are mutated and sent: each is answered, none
//! makes a handler panic or take much memory, and the service goes on.
//!
//! Short form: some thousand mutations; `SOAK=1`: ten minutes each (or `SOAK_SECONDS`).
use crate::common::*;
use bytes::Bytes;
use forebay_data::READ_BYTES;
use forebay_fabric::fault::{Intercept, InterceptedCall, intercepted};
use forebay_fabric::{Error, Fabric, Message, Rank, ring::Collectives};
use forebay_server::delegate::{Delegate, Fallocate, WantedLock};
use forebay_server::proto::intents::{IntentId, IntentPart};
use forebay_server::proto::locks::{LockMode, LockSpace};
use forebay_server::proto::meta::FinishIntent;
use forebay_server::proto::{OneWay, Request, WireError};
use forebay_server::{Caller, Fid, Kind, NewInode, RenameFlags, Service, SetAttr, SetTime};
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use parking_lot::Mutex;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NODES: u16 = 3;
/// One message may make a handler hold this much at once, bytes: a read may be that long, and no answer is much larger.
const MOST: i64 = READ_BYTES as i64 + (16 << 20);

/// Counts what a thread holds.
struct Counting;

thread_local! {
    /// Bytes held since the last [`measured`] began, and the most.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn held(more: i64) {
    // Not while the thread ends.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + more, most.max(now + more)));
    });
}

// SAFETY: all calls go to the system's allocator with what was given; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        held(layout.size() as i64);
        // SAFETY: as promised to this call.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        held(layout.size() as i64);
        // SAFETY: as promised to this call.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        held(-(layout.size() as i64));
        // SAFETY: as promised to this call.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        held(size as i64 - layout.size() as i64);
        // SAFETY: as promised to this call.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `run` gives, and the most that this thread held meanwhile.
fn measured<T>(run: impl FnOnce() -> T) -> (T, i64) {
    HELD.set((0, 0));
    let done = run();
    (done, HELD.get().1)
}

/// Heads of requests, replies and one-way messages that were sent.
#[derive(Default)]
struct Heard {
    requests: Vec<Vec<u8>>,
    /// Each behind the head of its request.
    replies: Vec<(Vec<u8>, Vec<u8>)>,
    sent: Vec<Vec<u8>>,
}

/// Listens at an end of the fabric, and changes replies once it is told to.
struct Tap {
    heard: Arc<Mutex<Heard>>,
    /// Of 1,000 replies so many are changed.
    noise: Arc<AtomicU64>,
    random: Mutex<Random>,
}

impl Intercept for Tap {
    fn call(&self, call: InterceptedCall<'_>) -> Result<Message, Error> {
        // Those of collectives have a fuzzer of their own.
        if Collectives::is_ring(&call.message) {
            return call.proceed();
        }
        let asked = call.message.head.to_vec();
        let mut reply = call.proceed()?;
        let noise = self.noise.load(Ordering::Relaxed) as usize;
        if noise == 0 {
            let mut heard = self.heard.lock();
            heard.requests.push(asked.clone());
            heard.replies.push((asked, reply.head.to_vec()));
        } else {
            let mut random = self.random.lock();
            if random.index(1000) < noise {
                let mut head = reply.head.to_vec();
                random.mutate(&mut head, &asked);
                reply.head = head.into();
                if random.index(4) == 0 {
                    reply.bulk.truncate(random.index(reply.bulk.len() + 1));
                }
                if random.index(4) == 0 {
                    reply.bulk.push(Bytes::from_static(b"more"));
                }
            }
        }
        Ok(reply)
    }
    fn send(&self, end: &dyn Fabric, to: Rank, message: Message) -> Result<(), Error> {
        if !Collectives::is_ring(&message) {
            self.heard.lock().sent.push(message.head.to_vec());
        }
        end.send(to, message)
    }
}

/// A service whose messages can be listened to and changed.
struct World {
    service: Service,
    ends: Vec<Arc<dyn Fabric>>,
    heard: Arc<Mutex<Heard>>,
    noise: Arc<AtomicU64>,
    _dir: TempDir,
}

impl World {
    fn new(seed: u64) -> World {
        let dir = scratch();
        let (heard, noise) = (Arc::<Mutex<Heard>>::default(), Arc::default());
        let ends = Mutex::new(Vec::new());
        let wrap = |end: Arc<dyn Fabric>| {
            ends.lock().push(end.clone());
            let tap = Tap {
                random: Mutex::new(Random::new(seed * 100 + u64::from(end.rank()))),
                heard: heard.clone(),
                noise: Arc::clone(&noise),
            };
            intercepted(end, Arc::new(tap))
        };
        let config = forebay_server::Config {
            deadline: Duration::from_secs(2),
            ..config(NODES)
        };
        let service = start_over(&dir, config, wrap);
        let mut ends = ends.into_inner();
        ends.sort_by_key(|end| end.rank());
        World {
            service,
            ends,
            heard,
            noise,
            _dir: dir,
        }
    }
}

/// What a mount asks for in a day: every operation, on names of its own. Each may fail, for messages may be changed.
fn a_day(service: &Service, day: u64) {
    let node = |k: u64| service.delegate(((day + k) % u64::from(NODES)) as u16);
    for d in 0..6 {
        let dir = NewInode::new(Kind::Dir, 0o755);
        let name = format!("d{day}.{d}");
        let Ok(dir) = node(d).names.make(Fid::ROOT, name.as_bytes(), dir, ROOT) else {
            continue;
        };
        let _ = in_a_directory(&node(d), &node(d + 1), dir.fid);
        let _ = node(d).names.rmdir(dir.fid, b"sub", ROOT);
        let _ = node(d).names.rename(
            Fid::ROOT,
            name.as_bytes(),
            Fid::ROOT,
            format!("{name}.old").as_bytes(),
            RenameFlags::default(),
            ROOT,
        );
    }
}

fn in_a_directory(here: &Delegate, there: &Delegate, dir: Fid) -> forebay_server::Result<()> {
    let new = |kind, target: &[u8]| NewInode {
        target: target.to_vec(),
        ..NewInode::new(kind, 0o755)
    };
    let sub = here.names.make(dir, b"sub", new(Kind::Dir, b""), ROOT)?;
    let link = here
        .names
        .make(dir, b"link", new(Kind::Symlink, b"sub/file"), ROOT)?;
    let _ = there.names.readlink(link.fid);
    let opened = here.create(sub.fid, b"file", 0o644, true, BOTH, ROOT)?;
    let (fid, handle) = (opened.attr.fid, opened.handle);
    for at in [0, SLICE - 500, 2 * SLICE, 3 * SLICE - 1] {
        let _ = here.write(handle, at, &[7; 1000], ROOT);
    }
    let _ = here.fsync(handle);
    let other = there.open(fid, BOTH);
    if let Ok(other) = &other {
        let _ = there.read(other.handle, SLICE - 500, 5000);
        let _ = there.write(other.handle, 100, &[8; 3000], ROOT);
        let _ = there.flush(other.handle);
        let wanted = WantedLock {
            owner: 5,
            space: LockSpace::Record,
            start: 0,
            end: 10,
            mode: LockMode::Exclusive,
            pid: 1,
            detect: true,
        };
        let _ = there.locks.lock_or_wait(other.handle, &wanted);
        let _ = here.locks.test_lock(handle, &wanted);
        let _ = there.locks.close_owner(other.handle, 5);
    }
    let _ = here.read(handle, 0, 4000);
    let what = Fallocate {
        punch: false,
        zero: false,
        keep_size: false,
    };
    let _ = here.fallocate(handle, what, 0, 10_000);
    let set = SetAttr {
        size: Some(SLICE + 10),
        mode: Some(0o600),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let _ = there
        .names
        .setattr(fid, &set, None, Caller { uid: 0, gid: 0 });
    let _ = there.names.setxattr(fid, b"user.x", b"value", true, false);
    let _ = there.names.getxattr(fid, b"user.x");
    let _ = there.names.listxattr(fid);
    let _ = there.names.removexattr(fid, b"user.x");
    let _ = there.names.survey(&[fid, dir, Fid(99)]);
    let _ = there.locator.holders(fid, 0..2 * SLICE);
    let _ = there.names.statfs();
    let _ = there.names.sync_directory(sub.fid);
    let _ = there.names.lookup(sub.fid, b"file");
    let _ = there.names.readdir(dir, None, 10);
    let _ = there.names.link(fid, dir, b"second");
    let swap = RenameFlags {
        exchange: true,
        ..RenameFlags::default()
    };
    let _ = there.names.rename(dir, b"second", dir, b"link", swap, ROOT);
    let _ = there.names.rename(
        sub.fid,
        b"file",
        dir,
        b"moved",
        RenameFlags::default(),
        ROOT,
    );
    let _ = there.names.unlink(dir, b"second", ROOT);
    let laminated = there.create(dir, b"fixed", 0o644, true, BOTH, ROOT);
    if let Ok(opened) = laminated {
        let _ = there.write(opened.handle, 0, &[1; 100], ROOT);
        let _ = there.release(opened.handle);
        let _ = here.names.laminate(opened.attr.fid);
    }
    let _ = here.release(handle);
    if let Ok(other) = other {
        let _ = there.release(other.handle);
    }
    let _ = there.names.unlink(dir, b"moved", ROOT);
    Ok(())
}

/// Some messages of each kind, told by the first bytes of what `named` says.
fn some_of_each<T: Ord>(mut heads: Vec<T>, named: impl Fn(&T) -> &Vec<u8>) -> Vec<T> {
    heads.sort();
    heads.dedup();
    let mut corpus: Vec<T> = Vec::new();
    let kind = |head: &T| named(head)[..named(head).len().min(3)].to_vec();
    for head in heads {
        let alike = corpus.iter().rev().take_while(|c| kind(c) == kind(&head));
        if alike.count() < 8 {
            corpus.push(head);
        }
    }
    corpus
}

/// Everything that is asked in a day.
fn corpus() -> Heard {
    let world = World::new(0);
    for day in 0..3 {
        a_day(&world.service, day);
    }
    wait_until_idle(&world.service);
    world.service.stop().unwrap();
    let heard = std::mem::take(&mut *world.heard.lock());
    Heard {
        requests: some_of_each(heard.requests, |head| head),
        replies: some_of_each(heard.replies, |(asked, _)| asked),
        sent: some_of_each(heard.sent, |head| head),
    }
}

/// Whether someone who asks for sensible things gets them. A changed message may say what is true of no file: so not always.
fn still_works(service: &Service, name: &str) -> bool {
    let (a, b) = (service.delegate(0), service.delegate(2));
    let works = || -> forebay_server::Result<bool> {
        let opened = a.create(Fid::ROOT, name.as_bytes(), 0o644, true, BOTH, ROOT)?;
        a.write(opened.handle, SLICE - 5, b"ten bytes.", ROOT)?;
        a.fsync(opened.handle)?;
        let other = b.open(opened.attr.fid, READ)?;
        let read = b.read(other.handle, SLICE - 5, 100)?;
        b.release(other.handle)?;
        a.release(opened.handle)?;
        Ok(read[..] == b"ten bytes."[..])
    };
    works().unwrap_or(false)
}

#[test]
fn mutated_requests_are_answered() {
    let corpus = corpus().requests;
    assert!(corpus.len() > 60, "{} requests", corpus.len());
    let mut world = World::new(1);
    a_day(&world.service, 0);
    let (mut count, mut most, mut answers) = (0u64, 0, [0u64; 5]);
    fuzz("requests", 6_000, &corpus, |random, first, head| {
        count += 1;
        if count.is_multiple_of(20_000) {
            world = World::new(1);
            a_day(&world.service, 0);
        }
        let from = random.index(usize::from(NODES));
        let to = (from + 1 + random.index(usize::from(NODES) - 1)) % usize::from(NODES);
        let asked = postcard::from_bytes::<Request>(&head);
        let message = Message {
            head: head.clone().into(),
            bulk: vec![Bytes::new(); random.index(2)],
        };
        let begun = Instant::now();
        let timeout = Duration::from_secs(60);
        let (reply, held) = measured(|| world.ends[from].call(to as Rank, message, timeout));
        let what = || format!("{asked:?}, {head:?}, of {first:?}");
        let reply = reply.unwrap_or_else(|e| panic!("{e}: {}", what()));
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", what());
        assert!(held < MOST, "{held} bytes: {}", what());
        most = most.max(held);
        answers[match &asked {
            Err(_) => {
                let reply: Result<(), WireError> = postcard::from_bytes(&reply.head).unwrap();
                assert!(matches!(reply, Err(WireError::Corrupt(_))));
                0
            }
            Ok(asked) => match (asked, asked.reread_reply(&reply.head).unwrap()) {
                (_, Err(_)) => 1,
                (Request::Operations(_) | Request::Leaf(_), Ok(_)) => 2,
                (Request::Files(_), Ok(_)) => 3,
                (_, Ok(_)) => 4,
            },
        }] += 1;
    });
    println!("unreadable, refused, done by part: {answers:?}; {most} bytes at most");
    assert!(answers.iter().all(|n| *n > 20), "{answers:?}");
    let works = (0..4).filter(|i| still_works(&world.service, &format!("after all that {i}")));
    assert!(works.count() > 0, "the service does nothing any more");
}

/// A message that says of intents what cannot be does not stop those that follow, nor make them look again and again.
#[test]
fn a_wrong_number_stops_no_coordinator() {
    let world = World::new(1);
    let finish = |coordinator, number, below| {
        Request::from(FinishIntent {
            intent: IntentId {
                coordinator,
                number,
            },
            below,
            part: IntentPart::default(),
            by: None,
        })
    };
    // From member 0: its own intents up to a number that it never gave out, and those of another member.
    for wrong in [finish(0, 1, 4_194_303), finish(2, 4_194_303, 4_194_303)] {
        let message = Message {
            head: postcard::to_stdvec(&wrong).unwrap().into(),
            bulk: Vec::new(),
        };
        let reply = world.ends[0].call(1, message, Duration::from_secs(60));
        let reply: Result<(), WireError> = postcard::from_bytes(&reply.unwrap().head).unwrap();
        assert!(matches!(reply, Err(WireError::Refused(_))), "{reply:?}");
    }
    let new = NewInode::new(Kind::Dir, 0o755);
    // Directories are spread: among these some are made by members 0 and 2 for member 1.
    let mut parents = vec![Fid::ROOT];
    for i in 0..24 {
        let (name, parent) = (format!("d{i}"), parents[i % parents.len()]);
        let node = world.service.delegate((i % 3) as u16);
        let made = node.names.make(parent, name.as_bytes(), new.clone(), ROOT);
        parents.push(made.unwrap().fid);
    }
    for member in 0..NODES {
        assert!(parents.iter().any(|fid| fid.owner() == member));
    }
}

#[test]
fn mutated_heads_are_refused_or_read() {
    let heard = corpus();
    let mut random = Random::new(1);
    // What a head is a reply to, if it is one; any other request may be asked too, and get it.
    let mut asked_for: BTreeMap<Vec<u8>, Request> = BTreeMap::new();
    for (asked, reply) in &heard.replies {
        asked_for.insert(reply.clone(), postcard::from_bytes(asked).unwrap());
    }
    let requests: Vec<Request> = asked_for.values().cloned().collect();
    let replies = heard.replies.into_iter().map(|(_, reply)| reply).collect();
    let corpus = [heard.requests, replies, heard.sent].concat();
    assert!(corpus.len() > 100, "{} messages", corpus.len());
    fuzz("heads", 50_000, &corpus, |_, first, mut head| {
        // Also long ones.
        if random.index(50) == 0 {
            head = head.repeat(1 + random.index(2000));
        }
        let most = (2 << 20) + 100 * head.len() as i64;
        let other = &requests[random.index(requests.len())];
        let (_, held) = measured(|| {
            if let Ok(request) = postcard::from_bytes::<Request>(&head) {
                reread(&request);
            }
            let own = asked_for.get(first);
            for asked in own.into_iter().chain([other]) {
                match asked.reread_reply(&head) {
                    Ok(Ok((text, again))) => {
                        let reply = asked.reread_reply(&again).unwrap().unwrap();
                        assert_eq!(reply.0, text);
                    }
                    Ok(Err(error)) => drop(error.into_error(1).errno()),
                    Err(_) => {}
                }
            }
            if let Ok(message) = postcard::from_bytes::<OneWay>(&head) {
                reread(&message);
            }
        });
        assert!(held < most, "{held} bytes for {}: {head:?}", head.len());
    });
}

/// What is read is written as something that reads the same.
fn reread<T: serde::Serialize + for<'a> serde::Deserialize<'a> + std::fmt::Debug>(value: &T) {
    let bytes = postcard::to_stdvec(value).unwrap();
    let again: T = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(format!("{again:?}"), format!("{value:?}"));
}

#[test]
fn who_gets_mutated_replies_gets_errors_at_worst() {
    let end = Instant::now() + seeds::fuzz_time();
    let mut seed = seeds::asked_seed().unwrap_or(0);
    let first = seed;
    let (mut days, mut good) = (0u64, 0u64);
    while if seeds::is_soak() {
        Instant::now() < end
    } else {
        seed < first + 2
    } {
        let world = World::new(seed);
        seeds::with_seed("wire_fuzz", seed, || {
            for day in 0..6 {
                world.noise.store(100, Ordering::Relaxed);
                a_day(&world.service, day);
                world.noise.store(0, Ordering::Relaxed);
                days += 1;
                good += u64::from(still_works(&world.service, &format!("after {day}")));
            }
        });
        // It may fail: a node was told that its file belongs to a member that there is not.
        let _ = world.service.stop();
        seed += 1;
    }
    println!("replies: seeds {first} to {seed}; the service worked after {good} of {days} days");
    assert!(good > days / 2, "{good} of {days}");
}
