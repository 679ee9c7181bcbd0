//! What is written reads back; every flipped bit is reported; what was cut off is read as far as it is whole.
use super::*;
use crate::{Action, Kind, Op, Process};
use proptest::prelude::*;

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![Just(Kind::Read), Just(Kind::Write)];
    (
        0..9u32,
        kind,
        0..3u32,
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(|(rank, kind, file, offset, len, start, end)| Op {
            rank,
            kind,
            file,
            offset,
            len,
            start,
            end,
        })
}

fn call() -> impl Strategy<Value = Call> {
    let action = (0..Action::ALL.len()).prop_map(|i| Action::ALL[i]);
    let error = prop_oneof![3 => Just(0u32), 1 => 1..200u32];
    (op(), action, error).prop_map(|(op, action, error)| Call {
        action,
        error,
        ..Call::from(&op)
    })
}

fn recording() -> impl Strategy<Value = Recording> {
    prop::collection::vec(call(), 0..50).prop_map(|calls| Recording {
        name: "näme".into(),
        begun: 77,
        ranks: 9,
        processes: [(0, process(None)), (8, process(Some(3)))].into(),
        files: ["a/b\nc", "", "c"].map(TraceFile::named).to_vec(),
        calls,
        loss: None,
    })
}

fn process(world: Option<u32>) -> Process {
    Process {
        pid: 4711,
        thread: 4712,
        world,
        host: "node1".into(),
        program: "sim".into(),
    }
}

fn bytes_of(trace: &Trace) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, trace).unwrap();
    out
}

fn whole(recording: &Recording) -> Vec<u8> {
    let mut out = Vec::new();
    write_recording(&mut out, recording).unwrap();
    out
}

fn trace_of(ops: Vec<Op>) -> Trace {
    Trace {
        name: "näme".into(),
        ranks: 9,
        files: vec!["a".into(), String::new(), "c".into()],
        ops,
    }
}

/// The reads and writes of a file, if it is whole.
fn read(bytes: &[u8]) -> std::result::Result<Trace, String> {
    let recording = recover(bytes, Path::new("t")).map_err(|e| e.to_string())?;
    match recording.loss {
        Some(loss) => Err(loss.to_string()),
        None => Ok(Trace {
            ops: recording.calls.iter().filter_map(Call::data).collect(),
            name: recording.name,
            ranks: recording.ranks,
            files: recording.files.into_iter().map(|file| file.path).collect(),
        }),
    }
}

/// What a reader makes of a file that is cut at `at`.
fn cut(bytes: &[u8], at: usize) -> Result<Recording> {
    recover(&bytes[..at], Path::new("t"))
}

