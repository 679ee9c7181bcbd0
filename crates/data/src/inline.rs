//! Encodes bytes inline, which means when they are written out (MRC-FS, section 3): with [`CodecWhen::Inline`] whatever the disk
//! is, and with [`CodecWhen::Auto`] if the disk is slower than the codec. Fewer than [`MIN_INLINE_BYTES`] are written raw. A read
//! between the write and settling then reads the shorter, encoded bytes too.
//!
//! An append of 256 KiB and more (less where tails are shorter) is encoded while its log is free for other appends and for reads. Buffered
//! bytes are encoded when the log's tail is written out, with the log's state held.
//!
//! What is encoded becomes a container at once, and the span that is recorded with it is a mapped one. Its chunks have no fingerprints:
//! such bytes are not deduplicated, because a chunk may be named by other spans only once it is on disk.
//!
//! [`CodecWhen::Auto`] compares the measured rate of the disk (`segment/rate`) with the speeds of the codecs, and takes what needs the
//! least time for writing and for reading once.
use crate::chunk::ChunkSize;
use crate::container::encoder::{ContainerEncoder, EncodedForm, RawOrigin};
use crate::container::{
    Container, ContainerId, EncodedParts, Fingerprints, NewContainer, StoredChunk,
};
use crate::counter::Counter;
use crate::fingerprint::FingerprintKind;
use crate::segment::{Segment, Segments};
use crate::span::{PIECE_BYTES, Run, RunSource, Span, SpanRuns};
use forebay_codec::CodecId;
use forebay_codec::choose::{CodecChooser, CodecSpeeds, CostGoal, CostModel};
use forebay_codec::cost::{Bandwidths, CodecSpeed};
use forebay_proto::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Fewer bytes are written raw: the records of a container would take what is gained. Settling may encode them together with others.
const MIN_INLINE_BYTES: usize = 64 << 10;

/// What an encoded container costs beside the codec, before it was measured: copies, checksums of chunks, its records. Bytes a second.
const CONTAINER_OVERHEAD_RATE: f64 = 2e9;

/// Most encoders that are kept while nobody uses them.
const MAX_IDLE_ENCODERS: usize = 8;

/// After so many containers for which no codec was fast enough, codecs are measured again.
const MAX_SKIPPED: u32 = 64;

/// When bytes are encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CodecWhen {
    /// When they are written out, where the disk is slower than the codec; else when they settle.
    Auto,
    /// When they are written out.
    Inline,
    /// When they settle.
    Settle,
    /// Never.
    #[default]
    Off,
}

impl CodecWhen {
    /// Whether settling encodes.
    pub fn settles(self) -> bool {
        self != CodecWhen::Off
    }

    /// Whether bytes may be encoded when they are written out.
    pub fn is_inline(self) -> bool {
        matches!(self, CodecWhen::Auto | CodecWhen::Inline)
    }
}

/// Bytes that are in a segment and not recorded yet.
pub struct WrittenSpan {
    /// The span.
    pub span: Span,
    /// The container that it names, if it was encoded.
    pub container: Option<NewContainer>,
}

/// See the head of this file. Shared by threads.
pub struct InlineEncoder {
    always: bool,
    segments: Arc<Segments>,
    ids: Arc<Counter>,
    /// Encoders that nobody uses now: each keeps buffers, and the speeds that it has measured.
    idle: Mutex<Vec<ContainerEncoder>>,
    /// Containers that were written raw because no codec is as fast as the disk.
    skipped: AtomicU32,
}

impl InlineEncoder {
    /// An encoder of what is written to `segments`; `None`: nothing is encoded inline. `ids`: numbers of containers.
    pub fn new(
        when: CodecWhen,
        segments: Arc<Segments>,
        ids: Arc<Counter>,
    ) -> Option<InlineEncoder> {
        when.is_inline().then(|| InlineEncoder {
            always: when == CodecWhen::Inline,
            segments,
            ids,
            idle: Mutex::default(),
            skipped: AtomicU32::new(1),
        })
    }

    /// What a choice is to make least. `None`: the disk is not known to be slow.
    fn goal(&self) -> Option<CostGoal> {
        if self.always {
            return Some(CostGoal::Bytes);
        }
        let rate = self.segments.rate.bytes_per_second()?;
        Some(CostGoal::Seconds(Bandwidths::both(rate)))
    }

