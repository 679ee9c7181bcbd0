//! Plans what becomes of the chunks of raw spans: zeros become a hole, a known chunk is named where it is stored, a new one is
//! kept.
//!
//! If almost all of a span is new, the span becomes one container. It is written encoded if that is shorter; else the container
//! **adopts** the span's raw bytes where they lie, and those that nothing names (known chunks, zeros, repeats) are reclaimed.
//! Otherwise new chunks are copied to containers in the order of their addresses.
use super::Settler;
use super::cut::{CutChunk, ReadSpan, ReadSpans};
use super::lookup::{ChunkLookup, NewChunk};
use super::writer::{ContainerWriter, FullContainer, SettleEncoder};
use crate::cit::{ChunkLocation, MAX_CONTAINER_CHUNKS};
use crate::container::{
    Container, ContainerId, Fingerprints, MAX_CONTAINER_BYTES, NewContainer, StoredChunk,
};
use crate::fingerprint::Fingerprint;
use crate::pieces::ChecksummedPieces;
use crate::segment::SegmentRange;
use crate::span::{Run, RunSource, Span, SpanRuns};
use crate::span_table::{SettleBatch, SettledSpan};
use forebay_proto::{Error, Result};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// A span is adopted if at most one in this many of its bytes is known already.
const MAX_DUPLICATE_DIVISOR: u64 = 16;

/// What becomes of a chunk.
struct ChunkDisposition {
    crc: u32,
    /// Where its bytes are stored, or zeros. `None`: it is new.
    source: Option<RunSource>,
}

/// A chunk that this plan keeps.
struct KeptChunk {
    source: RunSource,
    /// Its place in [`ReadSpans::bytes`].
    bytes: Range<usize>,
    crc: u32,
}

/// What became of a plan.
pub struct PlanOutcome {
    /// Live bytes that are settled.
    pub settled: u64,
    /// Spans that are not settled: they changed meanwhile, would name a chunk that is gone, or found no room.
    pub undone: Vec<Span>,
    /// The error of a full disk, if it was.
    pub no_room: Option<Error>,
}

/// A plan for some spans, as it grows.
pub struct SettlePlan<'a> {
    settler: &'a Settler,
    writer: ContainerWriter<'a>,
    spans: Vec<SettledSpan>,
    /// Containers that adopt spans.
    adopting: Vec<NewContainer>,
    /// Segments with raw bytes that are adopted.
    adopted_segments: BTreeSet<u32>,
    /// New chunks, which are not in the index yet.
    kept: HashMap<Fingerprint, KeptChunk>,
    /// Live bytes of the spans.
    pub bytes: u64,
}

