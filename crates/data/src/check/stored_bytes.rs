//! Checks stored bytes against their checksums.
use super::{ByteCheck, SegmentFiles};
use crate::container::{self, ChunkCounts, Container, ContainerId, EncodedParts};
use crate::pieces::ChecksummedPieces;
use crate::ranges::{merge, subtract};
use crate::span::{Run, RunSource, Span, SpanBytes, SpanRuns};
use forebay_codec::OpenedContainer;
use forebay_codec::container::PIECE_LEN;
use forebay_proto::Result;
use forebay_storage::Store;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Decoded containers that are cached.
const CONTAINERS_KEPT: usize = 4096;

/// Damaged addresses of a span, or positions of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadBytes {
    /// Which.
    pub range: Range<u64>,
    /// What is wrong and where, for people.
    pub text: String,
}

/// See the head of this file.
pub struct StoredBytes<'a> {
    pub(super) store: &'a Store,
    files: Option<SegmentFiles<'a>>,
    pub(super) byte_check: ByteCheck,
    buffer: Vec<u8>,
    /// The damage of damaged containers.
    pub(super) bad: HashMap<ContainerId, Vec<BadBytes>>,
    /// Decoded containers; `Err`: what is wrong with the record.
    containers: HashMap<ContainerId, std::result::Result<Arc<Container>, String>>,
}

