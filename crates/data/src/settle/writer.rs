//! Writes new chunks to containers, one after the other, encoded where that makes them shorter (`container/encoder`).
//!
//! A container that may be encoded holds chunks of one log only, because their numbers begin at the same places. Logs with few chunks
//! share a container, because each container costs records and a head.
//!
//! Bytes of a later version of a file may be encoded against an earlier one (`base`), as long as that gains: of a log for which it has not
//! after some containers the others are encoded without.
//!
//! Invariant: written containers count in their segment as reserved until they are handed over. If the writer is dropped before,
//! their space is given back.
use super::Settler;
use crate::cit::MAX_CONTAINER_CHUNKS;
use crate::container::encoder::{ContainerEncoder, LogChoosers, RawOrigin};
use crate::container::{
    Container, ContainerId, Fingerprints, MAX_CONTAINER_BYTES, NewContainer, StoredChunk,
    containers_of,
};
use crate::fingerprint::Fingerprint;
use crate::segment::{Lane, Segment, SegmentRange};
use forebay_codec::choose::{CodecSpeeds, CostGoal, CostModel};
use forebay_codec::hint::HintedCodec;
use forebay_proto::{Error, LogId, Result};
use lru::LruCache;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// Chunks of different origins share a container until it has so many bytes.
const SHARED_BYTES: usize = 64 << 10;
/// Containers of a log for which a base is tried, if none gains by it; and of which at least one in so many must gain.
const MAX_FAILED_TRIALS: u32 = 4;
/// Logs of which the trials are kept.
const KEPT_TRIALS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// Encodes new containers.
pub struct SettleEncoder {
    encoder: ContainerEncoder,
    choosers: LogChoosers,
    trials: LruCache<LogId, BaseTrials>,
}

/// Containers of a log that were encoded against a base.
#[derive(Default)]
struct BaseTrials {
    made: u32,
    gained: u32,
}

impl BaseTrials {
    fn may_gain(&self) -> bool {
        self.made < MAX_FAILED_TRIALS * (1 + self.gained)
    }
}

impl SettleEncoder {
    /// Settling happens beside what programs wait for, so containers are to be short rather than fast.
    pub fn new() -> SettleEncoder {
        SettleEncoder {
            encoder: ContainerEncoder::new(CostModel {
                goal: CostGoal::Bytes,
                speeds: CodecSpeeds::DEFAULT,
            }),
            choosers: LogChoosers::default(),
            trials: LruCache::new(KEPT_TRIALS),
        }
    }
}

/// A container before it is written.
pub struct FullContainer<'a> {
    /// Its number.
    pub id: ContainerId,
    /// Its raw bytes.
    pub bytes: &'a [u8],
    /// Where they come from.
    pub origin: RawOrigin,
    /// All their addresses in the log of the origin, in order. Empty: some are of another log.
    pub addresses: Vec<Range<u64>>,
    /// The chunks that they are.
    pub chunks: Vec<StoredChunk>,
    /// What the chunks are known by.
    pub fingerprints: Vec<Option<Fingerprint>>,
}

/// The container that is being filled.
struct OpenContainer {
    id: ContainerId,
    origin: RawOrigin,
    /// As in [`FullContainer`]; `None`: some are of another log.
    addresses: Option<Vec<Range<u64>>>,
    bytes: Vec<u8>,
    chunks: Vec<StoredChunk>,
    fingerprints: Vec<Option<Fingerprint>>,
}

impl OpenContainer {
    /// Bytes from there come next.
    fn add_addresses(&mut self, origin: &RawOrigin, len: usize) {
        let addresses = origin.addr..origin.addr + len as u64;
        match &mut self.addresses {
            Some(_) if origin.log != self.origin.log => self.addresses = None,
            Some(known) => match known.last_mut() {
                Some(last) if last.end == addresses.start => last.end = addresses.end,
                _ => known.push(addresses),
            },
            None => {}
        }
    }
}

/// See the head of this file.
pub struct ContainerWriter<'a> {
    settler: &'a Settler,
    /// `None`: all containers are plain.
    encoder: Option<&'a mut SettleEncoder>,
    filling: Option<OpenContainer>,
    /// The buffer of the last one, to be reused.
    memory: Vec<u8>,
    written: Vec<NewContainer>,
    /// The segments of the written containers.
    segments: BTreeMap<u32, Arc<Segment>>,
    /// Those of their bases: what was encoded inline may not be on disk.
    base_segments: BTreeSet<u32>,
}

