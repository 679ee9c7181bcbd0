//! What is measured of one subject on the arrays of a case: their size, speeds, and the time of one value.
//!
//! Passes are repeated until they took [`MIN_SECONDS`], and the median one counts; the first, which has new memory, never does.
//! What a pass decoded is compared with the source before the next one.
use super::array::{FloatArray, SourceContainer, containers};
use super::subject::{FieldsSubject, SubjectKind, automatic_hint, automatic_model};
use super::whole;
use crate::fail::{Context, Failure, Result};
use crate::report::{Spread, Values};
use forebay_codec::CodecHint;
use forebay_codec::choose::CodecChooser;
use forebay_codec::container::PIECE_LEN;
use forebay_codec::{Codec as _, EncodedContainer, OpenedContainer};
use forebay_testkit::random::Random;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Passes take at least so long together.
const MIN_SECONDS: f64 = 0.03;
/// And are at least so many.
const MIN_PASSES: usize = 2;
/// Times that choosing is measured at least.
const MIN_SHARES: usize = 9;
/// Values that are read one by one.
const VALUES: usize = 20_000;
/// The level of whole arrays.
const WHOLE_LEVEL: i32 = 3;

/// The arrays of a case, and memory for what becomes of them: the same for all subjects.
pub struct FieldsRound<'a> {
    arrays: &'a [FloatArray],
    sources: Vec<SourceContainer<'a>>,
    encoded: Vec<EncodedContainer>,
    decoded: Vec<u8>,
}