    /// Encodes bytes of a log and has `write` write them to a segment, which returns where. `None`: they are to be written raw.
    /// `chooser`: one of the log's.
    ///
    /// # Errors
    /// As `write`, and the store.
    pub fn write(
        &self,
        origin: &RawOrigin,
        chooser: &mut Option<CodecChooser>,
        bytes: &[u8],
        write: impl FnOnce(&[u8]) -> Result<(Arc<Segment>, u32)>,
    ) -> Result<Option<(WrittenSpan, Arc<Segment>)>> {
        if bytes.len() < MIN_INLINE_BYTES {
            return Ok(None);
        }
        let Some(goal) = self.goal() else {
            return Ok(None);
        };
        let encoder = self.idle.lock().pop();
        let mut encoder = encoder.unwrap_or_else(|| {
            ContainerEncoder::new(CostModel {
                goal,
                speeds: speeds_of_writers(),
            })
        });
        encoder.set_goal(goal);
        if let CostGoal::Seconds(disk) = goal
            && !encoder.is_faster_than(disk.write)
        {
            // Sampling would not pay for its time. Measured speeds may be of a busy moment, so they are forgotten now and then.
            if !self
                .skipped
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(MAX_SKIPPED)
            {
                self.keep(encoder);
            }
            return Ok(None);
        }
        let (begin, mut took) = (Instant::now(), None);
        let chooser = chooser.get_or_insert_with(|| CodecChooser::new(origin.hint));
        let written = match encoder.encode(chooser, origin, bytes, None) {
            None => Ok(None),
            // The number first: what is written without one would count in its segment for ever.
            Some(EncodedForm {
                bytes: encoded,
                parts,
                ..
            }) => self.ids.next().and_then(|id| {
                let codec = parts.codec;
                let begin_write = Instant::now();
                let (segment, offset) = write(encoded)?;
                let wrote = begin_write.elapsed();
                let place = (segment.number, offset);
                let (span, container) = encoded_span(origin, bytes, id, parts, place);
                took = Some((codec, begin.elapsed().saturating_sub(wrote)));
                let written = WrittenSpan {
                    span,
                    container: Some(container),
                };
                Ok(Some((written, segment)))
            }),
        };
        if let Some((codec, took)) = took {
            encoder.observe(codec, bytes.len(), took);
        }
        self.keep(encoder);
        written
    }

    /// Keeps an encoder for the next one who encodes.
    fn keep(&self, encoder: ContainerEncoder) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_ENCODERS {
            idle.push(encoder);
        }
    }
}

/// Speeds of codecs for a writer, before any is measured. What is encoded is decoded once, to be compared.
fn speeds_of_writers() -> CodecSpeeds {
    let mut speeds = CodecSpeeds::default();
    for codec in CodecId::ALL {
        let CodecSpeed { encode, decode } = speeds.of(codec);
        let encode = 1.0 / (1.0 / encode + 1.0 / decode + 1.0 / CONTAINER_OVERHEAD_RATE);
        speeds.set(codec, CodecSpeed { encode, decode });
    }
    speeds
}

/// The container of encoded bytes of a log, and the span that names all of it. `bytes`: before they were encoded; `place`: the segment
/// and the offset of the encoded ones.
pub fn encoded_span(
    origin: &RawOrigin,
    bytes: &[u8],
    id: ContainerId,
    parts: EncodedParts,
    place: (u32, u32),
) -> (Span, NewContainer) {
    let plain = Container::new(id, place.0, place.1, chunks(origin.addr, bytes));
    let fingerprints = Fingerprints::none(plain.count());
    let container = plain.into_encoded(parts);
    let container = NewContainer {
        fingerprints,
        reserved: container.stored_len(),
        container,
    };
    let mut runs = SpanRuns::default();
    runs.push(Run {
        len: bytes.len() as u32,
        source: RunSource::Container { id, at: 0 },
    });
    (Span::mapped(origin.log, origin.addr, runs), container)
}

/// The chunks of bytes at an address: on the grid of log addresses, as pieces of raw bytes are.
fn chunks(addr: u64, bytes: &[u8]) -> Vec<StoredChunk> {
    let first = ((PIECE_BYTES - addr % PIECE_BYTES) as usize).min(bytes.len());
    let (first, rest) = bytes.split_at(first);
    let all = std::iter::once(first).chain(rest.chunks(ChunkSize::MIN.bytes()));
    let chunk = |bytes: &[u8]| StoredChunk {
        len: bytes.len() as u32,
        crc: Some(forebay_checksum::crc32c(bytes)),
    };
    all.map(chunk).collect()
}

impl Fingerprints {
    /// Those of chunks that are never looked for.
    fn none(chunks: usize) -> Fingerprints {
        Fingerprints {
            kind: FingerprintKind::Blake3,
            of: vec![None; chunks],
        }
    }
}
