//! Encodes the raw bytes of new containers, by what is known of the log that they come from.
//!
//! Each log has a chooser (`forebay_codec::choose`), which samples some of its containers. What was encoded is decoded again and
//! compared before it is used: a fault of a codec costs room, never a byte.
//!
//! Where an earlier version of the bytes is known, the container is also encoded against that (`bases`), and kept so if that is clearly
//! shorter: reading it costs two reads then.
//!
//! Invariant: encoded bytes are shorter than raw ones by at least one in `MIN_SAVING_DIVISOR`; else the container stays plain, and
//! costs nothing to read.
use super::encoded_parts::EncodedParts;
use forebay_codec::choose::{CodecChooser, CostGoal, CostModel};
use forebay_codec::container::{PIECE_LEN, StoredForm};
use forebay_codec::{
    Codec, CodecHint, CodecId, ElementLayout, EncodedContainer, FieldCodec, OpenedContainer,
};
use forebay_proto::LogId;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::time::Duration;

/// What a container must save to be encoded: one in this many of its bytes.
const MIN_SAVING_DIVISOR: usize = 20;
/// Fewer raw bytes than these are not encoded: heads and records would take what is gained.
const MIN_RAW_BYTES: usize = 4096;
/// What a base must save: one in this many of the bytes that are stored without it.
const MIN_BASE_SAVING_DIVISOR: usize = 8;
/// Logs whose choosers are kept.
const KEPT_CHOOSERS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// Where raw bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOrigin {
    /// The log.
    pub log: LogId,
    /// The address of the first byte.
    pub addr: u64,
    /// What the log's file says of its content.
    pub hint: CodecHint,
}

impl RawOrigin {
    /// Whether bytes from `next` on may follow `len` bytes from here in one array: numbers begin at the same places.
    pub fn is_continued(&self, len: usize, next: &RawOrigin) -> bool {
        /// A multiple of every element's width.
        const WIDEST: u64 = 8;
        let is_same = self.log == next.log && self.hint == next.hint;
        is_same && self.addr.wrapping_add(len as u64) % WIDEST == next.addr % WIDEST
    }
}

/// See the head of this file. Keeps its memory from one container to the next.
pub struct ContainerEncoder {
    model: CostModel,
    encoded: EncodedContainer,
    /// The same container encoded against a base.
    against: EncodedContainer,
    bytes: Vec<u8>,
}

/// A container in its encoded form.
pub struct EncodedForm<'a> {
    /// What is stored.
    pub bytes: &'a [u8],
    /// The parts of it.
    pub parts: EncodedParts,
    /// Whether it was encoded against the base.
    pub needs_base: bool,
}

/// The choosers of logs that were encoded last.
pub struct LogChoosers(LruCache<LogId, (CodecHint, CodecChooser)>);

impl Default for LogChoosers {
    fn default() -> LogChoosers {
        LogChoosers(LruCache::new(KEPT_CHOOSERS))
    }
}

impl LogChoosers {
    /// The chooser of a log: a new one, if the hint has changed.
    pub fn of(&mut self, origin: &RawOrigin) -> &mut CodecChooser {
        let new = || (origin.hint, CodecChooser::new(origin.hint));
        let known = self.0.get_or_insert_mut(origin.log, new);
        if known.0 != origin.hint {
            *known = new();
        }
        &mut known.1
    }
}

impl ContainerEncoder {
    /// An encoder that chooses by this model.
    pub fn new(model: CostModel) -> ContainerEncoder {
        ContainerEncoder {
            model,
            encoded: EncodedContainer::new(),
            against: EncodedContainer::new(),
            bytes: Vec::new(),
        }
    }

    /// Has choices that are made from now on make this least.
    pub fn set_goal(&mut self, goal: CostGoal) {
        self.model.goal = goal;
    }

    /// Encoding so many raw bytes took the writer so long, with all that it did for them.
    pub fn observe(&mut self, codec: CodecId, raw_len: usize, took: Duration) {
        let speeds = &mut self.model.speeds;
        speeds.observe_encoding(codec, raw_len, took.as_secs_f64());
    }

    /// Whether a codec could be faster than a disk of this rate.
    pub fn is_faster_than(&self, bytes_per_second: f64) -> bool {
        let codecs = CodecId::ALL.into_iter().filter(|id| *id != CodecId::Raw);
        codecs
            .map(|id| self.model.speeds.of(id).encode)
            .any(|speed| speed > bytes_per_second)
    }

    /// Encodes the raw bytes of a container. `None`: it is to be plain. `chooser`: the log's; `base`: as many bytes, of an earlier version.
    pub fn encode(
        &mut self,
        chooser: &mut CodecChooser,
        origin: &RawOrigin,
        raw: &[u8],
        base: Option<&[u8]>,
    ) -> Option<EncodedForm<'_>> {
        if raw.len() < MIN_RAW_BYTES {
            return None;
        }
        let model = self.model;
        let encoded = chooser.encode(origin.addr, raw, || model, &mut self.encoded);
        let (choice, form) = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                tracing::warn!(%error, log = origin.log, "a container stays plain");
                return None;
            }
        };
        let alone = match choice.codec.id() {
            CodecId::Raw => raw.len(),
            _ if form == StoredForm::Raw => raw.len(),
            _ => self.encoded.encoded_len(),
        };
        let base = base.filter(|base| self.gains_by(base, &choice.layout, raw, alone));
        let (id, len, encoded) = match base {
            Some(_) => (CodecId::Field, self.against.encoded_len(), &self.against),
            None => (choice.codec.id(), alone, &self.encoded),
        };
        if len + raw.len() / MIN_SAVING_DIVISOR > raw.len() {
            return None;
        }
        if !decodes_to(encoded, raw, base.unwrap_or_default()) {
            tracing::error!(
                codec = id.name(),
                log = origin.log,
                address = origin.addr,
                "the codec did not give back what it had encoded; the bytes stay as they are. Please report it"
            );
            return None;
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(encoded.head());
        self.bytes.extend_from_slice(encoded.bytes());
        Some(EncodedForm {
            bytes: &self.bytes,
            parts: EncodedParts::of(id, encoded),
            needs_base: base.is_some(),
        })
    }

    /// Encodes a container against a base. Whether that is clearly shorter than what it takes `alone`.
    fn gains_by(&mut self, base: &[u8], layout: &ElementLayout, raw: &[u8], alone: usize) -> bool {
        let encoded = FieldCodec.encode_against(base, layout, raw, &mut self.against);
        let len = self.against.encoded_len();
        let needs_base = || {
            let opened = OpenedContainer::open(self.against.head());
            opened.is_ok_and(|opened| opened.has_base())
        };
        encoded.is_ok_and(|form| form != StoredForm::Raw)
            && len + alone / MIN_BASE_SAVING_DIVISOR <= alone
            && needs_base()
    }
}

