//! One thread of a replay: makes the calls of some ranks, with their open files.

use super::plan::{Epoch, Task};
use super::{Commit, Event, Options, Report, Target};
use crate::content::Content;
use crate::{Error, Kind, Op, OriginPiece, Result, Trace};
use std::collections::HashMap;
use std::io;
use std::time::Instant;

/// Longer calls are made in parts: bounds memory.
const MAX_CALL_BYTES: u64 = 64 << 20;

struct OpenFile<H> {
    handle: H,
    /// The epoch in which it was opened.
    since: u64,
    dirty: bool,
    used: u64,
}

pub(super) struct Worker<'a, T: Target> {
    target: &'a T,
    trace: &'a Trace,
    options: &'a Options<'a>,
    most_open: usize,
    open: HashMap<(u32, u32), OpenFile<T::Handle>>,
    buffer: Vec<u8>,
    clock: u64,
    pub report: Report,
}

impl<'a, T: Target> Worker<'a, T> {
    pub fn new(
        target: &'a T,
        trace: &'a Trace,
        options: &'a Options<'a>,
        most_open: usize,
    ) -> Self {
        Worker {
            target,
            trace,
            options,
            most_open,
            open: HashMap::new(),
            buffer: Vec::new(),
            clock: 0,
            report: Report::default(),
        }
    }

    /// Makes the calls in order, then commits what they wrote.
    pub fn run(&mut self, epoch: &Epoch) -> Result<()> {
        for task in &epoch.tasks {
            self.pause(task.pause);
            self.call(task, epoch.number)?;
            (self.options.progress)(Event::Done { bytes: task.op.len });
        }
        let mut dirty: Vec<_> = self
            .open
            .iter()
            .filter(|(_, o)| o.dirty)
            .map(|(k, _)| *k)
            .collect();
        dirty.sort_unstable();
        for key in dirty {
            self.commit(key)?;
        }
        Ok(())
    }

    /// Closes everything.
    pub fn finish(&mut self) -> Result<()> {
        let keys: Vec<_> = self.open.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.close(key))
    }

    /// Computes, or rather sleeps, for as long as the options want.
    fn pause(&mut self, recorded: u64) {
        let pause = self.options.delays.pause(recorded);
        if !pause.is_zero() {
            let begun = Instant::now();
            std::thread::sleep(pause);
            self.report.delays_time += begun.elapsed();
        }
    }

    fn call(&mut self, task: &Task, epoch: u64) -> Result<()> {
        let op = &task.op;
        let key = (op.rank, op.file);
        let begun = Instant::now();
        let mut open = self.opened(key, task.opened_after, epoch)?;
        self.report.io_time += begun.elapsed();
        let done = match op.kind {
            Kind::Write => self.write(&mut open, op, task.sequence),
            Kind::Read => self.read(&mut open, op, &task.pieces),
        };
        self.clock += 1;
        open.used = self.clock;
        self.open.insert(key, open);
        self.report.calls += 1;
        done
    }

    /// The rank's open file, taken out of the table.
    fn opened(&mut self, key: (u32, u32), after: u64, epoch: u64) -> Result<OpenFile<T::Handle>> {
        if let Some(open) = self.open.remove(&key) {
            if open.since > after {
                return Ok(open);
            }
            self.report.reopens += 1;
            self.end(key, open)?;
        }
        self.make_room()?;
        let node = self
            .options
            .placement
            .node(key.0, self.trace.ranks, self.target.nodes());
        let opened = self.target.open(node, self.name(key.1));
        let handle = opened.map_err(|e| self.error("open", key, e))?;
        Ok(OpenFile {
            handle,
            since: epoch,
            dirty: false,
            used: 0,
        })
    }

    fn make_room(&mut self) -> Result<()> {
        if self.open.len() < self.most_open {
            return Ok(());
        }
        let oldest = self
            .open
            .iter()
            .min_by_key(|(_, o)| o.used)
            .map(|(key, _)| *key);
        oldest.map_or(Ok(()), |key| self.close(key))
    }

    fn close(&mut self, key: (u32, u32)) -> Result<()> {
        match self.open.remove(&key) {
            Some(open) => self.end(key, open),
            None => Ok(()),
        }
    }

    fn end(&self, key: (u32, u32), open: OpenFile<T::Handle>) -> Result<()> {
        self.target
            .close(open.handle)
            .map_err(|e| self.error("close", key, e))
    }

    fn commit(&mut self, key: (u32, u32)) -> Result<()> {
        if self.options.commit == Commit::Close {
            return self.close(key);
        }
        let done = match self.open.get_mut(&key) {
            Some(open) => {
                open.dirty = false;
                self.target.fsync(&mut open.handle)
            }
            None => Ok(()),
        };
        done.map_err(|e| self.error("fsync", key, e))
    }

    fn write(&mut self, open: &mut OpenFile<T::Handle>, op: &Op, sequence: u64) -> Result<()> {
        let content = Content::new(op.file, sequence);
        open.dirty |= op.len > 0;
        for (offset, len) in parts(op) {
            let buf = room(&mut self.buffer, len);
            content.fill(offset, buf);
            let begun = Instant::now();
            let written = self.target.write(&mut open.handle, offset, buf);
            self.report.io_time += begun.elapsed();
            written.map_err(|e| call_error("write", self.trace, op, e))?;
        }
        self.report.written += op.len;
        Ok(())
    }

    fn read(
        &mut self,
        open: &mut OpenFile<T::Handle>,
        op: &Op,
        pieces: &[OriginPiece],
    ) -> Result<()> {
        let name = self.name(op.file);
        for (offset, len) in parts(op) {
            let buf = room(&mut self.buffer, len);
            let begun = Instant::now();
            let got = read_full(self.target, &mut open.handle, offset, buf);
            self.report.io_time += begun.elapsed();
            let got = got.map_err(|e| call_error("read", self.trace, op, e))?;
            if got < len {
                return Err(Error::Length {
                    file: name.to_owned(),
                    rank: op.rank,
                    what: format!("what a read of {} bytes at {} got", op.len, op.offset),
                    found: offset - op.offset + got as u64,
                    expected: op.len,
                });
            }
            verify(name, op, offset, buf, pieces)?;
        }
        self.report.read += op.len;
        Ok(())
    }

    fn name(&self, file: u32) -> &'a str {
        &self.trace.files[file as usize]
    }

    fn error(&self, what: &'static str, (rank, file): (u32, u32), source: io::Error) -> Error {
        let op = Op::untimed(rank, Kind::Read, file, 0, 0);
        call_error(what, self.trace, &op, source)
    }
}

