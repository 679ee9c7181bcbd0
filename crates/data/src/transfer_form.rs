//! Log bytes on their way to another member: what is stored encoded travels encoded, and the member that asked decodes it.
//!
//! ```text
//! a piece of a log in transfer form: parts, one behind the other, until they have as many raw bytes as were asked for
//!   raw length * 4 + kind      varint
//!   kind 0, zeros              nothing more
//!   kind 1, raw                as many bytes
//!   kind 2, encoded            position of the first byte in its container, varint
//!                              length of the codec's head, varint
//!                              stored length of each piece that holds a wanted byte, varint each
//!                              the head, the pieces
//! ```
//! It is not kept, so it has no version (that of all requests is `forebay_proto::VERSION`), and the transport's checksums are its own.
//!
//! Invariants: stored bytes leave only after their checksums were right, as raw ones do. A piece is sent in this form only if that is
//! shorter than its raw bytes by at least one in 16. Whatever a peer sends, decoding ends, in an error or with some bytes;
//! it reads and writes nothing outside.
use crate::buffer_pool::PooledBuffer;
use crate::container::{Container, EncodedParts};
use crate::read::LogReader;
use crate::span::{Run, RunSource, SpanBytes};
use crate::verified_read;
use bytes::Bytes;
use forebay_codec::container::{MAX_HEAD_LEN, PIECE_LEN};
use forebay_codec::{OpenedContainer, varint};
use forebay_proto::Result;
use forebay_proto::data::LogPiece;
use std::ops::Range;
use std::sync::Arc;

/// What the transfer form must save: one in this many of the raw bytes.
const MIN_SAVING_DIVISOR: u64 = 16;
/// Shorter pieces are sent as they are: heads would take what is gained, and decoded pieces may be in memory.
const MIN_LEN: u32 = 32 << 10;
/// Raw bytes of a part on the average, at least: of more parts each would send its own head, and be read by a call of its own.
const MIN_PART_LEN: usize = 16 << 10;

const ZEROS: u64 = 0;
const RAW: u64 = 1;
const ENCODED: u64 = 2;

/// What is wrong with a part that ends too early.
const SHORT: &str = "cut short";

/// A part before its bytes are read.
enum PlannedPart {
    Zeros(u64),
    Raw {
        /// Address in the log.
        addr: u64,
        len: u64,
    },
    Encoded {
        container: Arc<Container>,
        positions: Range<u64>,
    },
}

impl LogReader {
    /// A piece in transfer form. `None`: it is to be sent raw. So it is also if anything is unusual: reading it raw tells what.
    pub fn transfer_form(&self, piece: &LogPiece) -> Option<Bytes> {
        if piece.len < MIN_LEN || self.containers.encoded().raw() == 0 {
            return None;
        }
        let _call = self.foreground.begin();
        let parts = self.plan(piece).ok()??;
        if piece.len as usize / parts.len() < MIN_PART_LEN {
            return None;
        }
        let len: u64 = parts.iter().map(PlannedPart::most_bytes).sum();
        if len + u64::from(piece.len) / MIN_SAVING_DIVISOR > u64::from(piece.len) {
            return None;
        }
        let mut out = TransferBuffer {
            buffer: self.buffers.take(len as usize),
            used: 0,
        };
        for part in &parts {
            self.append(piece, part, &mut out)?;
        }
        let used = out.used;
        Some(out.buffer.freeze().slice(..used))
    }

    /// Where the bytes of a piece are. `None`: some are neither settled nor encoded, or are not there.
    fn plan(&self, piece: &LogPiece) -> Result<Option<Vec<PlannedPart>>> {
        let (mut parts, mut at) = (Vec::new(), piece.addr);
        let Some(end) = piece.addr.checked_add(piece.len.into()) else {
            return Ok(None);
        };
        while at < end {
            let Some(span) = self.spans.find(piece.log, at)? else {
                return Ok(None);
            };
            let SpanBytes::Mapped(runs) = &span.bytes else {
                return Ok(None);
            };
            let (skip, until) = (at - span.live.start, end.min(span.live.end));
            for run in runs.within(skip..skip + (until - at)) {
                let part = self.plan_run(&run, at)?;
                at += u64::from(run.len);
                match (parts.last_mut(), part) {
                    (Some(PlannedPart::Raw { len, .. }), PlannedPart::Raw { len: more, .. }) => {
                        *len += more;
                    }
                    (_, part) => parts.push(part),
                }
            }
            if at != until {
                return Ok(None);
            }
        }
        Ok(Some(parts))
    }