/// Whether an encoded container has these raw bytes.
fn decodes_to(encoded: &EncodedContainer, raw: &[u8], base: &[u8]) -> bool {
    let Ok(opened) = OpenedContainer::open(encoded.head()) else {
        return false;
    };
    let mut piece = [0; PIECE_LEN];
    let base_piece = |i: usize, len: usize| base.get(i * PIECE_LEN..i * PIECE_LEN + len);
    opened.raw_len() == raw.len()
        && raw.chunks(PIECE_LEN).enumerate().all(|(i, raw)| {
            let base = base_piece(i, raw.len()).unwrap_or_default();
            let into = &mut piece[..raw.len()];
            let decoded = opened.decode_piece_against(i, encoded.piece(i), base, into);
            decoded.is_ok() && piece[..raw.len()] == *raw
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_codec::choose::CodecSpeeds;
    use forebay_testkit::random::seeded_bytes;

    fn encoder() -> ContainerEncoder {
        ContainerEncoder::new(CostModel {
            goal: CostGoal::Bytes,
            speeds: CodecSpeeds::default(),
        })
    }

    fn origin(hint: &str) -> RawOrigin {
        RawOrigin {
            log: 1,
            addr: 0,
            hint: hint.parse().unwrap(),
        }
    }

    fn wave(values: usize) -> Vec<u8> {
        let values = (0..values).map(|i| 280.0 + (i as f32 * 1e-3).sin());
        values.flat_map(f32::to_le_bytes).collect()
    }

    #[test]
    fn what_gains_little_or_is_small_stays_plain() {
        let (mut encoder, mut choosers) = (encoder(), LogChoosers::default());
        for (hint, bytes) in [
            ("auto", seeded_bytes(5, 1 << 20)),
            ("zstd", seeded_bytes(5, 1 << 16)),
            ("auto", wave(1000)),
            ("raw", wave(100_000)),
        ] {
            let origin = origin(hint);
            let encoded = encoder.encode(choosers.of(&origin), &origin, &bytes, None);
            assert!(encoded.is_none(), "{hint}");
        }
    }

    #[test]
    fn a_hint_that_changes_is_followed() {
        let (mut encoder, mut choosers) = (encoder(), LogChoosers::default());
        let wave = wave(100_000);
        for (hint, codec) in [
            ("field,f32", CodecId::Field),
            ("xor", CodecId::Xor),
            ("auto", CodecId::Field),
        ] {
            let origin = origin(hint);
            let encoded = encoder.encode(choosers.of(&origin), &origin, &wave, None);
            let form = encoded.unwrap();
            assert_eq!(form.parts.codec, codec, "{hint}");
            let end = form.parts.range(form.parts.count() - 1).end;
            assert_eq!(end, form.bytes.len() as u64);
            assert!(form.bytes.len() < wave.len() && !form.needs_base);
        }
    }

    #[test]
    fn a_base_is_taken_where_it_helps() {
        let (mut encoder, mut choosers) = (encoder(), LogChoosers::default());
        let mut bits = seeded_bytes(3, 1 << 18);
        // Weights: any mantissa, few exponents.
        let set_exponent = |word: &mut [u8]| word[3] = 0x3d;
        bits.chunks_exact_mut(4).for_each(set_exponent);
        let next: Vec<u8> = (bits.chunks_exact(4))
            .flat_map(|word| {
                let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                (word.wrapping_add(word >> 3 & 63)).to_le_bytes()
            })
            .collect();
        let origin = origin("auto,f32");
        let mut encode = |base: Option<&[u8]>| {
            let chooser = choosers.of(&origin);
            let form = encoder.encode(chooser, &origin, &next, base).unwrap();
            (form.bytes.len(), form.needs_base)
        };
        let (alone, needs_base) = encode(None);
        assert!(!needs_base && encode(Some(&seeded_bytes(4, 1 << 18))) == (alone, false));
        let (len, needs_base) = encode(Some(&bits));
        assert!(needs_base && len * 2 < alone, "{len} {alone}");
    }

    #[test]
    fn bytes_continue_an_array_if_numbers_begin_at_the_same_places() {
        let first = origin("auto");
        let next = |addr, log, hint: &str| RawOrigin {
            log,
            addr,
            ..origin(hint)
        };
        assert!(first.is_continued(4096, &next(8192, 1, "auto")));
        assert!(!first.is_continued(4095, &next(8192, 1, "auto")));
        assert!(!first.is_continued(4096, &next(8192, 2, "auto")));
        assert!(!first.is_continued(4096, &next(8192, 1, "auto,f64")));
    }
}