impl<'a> FieldsRound<'a> {
    /// Of these arrays.
    pub fn new(arrays: &'a [FloatArray]) -> FieldsRound<'a> {
        let sources = containers(arrays);
        FieldsRound {
            arrays,
            encoded: vec![EncodedContainer::new(); sources.len()],
            decoded: vec![0; arrays.iter().map(|a| a.bytes.len()).sum()],
            sources,
        }
    }

    /// Measures a subject.
    ///
    /// # Errors
    /// If it fails, or what it decodes differs from the source.
    pub fn run(&mut self, subject: &FieldsSubject, seed: u64) -> Result<Values> {
        match subject.kind {
            SubjectKind::Whole => self.run_whole(),
            _ => self.run_containers(subject, seed),
        }
    }

    fn run_containers(&mut self, subject: &FieldsSubject, seed: u64) -> Result<Values> {
        let FieldsRound {
            arrays,
            sources,
            encoded,
            decoded,
        } = self;
        let encode = median_pass(|| {
            let start = Instant::now();
            subject.encode(sources, encoded)?;
            Ok(start.elapsed())
        })?;
        let decode = median_pass(|| {
            decoded.fill(0);
            let start = Instant::now();
            decode_containers(sources, encoded, decoded)?;
            let took = start.elapsed();
            compare(arrays, decoded)?;
            Ok(took)
        })?;
        let raw = decoded.len() as f64;
        let stored: usize = encoded.iter().map(EncodedContainer::stored_len).sum();
        let pairs = sources.iter().zip(&*encoded);
        let largest = pairs.map(|(s, e)| e.stored_len() as f64 / s.raw.len() as f64);
        let mut values = speeds(raw, stored as f64, encode, decode);
        values.push(("expansion", "ratio", largest.fold(0.0, f64::max)));
        if subject.kind == SubjectKind::Automatic {
            let share = sampling_share(sources, |source| source.at == 0)?;
            values.push(("sampling_share", "ratio", share));
            let share = sampling_share(sources, |_| true)?;
            values.push(("single_container_sampling_share", "ratio", share));
        }
        let times = ValueStore::new(sources, encoded)?.read_values(seed)?;
        values.push(("one_value_ns", "ns", quantile(&times, 0.5)));
        values.push(("one_value_p99_ns", "ns", quantile(&times, 0.99)));
        Ok(values)
    }

    fn run_whole(&mut self) -> Result<Values> {
        let mut frames = Vec::new();
        let encode = median_pass(|| {
            let start = Instant::now();
            let encoded = self.arrays.iter().map(|a| whole::encode(a, WHOLE_LEVEL));
            frames = encoded.collect::<Result<Vec<_>>>()?;
            Ok(start.elapsed())
        })?;
        let decode = median_pass(|| {
            self.decoded.fill(0);
            let start = Instant::now();
            let mut rest = &mut self.decoded[..];
            for (array, frame) in self.arrays.iter().zip(&frames) {
                let (out, after) = rest.split_at_mut(array.bytes.len());
                whole::decode(frame, array.element.width(), out)?;
                rest = after;
            }
            let took = start.elapsed();
            compare(self.arrays, &self.decoded)?;
            Ok(took)
        })?;
        let raw = self.decoded.len() as f64;
        let stored: usize = frames.iter().map(Vec::len).sum();
        let mut values = speeds(raw, stored as f64, encode, decode);
        let pairs = self.arrays.iter().zip(&frames);
        let largest = pairs.map(|(a, f)| f.len() as f64 / a.bytes.len() as f64);
        values.push(("expansion", "ratio", largest.fold(0.0, f64::max)));
        Ok(values)
    }
}

/// What choosing adds to the time of encoding, if a file begins with each container for which `begins_file` holds. Each container is encoded
/// once untimed, then with choosing and without: so its bytes are in the processor's cache for both, and what the machine does meanwhile is in
/// both.
fn sampling_share(
    sources: &[SourceContainer],
    begins_file: impl Fn(&SourceContainer) -> bool,
) -> Result<f64> {
    let mut out = EncodedContainer::new();
    let (mut shares, mut all) = (Vec::new(), 0.0);
    while shares.len() < MIN_SHARES || all < MIN_SECONDS && !sources.is_empty() {
        let mut chooser = CodecChooser::new(CodecHint::default());
        let (mut with, mut without) = (0.0, 0.0);
        for source in sources {
            if begins_file(source) {
                chooser = CodecChooser::new(automatic_hint(&source.layout));
            }
            let mut again = chooser.clone();
            again.encode(source.at, source.raw, automatic_model, &mut out)?;
            let start = Instant::now();
            let (choice, _) = chooser.encode(source.at, source.raw, automatic_model, &mut out)?;
            with += start.elapsed().as_secs_f64();
            let start = Instant::now();
            choice.codec.encode(&choice.layout, source.raw, &mut out)?;
            without += start.elapsed().as_secs_f64();
        }
        shares.push(with / without - 1.0);
        all += with + without;
    }
    // Noise may make it less than nothing.
    Ok(Spread::of(&shares).median.max(0.0))
}

fn speeds(raw: f64, stored: f64, encode: f64, decode: f64) -> Values {
    vec![
        ("ratio", "ratio", raw / stored),
        ("encode_bytes_per_s", "B/s", raw / encode),
        ("decode_bytes_per_s", "B/s", raw / decode),
    ]
}

/// Seconds of the median of some passes.
fn median_pass(mut pass: impl FnMut() -> Result<Duration>) -> Result<f64> {
    pass()?;
    let (mut times, mut all) = (Vec::new(), 0.0);
    while times.len() < MIN_PASSES || all < MIN_SECONDS {
        let took = pass()?.as_secs_f64();
        all += took;
        times.push(took);
    }
    Ok(Spread::of(&times).median)
}

/// Parses each head and decodes all pieces, one container behind the other.
fn decode_containers(
    sources: &[SourceContainer],
    encoded: &[EncodedContainer],
    decoded: &mut [u8],
) -> Result<()> {
    let mut rest = decoded;
    for (source, encoded) in sources.iter().zip(encoded) {
        let (out, after) = rest.split_at_mut(source.raw.len());
        rest = after;
        let opened = OpenedContainer::open(encoded.head())?;
        for (piece, out) in out.chunks_mut(PIECE_LEN).enumerate() {
            let base = base_of(&opened, source, piece);
            opened.decode_piece_against(piece, encoded.piece(piece), base, out)?;
        }
    }
    Ok(())
}

/// Bytes of the base at the place of a piece; none if it was not encoded against one.
fn base_of<'a>(opened: &OpenedContainer, source: &SourceContainer<'a>, piece: usize) -> &'a [u8] {
    match source.base {
        Some(base) if opened.has_base() => {
            let start = piece * PIECE_LEN;
            &base[start..(start + PIECE_LEN).min(base.len())]
        }
        _ => &[],
    }
}

fn compare(arrays: &[FloatArray], decoded: &[u8]) -> Result<()> {
    let mut rest = decoded;
    for array in arrays {
        let (found, after) = rest.split_at(array.bytes.len());
        if found != array.bytes {
            return Err(Failure::new("what was decoded differs from the source"));
        }
        rest = after;
    }
    Ok(())
}

/// Encoded containers as a store keeps them, with parsed heads and a checksum of each encoded piece.
struct ValueStore<'a> {
    /// Where each container begins.
    starts: Vec<u64>,
    containers: Vec<StoredContainer<'a>>,
    len: u64,
}

