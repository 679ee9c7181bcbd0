//! A server of an MPI job is killed under load. Under OpenMPI: what needs the dead member fails with `EIO` within the deadline,
//! all else goes on as if nothing had happened. Under MPICH the whole service ends. Either way `run` says so and leaves nothing
//! behind, and the next start has all that was committed, on every mount.
//!
//! Each round starts four servers with `forebay run`, and workers on all mounts (see `killed/worker.rs`); after a seeded number
//! of operations one server gets SIGKILL: that of rank 0, 1, 2, 3 in turn. Every operation is known to need certain members, by
//! where its directory, its slice and its bytes are; that decides what it may end with.
//!
//! 4 rounds; with `SOAK=1` 100, which go on where they stopped if `SOAK_DIR` is set. `FOREBAY_SEED=n` runs round n alone.
mod entry;
mod worker;

use crate::common::left::nothing;
use crate::common::mpi::{N, logs, mpirun, open_mpi, place, server, started};
use crate::common::rounds::Watchdog;
use crate::common::{Place, forebay, kill};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use worker::{Scene, Signs, Worker};

/// The `--deadline` of the services.
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest time a round may take.
const LIMIT: Duration = Duration::from_secs(150);

#[test]
fn what_needs_a_killed_member_fails_in_time_and_all_else_goes_on() {
    if mpirun().is_none() {
        return;
    }
    seeds::for_each_seed("run_mpi_killed", (4, 100), round);
}

fn round(seed: u64) {
    let place = place();
    let _watchdog = Watchdog::start(seed, LIMIT, place.path(""));
    let mut random = Random::new(seed);
    let victim = (seed % N as u64) as usize;
    // A command that fails does not hide that a server died.
    let code = [0, 7][random.below(2) as usize];
    let run = start(&place, code);
    let names = directories(&place);
    // On each mount one worker that keeps away from what the victim has, and one that does not.
    let mut workers: Vec<Worker> = (0..2 * N)
        .map(|id| Worker::new(id, seed, (id < N).then_some(victim)))
        .filter(|worker| !worker.is_pointless())
        .collect();
    load(
        &place,
        &names,
        &mut workers,
        seed,
        victim,
        20 + random.below(400),
    );
    finish(&place, run, code, victim);
    sound(&place, seed);
    let run = start(&place, 0);
    let scene = scene(&place, &names);
    std::thread::scope(|scope| {
        let (scene, workers) = (&scene, &workers);
        for mount in 0..N {
            scope.spawn(move || workers.iter().for_each(|w| w.verify(scene, mount, seed)));
        }
    });
    drop(scene);
    let (code, said) = end(&place, run);
    assert_eq!((code, said.as_str()), (0, ""), "{}", logs(&place));
    nothing(&place);
    sound(&place, seed);
}

/// Starts the service; its command waits for the file `done`, and ends with this exit code.
fn start(place: &Place, code: i32) -> Child {
    let done = place.text("done");
    let _ = std::fs::remove_file(&done);
    let script = format!("echo ready; until test -e {done}; do sleep 0.05; done; exit {code}");
    let deadline = format!("{}s", DEADLINE.as_secs());
    started(place, &["--deadline", &deadline], &script)
}

/// Lets the command end; what became of `run`, and what it said.
fn end(place: &Place, mut run: Child) -> (i32, String) {
    std::fs::write(place.path("done"), "").unwrap();
    let mut said = String::new();
    run.stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    let code = run.wait().unwrap().code().unwrap_or(-1);
    // What mpirun itself says of a process that was killed.
    let ours = |line: &&str| line.starts_with("forebay");
    (
        code,
        said.lines().filter(ours).collect::<Vec<_>>().join("\n"),
    )
}

/// Makes a directory of each member; their names, by member.
fn directories(place: &Place) -> Vec<String> {
    let mut names = vec![None; N];
    for i in 0..1000 {
        let name = format!("d{i}");
        let path = place.path("m0").join(&name);
        std::fs::create_dir(&path).unwrap();
        // The upper part of a file id is the member that made it.
        let owner = std::fs::metadata(&path).unwrap().ino() >> 48;
        names[owner as usize].get_or_insert(name);
        if names.iter().all(Option::is_some) {
            break;
        }
    }
    names.into_iter().map(|name| name.unwrap()).collect()
}

/// The directories, opened on every mount: so what is done in one of them asks nothing of the root's owner.
fn scene(place: &Place, names: &[String]) -> Scene {
    let open = |mount: usize| {
        let on = |name: &String| File::open(place.path(&format!("m{mount}")).join(name)).unwrap();
        names.iter().map(on).collect()
    };
    Scene {
        dirs: (0..N).map(open).collect(),
    }
}

/// Has the workers work, kills the victim after `target` operations, and sees that the others get on with it.
fn load(
    place: &Place,
    names: &[String],
    workers: &mut [Worker],
    seed: u64,
    victim: usize,
    target: u64,
) {
    let scene = scene(place, names);
    let signs = Signs::default();
    std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let (scene, signs) = (&scene, &signs);
                scope.spawn(move || worker.work(scene, victim, signs))
            })
            .collect();
        let until = |what: &str, done: &AtomicU64, count: u64| {
            let end = Instant::now() + LIMIT / 2;
            // A worker that has panicked ends early; its own words say more than these.
            while done.load(Ordering::Relaxed) < count && !handles.iter().any(|h| h.is_finished()) {
                assert!(
                    Instant::now() < end,
                    "seed {seed}: the workers do not get on {what}"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        until("before the kill", &signs.before, target);
        signs.killed.store(true, Ordering::SeqCst);
        kill(server(place, victim));
        let enough = worker::ENOUGH * handles.len() as u64;
        until("after the kill", &signs.after, enough);
        signs.stop.store(true, Ordering::SeqCst);
    });
    let longest = workers.iter().map(|w| w.longest).max().unwrap_or_default();
    let failed: u64 = workers.iter().map(|w| w.failed).sum();
    eprintln!(
        "seed {seed}: member {victim} killed; {failed} operations failed, the longest after {longest:?}"
    );
    assert!(failed > 0, "seed {seed}: nothing needed the dead member");
}

/// After the kill: `run` ends, says which server died, and leaves nothing.
fn finish(place: &Place, run: Child, code: i32, victim: usize) {
    let (got, said) = end(place, run);
    let lost = match open_mpi() {
        true => {
            assert_eq!(got, if code == 0 { 1 } else { code }, "{said}");
            let died = format!("forebay: the server of member {victim} on ");
            assert!(
                said.contains(&died) && said.contains("has died; what needs it"),
                "{said}"
            );
            assert_eq!(said.lines().count(), 2, "{said}");
            died
        }
        // The service ended, and the command with it, unless it had ended by itself just before.
        false => {
            assert!(got == 1 || got == code, "{got}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            format!("the server of member {victim} on ")
        }
    };
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("ended before its time"), "{said}");
    let only = !last.contains(", and the server") || !open_mpi();
    let all = last.contains("each of the 4") && !open_mpi();
    assert!(
        only && last.contains(&lost) || all,
        "{said}
{}",
        logs(place)
    );
    nothing(place);
}

/// The stores are in order, before the restart and after it.
fn sound(place: &Place, seed: u64) {
    let (code, out, err) = forebay(&["fsck", &place.text("n{rank}")]);
    assert_eq!(code, 0, "seed {seed}: {out}{err}");
}