impl<'a> SettlePlan<'a> {
    /// An empty plan. `encoder`: encodes new containers.
    pub fn new(settler: &'a Settler, encoder: Option<&'a mut SettleEncoder>) -> SettlePlan<'a> {
        SettlePlan {
            settler,
            writer: ContainerWriter::new(settler, encoder),
            spans: Vec::new(),
            adopting: Vec::new(),
            adopted_segments: BTreeSet::new(),
            kept: HashMap::new(),
            bytes: 0,
        }
    }

    /// The spans that are planned so far, as they were read.
    pub fn planned(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().map(|s| &s.old)
    }

    /// Plans more spans, which were read and cut.
    ///
    /// # Errors
    /// As disk and store; `ENOSPC` on a full disk.
    pub fn add(&mut self, read: &ReadSpans) -> Result<()> {
        if self.settler.options.fingerprint.needs_compare() {
            // The bytes of earlier chunks are not in memory any more, so they cannot be compared.
            self.kept.clear();
        }
        let mut chunks = self.look_up(read)?;
        for span in &read.spans {
            self.settler.pause();
            self.plan_span(read, span, &mut chunks)?;
            self.bytes += span.span.live_len();
        }
        Ok(())
    }

    /// Of each chunk its checksum, and the stored chunk that may be named in its place, if there is one.
    fn look_up(&self, read: &ReadSpans) -> Result<Vec<ChunkDisposition>> {
        let mut fates: Vec<ChunkDisposition> = Vec::with_capacity(read.chunks.len());
        for span in &read.spans {
            // A chunk that lies in several spans is added with the first of them.
            for i in fates.len()..span.chunks.end {
                let chunk = &read.chunks[i];
                fates.push(ChunkDisposition {
                    crc: read.checksum(span, chunk),
                    source: chunk.zero.then_some(RunSource::Zeros),
                });
            }
        }
        let chunks = read.chunks.iter().enumerate();
        let (wanted, fingerprints): (Vec<usize>, Vec<Fingerprint>) = chunks
            .filter_map(|(i, c)| Some((i, c.fingerprint?)))
            .unzip();
        let mut lookup = ChunkLookup::new(self.settler);
        let accept = |i: usize, location: ChunkLocation| {
            let chunk = wanted[i];
            let wanted = NewChunk {
                bytes: &read.bytes()[read.chunks[chunk].at.clone()],
                crc: fates[chunk].crc,
            };
            lookup.accepts(location, &wanted)
        };
        let index = &self.settler.index;
        let found = index.find_batch(&fingerprints, self.settler, accept)?;
        for (chunk, location) in wanted.iter().zip(found) {
            if let Some(location) = location
                && let Some(at) = lookup.position(location)?
            {
                let id = location.container;
                fates[*chunk].source = Some(RunSource::Container { id, at });
            }
        }
        Ok(fates)
    }

    fn plan_span(
        &mut self,
        read: &ReadSpans,
        span: &ReadSpan,
        fates: &mut [ChunkDisposition],
    ) -> Result<()> {
        let chunks = span.chunks.clone();
        // Chunks that this plan has kept since the lookup.
        for (chunk, fate) in read.chunks[chunks.clone()]
            .iter()
            .zip(&mut fates[chunks.clone()])
        {
            fate.source = fate
                .source
                .or_else(|| self.kept_before(read, chunk, fate.crc));
        }
        let container = match self.is_own_container(read, span, fates) {
            true => Some(self.writer.next_id()?),
            false => None,
        };
        let known = fates[chunks.clone()]
            .iter()
            .map(|fate| fate.source.is_some());
        let known: Vec<bool> = known.collect();
        let mut runs = SpanRuns::default();
        for i in chunks.clone() {
            let (chunk, crc) = (&read.chunks[i], fates[i].crc);
            // An earlier chunk of this span may have the same bytes.
            let before = fates[i]
                .source
                .or_else(|| self.kept_before(read, chunk, crc));
            let source = match (before, container) {
                (Some(known), _) => known,
                (None, Some(id)) if span.holds(chunk) => {
                    let at = (chunk.at.start - span.at.start) as u32;
                    self.keep(chunk, crc, RunSource::Container { id, at })
                }
                (None, _) => {
                    let bytes = &read.bytes()[chunk.at.clone()];
                    let origin = span.origin(chunk.at.start);
                    let (id, at) = (self.writer).push(bytes, crc, chunk.fingerprint, origin)?;
                    self.keep(chunk, crc, RunSource::Container { id, at })
                }
            };
            fates[i].source = Some(source);
            let part = span.part(chunk);
            runs.push(Run {
                len: part.len() as u32,
                source: source.advanced_by(part.start as u32),
            });
        }
        let adopted_by = match container {
            Some(id) if !self.store_whole(read, span, fates, id, &known)? => Some(id),
            _ => None,
        };
        self.spans.push(SettledSpan {
            old: span.span.clone(),
            new: Span::mapped(span.span.log, span.span.live.start, runs),
            adopted_by,
        });
        Ok(())
    }

    /// Notes where a new chunk is kept.
    fn keep(&mut self, chunk: &CutChunk, crc: u32, source: RunSource) -> RunSource {
        if let Some(fingerprint) = chunk.fingerprint {
            let bytes = chunk.at.clone();
            self.kept
                .insert(fingerprint, KeptChunk { source, bytes, crc });
        }
        source
    }

    /// Where this plan keeps a chunk of the same bytes.
    fn kept_before(&self, read: &ReadSpans, chunk: &CutChunk, crc: u32) -> Option<RunSource> {
        let kept = self.kept.get(&chunk.fingerprint?)?;
        let compares = self.settler.options.fingerprint.needs_compare();
        let bytes = &read.bytes()[chunk.at.clone()];
        let same = kept.bytes.len() == bytes.len()
            && kept.crc == crc
            && (!compares || read.bytes()[kept.bytes.clone()] == *bytes);
        same.then_some(kept.source)
    }

    /// Whether the span becomes a container of its own.
    fn is_own_container(
        &self,
        read: &ReadSpans,
        span: &ReadSpan,
        fates: &[ChunkDisposition],
    ) -> bool {
        let len = span.span.live_len();
        // No part of a piece was freed, so no other span shares the stored bytes.
        let is_whole = span
            .span
            .raw()
            .is_some_and(|raw| raw.stored == span.span.live);
        let (mut here, mut new, mut known) = (HashSet::new(), 0, 0);
        for i in span.chunks.clone() {
            let chunk = &read.chunks[i];
            let mut is_again = || chunk.fingerprint.is_some_and(|f| !here.insert(f));
            match fates[i].source.is_some() || is_again() {
                true => known += span.part(chunk).len() as u64,
                false if span.holds(chunk) => new += chunk.at.len() as u64,
                // A chunk that lies in two spans is copied: at most one at each end of the span.
                false => {}
            }
        }
        is_whole
            && new > 0
            && known * MAX_DUPLICATE_DIVISOR <= len
            && len <= MAX_CONTAINER_BYTES
            && span.chunks.len() <= MAX_CONTAINER_CHUNKS as usize
    }

    /// A container of all bytes of the span. In it are also chunks that are kept elsewhere (of which it was `known`, or which lie
    /// in two spans); nothing names them here. `true`: it is encoded; `false`: it adopts the raw bytes.
    fn store_whole(
        &mut self,
        read: &ReadSpans,
        span: &ReadSpan,
        fates: &[ChunkDisposition],
        id: ContainerId,
        known: &[bool],
    ) -> Result<bool> {
        let chunks = || read.chunks[span.chunks.clone()].iter();
        let stored = chunks()
            .zip(&fates[span.chunks.clone()])
            .map(|(chunk, fate)| {
                let part = span.part(chunk);
                let (start, len) = (chunk.at.start + part.start, part.len());
                let crc = match span.holds(chunk) {
                    true => fate.crc,
                    false => forebay_checksum::crc32c(&read.bytes()[start..start + len]),
                };
                StoredChunk {
                    len: len as u32,
                    crc: Some(crc),
                }
            });
        let stored: Vec<StoredChunk> = stored.collect();
        let own = chunks().zip(known).map(|(chunk, known)| {
            let is_own = !known && span.holds(chunk);
            chunk.fingerprint.filter(|_| is_own)
        });
        let own: Vec<Option<Fingerprint>> = own.collect();
        let full = FullContainer {
            id,
            bytes: &read.bytes()[span.at.clone()],
            origin: span.origin(span.at.start),
            addresses: vec![span.span.live.clone()],
            chunks: stored.clone(),
            fingerprints: own.clone(),
        };
        if self.writer.write_full(full, true)? {
            return Ok(true);
        }
        let Some(raw) = span.span.raw() else {
            return Ok(false);
        };
        let offset = raw.segment_offset(span.span.live.start) as u32;
        self.adopted_segments.insert(raw.segment);
        self.adopting.push(NewContainer {
            container: Container::new(id, raw.segment, offset, stored),
            fingerprints: Fingerprints {
                kind: self.settler.options.fingerprint,
                of: own,
            },
            reserved: 0,
        });
        Ok(false)
    }

    /// Syncs containers and adopted bytes, then applies the batch, as far as there is room.
    ///
    /// # Errors
    /// As disk and store: then nothing is settled.
    pub fn carry_out(self) -> Result<PlanOutcome> {
        let settler = self.settler;
        for segment in &self.adopted_segments {
            settler.pause();
            settler.segments.sync_number(*segment)?;
        }
        settler.pause();
        let (mut containers, no_room) = self.writer.finish()?;
        // Also if nothing was to be synced: raw bytes stay while it is not known what the disk has.
        settler.poison.check()?;
        let written: Vec<SegmentRange> = (containers.iter())
            .flat_map(|new| new.container.places(|_| true))
            .collect();
        containers.extend(self.adopting);
        let ids: Vec<ContainerId> = containers.iter().map(|new| new.container.id).collect();
        let batch = SettleBatch {
            spans: self.spans,
            containers,
        };
        let settled = settler.spans.settle(batch);
        let outcome =
            settled.inspect_err(|_| settler.reclaimer.discard_bytes(written.iter().copied()))?;
        let epoch = settler.containers.damaged.epoch();
        ids.iter().for_each(|id| settler.verified.add(*id, epoch));
        settler.reclaimer.queue.add(outcome.dead);
        settler.reclaimer.space_freed.notify();
        Ok(PlanOutcome {
            settled: outcome.settled,
            undone: outcome.undone,
            no_room,
        })
    }
}