impl<'a> StoredBytes<'a> {
    /// A check of a store and its segment files; `None`: there are none.
    pub fn new(
        store: &'a Store,
        files: Option<SegmentFiles<'a>>,
        byte_check: ByteCheck,
    ) -> StoredBytes<'a> {
        StoredBytes {
            store,
            files,
            byte_check,
            buffer: Vec::new(),
            bad: HashMap::new(),
            containers: HashMap::new(),
        }
    }

    /// Verifies the named chunks of a container; without counts all stored ones. Damage is also remembered for the check of spans, and of
    /// containers that are encoded against this one: check those that have no base first.
    pub fn check_container(
        &mut self,
        container: &Container,
        counts: Option<&ChunkCounts>,
    ) -> Vec<BadBytes> {
        let is_named = |i: usize| {
            container.chunk(i).crc.is_some() && counts.is_none_or(|counts| counts.0[i] > 0)
        };
        let mut bad = Vec::new();
        for stretch in container.stretches(is_named) {
            bad.extend(self.check(container, &stretch));
        }
        if container.encoded().is_some() {
            for damaged in &mut bad {
                damaged.range = raw_positions(container, &damaged.range);
            }
            bad.extend(self.damaged_base(container, is_named));
            if bad.is_empty() && self.byte_check == ByteCheck::Bytes {
                bad = self.check_decoded(container, is_named);
            }
        }
        if !bad.is_empty() {
            self.bad.insert(container.id, bad.clone());
        }
        bad
    }

    /// The positions of named chunks that cannot be decoded because bytes of its base are damaged, or are not there. What has no base is
    /// checked before.
    fn damaged_base(
        &mut self,
        container: &Container,
        is_named: impl Fn(usize) -> bool,
    ) -> Vec<BadBytes> {
        let (mut at, mut bad) = (0, Vec::new());
        for run in container.base().into_iter().flat_map(SpanRuns::iter) {
            let start = at;
            at += u64::from(run.len);
            let Some((id, positions)) = run.in_container() else {
                continue;
            };
            let known = match self.container(id) {
                Err(text) => Some(text),
                Ok(base) if base.base().is_some() || base.chunks_over(&positions).is_none() => {
                    Some(format!("container {id} has not these bytes"))
                }
                Ok(_) => None,
            };
            let missing = known.map(|text| BadBytes {
                range: positions.clone(),
                text,
            });
            let damaged = self.bad.get(&id).into_iter().flatten();
            for damaged in damaged.chain(&missing) {
                let from = damaged.range.start.max(positions.start);
                let to = damaged.range.end.min(positions.end);
                if from < to {
                    let piece = PIECE_LEN as u64;
                    let from = (start + from - positions.start) / piece * piece;
                    let to = (start + to - positions.start).next_multiple_of(piece);
                    let range = from..to.min(container.bytes());
                    let chunks =
                        container.chunk_of(range.start)..container.chunk_of(range.end - 1) + 1;
                    if chunks.into_iter().any(&is_named) {
                        let text =
                            format!("container {}: its base: {}", container.id, damaged.text);
                        bad.push(BadBytes { range, text });
                    }
                }
            }
        }
        bad
    }

    /// Decodes an encoded container whose stored parts are right, and compares the chunks with the checksums of their raw bytes.
    fn check_decoded(
        &mut self,
        container: &Container,
        is_named: impl Fn(usize) -> bool,
    ) -> Vec<BadBytes> {
        let id = container.id;
        let needed = container.needed_parts(&is_named);
        let raw = match self.raw_bytes(container, &needed) {
            Ok(Some(raw)) => raw,
            // `check` has told of it.
            Ok(None) => return Vec::new(),
            Err(why) => {
                return vec![BadBytes {
                    range: 0..container.bytes(),
                    text: format!("container {id}: cannot be decoded: {why}"),
                }];
            }
        };
        let chunks = (0..container.count()).filter(|i| is_named(*i));
        chunks
            .filter_map(|i| {
                let (range, expected) = (container.positions(i), container.chunk(i).crc?);
                let found = forebay_checksum::crc32c(&raw[range.start as usize..range.end as usize]);
                (found != expected).then(|| BadBytes {
                    range,
                    text: format!(
                        "container {id} chunk {i}: decoded to other bytes (checksum {found:08x}, expected {expected:08x})"
                    ),
                })
            })
            .collect()
    }

    /// The raw bytes of the parts of a container that are needed, without a look at checksums of what is stored; zeros for others. `None`:
    /// its file cannot be opened.
    pub(super) fn raw_bytes(
        &mut self,
        container: &Container,
        needed: &[bool],
    ) -> std::result::Result<Option<Vec<u8>>, String> {
        let base = match container.base() {
            None => Vec::new(),
            Some(base) => self.base_bytes(base)?,
        };
        let file = match self
            .files
            .as_mut()
            .map(|files| files.get(container.segment()))
        {
            Some(Ok(Some(file))) => file,
            _ => return Ok(None),
        };
        let offset = u64::from(container.offset);
        let mut stored = vec![0; container.stored_len() as usize];
        file.read_at(&mut stored, offset)
            .map_err(|e| e.to_string())?;
        let mut raw = vec![0; container.bytes() as usize];
        let Some(parts) = container.encoded() else {
            for i in (0..container.count()).filter(|i| needed[*i]) {
                let (positions, at) = (container.positions(i), container.piece(i).start);
                let at = (container.segment_offset(at) - offset) as usize;
                let into = &mut raw[positions.start as usize..positions.end as usize];
                into.copy_from_slice(&stored[at..at + into.len()]);
            }
            return Ok(Some(raw));
        };
        let part = |part: usize| {
            let Range { start, end } = parts.range(part);
            stored.get(start as usize..end as usize).unwrap_or_default()
        };
        let opened = OpenedContainer::open(part(EncodedParts::HEAD)).map_err(|e| e.to_string())?;
        for (i, raw) in raw.chunks_mut(PIECE_LEN).enumerate() {
            if !needed[i + 1] {
                continue;
            }
            let base = base.get(i * PIECE_LEN..i * PIECE_LEN + raw.len());
            let base = base.unwrap_or_default();
            let decoded = opened.decode_piece_against(i, part(i + 1), base, raw);
            decoded.map_err(|e| format!("piece {i}: {e}"))?;
        }
        Ok(Some(raw))
    }

    /// The bytes that a container is encoded against.
    fn base_bytes(&mut self, base: &SpanRuns) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(base.bytes() as usize);
        let mut last: Option<(ContainerId, Vec<u8>)> = None;
        for run in base.iter() {
            let Some((id, positions)) = run.in_container() else {
                bytes.resize(bytes.len() + run.len as usize, 0);
                continue;
            };
            if last.as_ref().is_none_or(|(known, _)| *known != id) {
                let container = self.container(id)?;
                if container.base().is_some() || container.chunks_over(&positions).is_none() {
                    return Err(format!("container {id} has not the bytes of its base"));
                }
                let counts = container::load_counts(self.store, &container);
                let counts = counts.map_err(|e| e.to_string())?;
                let needed = container.needed_parts(|i| counts.0[i] > 0);
                let raw = self.raw_bytes(&container, &needed)?;
                let raw =
                    raw.ok_or_else(|| format!("the file of container {id}, its base, is missing"))?;
                last = Some((id, raw));
            }
            let raw = last.as_ref().map(|(_, raw)| &raw[..]).unwrap_or_default();
            let wanted = raw.get(positions.start as usize..positions.end as usize);
            bytes.extend_from_slice(wanted.ok_or("its base is cut short")?);
        }
        Ok(bytes)
    }

    /// Verifies all containers whose records can be read, and calls `checked` for each.
    pub fn check_containers(
        &mut self,
        mut checked: impl FnMut(&mut Self, &Container, Option<&ChunkCounts>),
    ) {
        for container in container::all_bases_first(self.store).filter_map(Result::ok) {
            let counts = container::load_counts(self.store, &container).ok();
            self.check_container(&container, counts.as_ref());
            checked(self, &container, counts.as_ref());
        }
    }

    /// The parts of a span without addresses that point to bytes which their containers do not have: these are lost and cannot be
    /// freed.
    pub fn parts_with_records(&mut self, span: &Span) -> Vec<Span> {
        let (mut at, mut lost) = (span.live.start, Vec::new());
        for run in span.runs().into_iter().flat_map(SpanRuns::iter) {
            let addresses = at..at + u64::from(run.len);
            at = addresses.end;
            if let Some((id, positions)) = run.in_container() {
                let there = self.container(id).ok();
                if there.and_then(|c| c.chunks_over(&positions)).is_none() {
                    lost.push(addresses);
                }
            }
        }
        let left = subtract(span.live.clone(), &merge(lost)).into_iter();
        left.map(|live| span.part(live)).collect()
    }

    /// The damaged live addresses of a span. The containers must be checked before.
    pub fn check_span(&mut self, span: &Span) -> Vec<BadBytes> {
        match &span.bytes {
            SpanBytes::Raw(raw) => {
                let bad = self.check(raw, &raw.stored).into_iter();
                bad.filter_map(|bad| {
                    let range =
                        bad.range.start.max(span.live.start)..bad.range.end.min(span.live.end);
                    (!range.is_empty()).then_some(BadBytes { range, ..bad })
                })
                .collect()
            }
            SpanBytes::Mapped(runs) => {
                let (mut at, mut bad) = (span.live.start, Vec::new());
                for run in runs.iter() {
                    self.check_run(at, run, &mut bad);
                    at += u64::from(run.len);
                }
                bad
            }
        }
    }

    fn check_run(&mut self, addr: u64, run: Run, bad: &mut Vec<BadBytes>) {
        let RunSource::Container { id, at } = run.source else {
            return;
        };
        let positions = u64::from(at)..u64::from(at) + u64::from(run.len);
        let whole = |text: String| BadBytes {
            range: addr..addr + u64::from(run.len),
            text,
        };
        match self.container(id) {
            Err(text) => bad.push(whole(text)),
            Ok(container) if container.chunks_over(&positions).is_none() => bad.push(whole(
                format!("container {id}: it has not the bytes from {at} on that a span names"),
            )),
            Ok(_) => {
                for chunk in self.bad.get(&id).into_iter().flatten() {
                    let range =
                        chunk.range.start.max(positions.start)..chunk.range.end.min(positions.end);
                    if !range.is_empty() {
                        bad.push(BadBytes {
                            range: addr + (range.start - positions.start)
                                ..addr + (range.end - positions.start),
                            text: chunk.text.clone(),
                        });
                    }
                }
            }
        }
    }

    fn container(&mut self, id: ContainerId) -> std::result::Result<Arc<Container>, String> {
        if let Some(known) = self.containers.get(&id) {
            return known.clone();
        }
        if self.containers.len() >= CONTAINERS_KEPT {
            self.containers.clear();
        }
        let loaded = match container::load(self.store, id) {
            Ok(Some(container)) => Ok(Arc::new(container)),
            Ok(None) => Err(format!("container {id}: there is no record of it")),
            Err(e) => Err(e.to_string()),
        };
        self.containers.insert(id, loaded.clone());
        loaded
    }

    /// Verifies these bytes, which are consecutive whole pieces, and returns the damage.
    fn check(&mut self, pieces: &impl ChecksummedPieces, range: &Range<u64>) -> Vec<BadBytes> {
        let whole = |text: String| {
            vec![BadBytes {
                range: range.clone(),
                text,
            }]
        };
        let Some(files) = &mut self.files else {
            return whole("there are no segment files".into());
        };
        let path = files.path(pieces.segment());
        let (what, start) = (path.display(), pieces.segment_offset(range.start));
        let file = match files.get(pieces.segment()) {
            Ok(Some(file)) => file,
            Ok(None) => return whole(format!("{what}: the file is missing")),
            Err(e) => return whole(format!("{what}: {e}")),
        };
        let len = range.end - range.start;
        let there = match self.byte_check {
            ByteCheck::Lengths => file.len().map(|all| all.saturating_sub(start)),
            ByteCheck::Bytes => {
                self.buffer.clear();
                self.buffer.resize(len as usize, 0);
                file.read_at(&mut self.buffer, start).map(|n| n as u64)
            }
        };
        let there = match there {
            Ok(there) => range.start + there.min(len),
            Err(e) => return whole(format!("{what}: {e}")),
        };
        let mut bad = Vec::new();
        for i in pieces.piece_of(range.start)..=pieces.piece_of(range.end - 1) {
            let piece = pieces.piece(i);
            // A piece of which the end is missing cannot be verified.
            if piece.end > there {
                let end = start + (there - range.start);
                bad.push(BadBytes {
                    range: piece.start..range.end,
                    text: format!("{what}: the file ends at byte {end}, before what it held"),
                });
                break;
            }
            if self.byte_check == ByteCheck::Lengths {
                continue;
            }
            let bytes = (piece.start - range.start) as usize..(piece.end - range.start) as usize;
            let (found, expected) = (
                forebay_checksum::crc32c(&self.buffer[bytes]),
                pieces.checksum(i),
            );
            if found != expected {
                let (of, at) = (pieces.describe(i), pieces.segment_offset(piece.start));
                bad.push(BadBytes {
                    range: piece,
                    text: format!(
                        "{what}: damaged at byte {at} (checksum {found:08x}, expected {expected:08x}; {of})"
                    ),
                });
            }
        }
        bad
    }
}

/// The raw positions of an encoded container that need these stored bytes.
fn raw_positions(container: &Container, stored: &Range<u64>) -> Range<u64> {
    let all = container.bytes();
    let (first, last) = (
        container.piece_of(stored.start),
        container.piece_of(stored.end - 1),
    );
    match first {
        EncodedParts::HEAD => 0..all,
        _ => {
            EncodedParts::raw_positions(first, all).start
                ..EncodedParts::raw_positions(last, all).end
        }
    }
}
