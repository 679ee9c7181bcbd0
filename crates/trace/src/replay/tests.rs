//! Replays on a target with the weakest semantics allowed, on real directories, and on targets that are wrong.

use super::*;
use crate::workload;
use proptest::prelude::*;
use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Commit consistency at its weakest: a node sees foreign bytes only as of its last open of the file.
#[derive(Default)]
struct Weak {
    nodes: u32,
    files: Mutex<HashMap<String, Vec<u8>>>,
    /// What a node sees of a file, and what it wrote since its last commit.
    views: Mutex<HashMap<(u32, String), View>>,
    /// Forget every n-th commit; 0: none.
    lose_commit: u64,
    commits: AtomicU64,
    /// The byte to flip when it is read.
    flip: Option<(String, u64)>,
}

#[derive(Default)]
struct View {
    bytes: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
}

fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    // As in POSIX: a write of nothing does not extend the file.
    if bytes.is_empty() {
        return;
    }
    let end = offset as usize + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset as usize..end].copy_from_slice(bytes);
}

impl Target for Weak {
    type Handle = (u32, String);

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn create(&self, node: u32, name: &str) -> io::Result<Self::Handle> {
        self.files.lock().unwrap().insert(name.into(), Vec::new());
        self.open(node, name)
    }

    fn open(&self, node: u32, name: &str) -> io::Result<Self::Handle> {
        let files = self.files.lock().unwrap();
        let mut bytes = files.get(name).ok_or(io::ErrorKind::NotFound)?.clone();
        let mut views = self.views.lock().unwrap();
        let view = views.entry((node, name.into())).or_default();
        view.pending
            .iter()
            .for_each(|(offset, b)| put(&mut bytes, *offset, b));
        view.bytes = bytes;
        Ok((node, name.into()))
    }

    fn read(&self, handle: &mut Self::Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let views = self.views.lock().unwrap();
        let bytes = &views[handle].bytes;
        let from = (offset as usize).min(bytes.len());
        // Short reads are allowed.
        let len = buf.len().min(bytes.len() - from).min(100);
        buf[..len].copy_from_slice(&bytes[from..from + len]);
        if let Some((_, at)) = self.flip.as_ref().filter(|(name, _)| *name == handle.1)
            && (offset..offset + len as u64).contains(at)
        {
            buf[(at - offset) as usize] ^= 1;
        }
        Ok(len)
    }

    fn write(&self, handle: &mut Self::Handle, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut views = self.views.lock().unwrap();
        let view = views.get_mut(handle).unwrap();
        put(&mut view.bytes, offset, buf);
        view.pending.push((offset, buf.to_vec()));
        Ok(())
    }

    fn set_len(&self, handle: &mut Self::Handle, len: u64) -> io::Result<()> {
        self.views
            .lock()
            .unwrap()
            .get_mut(handle)
            .unwrap()
            .bytes
            .resize(len as usize, 0);
        self.files
            .lock()
            .unwrap()
            .get_mut(&handle.1)
            .unwrap()
            .resize(len as usize, 0);
        Ok(())
    }

    fn len(&self, handle: &mut Self::Handle) -> io::Result<u64> {
        Ok(self.views.lock().unwrap()[handle].bytes.len() as u64)
    }

    fn fsync(&self, handle: &mut Self::Handle) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let mut views = self.views.lock().unwrap();
        let pending = std::mem::take(&mut views.get_mut(handle).unwrap().pending);
        if !pending.is_empty() {
            let number = 1 + self.commits.fetch_add(1, Ordering::SeqCst);
            if self.lose_commit != 0 && number.is_multiple_of(self.lose_commit) {
                return Ok(());
            }
        }
        let file = files.get_mut(&handle.1).unwrap();
        pending.iter().for_each(|(offset, b)| put(file, *offset, b));
        Ok(())
    }

    fn close(&self, mut handle: Self::Handle) -> io::Result<()> {
        self.fsync(&mut handle)
    }
}

fn weak(nodes: u32) -> Weak {
    Weak {
        nodes,
        ..Weak::default()
    }
}

fn op(rank: u32, kind: Kind, offset: u64, len: u64) -> Op {
    Op {
        rank,
        kind,
        file: 0,
        offset,
        len,
        start: 0,
        end: 0,
    }
}

fn trace(ranks: u32, ops: Vec<Op>) -> Trace {
    Trace {
        name: "t".into(),
        ranks,
        files: vec!["a".into(), "b".into()],
        ops,
    }
}

use Kind::{Read, Write};