proptest! {
    #[test]
    fn a_trace_survives(ops in prop::collection::vec(op(), 0..50)) {
        let trace = trace_of(ops);
        prop_assert_eq!(read(&bytes_of(&trace)).unwrap(), trace);
    }

    #[test]
    fn a_recording_survives(recording in recording()) {
        prop_assert_eq!(cut(&whole(&recording), whole(&recording).len()).unwrap(), recording);
    }

    #[test]
    fn damage_is_noticed(ops in prop::collection::vec(op(), 1..20), at: prop::sample::Index, flip in 1..=255u8) {
        let whole = bytes_of(&trace_of(ops));
        let mut bad = whole.clone();
        let at = at.index(bad.len());
        bad[at] ^= flip;
        prop_assert!(read(&bad).is_err(), "byte {}", at);
        prop_assert!(read(&whole[..at]).is_err(), "cut at {}", at);
    }

    #[test]
    fn what_was_cut_off_is_named_and_the_rest_is_read(recording in recording(), at: prop::sample::Index) {
        let whole = whole(&recording);
        let at = at.index(whole.len());
        match cut(&whole, at) {
            Ok(part) => {
                let loss = part.loss.unwrap();
                prop_assert_eq!(loss.at + loss.bytes, at as u64);
                prop_assert_eq!(loss.calls, part.calls.len() as u64);
                prop_assert_eq!(&part.calls[..], &recording.calls[..part.calls.len()]);
            }
            // Only without a whole header is there nothing to read.
            Err(e) => {
                prop_assert!(at < 28 + recording.name.len() + 4, "{}", e);
                prop_assert!(e.to_string().contains("cut short"), "{}", e);
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_reported() {
    let op = |i: u32| Op {
        rank: i % 3,
        kind: Kind::Write,
        file: i % 3,
        offset: u64::from(i) * 4096,
        len: 100,
        start: i.into(),
        end: u64::from(i) + 1,
    };
    let written = bytes_of(&trace_of((0..40).map(op).collect()));
    let mut recording = cut(&written, written.len()).unwrap();
    recording.processes = [(1, process(Some(1)))].into();
    let whole = whole(&recording);
    for bit in 0..whole.len() * 8 {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let got = recover(&bad[..], Path::new("t"));
        assert!(got.is_err(), "bit {bit} gives {got:?}");
    }
}

#[test]
fn more_behind_the_end_is_damage() {
    let mut bytes = bytes_of(&trace_of(Vec::new()));
    bytes.push(0);
    let error = read(&bytes).unwrap_err();
    assert!(error.contains("follows the end"), "{error}");
}

#[test]
fn what_a_recorder_wrote_as_it_came_is_read_in_order_even_without_its_end() {
    let call = |rank, start| Call {
        rank,
        start,
        ..Call::from(&Op {
            rank,
            kind: Kind::Read,
            file: 0,
            offset: start,
            len: 1,
            start,
            end: start + 1,
        })
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, "live", 5, 0).unwrap();
    writer.files([(0, &TraceFile::default())]).unwrap();
    writer.calls(&[call(4, 30), call(4, 50)]).unwrap();
    // The name came later.
    writer.files([(0, &TraceFile::named("a/b"))]).unwrap();
    writer.calls(&[call(2, 10), call(2, 40)]).unwrap();
    writer.flush().unwrap();
    let got = recover(&bytes[..], Path::new("t")).unwrap();
    let starts: Vec<u64> = got.calls.iter().map(|c| c.start).collect();
    assert_eq!(starts, [10, 30, 40, 50]);
    assert_eq!((got.ranks, got.files), (5, vec![TraceFile::named("a/b")]));
    let loss = got.loss.unwrap();
    assert_eq!((loss.bytes, loss.calls), (0, 4));
}

fn one_write() -> Trace {
    let op = Op {
        rank: 2,
        kind: Kind::Write,
        file: 1,
        offset: 300,
        len: 64,
        start: 1,
        end: 3,
    };
    Trace {
        name: "t".into(),
        ranks: 3,
        files: vec!["a".into(), "b".into()],
        ops: vec![op],
    }
}

/// These bytes are in users' files: if this fails, the version must go up and the old one stay readable.
#[test]
fn the_layout_is_that_of_version_2() {
    let trace = one_write();
    let mut expected = b"FBTRACE0\x02\0\0\0".to_vec();
    expected.extend([0; 8]);
    expected.extend([3, 0, 0, 0, 1, 0, 0, 0, b't']);
    expected.extend(forebay_checksum::crc32c(&expected).to_le_bytes());
    let mut block = |kind: u8, count: u8, body: &[u8]| {
        let mut head = vec![kind, 0, 0, 0, body.len() as u8, 0, 0, 0, count, 0, 0, 0];
        head.extend(forebay_checksum::crc32c(body).to_le_bytes());
        head.extend(forebay_checksum::crc32c(&head).to_le_bytes());
        expected.extend(head);
        expected.extend(body);
    };
    block(1, 2, &[0, 0, 1, b'a', 1, 0, 1, b'b']);
    // Rank 2 and a write are 2 * 64 + 1 = 129, doubled for the sign: 258.
    block(3, 1, &[0x82, 2, 2, 0xd8, 4, 0x80, 1, 2, 4]);
    block(4, 1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes_of(&trace), expected);
}

/// Files of version 1 stay readable: these are its bytes.
#[test]
fn the_layout_is_that_of_version_1() {
    let trace = one_write();
    let mut old = b"FBTRACE0\x01\0\0\0\x03\0\0\0\x02\0\0\0\x06\0\0\0t\na\nb\n".to_vec();
    old.extend(forebay_checksum::crc32c(&old).to_le_bytes());
    let calls = [10, 2, 0xd8, 4, 0x80, 1, 2, 4];
    old.extend([calls.len() as u8, 0, 0, 0, 1, 0, 0, 0]);
    old.extend(forebay_checksum::crc32c(&calls).to_le_bytes());
    old.extend(calls);
    let end = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    old.extend(end);
    old.extend(forebay_checksum::crc32c(&end).to_le_bytes());
    assert_eq!(read(&old).unwrap(), trace);
    for at in 0..old.len() {
        let mut bad = old.clone();
        bad[at] ^= 1;
        assert!(read(&bad).is_err(), "byte {at}");
        assert!(read(&old[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn another_version_says_who_can_read_it() {
    let mut bytes = bytes_of(&trace_of(Vec::new()));
    bytes[8] = 3;
    let error = read(&bytes).unwrap_err();
    assert!(
        error.contains("version 3") && error.contains("1 to 2"),
        "{error}"
    );
}

#[test]
fn many_blocks_and_few_bytes() {
    let op = |i: u64| Op {
        rank: (i % 8) as u32,
        kind: Kind::Write,
        file: 0,
        offset: i * 4096,
        len: 4096,
        start: i * 1000,
        end: i * 1000 + 500,
    };
    let trace = trace_of((0..40_000).map(op).collect());
    let bytes = bytes_of(&trace);
    assert!(bytes.len() < 40_000 * 10, "{}", bytes.len());
    assert_eq!(read(&bytes).unwrap(), trace);
}
