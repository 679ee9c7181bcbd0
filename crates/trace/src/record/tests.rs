//! What threads record at once is in the file, in each thread's order, with names; parts become one.
use super::*;
use crate::{Process, Recording, TraceFile, format};

fn setup(threads: bool) -> RecorderOptions {
    RecorderOptions {
        name: "t".into(),
        begun: clock(),
        threads,
        host: "here".into(),
    }
}

fn seen(thread: u32, action: Action, inode: u64, handle: u64, start: u64) -> ObservedCall {
    ObservedCall {
        thread,
        action,
        inode,
        handle,
        offset: start,
        len: 1,
        start,
        end: start + 1,
        error: 0,
    }
}

fn read(path: &Path) -> Recording {
    format::recover(File::open(path).unwrap(), path).unwrap()
}

#[test]
fn calls_of_many_threads_are_all_there_and_in_order() {
    const CALLS: u64 = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let recorder = Recorder::start(&path, &setup(true)).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4u32 {
            let recorder = &recorder;
            // Threads that are none of this machine, most likely: what is known of them does not matter here.
            scope.spawn(move || {
                for i in 0..CALLS {
                    recorder.call(&seen(1 << 30 | thread, Action::Write, 2 + i % 3, 0, i));
                }
            });
        }
    });
    assert_eq!(recorder.finish().unwrap(), 4 * CALLS);
    let recording = read(&path);
    assert_eq!(recording.loss, None);
    assert_eq!((recording.ranks, recording.files.len()), (4, 3));
    for rank in 0..4 {
        let own = recording.calls.iter().filter(|c| c.rank == rank);
        assert!(own.map(|c| c.start).eq(0..CALLS), "rank {rank}");
    }
    assert!(recorder.finish().is_err(), "it has ended");
}

#[test]
fn files_get_the_names_they_are_met_under() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let recorder = Recorder::start(&path, &setup(false)).unwrap();
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    recorder.call(&seen(own, Action::Stat, 1, 0, 1));
    recorder.call(&seen(own, Action::Write, 9, 0, 2));
    recorder.named(1, b"d", 5);
    recorder.named(5, b"f", 9);
    recorder.named(6, b"g", 10);
    recorder.call(&seen(own, Action::Write, 10, 0, 3));
    assert_eq!(recorder.child(5, b"f"), Some(9));
    assert_eq!(recorder.child(5, b"x"), None);
    recorder.named(1, b"h", 9);
    recorder.finish().unwrap();
    let recording = read(&path);
    let of = |inode: u64| {
        let mut all = recording.files.iter();
        all.find(|f| f.inode == inode).unwrap().path.clone()
    };
    assert_eq!([of(1), of(9), of(5), of(10)], [".", "h", "d", "inode-6/g"]);
    assert_eq!(recording.processes[&0].pid, std::process::id());
}

#[test]
fn what_the_kernel_does_alone_counts_for_who_opened_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let recorder = Recorder::start(&path, &setup(true)).unwrap();
    for (thread, handle) in [(1 << 30, 8), (2 << 30, 16)] {
        recorder.call(&seen(thread, Action::Open, 3, handle, 1));
    }
    assert_eq!(recorder.open(), 2);
    recorder.call(&seen(0, Action::Write, 3, 16, 2));
    recorder.call(&seen(0, Action::Close, 3, 8, 3));
    recorder.call(&seen(0, Action::Close, 3, 16, 4));
    assert_eq!(recorder.open(), 0);
    recorder.finish().unwrap();
    let ranks: Vec<u32> = read(&path).calls.iter().map(|c| c.rank).collect();
    assert_eq!(ranks, [0, 1, 1, 0, 1]);
}

#[test]
fn a_recording_without_its_end_is_read_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let recorder = Recorder::start(&path, &setup(true)).unwrap();
    (0..3 * CALLS_PER_BUFFER as u64)
        .for_each(|i| recorder.call(&seen(1 << 30, Action::Read, 3, 0, i)));
    recorder.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let cut = dir.path().join("cut");
    std::fs::write(&cut, &bytes[..bytes.len() - 40]).unwrap();
    let recording = crate::open(&cut).unwrap();
    assert!(recording.loss.is_some() && recording.calls.len() >= 2 * CALLS_PER_BUFFER);
    let refused = crate::load(&cut).unwrap_err().to_string();
    assert!(refused.contains("cut off"), "{refused}");
}

#[test]
fn parts_of_several_nodes_become_one_recording() {
    let process = |pid, world| Process {
        pid,
        world,
        program: "p".into(),
        ..Process::default()
    };
    let call = |rank, file, start| Call {
        rank,
        file,
        action: Action::Write,
        offset: 0,
        len: 1,
        start,
        end: start,
        error: 0,
    };
    let file = |inode, path: &str| TraceFile {
        inode,
        path: path.into(),
    };
    let part = |service: &str, processes, files, calls| NodeRecording {
        service: service.into(),
        recording: Recording {
            processes,
            files,
            calls,
            ..Recording::default()
        },
    };
    let parts = vec![
        part(
            "a",
            [(0, process(10, None)), (1, process(11, Some(1)))].into(),
            vec![file(5, ""), file(6, "x")],
            vec![call(0, 0, 1), call(1, 1, 5)],
        ),
        part(
            "a",
            [(0, process(12, Some(0))), (1, process(11, Some(1)))].into(),
            vec![file(6, "x"), file(5, "y")],
            vec![call(0, 0, 2), call(1, 1, 3)],
        ),
        part(
            "b",
            [(0, process(13, None))].into(),
            vec![file(6, "z")],
            vec![call(0, 0, 4)],
        ),
    ];
    let whole = merge("w", 7, parts);
    let paths: Vec<&str> = whole.files.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(paths, ["y", "x", "z"]);
    // Ranks 0 and 1 of the launcher, then processes 10 and 13.
    let seen: Vec<_> = whole
        .calls
        .iter()
        .map(|c| (c.rank, c.file, c.start))
        .collect();
    assert_eq!(
        seen,
        [(2, 0, 1), (0, 1, 2), (1, 0, 3), (3, 2, 4), (1, 1, 5)]
    );
    assert_eq!((whole.ranks, whole.processes[&3].pid), (4, 13));
}