struct StoredContainer<'a> {
    source: &'a SourceContainer<'a>,
    encoded: &'a EncodedContainer,
    opened: OpenedContainer,
    checksums: Vec<u32>,
}

impl<'a> ValueStore<'a> {
    fn new(
        sources: &'a [SourceContainer<'a>],
        encoded: &'a [EncodedContainer],
    ) -> Result<ValueStore<'a>> {
        let mut store = ValueStore {
            starts: Vec::with_capacity(sources.len()),
            containers: Vec::with_capacity(sources.len()),
            len: 0,
        };
        for (source, encoded) in sources.iter().zip(encoded) {
            let pieces = 0..encoded.pieces();
            store.starts.push(store.len);
            store.containers.push(StoredContainer {
                source,
                encoded,
                opened: OpenedContainer::open(encoded.head())?,
                checksums: pieces
                    .map(|k| forebay_checksum::crc32c(encoded.piece(k)))
                    .collect(),
            });
            store.len += source.raw.len() as u64;
        }
        Ok(store)
    }

    /// Which container has the byte at this place, and where in it.
    fn find(&self, at: u64) -> (&StoredContainer<'a>, usize) {
        // The first container begins at 0.
        let index = self.starts.partition_point(|start| *start <= at) - 1;
        (&self.containers[index], (at - self.starts[index]) as usize)
    }

    /// Reads random values; sorted times in nanoseconds.
    fn read_values(&self, seed: u64) -> Result<Vec<f64>> {
        let mut numbers = Random::new(seed);
        let mut times = Vec::with_capacity(VALUES);
        while times.len() < VALUES {
            let at = numbers.below(self.len);
            let (container, offset) = self.find(at);
            // The whole element that the byte is of, in its piece; bytes before the first one and after the last are of none.
            let layout = &container.source.layout;
            let (width, phase) = (layout.element.width(), layout.phase as usize);
            let within = offset % PIECE_LEN;
            let Some(element) = within.checked_sub(phase).map(|bytes| bytes / width) else {
                continue;
            };
            let first = phase + element * width;
            let piece =
                offset - within..container.source.raw.len().min(offset - within + PIECE_LEN);
            if first + width > piece.len() {
                continue;
            }
            let (at, offset) = (at - within as u64 + first as u64, piece.start + first);
            let expected = &container.source.raw[offset..offset + width];
            let mut value = [0; 8];
            let start = Instant::now();
            self.read(at, black_box(&mut value[..width]))?;
            times.push(start.elapsed().as_nanos() as f64);
            if value[..width] != *expected {
                return Err(Failure::new(format!("the value at byte {at} differs")));
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Reads the value at a byte: finds its piece, checks that, and decodes it as far as it must.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let (container, offset) = self.find(at);
        let (piece, offset) = (offset / PIECE_LEN, offset % PIECE_LEN);
        let encoded = container.encoded.piece(piece);
        if forebay_checksum::crc32c(encoded) != container.checksums[piece] {
            return Err(Failure::new("a checksum is wrong"));
        }
        let base = base_of(&container.opened, container.source, piece);
        let range = offset..offset + out.len();
        let decoding = container
            .opened
            .decode_range_against(piece, encoded, range, base, out);
        decoding.doing("one value")
    }
}

/// Of sorted values, of which there is at least one.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::super::subject::SUBJECTS;
    use super::super::{adam, cases::GeneratedArray, generate};
    use super::*;

    #[test]
    fn every_subject_gives_back_arrays_of_every_type_with_bases_or_without() {
        let shape = adam::TrainingShape {
            units: [16, 64, 32, 4],
            batch: 4,
            steps: 5,
            checkpoints: 2,
        };
        let trained = adam::arrays(&adam::train(&shape, 1), None);
        let noisy = vec![generate::generate(GeneratedArray::Noisy, 50_000, 1)];
        for arrays in [trained, noisy] {
            let mut round = FieldsRound::new(&arrays);
            for subject in SUBJECTS {
                if !subject.takes(arrays[0].base.is_some()) {
                    continue;
                }
                let values = round.run(&subject, 1).doing(subject.name).unwrap();
                let value = |metric| values.iter().find(|v| v.0 == metric).map(|v| v.2);
                assert!(value("ratio").unwrap() > 0.99, "{}", subject.name);
                let one_value = value("one_value_ns");
                assert_eq!(one_value.is_none(), subject.kind == SubjectKind::Whole);
            }
        }
    }

    #[test]
    fn quantiles_are_of_sorted_values() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(
            (quantile(&sorted, 0.5), quantile(&sorted, 0.99)),
            (50.0, 99.0)
        );
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }
}