    fn plan_run(&self, run: &Run, addr: u64) -> Result<PlannedPart> {
        let len = u64::from(run.len);
        let raw = PlannedPart::Raw { addr, len };
        let (id, at) = match run.source {
            RunSource::Zeros => return Ok(PlannedPart::Zeros(len)),
            RunSource::Container { id, at } => (id, u64::from(at)),
        };
        let positions = at..at + len;
        let found = self.containers.find(id)?;
        let Some(container) = found.filter(|c| c.chunks_over(&positions).is_some()) else {
            return Ok(raw);
        };
        // Who asked has not the bytes that it may be encoded against.
        if container.encoded().is_none() || container.base().is_some() {
            return Ok(raw);
        }
        let encoded = PlannedPart::Encoded {
            container,
            positions,
        };
        Ok(match encoded.most_bytes() < raw.most_bytes() {
            true => encoded,
            false => raw,
        })
    }

    fn append(&self, piece: &LogPiece, part: &PlannedPart, out: &mut TransferBuffer) -> Option<()> {
        let mut head = Vec::new();
        varint::put(&mut head, part.raw_len() * 4 + part.kind());
        match part {
            PlannedPart::Zeros(_) => out.next(head.len())?.copy_from_slice(&head),
            PlannedPart::Raw { addr, len } => {
                out.next(head.len())?.copy_from_slice(&head);
                self.read(piece.log, *addr, out.next(*len as usize)?).ok()?;
            }
            PlannedPart::Encoded {
                container,
                positions,
            } => {
                let encoded = container.encoded()?;
                varint::put(&mut head, positions.start);
                varint::put(&mut head, encoded.len(EncodedParts::HEAD));
                for part in EncodedParts::over(positions) {
                    varint::put(&mut head, encoded.len(part));
                }
                out.next(head.len())?.copy_from_slice(&head);
                for stored in stored_ranges(encoded, positions) {
                    let into = out.next((stored.end - stored.start) as usize)?;
                    let read =
                        verified_read::read(&self.segments, &**container, stored.start, into);
                    if read.ok()?.is_some() {
                        return None;
                    }
                }
            }
        }
        Some(())
    }
}

/// What is stored of these positions: the head and the pieces, together where they follow each other.
fn stored_ranges(
    encoded: &EncodedParts,
    positions: &Range<u64>,
) -> impl Iterator<Item = Range<u64>> {
    let parts = EncodedParts::over(positions);
    let head = encoded.range(EncodedParts::HEAD);
    let pieces = encoded.range(parts.start).start..encoded.range(parts.end - 1).end;
    let (first, second) = match head.end == pieces.start {
        true => (head.start..pieces.end, None),
        false => (head, Some(pieces)),
    };
    std::iter::once(first).chain(second)
}

impl PlannedPart {
    fn kind(&self) -> u64 {
        match self {
            PlannedPart::Zeros(_) => ZEROS,
            PlannedPart::Raw { .. } => RAW,
            PlannedPart::Encoded { .. } => ENCODED,
        }
    }

    fn raw_len(&self) -> u64 {
        match self {
            PlannedPart::Zeros(len) | PlannedPart::Raw { len, .. } => *len,
            PlannedPart::Encoded { positions, .. } => positions.end - positions.start,
        }
    }

