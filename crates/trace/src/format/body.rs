//! The bodies of blocks: files, processes, calls. See the grid in the module above.
//!
//! Taking a body gives `None` if its bytes are not exactly what its head says.

use crate::Action;
use crate::recording::{Call, Process, TraceFile};
use forebay_codec::varint;
use std::collections::BTreeMap;

/// No file or rank has a higher number.
const MOST: u64 = u32::MAX as u64 - 1;
/// Bit of the first column: the call failed.
const FAILED: u64 = 32;

/// A difference to the value before, with its sign in the lowest bit.
pub(crate) fn put_difference(out: &mut Vec<u8>, now: u64, before: u64) {
    varint::put(out, varint::fold(now.wrapping_sub(before)));
}

fn take_difference(bytes: &mut &[u8], value: &mut u64) -> Option<()> {
    *value = value.wrapping_add(varint::unfold(varint::take(bytes)?));
    Some(())
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    varint::put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(varint::take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    varint::take(bytes).filter(|n| *n <= MOST).map(|n| n as u32)
}

pub(super) fn put_file(out: &mut Vec<u8>, number: u32, file: &TraceFile) {
    varint::put(out, number.into());
    varint::put(out, file.inode);
    put_text(out, &file.path);
}

/// Files come in order of their numbers; a number may come again with another path.
pub(super) fn take_files(mut bytes: &[u8], count: usize, files: &mut Vec<TraceFile>) -> Option<()> {
    for _ in 0..count {
        let number = take_number(&mut bytes)? as usize;
        let file = TraceFile {
            inode: varint::take(&mut bytes)?,
            path: take_text(&mut bytes)?,
        };
        if number == files.len() {
            files.push(file);
        } else {
            *files.get_mut(number)? = file;
        }
    }
    bytes.is_empty().then_some(())
}

pub(super) fn put_process(out: &mut Vec<u8>, rank: u32, process: &Process) {
    let world = process.world.map_or(0, |w| u64::from(w) + 1);
    for n in [
        rank.into(),
        process.pid.into(),
        process.thread.into(),
        world,
    ] {
        varint::put(out, n);
    }
    put_text(out, &process.host);
    put_text(out, &process.program);
}

pub(super) fn take_processes(
    mut bytes: &[u8],
    count: usize,
    processes: &mut BTreeMap<u32, Process>,
) -> Option<()> {
    for _ in 0..count {
        let rank = take_number(&mut bytes)?;
        let (pid, thread) = (take_number(&mut bytes)?, take_number(&mut bytes)?);
        let world = varint::take(&mut bytes)?.checked_sub(1);
        let process = Process {
            pid,
            thread,
            world: world.map(u32::try_from).transpose().ok()?,
            host: take_text(&mut bytes)?,
            program: take_text(&mut bytes)?,
        };
        processes.insert(rank, process);
    }
    bytes.is_empty().then_some(())
}

/// Calls in a row, each told by what differs from the one before.
#[derive(Default)]
pub(super) struct CallCoder {
    before: [u64; 6],
}

impl CallCoder {
    pub fn put(&mut self, out: &mut Vec<u8>, call: &Call) {
        let failed = if call.error != 0 { FAILED } else { 0 };
        let now = [
            u64::from(call.rank) << 6 | failed | u64::from(call.action.code()),
            call.file.into(),
            call.offset,
            call.len,
            call.start,
            call.end.wrapping_sub(call.start),
        ];
        for (now, before) in now.iter().zip(&self.before) {
            put_difference(out, *now, *before);
        }
        if call.error != 0 {
            varint::put(out, call.error.into());
        }
        self.before = now;
    }
}

/// The first column of a call: its rank, the number of its action, and whether its error number follows.
pub(super) fn split_head(column: u64) -> (u64, u64, bool) {
    (column >> 6, column & 31, column & FAILED != 0)
}

/// Takes calls whose first columns `split_head` understands.
pub(super) fn take_calls(
    mut bytes: &[u8],
    count: usize,
    split_head: impl Fn(u64) -> (u64, u64, bool),
    calls: &mut Vec<Call>,
) -> Option<()> {
    // A head may lie; seven bytes are the least a call needs, nearly.
    calls.reserve(count.min(bytes.len() / 6 + 1));
    let mut now = [0u64; 6];
    for _ in 0..count {
        for column in &mut now {
            take_difference(&mut bytes, column)?;
        }
        let (rank, action, failed) = split_head(now[0]);
        let error = match failed {
            false => 0,
            true => take_number(&mut bytes).filter(|e| *e != 0)?,
        };
        calls.push(Call {
            rank: (rank <= MOST).then_some(rank as u32)?,
            action: Action::from_code(action as u8)?,
            file: u32::try_from(now[1]).ok()?,
            offset: now[2],
            len: now[3],
            start: now[4],
            end: now[4].wrapping_add(now[5]),
            error,
        });
    }
    bytes.is_empty().then_some(())
}
