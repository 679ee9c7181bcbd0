//! What a rank does in each test.

use super::large;
use super::launch::SCENARIO;
use crate::common::{LONG, identity};
use crate::conformance::{self, ClosureHandler, FabricBarrier, RankBarrier};
use forebay_fabric::session::{Health, Identity, Session, SessionEnd, StartError, Timing};
use forebay_fabric::{Error, Fabric, Message, Rank, Replier};
use forebay_mpi as mpi;
use forebay_testkit::wait::until;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn run() {
    let scenario = std::env::var(SCENARIO);
    match scenario.expect("a scenario").as_str() {
        "conform" => conform(conformance::CHECKS),
        "large" => conform(large::CHECKS),
        "permuted" => permuted(),
        "secret" => refused(|i, rank| i.secret.extend(vec![1; usize::from(rank == 1)])),
        "version" => refused(|i, rank| i.version += u32::from(rank == 1)),
        "twice" => refused(|i, rank| i.member = if rank == 2 { 0 } else { rank }),
        "idle" => idle(),
        "slow" => slow(),
        "killed" => killed(),
        "stopped" => stopped(),
        "ring-killed" => ring_killed(),
        other => panic!("no scenario {other}"),
    }
}

fn timing() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(200),
        limit: Duration::from_secs(3),
        join: LONG,
    }
}

/// Joins with members as ranks, but for `change`.
fn join(change: impl Fn(&mut Identity, u32)) -> Result<Session, StartError> {
    let joining = mpi::start().expect("MPI starts");
    let rank = joining.process;
    let mut identity = identity(rank, joining.processes);
    change(&mut identity, rank);
    // No test relies on the limit but those that set `timing` themselves: a machine with 7 ranks on 2 cores is slow.
    let patient = Timing {
        limit: LONG,
        ..timing()
    };
    let scenario = std::env::var(SCENARIO).unwrap_or_default();
    let deaths = ["killed", "stopped", "ring-killed"].contains(&scenario.as_str());
    joining.join(identity, if deaths { timing() } else { patient })
}

fn joined() -> Session {
    join(|_, _| {}).expect("the ranks belong together")
}

fn end(session: &Session) -> Arc<dyn Fabric> {
    session.fabric()
}

fn conform(checks: &[conformance::Check]) {
    let session = joined();
    let barrier = FabricBarrier::new(end(&session));
    let begun = Instant::now();
    conformance::each(checks, || end(&session), &barrier);
    if session.rank() == 0 {
        println!("{} ranks: {:?}", session.size(), begun.elapsed());
    }
    barrier.wait();
    drop(barrier);
    assert_eq!(session.stop(LONG), SessionEnd::Finalized);
}

fn permuted() {
    // A cycle: no rank keeps its number.
    let session = join(|i, rank| i.member = (rank + 1) % i.members).expect("members are complete");
    let own = end(&session);
    let barrier = FabricBarrier::new(end(&session));
    own.serve(ClosureHandler::requests(move |from, message, replier| {
        assert_eq!(message.head[0], from as u8);
        replier.reply(Message::new(vec![world_member()]));
    }));
    for to in 0..own.size() {
        let reply = own.call(to, Message::new(vec![own.rank() as u8]), LONG);
        assert_eq!(reply, Ok(Message::new(vec![to as u8])));
    }
    barrier.wait();
    drop((own, barrier));
    assert_eq!(session.stop(LONG), SessionEnd::Finalized);
}

/// The member of this process, from the number that `mpirun` gave it, not from the fabric.
fn world_member() -> u8 {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u8>().ok();
    let rank = number("OMPI_COMM_WORLD_RANK").or_else(|| number("PMI_RANK"));
    let size = number("OMPI_COMM_WORLD_SIZE").or_else(|| number("PMI_SIZE"));
    let (rank, size) = rank.zip(size).expect("mpirun says who this is");
    (rank + 1) % size
}

fn refused(change: impl Fn(&mut Identity, u32)) {
    match join(change) {
        Err(error @ StartError::Refused(_)) => println!("refused: {error}"),
        Err(error) => panic!("refused for another reason: {error}"),
        Ok(_) => panic!("not refused"),
    }
}

fn idle() {
    let session = joined();
    let barrier = FabricBarrier::new(end(&session));
    let own = end(&session);
    own.serve(ClosureHandler::echo());
    barrier.wait();
    if session.rank() == 0 {
        measure(&own);
    }
    barrier.wait();
    let second = || {
        let before = progress_cpu();
        std::thread::sleep(Duration::from_secs(1));
        progress_cpu() - before
    };
    let (settling, used) = (second(), second());
    let rank = own.rank();
    println!("rank {rank}: CPU time of the first idle second {settling:?}, of the next {used:?}");
    assert!(used < Duration::from_millis(50), "{used:?}");
    if session.rank() == 0 {
        let begun = Instant::now();
        assert!(own.call(1, Message::default(), LONG).is_ok());
        println!("first round trip after idling: {:?}", begun.elapsed());
    }
    barrier.wait();
    drop((own, barrier));
    assert_eq!(session.stop(LONG), SessionEnd::Finalized);
}