#[test]
fn epochs_separate_what_depends_on_each_other_and_nothing_else() {
    let epochs = |ops: Vec<Op>| {
        replay(&trace(3, ops), &weak(3), &Options::default())
            .unwrap()
            .epochs
    };
    // Writers of their own bytes, who read them back.
    let own = |r| {
        [
            op(r, Write, u64::from(r) * 10, 10),
            op(r, Read, u64::from(r) * 10, 10),
        ]
    };
    assert_eq!(epochs((0..3).flat_map(own).collect()), 1);
    // A neighbour reads; then its writer overwrites what was read.
    let read = vec![op(0, Write, 0, 10), op(1, Read, 5, 3)];
    assert_eq!(epochs(read.clone()), 2);
    assert_eq!(epochs([read, vec![op(0, Write, 0, 10)]].concat()), 3);
    // Overlapping writers.
    assert_eq!(
        epochs((0..3).map(|r| op(r, Write, u64::from(r), 9)).collect()),
        3
    );
    // Readers of the same bytes; calls without length.
    assert_eq!(epochs((0..3).map(|r| op(r, Read, 0, 9)).collect()), 1);
    assert_eq!(epochs((0..3).map(|r| op(r, Write, 0, 0)).collect()), 1);
}

#[test]
fn what_is_read_before_it_is_written_was_there() {
    let ops = vec![
        op(0, Read, 100, 50),
        op(1, Write, 120, 10),
        op(0, Read, 90, 60),
    ];
    let target = weak(2);
    let report = replay(&trace(2, ops), &target, &Options::default()).unwrap();
    assert_eq!(
        (report.inputs, report.read, report.written, report.checked),
        (60, 110, 10, 150)
    );
    // A file that is written first starts as a hole.
    let ops = vec![op(0, Write, 0, 10), op(1, Read, 5, 100)];
    let report = replay(&trace(2, ops), &target, &Options::default()).unwrap();
    assert_eq!((report.inputs, report.read), (0, 100));
    assert_eq!(target.files.lock().unwrap()["a"].len(), 105);
}

#[test]
fn a_wrong_byte_is_named() {
    let target = Weak {
        flip: Some(("a".into(), 7)),
        ..weak(2)
    };
    let ops = vec![op(0, Write, 0, 5), op(0, Write, 5, 5), op(1, Read, 2, 8)];
    let error = replay(&trace(2, ops), &target, &Options::default()).unwrap_err();
    let Error::Mismatch {
        file,
        offset,
        rank,
        expected,
        found,
        from,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (file.as_str(), *offset, *rank, *found),
        ("a", 7, 1, *expected ^ 1)
    );
    assert_eq!(from, "call 1 of the trace");
}

#[test]
fn a_lost_commit_is_noticed_even_if_the_trace_reads_nothing() {
    let ops: Vec<Op> = (0..4)
        .map(|r| op(r, Write, u64::from(r) * 10, 10))
        .collect();
    assert!(replay(&trace(4, ops.clone()), &weak(4), &Options::default()).is_ok());
    let target = Weak {
        lose_commit: 3,
        ..weak(4)
    };
    let error = replay(&trace(4, ops.clone()), &target, &Options::default()).unwrap_err();
    assert!(
        matches!(error, Error::Mismatch { .. } | Error::Length { .. }),
        "{error}"
    );
    let unchecked = Options {
        check: false,
        ..Options::default()
    };
    assert!(replay(&trace(4, ops), &target, &unchecked).is_ok());
}

#[test]
fn what_cannot_be_replayed_is_refused_before_a_file_is_touched() {
    let target = weak(1);
    for (bad, says) in [
        (op(0, Read, crate::NO_OFFSET, 5), "POSIX"),
        (op(0, Write, i64::MAX as u64, 1), "largest"),
        (op(9, Read, 0, 1), "does not have"),
    ] {
        let error = replay(
            &trace(2, vec![op(0, Read, 0, 1), bad]),
            &target,
            &Options::default(),
        )
        .unwrap_err();
        assert!(
            matches!(error, Error::Unfit { op: 1, .. }) && error.to_string().contains(says),
            "{error}"
        );
    }
    assert!(target.files.lock().unwrap().is_empty());
}

#[test]
fn failing_calls_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let target = PathTarget::new(vec![dir.path().to_owned()]).unwrap();
    let mut bad = trace(1, vec![op(0, Write, 0, 5)]);
    bad.files[0] = "no/such/directory".into();
    let error = replay(&bad, &target, &Options::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("rank 0: create \"no/such/directory\""),
        "{error}"
    );
    assert!(PathTarget::new(vec![]).is_err());
    assert!(
        PathTarget::new(vec![dir.path().join("x")])
            .unwrap_err()
            .to_string()
            .contains("no directory")
    );
}

