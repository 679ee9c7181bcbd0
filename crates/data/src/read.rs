//! Reading log bytes: from tails, and from spans (verified, `verified_read`), whose bytes are raw or in containers.
//!
//! If a checksum is wrong, the span is looked up once more in the store, and the container with it: if either was freed, moved or
//! settled meanwhile, the mismatch is expected (its bytes may be punched away); only if both are unchanged are the bytes damaged.
//! So a reader in flight needs no lock against freeing, settling and reclaiming.
use crate::READ_BYTES;
use crate::buffer_pool::BufferPool;
use crate::container::{Container, ContainerId, ContainerTable};
use crate::foreground::ForegroundCalls;
use crate::log::OpenLogs;
use crate::segment::Segments;
use crate::span::{Run, RunSource, Span, SpanBytes};
use crate::span_table::SpanTable;
use crate::verified_read::{self, CoalescedReadBuffer, WantedPart, damage};
use bytes::Bytes;
use forebay_proto::data::{LogPiece, PiecesRead};
use forebay_proto::{Error, LOST_LOG, LogId, Member, Result};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often a read is repeated because the span was moved meanwhile. Moves are rare and slow (`reclaim`).
const MAX_MOVES_FOLLOWED: usize = 16;
/// Bytes that `is_readable` reads at a time.
const PROBE_BYTES: u64 = 1 << 20;

/// Reads of one member's logs. Shared by threads.
pub struct LogReader {
    /// Whose logs they are; for errors.
    pub member: Member,
    /// The open ones, for their tails.
    pub logs: Arc<OpenLogs>,
    /// What is written.
    pub spans: Arc<SpanTable>,
    /// Where the bytes of mapped spans are.
    pub containers: Arc<ContainerTable>,
    /// Where all bytes are.
    pub segments: Arc<Segments>,
    /// For answers to other members, and for chunks that are read together.
    pub buffers: BufferPool,
    /// What settling gives way to.
    pub foreground: Arc<ForegroundCalls>,
    /// What went to other members.
    pub sent: SentBytes,
}

/// Counts bytes that other members have read.
#[derive(Default)]
pub struct SentBytes {
    /// As they asked for them.
    pub raw: AtomicU64,
    /// As they were sent.
    pub sent: AtomicU64,
}

impl LogReader {
    fn gone(&self, log: LogId, addr: u64) -> Error {
        Error::Gone {
            member: self.member,
            log,
            addr,
        }
    }

    /// Fills `buf` from one log; sees buffered bytes.
    ///
    /// # Errors
    /// As `LogStore::read`.
    pub fn read(&self, log: LogId, addr: u64, buf: &mut [u8]) -> Result<()> {
        if log == LOST_LOG {
            return Err(Error::Corrupt(format!(
                "a damaged record held where {} bytes of a file are; the log names it, and `forebay fsck` does",
                buf.len()
            )));
        }
        if addr.checked_add(buf.len() as u64).is_none() {
            return Err(self.gone(log, addr));
        }
        let _call = self.foreground.begin();
        self.read_all(log, addr, buf)
    }