/// Prints latency and bandwidth.
fn measure(own: &Arc<dyn Fabric>) {
    let timed = |message: &Message, count: usize| {
        let mut times: Vec<Duration> = (0..count)
            .map(|_| {
                let begun = Instant::now();
                assert_eq!(own.call(1, message.clone(), LONG).as_ref(), Ok(message));
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[count / 2]
    };
    let small = timed(&Message::new("ping"), 500);
    let large = Message {
        bulk: vec![vec![7u8; 64 << 20].into()],
        ..Message::default()
    };
    let round = timed(&large, 5);
    let rate = 128.0 / round.as_secs_f64();
    println!("round trip of 4 bytes: {small:?}; of 64 MiB: {round:?} ({rate:.0} MiB/s)");
}

/// CPU time of the progress thread so far.
fn progress_cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    for task in tasks.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim() == "mpi-progress" {
            let stat = read("schedstat");
            let spent = stat.split(' ').next().and_then(|n| n.parse().ok());
            return Duration::from_nanos(spent.expect("the kernel counts CPU time"));
        }
    }
    panic!("no progress thread");
}

/// A handler that takes longer than the limit of silence keeps nobody from hearing of its rank.
fn slow() {
    let session = joined();
    let barrier = FabricBarrier::new(end(&session));
    let own = end(&session);
    let kept = parking_lot::Mutex::new(Vec::<Replier>::new());
    own.serve(ClosureHandler::requests(move |_, _, replier| {
        kept.lock().push(replier);
        std::thread::sleep(Duration::from_millis(700));
    }));
    barrier.wait();
    let other = 1 - own.rank();
    let deadline = Duration::from_millis(300);
    let missed = Error::Deadline {
        rank: other,
        after: deadline,
    };
    assert_eq!(own.call(other, Message::default(), deadline), Err(missed));
    std::thread::sleep(Duration::from_millis(900));
    let peers = session.peers();
    assert!(peers.iter().all(|p| p.health == Health::Alive), "{peers:?}");
    // Heartbeats came on the idle link.
    let silent = peers[other as usize].silent;
    assert!(silent < Duration::from_millis(800), "{silent:?}");
    barrier.wait();
    drop((own, barrier));
    assert_eq!(session.stop(LONG), SessionEnd::Finalized);
}

/// Rank 1 is killed while the others wait for it.
fn killed() {
    let session = joined();
    let limit = session.timing().limit;
    let barrier = FabricBarrier::new(end(&session));
    let own = end(&session);
    let rank = own.rank();
    let kept = parking_lot::Mutex::new(Vec::<Replier>::new());
    let (answered, answers) = crossbeam_channel::unbounded();
    let answer = move |from, message: Message, replier: Replier| {
        if message.head == "wait" {
            kept.lock().push(replier);
        } else {
            replier.reply(message);
            answered.send(from).expect("someone counts");
        }
    };
    own.serve(ClosureHandler::requests(answer));
    let (died, deaths) = crossbeam_channel::unbounded();
    session.on_death(move |rank| died.send(rank).expect("someone listens"));
    barrier.wait();
    let begun = Instant::now();
    if rank == 1 {
        // After the others' requests have most likely arrived; either way they end.
        std::thread::sleep(Duration::from_millis(300));
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
    let bulk = vec![vec![1u8; 100 << 20].into(); 2];
    let large = Message {
        bulk,
        ..Message::new("wait")
    };
    let asked = std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            // A large transfer that is cut off in the middle, or never begins.
            std::thread::sleep(Duration::from_millis(290));
            own.call(1, large, LONG)
        });
        let asked = own.call(1, Message::new("wait"), LONG);
        assert_eq!(late.join().ok(), Some(Err(Error::Dead(1))));
        asked
    });
    let after = begun.elapsed();
    assert_eq!(asked, Err(Error::Dead(1)));
    assert!(after < limit * 2 + Duration::from_secs(3), "{after:?}");
    assert_eq!(deaths.recv_timeout(LONG), Ok(1));
    assert_eq!(session.peers()[1].health, Health::Dead);
    assert_eq!(own.send(1, Message::new("gone")), Err(Error::Dead(1)));
    // The others go on.
    for to in [0, 2, 3] {
        let reply = own.call(to, Message::new("on"), LONG);
        assert_eq!(reply, Ok(Message::new("on")));
    }
    // This rank leaves when it has answered the others.
    let mut asked_by: Vec<Rank> = (0..3)
        .map(|_| answers.recv_timeout(LONG).expect("three ask"))
        .collect();
    asked_by.sort();
    assert_eq!(asked_by, [0, 2, 3]);
    println!("rank {rank} saw rank 1 die after {after:?}");
    drop((own, barrier));
    assert_eq!(session.stop(LONG), SessionEnd::Abandoned);
}

