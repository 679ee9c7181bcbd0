//! The end of a replay: every byte that it left in files, read through all nodes in turn.
//!
//! Holes longer than a chunk are not read: their length follows from the file's size, which is checked from every node.

use super::worker::{call_error, read_full, room, verify};
use super::{Event, Options, Target};
use crate::{Error, Kind, Model, Op, Result, Trace};
use std::ops::Range;

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;

/// The chunks of a file that hold a written byte, clipped to the file's size.
fn chunks(model: &Model, file: u32) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in model.written(file) {
        let first = (range.start / CHUNK).max(out.last().map_or(0, |r| r.end.div_ceil(CHUNK)));
        for at in first..range.end.div_ceil(CHUNK) {
            out.push(at * CHUNK..((at + 1) * CHUNK).min(model.size(file)));
        }
    }
    out
}

/// Bytes that the check of these files will read.
pub(super) fn bytes(model: &Model, files: &[u32]) -> u64 {
    let chunks = files.iter().flat_map(|file| chunks(model, *file));
    chunks.map(|c| c.end - c.start).sum()
}

/// Checks every `threads`th chunk of each of these files from node `thread % nodes`. Returns the bytes read.
pub(super) fn check<T: Target>(
    target: &T,
    trace: &Trace,
    model: &Model,
    files: &[u32],
    options: &Options<'_>,
    thread: u32,
    threads: u32,
) -> Result<u64> {
    let node = thread % target.nodes();
    let (mut buffer, mut bytes) = (Vec::new(), 0);
    for &file in files {
        let name = &trace.files[file as usize];
        // In messages, the node stands where a replayed call's rank would.
        let at = |r: Range<u64>| Op::untimed(node, Kind::Read, file, r.start, r.end - r.start);
        let mut handle = target
            .open(node, name)
            .map_err(|e| call_error("open", trace, &at(0..0), e))?;
        let len = target
            .len(&mut handle)
            .map_err(|e| call_error("stat", trace, &at(0..0), e))?;
        let wrong_length = |what, found, expected| {
            Err(Error::Length {
                file: name.clone(),
                rank: node,
                what,
                found,
                expected,
            })
        };
        if len != model.size(file) {
            return wrong_length(
                format!("the file's size seen from node {node}"),
                len,
                model.size(file),
            );
        }
        for range in chunks(model, file)
            .into_iter()
            .skip(thread as usize)
            .step_by(threads as usize)
        {
            let op = at(range.clone());
            let buf = room(&mut buffer, op.len as usize);
            let got = read_full(target, &mut handle, range.start, buf)
                .map_err(|e| call_error("read", trace, &op, e))?;
            if (got as u64) < op.len {
                return wrong_length(
                    format!("what the final read at {} got", range.start),
                    got as u64,
                    op.len,
                );
            }
            verify(
                name,
                &op,
                range.start,
                buf,
                &model.read(file, range.clone()),
            )?;
            bytes += op.len;
            (options.progress)(Event::Done { bytes: op.len });
        }
        target
            .close(handle)
            .map_err(|e| call_error("close", trace, &at(0..0), e))?;
    }
    Ok(bytes)
}
