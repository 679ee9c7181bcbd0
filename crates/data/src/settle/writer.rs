//! Writes new chunks to containers, one after the other, encoded where that makes them shorter (`container/encoder`).
//!
//! A container that may be encoded holds chunks of one log only, because their numbers begin at the same places. Logs with few chunks
//! share a container, because each container costs records and a head.
//!
//! Invariant: written containers count in their segment as reserved until they are handed over. If the writer is dropped before,
//! their space is given back.
use crate::cit::MAX_CONTAINER_CHUNKS;
use crate::container::encoder::{ContainerEncoder, LogChoosers, RawOrigin};
use crate::container::{
    Container, ContainerId, Fingerprints, MAX_CONTAINER_BYTES, NewContainer, StoredChunk,
};
use crate::counter::Counter;
use crate::fingerprint::{Fingerprint, FingerprintKind};
use crate::reclaim::Reclaimer;
use crate::segment::{Lane, Segment, SegmentRange};
use forebay_codec::choose::{CodecSpeeds, CostGoal, CostModel};
use forebay_proto::{Error, Result};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Chunks of different origins share a container until it has so many bytes.
const SHARED_BYTES: usize = 64 << 10;

/// Encodes new containers.
pub struct SettleEncoder {
    encoder: ContainerEncoder,
    choosers: LogChoosers,
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
    /// The chunks that they are.
    pub chunks: Vec<StoredChunk>,
    /// What the chunks are known by.
    pub fingerprints: Vec<Option<Fingerprint>>,
}

/// The container that is being filled.
struct OpenContainer {
    id: ContainerId,
    origin: RawOrigin,
    bytes: Vec<u8>,
    chunks: Vec<StoredChunk>,
    fingerprints: Vec<Option<Fingerprint>>,
}

/// See the head of this file.
pub struct ContainerWriter<'a> {
    reclaimer: &'a Reclaimer,
    ids: &'a Counter,
    kind: FingerprintKind,
    /// `None`: all containers are plain.
    encoder: Option<&'a mut SettleEncoder>,
    filling: Option<OpenContainer>,
    /// The buffer of the last one, to be reused.
    memory: Vec<u8>,
    written: Vec<NewContainer>,
    /// The segments of the written containers.
    segments: BTreeMap<u32, Arc<Segment>>,
}

impl<'a> ContainerWriter<'a> {
    /// A writer that has written nothing yet.
    pub fn new(
        reclaimer: &'a Reclaimer,
        ids: &'a Counter,
        kind: FingerprintKind,
        encoder: Option<&'a mut SettleEncoder>,
    ) -> ContainerWriter<'a> {
        ContainerWriter {
            reclaimer,
            ids,
            kind,
            encoder,
            filling: None,
            memory: Vec::new(),
            written: Vec::new(),
            segments: BTreeMap::new(),
        }
    }

    /// A new container number.
    ///
    /// # Errors
    /// As the store.
    pub fn next_id(&self) -> Result<ContainerId> {
        self.ids.next()
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
                id: self.ids.next()?,
                origin,
                bytes: std::mem::take(&mut self.memory),
                chunks: Vec::new(),
                fingerprints: Vec::new(),
            }),
        };
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
        let encoder = self.encoder.as_mut();
        let encoded = encoder.and_then(|encoder| {
            let chooser = encoder.choosers.of(&full.origin);
            (encoder.encoder).encode(chooser, &full.origin, full.bytes)
        });
        let (bytes, parts) = match encoded {
            Some((bytes, parts)) => (bytes, Some(parts)),
            None if only_encoded => return Ok(false),
            None => (full.bytes, None),
        };
        let segments = &self.reclaimer.segments;
        let len = bytes.len() as u64;
        let (segment, offset) = segments.reserve(Lane::Containers, len)?;
        let number = segment.number;
        if let Err(e) = segments.write(&segment, offset, bytes) {
            self.reclaimer
                .discard_bytes(std::iter::once(SegmentRange::new(number, offset, len)));
            return Err(self.reclaimer.poison.note(e));
        }
        self.segments.insert(number, segment);
        let plain = Container::new(full.id, number, offset, full.chunks);
        self.written.push(NewContainer {
            container: match parts {
                Some(parts) => plain.into_encoded(parts),
                None => plain,
            },
            fingerprints: Fingerprints {
                kind: self.kind,
                of: full.fingerprints,
            },
            reserved: len,
        });
        Ok(true)
    }

    /// Writes the last container and syncs all. Returns them; their space still counts as reserved. If the disk was full, the last one
    /// is missing and the error is returned beside them.
    ///
    /// # Errors
    /// As the disk.
    pub fn finish(mut self) -> Result<(Vec<NewContainer>, Option<Error>)> {
        let no_room = match self.write() {
            Err(e) if e.errno() == Errno::NOSPC => Some(e),
            written => written.map(|()| None)?,
        };
        for segment in self.segments.values() {
            let synced = self.reclaimer.segments.sync(segment);
            synced.map_err(|e| self.reclaimer.poison.note_sync(e))?;
        }
        Ok((std::mem::take(&mut self.written), no_room))
    }
}

impl Drop for ContainerWriter<'_> {
    fn drop(&mut self) {
        let unused = self.written.iter();
        self.reclaimer
            .discard_bytes(unused.flat_map(|new| new.container.places(|_| true)));
    }
}