pub(super) fn call_error(what: &'static str, trace: &Trace, op: &Op, source: io::Error) -> Error {
    let file = trace.files[op.file as usize].clone();
    Error::Call {
        what,
        rank: op.rank,
        file,
        offset: op.offset,
        len: op.len,
        source,
    }
}

/// The first `len` bytes of `buffer`, grown if need be.
pub(super) fn room(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

/// Reads until `buf` is full or the file ends; returns the bytes read.
pub(super) fn read_full<T: Target>(
    target: &T,
    handle: &mut T::Handle,
    offset: u64,
    buf: &mut [u8],
) -> io::Result<usize> {
    let mut got = 0;
    loop {
        let done = target.read(handle, offset + got as u64, &mut buf[got..])?;
        got += done;
        if got >= buf.len() || done == 0 {
            return Ok(got);
        }
    }
}

/// The parts of a call: offset and length. One for a call of no length.
fn parts(op: &Op) -> impl Iterator<Item = (u64, usize)> {
    let (offset, len) = (op.offset, op.len);
    (0..len.div_ceil(MAX_CALL_BYTES).max(1)).map(move |i| {
        (
            offset.wrapping_add(i * MAX_CALL_BYTES),
            (len - i * MAX_CALL_BYTES).min(MAX_CALL_BYTES) as usize,
        )
    })
}

/// Checks `buf`, read at `offset` as a part of `op`, against the pieces of the whole call.
pub(super) fn verify(
    name: &str,
    op: &Op,
    offset: u64,
    buf: &[u8],
    pieces: &[OriginPiece],
) -> Result<()> {
    let end = offset + buf.len() as u64;
    for piece in pieces
        .iter()
        .filter(|p| p.range.start < end && p.range.end > offset)
    {
        let range = piece.range.start.max(offset)..piece.range.end.min(end);
        let found = &buf[(range.start - offset) as usize..(range.end - offset) as usize];
        let part = OriginPiece {
            range: range.clone(),
            sequence: piece.sequence,
        };
        if let Err((at, expected)) = part.verify(op.file, found) {
            return Err(Error::Mismatch {
                file: name.to_owned(),
                offset: range.start + at as u64,
                rank: op.rank,
                expected,
                found: found[at],
                from: piece.origin(),
                read_offset: op.offset,
                read_len: op.len,
            });
        }
    }
    Ok(())
}