#[test]
fn every_workload_replays_in_real_directories() {
    let dir = tempfile::tempdir().unwrap();
    // Two nodes that are one directory: coherent, so all must be right.
    let target = PathTarget::new(vec![dir.path().to_owned(); 2]).unwrap();
    let (announced, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |event| match event {
        Event::Begin { bytes, .. } => announced.fetch_add(bytes, Ordering::SeqCst),
        Event::Done { bytes } => done.fetch_add(bytes, Ordering::SeqCst),
    };
    for (name, _) in workload::KINDS {
        let small = match *name {
            n if n.starts_with("ior") => ":ranks=3,calls=5,size=4100",
            n if n.starts_with("fs-test") => ":ranks=3,calls=9,readers=2",
            n if n.starts_with("random") => ":ranks=3,calls=20,size=500",
            n if n.starts_with("milc") => ":x=2,y=2,readers=3",
            n if n.starts_with("nested") => ":ranks=3,inner=3,middle=2,size=100",
            "tile" => ":y=2,height=4",
            "btio" => ":q=2,grid=5",
            "pagoda" => ":ranks=2,steps=1",
            other => panic!("no small form of {other}"),
        };
        let trace = workload::parse(&format!("{name}{small}")).unwrap().trace();
        for commit in [Commit::Fsync, Commit::Close] {
            let options = Options {
                progress: &|e| {
                    progress(e);
                },
                commit,
                max_open: 2,
                threads: 2,
                ..Options::default()
            };
            let report = replay(&trace, &target, &options).unwrap();
            assert_eq!(report.calls, trace.ops.len() as u64, "{name}");
            assert!(
                report.written > 0 && report.read == report.written && report.checked > 0,
                "{name}: {report:?}"
            );
        }
    }
    assert_eq!(announced.into_inner(), done.into_inner());
}

#[test]
fn placements_use_all_nodes() {
    let nodes = |p: Placement| (0..8).map(|r| p.node(r, 8, 4)).collect::<Vec<_>>();
    assert_eq!(nodes(Placement::RoundRobin), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(nodes(Placement::Block), [0, 0, 1, 1, 2, 2, 3, 3]);
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = prop_oneof![Just(Read), Just(Write)];
    let op = (0..4u32, kind, 0..2u32, 0..300u64, 0..80u64);
    let op = op.prop_map(|(rank, kind, file, offset, len)| Op {
        rank,
        kind,
        file,
        offset,
        len,
        start: 0,
        end: 0,
    });
    prop::collection::vec(op, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(150, 20_000)))]

    #[test]
    fn any_trace_replays_under_the_weakest_semantics(ops in ops(), nodes in 1..4u32, threads in 1..4u32, max_open in 1..9usize, close: bool, block: bool) {
        let commit = if close { Commit::Close } else { Commit::Fsync };
        let placement = if block { Placement::Block } else { Placement::RoundRobin };
        let options = Options { threads, max_open, commit, placement, ..Options::default() };
        let report = replay(&trace(4, ops.clone()), &weak(nodes), &options);
        prop_assert!(report.is_ok(), "{}", report.unwrap_err());
        prop_assert_eq!(report.unwrap().calls, ops.len() as u64);
    }

    #[test]
    fn epochs_keep_every_order_that_matters(ops in ops(), window in 1..40usize) {
        let trace = trace(4, ops);
        let inputs = inputs::inputs(&trace).unwrap();
        let mut planner = Planner::new(&trace, &inputs).with_window(window);
        let mut epoch_of = vec![0; trace.ops.len()];
        let mut planned = 0;
        loop {
            let epochs = planner.window();
            if epochs.is_empty() {
                break;
            }
            for epoch in epochs {
                prop_assert!(!epoch.tasks.is_empty());
                for task in epoch.tasks {
                    epoch_of[task.sequence as usize - 1] = epoch.number;
                    planned += 1;
                }
            }
        }
        prop_assert_eq!(planned, trace.ops.len());
        for (i, a) in trace.ops.iter().enumerate() {
            for (j, b) in trace.ops.iter().enumerate().skip(i + 1) {
                let touch = a.file == b.file && a.offset < b.stop() && b.offset < a.stop() && a.len > 0 && b.len > 0;
                let conflict = touch && (a.kind == Write || b.kind == Write);
                if a.rank == b.rank {
                    prop_assert!(epoch_of[i] <= epoch_of[j]);
                } else if conflict {
                    prop_assert!(epoch_of[i] < epoch_of[j], "calls {} and {}", i, j);
                }
            }
        }
    }
}