/// Rank 1 is killed while the others are in a collective with it; they hear of it long before the limits of the operation, and
/// the next one, without it, works.
fn ring_killed() {
    use forebay_fabric::ring::{
        CollectiveFailure, CollectiveTimeouts, Collectives, Group, MemoryBounds, Operation,
        TreeShape,
    };
    let session = joined();
    let limit = session.timing().limit;
    let barrier = FabricBarrier::new(end(&session));
    let own = end(&session);
    let rank = own.rank();
    let collectives = Arc::new(Collectives::new(own.clone(), MemoryBounds::default()));
    own.serve(collectives.clone());
    let listener = Arc::downgrade(&collectives);
    session.on_death(move |rank| {
        if let Some(collectives) = listener.upgrade() {
            collectives.rank_died(rank);
        }
    });
    barrier.wait();
    if rank == 1 {
        // After the others have most likely begun; either way it fails.
        std::thread::sleep(Duration::from_millis(300));
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
    let mut operation = Operation {
        group: Group::new(1, (0..4).collect(), TreeShape::Ring).expect("a group"),
        key: "key".into(),
        round: 0,
        root: 0,
        limits: CollectiveTimeouts {
            base: LONG,
            per_level: LONG,
        },
    };
    let join = |a: bytes::Bytes, b: bytes::Bytes| [a, b].concat().into();
    let sum =
        |operation: &Operation| collectives.reduce(operation, vec![1u8].into(), join, |all| all);
    let begun = Instant::now();
    let outcome = sum(&operation);
    let after = begun.elapsed();
    assert!(
        matches!(
            outcome,
            Err(CollectiveFailure::Missing(1) | CollectiveFailure::Lost(1))
        ),
        "{outcome:?}"
    );
    assert!(after < limit * 2 + Duration::from_secs(3), "{after:?}");
    operation.group = Group::new(2, vec![0, 2, 3], TreeShape::Ring).expect("a group");
    assert_eq!(sum(&operation), Ok(vec![1u8; 3].into()));
    println!("rank {rank} goes on without rank 1 ({after:?})");
    // The root's reply may still be on its way to the others when it leaves.
    operation.round = 1;
    let _ = sum(&operation);
    drop((own, barrier, collectives));
    assert_eq!(session.stop(LONG), SessionEnd::Abandoned);
}

/// The file by which the process `pid` says that it knows of its expulsion: over the fabric it cannot.
fn heard_of_expulsion(pid: u32) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("forebay-test-expelled-{pid}"))
}

/// Rank 0 stops the process of rank 1 until it counts as dead, and lets it go on: it stays dead, is told so, and finds itself alone.
fn stopped() {
    let session = joined();
    let own = end(&session);
    let (alone, deaths) = crossbeam_channel::unbounded();
    session.on_death(move |rank| alone.send(rank).expect("someone listens"));
    let (outside, expulsions) = crossbeam_channel::unbounded();
    session.on_expulsion(move |by| outside.send(by).expect("someone listens"));
    let pid = std::process::id().to_le_bytes();
    own.serve(ClosureHandler::requests(move |_, _, replier| {
        replier.reply(Message::new(pid.to_vec()));
    }));
    let other = 1 - session.rank();
    let reply = own.call(other, Message::default(), LONG).expect("a reply");
    if session.rank() == 0 {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = i32::from_le_bytes(reply.head[..].try_into().expect("a number"));
        let pid = Pid::from_raw(pid).expect("a process");
        // It may still wait for the reply to its own request.
        std::thread::sleep(Duration::from_millis(300));
        forebay_testkit::stopped::stop_process(pid);
        // Sent while it still counts as alive; it reads them when it goes on.
        for _ in 0..10 {
            assert_eq!(own.send(1, Message::new("late")), Ok(()));
        }
        let asked = own.call(1, Message::default(), LONG);
        kill_process(pid, Signal::CONT).expect("it still runs");
        assert_eq!(asked, Err(Error::Dead(1)));
        // It is awake, and sends heartbeats until it is told; nobody would tell it if this session ended before.
        let heard = heard_of_expulsion(pid.as_raw_nonzero().get() as u32);
        until("rank 1 has heard that it is dead", || heard.exists());
        std::fs::remove_file(heard).expect("it is there");
        assert_eq!(session.peers()[1].health, Health::Dead);
        assert_eq!(own.call(1, Message::default(), LONG), Err(Error::Dead(1)));
    }
    assert_eq!(deaths.recv_timeout(LONG), Ok(other));
    println!("rank {other} is dead and stays so");
    if session.rank() == 1 {
        let by = expulsions.recv_timeout(Duration::from_secs(1));
        println!("declared dead by rank {by:?}");
        std::fs::write(heard_of_expulsion(std::process::id()), "").expect("a place for files");
        assert_eq!(own.call(0, Message::default(), LONG), Err(Error::Dead(0)));
    } else {
        assert!(expulsions.is_empty());
    }
    drop(own);
    assert_eq!(session.stop(LONG), SessionEnd::Abandoned);
    // A launcher may end the job when the first process is gone: not before the other one has said the same.
    std::thread::sleep(Duration::from_secs(4));
}