    /// Bytes of the part in transfer form, at most.
    fn most_bytes(&self) -> u64 {
        let head = varint::len(self.raw_len() * 4 + self.kind()) as u64;
        head + match self {
            PlannedPart::Zeros(_) => 0,
            PlannedPart::Raw { len, .. } => *len,
            PlannedPart::Encoded {
                container,
                positions,
            } => container.encoded().map_or(u64::MAX / 2, |encoded| {
                let stored = stored_ranges(encoded, positions);
                let stored: u64 = stored.map(|r| r.end - r.start).sum();
                let lengths = EncodedParts::over(positions).map(|part| encoded.len(part));
                let numbers = [positions.start, encoded.len(EncodedParts::HEAD)];
                let numbers = numbers.into_iter().chain(lengths);
                stored + numbers.map(|n| varint::len(n) as u64).sum::<u64>()
            }),
        }
    }
}

/// Where a piece's transfer form is put together.
struct TransferBuffer {
    buffer: PooledBuffer,
    used: usize,
}

impl TransferBuffer {
    /// The next `len` bytes; `None`: there is no room for them.
    fn next(&mut self, len: usize) -> Option<&mut [u8]> {
        let begin = self.used;
        let bytes = self.buffer.get_mut(begin..begin.checked_add(len)?)?;
        self.used = begin + len;
        Some(bytes)
    }
}

/// Turns a piece in transfer form into its raw bytes: all of `raw`.
///
/// # Errors
/// What is wrong with it; `raw` then has any bytes.
pub fn decode(mut bytes: &[u8], raw: &mut [u8]) -> std::result::Result<(), &'static str> {
    let mut rest = raw;
    while !rest.is_empty() {
        let head = varint::take(&mut bytes).ok_or(SHORT)?;
        let len = usize::try_from(head / 4).unwrap_or(usize::MAX);
        let (into, behind) = std::mem::take(&mut rest)
            .split_at_mut_checked(len)
            .filter(|(into, _)| !into.is_empty())
            .ok_or("a part of a wrong length")?;
        rest = behind;
        match head % 4 {
            ZEROS => into.fill(0),
            RAW => into.copy_from_slice(take(&mut bytes, len).ok_or(SHORT)?),
            ENCODED => decode_part(&mut bytes, into)?,
            _ => return Err("a part of an unknown kind"),
        }
    }
    match bytes.is_empty() {
        true => Ok(()),
        false => Err("too many bytes"),
    }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// Takes an encoded part off `bytes`, behind its first number.
fn decode_part(bytes: &mut &[u8], raw: &mut [u8]) -> std::result::Result<(), &'static str> {
    const UNDECODABLE: &str = "a part that cannot be decoded";
    let mut number = || varint::take(bytes).and_then(|n| usize::try_from(n).ok());
    let start = number().ok_or(SHORT)?;
    let head_len = number().filter(|n| *n <= MAX_HEAD_LEN).ok_or(SHORT)?;
    let end = start.checked_add(raw.len()).ok_or(UNDECODABLE)?;
    let pieces = start / PIECE_LEN..end.div_ceil(PIECE_LEN);
    // Each takes a byte at least, so that no number of them costs more memory than was sent.
    let lengths: Option<Vec<usize>> = pieces.clone().map(|_| number()).collect();
    let lengths = lengths.ok_or(SHORT)?;
    let opened = OpenedContainer::open(take(bytes, head_len).ok_or(SHORT)?);
    let opened = opened.map_err(|_| UNDECODABLE)?;
    if end > opened.raw_len() || opened.has_base() {
        return Err(UNDECODABLE);
    }
    let mut rest = raw;
    for (piece, len) in pieces.zip(lengths) {
        let stored = take(bytes, len).ok_or(SHORT)?;
        let begin = piece * PIECE_LEN;
        let (from, to) = (start.max(begin), end.min(begin + PIECE_LEN));
        let (into, behind) = std::mem::take(&mut rest).split_at_mut(to - from);
        rest = behind;
        opened
            .decode_range(piece, stored, from - begin..to - begin, into)
            .map_err(|_| UNDECODABLE)?;
    }
    Ok(())
}