    fn read_all(&self, log: LogId, addr: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = addr + done as u64;
            let buffered = self.logs.read_tail(log, at, &mut buf[done..]);
            done += match buffered.map_err(|addr| self.gone(log, addr))? {
                Some(n) => n,
                None => self.read_spans(log, at, &mut buf[done..])?,
            };
        }
        Ok(())
    }

    /// Copies the wanted bytes that are in the span which holds `at`. Returns how many.
    fn read_spans(&self, log: LogId, at: u64, buf: &mut [u8]) -> Result<usize> {
        let gone = || self.gone(log, at);
        let mut span = self.spans.find(log, at)?.ok_or_else(gone)?;
        for _ in 0..MAX_MOVES_FOLLOWED {
            let n = (buf.len() as u64).min(span.live.end - at) as usize;
            let Some(damage) = self.read_span(&span, at, &mut buf[..n])? else {
                return Ok(n);
            };
            let now = self.spans.load(log, at)?.ok_or_else(gone)?;
            if now == span {
                tracing::error!("{damage}");
                return Err(damage);
            }
            span = now;
        }
        Err(Error::Corrupt(format!(
            "log {log} address {at}: the span moved {MAX_MOVES_FOLLOWED} times while it was read; read again"
        )))
    }

    /// Reads bytes of one span. `Some`: the mismatch, which is damage unless the span has changed meanwhile.
    fn read_span(&self, span: &Span, at: u64, buf: &mut [u8]) -> Result<Option<Error>> {
        match &span.bytes {
            SpanBytes::Raw(raw) => {
                let bad = verified_read::read(&self.segments, raw, at, buf)?;
                Ok(bad.map(|bad| damage(&self.segments, raw, "", &bad)))
            }
            SpanBytes::Mapped(runs) => {
                let skip = at - span.live.start;
                self.read_runs(span, runs.within(skip..skip + buf.len() as u64), buf)
            }
        }
    }

    /// Reads these runs of a span, one after the other. Those in one container are read together: neighbours there were written
    /// together and are often read together.
    fn read_runs(
        &self,
        span: &Span,
        runs: impl Iterator<Item = Run>,
        mut rest: &mut [u8],
    ) -> Result<Option<Error>> {
        let mut wanted: Vec<(ContainerId, WantedPart<'_>)> = Vec::new();
        for run in runs {
            let (into, behind) = rest.split_at_mut(run.len as usize);
            rest = behind;
            match run.source {
                RunSource::Zeros => into.fill(0),
                RunSource::Container { id, at } => {
                    let at = at.into();
                    wanted.push((id, WantedPart { at, into }));
                }
            }
        }
        let mut buffer = CoalescedReadBuffer::of(&self.buffers);
        wanted.sort_unstable_by_key(|(id, part)| (*id, part.at));
        let mut wanted = wanted.into_iter().peekable();
        while let Some((id, first)) = wanted.next() {
            let mut parts = vec![first];
            while let Some((_, part)) = wanted.next_if(|(next, _)| *next == id) {
                parts.push(part);
            }
            let damage = self.read_container(span, id, &mut parts, &mut buffer)?;
            if damage.is_some() {
                return Ok(damage);
            }
        }
        Ok(None)
    }

    /// Reads parts of a container, again if it was moved meanwhile. `Some`: the mismatch, which is damage unless the span has changed.
    fn read_container(
        &self,
        span: &Span,
        id: ContainerId,
        parts: &mut [WantedPart<'_>],
        buffer: &mut CoalescedReadBuffer<'_>,
    ) -> Result<Option<Error>> {
        let user = || {
            let (log, live) = (span.log, &span.live);
            format!(" (of log {log} addresses {} to {})", live.start, live.end)
        };
        let mut container = self.containers.find(id)?;
        for _ in 0..MAX_MOVES_FOLLOWED {
            let has = |c: &Container, part: &WantedPart<'_>| {
                let positions = part.at..part.at + part.into.len() as u64;
                c.chunks_over(&positions).is_some()
            };
            let Some(c) = container.filter(|c| parts.iter().all(|part| has(c, part))) else {
                break;
            };
            let bad = self.containers.read_parts(&c, buffer, parts)?;
            let Some(bad) = bad else { return Ok(None) };
            container = self.containers.load(id)?;
            if container.as_ref() == Some(&c) {
                for chunk in c.chunks_of_part(bad.piece) {
                    self.containers.damaged.add(id, chunk);
                }
                return Ok(Some(damage(&self.segments, &*c, &user(), &bad)));
            }
        }
        Ok(Some(Error::Corrupt(format!(
            "container {id}{} has not the bytes that the span names; run `forebay fsck`",
            user()
        ))))
    }

    /// Reads pieces for another member: in transfer form where they are stored encoded.
    ///
    /// # Errors
    /// As `read`; `EINVAL` for more than `READ_BYTES`.
    pub fn read_pieces(&self, pieces: &[LogPiece]) -> Result<PiecesRead> {
        let total: u64 = pieces.iter().map(|p| u64::from(p.len)).sum();
        if total > READ_BYTES {
            return Err(Error::Posix(Errno::INVAL));
        }
        let forms: Vec<_> = pieces.iter().map(|p| self.transfer_form(p)).collect();
        let raw = pieces.iter().zip(&forms).filter(|(_, form)| form.is_none());
        let raw: Vec<LogPiece> = raw.map(|(piece, _)| *piece).collect();
        let mut raw = self.read_raw(&raw)?.into_iter();
        let mut read = PiecesRead::default();
        for (i, form) in forms.into_iter().enumerate() {
            // At most 2^32 pieces come in a request.
            read.encoded.extend(form.is_some().then_some(i as u32));
            read.buffers.extend(form.or_else(|| raw.next()));
        }
        let sent = read.buffers.iter().map(|bytes| bytes.len() as u64).sum();
        self.sent.raw.fetch_add(total, Relaxed);
        self.sent.sent.fetch_add(sent, Relaxed);
        Ok(read)
    }

    /// Reads pieces into one buffer; neighbours in a log become one read.
    fn read_raw(&self, pieces: &[LogPiece]) -> Result<Vec<Bytes>> {
        let total: u64 = pieces.iter().map(|p| u64::from(p.len)).sum();
        let mut buffer = self.buffers.take(total as usize);
        let (mut i, mut at) = (0, 0);
        while i < pieces.len() {
            let (first, mut len) = (pieces[i], 0);
            while let Some(p) = pieces.get(i)
                && p.log == first.log
                && Some(p.addr) == first.addr.checked_add(len as u64)
            {
                len += p.len as usize;
                i += 1;
            }
            self.read(first.log, first.addr, &mut buffer[at..at + len])?;
            at += len;
        }
        let mut rest = buffer.freeze();
        Ok(pieces
            .iter()
            .map(|p| rest.split_to(p.len as usize))
            .collect())
    }

    /// Whether `len` bytes of a log from `addr` on can be read whole. Reads and verifies them.
    pub fn is_readable(&self, log: LogId, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        let mut buffer = vec![0; len.min(PROBE_BYTES) as usize];
        let mut at = addr;
        while at < end {
            let n = (end - at).min(PROBE_BYTES);
            if self.read(log, at, &mut buffer[..n as usize]).is_err() {
                return false;
            }
            at += n;
        }
        true
    }
}