impl<'a> ContainerWriter<'a> {
    /// A writer that has written nothing yet.
    pub fn new(
        settler: &'a Settler,
        encoder: Option<&'a mut SettleEncoder>,
    ) -> ContainerWriter<'a> {
        ContainerWriter {
            settler,
            encoder,
            filling: None,
            memory: Vec::new(),
            written: Vec::new(),
            segments: BTreeMap::new(),
            base_segments: BTreeSet::new(),
        }
    }

    /// A new container number.
    ///
    /// # Errors
    /// As the store.
    pub fn next_id(&self) -> Result<ContainerId> {
        self.settler.ids.next()
    }

    /// Adds a chunk from `origin`. Returns its container and its position there.
    ///
    /// # Errors
    /// As the disk; `ENOSPC` if it is full.
    pub fn push(
        &mut self,
        chunk: &[u8],
        crc: u32,
        fingerprint: Option<Fingerprint>,
        origin: RawOrigin,
    ) -> Result<(ContainerId, u32)> {
        let encodes = self.encoder.is_some();
        let is_full = |filling: &OpenContainer| {
            let len = filling.bytes.len();
            (len + chunk.len()) as u64 > MAX_CONTAINER_BYTES
                || filling.chunks.len() >= MAX_CONTAINER_CHUNKS as usize
                || encodes && len >= SHARED_BYTES && !filling.origin.is_continued(len, &origin)
        };
        if self.filling.as_ref().is_some_and(is_full) {
            self.write()?;
        }
        let filling = match &mut self.filling {
            Some(filling) => filling,
            none => none.insert(OpenContainer {
                id: self.settler.ids.next()?,
                origin,
                addresses: Some(Vec::new()),
                bytes: std::mem::take(&mut self.memory),
                chunks: Vec::new(),
                fingerprints: Vec::new(),
            }),
        };
        filling.add_addresses(&origin, chunk.len());
        let at = filling.bytes.len() as u32;
        filling.bytes.extend_from_slice(chunk);
        filling.fingerprints.push(fingerprint);
        filling.chunks.push(StoredChunk {
            len: chunk.len() as u32,
            crc: Some(crc),
        });
        Ok((filling.id, at))
    }

    /// Writes the container that is being filled.
    fn write(&mut self) -> Result<()> {
        let Some(filling) = self.filling.take() else {
            return Ok(());
        };
        let full = FullContainer {
            id: filling.id,
            bytes: &filling.bytes,
            origin: filling.origin,
            addresses: filling.addresses.unwrap_or_default(),
            chunks: filling.chunks,
            fingerprints: filling.fingerprints,
        };
        self.write_full(full, false)?;
        self.memory = filling.bytes;
        self.memory.clear();
        Ok(())
    }

    /// Writes a container. `only_encoded`: if it does not become shorter, nothing is written, and the answer is `false`.
    ///
    /// # Errors
    /// As the disk; `ENOSPC` if it is full.
    pub fn write_full(&mut self, full: FullContainer<'_>, only_encoded: bool) -> Result<bool> {
        let mut base = match self.may_gain_by_base(&full) {
            true => (self.settler).find_base(full.id, full.origin.log, &full.addresses)?,
            false => None,
        };
        let encoded = self.encoder.as_mut().and_then(|encoder| {
            let chooser = encoder.choosers.of(&full.origin);
            let bytes = base.as_ref().map(|base| &base.bytes[..]);
            let form = (encoder.encoder).encode(chooser, &full.origin, full.bytes, bytes);
            let needs_base = form.as_ref().is_some_and(|form| form.needs_base);
            if base.is_some() {
                let trials = (encoder.trials).get_or_insert_mut(full.origin.log, Default::default);
                trials.made += 1;
                trials.gained += u32::from(needs_base);
                if needs_base || !trials.may_gain() {
                    self.settler.series.note_trials(full.origin.log, needs_base);
                }
            }
            base = base.take().filter(|_| needs_base);
            form
        });
        let (bytes, parts) = match encoded {
            Some(form) => (form.bytes, Some(form.parts)),
            None if only_encoded => return Ok(false),
            None => (full.bytes, None),
        };
        for id in base.iter().flat_map(|base| containers_of(&base.runs)) {
            let container = self.settler.containers.find(id)?;
            self.base_segments.extend(container.map(|c| c.segment));
        }
        let reclaimer = &self.settler.reclaimer;
        let segments = &reclaimer.segments;
        let len = bytes.len() as u64;
        let (segment, offset) = segments.reserve(Lane::Containers, len)?;
        let number = segment.number;
        if let Err(e) = segments.write(&segment, offset, bytes) {
            reclaimer.discard_bytes(std::iter::once(SegmentRange::new(number, offset, len)));
            return Err(reclaimer.poison.note(e));
        }
        self.segments.insert(number, segment);
        let plain = Container::new(full.id, number, offset, full.chunks);
        self.written.push(NewContainer {
            container: match parts {
                Some(parts) => plain
                    .into_encoded(parts)
                    .with_base(base.map(|base| base.runs)),
                None => plain,
            },
            fingerprints: Fingerprints {
                kind: self.settler.options.fingerprint,
                of: full.fingerprints,
            },
            reserved: len,
        });
        Ok(true)
    }

    /// Whether it is worth a try to encode a container against a base.
    fn may_gain_by_base(&mut self, full: &FullContainer<'_>) -> bool {
        let log = full.origin.log;
        let allows_field = matches!(
            full.origin.hint.codec,
            HintedCodec::Auto | HintedCodec::Field
        );
        let Some(encoder) = self.encoder.as_mut().filter(|_| allows_field) else {
            return false;
        };
        let may_gain = encoder.trials.get(&log).is_none_or(BaseTrials::may_gain);
        may_gain && !full.addresses.is_empty() && self.settler.series.may_gain(log)
    }

    /// Writes the last container, and syncs all and what they are encoded against. Returns them; their space still counts as reserved. If the disk was full, the last one
    /// is missing and the error is returned beside them.
    ///
    /// # Errors
    /// As the disk.
    pub fn finish(mut self) -> Result<(Vec<NewContainer>, Option<Error>)> {
        let no_room = match self.write() {
            Err(e) if e.errno() == Errno::NOSPC => Some(e),
            written => written.map(|()| None)?,
        };
        let segments = &self.settler.segments;
        for segment in self.segments.values() {
            segments.sync(segment)?;
        }
        for number in self
            .base_segments
            .iter()
            .filter(|n| !self.segments.contains_key(n))
        {
            segments.sync_number(*number)?;
        }
        Ok((std::mem::take(&mut self.written), no_room))
    }
}

impl Drop for ContainerWriter<'_> {
    fn drop(&mut self) {
        let unused = self.written.iter();
        self.settler
            .reclaimer
            .discard_bytes(unused.flat_map(|new| new.container.places(|_| true)));
    }
}
