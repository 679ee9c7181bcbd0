//! For reference: an array as one frame of Zstandard behind a shuffle of its bytes, as compressing a whole file does. No value of it can
//! be read alone.
use super::array::FloatArray;
use crate::fail::Result;

/// One array of bytes of equal significance together, compressed at this level.
pub fn encode(array: &FloatArray, level: i32) -> Result<Vec<u8>> {
    let shuffled = match array.element.width() {
        2 => shuffle::<2>(&array.bytes),
        4 => shuffle::<4>(&array.bytes),
        _ => shuffle::<8>(&array.bytes),
    };
    Ok(zstd::bulk::compress(&shuffled, level)?)
}

/// The inverse, into as many bytes as there were.
pub fn decode(frame: &[u8], width: usize, out: &mut [u8]) -> Result<()> {
    let shuffled = zstd::bulk::decompress(frame, out.len())?;
    match width {
        2 => unshuffle::<2>(&shuffled, out),
        4 => unshuffle::<4>(&shuffled, out),
        _ => unshuffle::<8>(&shuffled, out),
    }
    Ok(())
}

fn shuffle<const W: usize>(bytes: &[u8]) -> Vec<u8> {
    let count = bytes.len() / W;
    let mut shuffled = vec![0; bytes.len()];
    let mut planes: Vec<&mut [u8]> = shuffled.chunks_exact_mut(count.max(1)).collect();
    // A block of each plane at a time stays in the first cache.
    for (block, bytes) in bytes.chunks(W * BLOCK).enumerate() {
        for (significance, plane) in planes.iter_mut().enumerate() {
            let plane = &mut plane[block * BLOCK..];
            for (out, element) in plane.iter_mut().zip(bytes.as_chunks::<W>().0) {
                *out = element[significance];
            }
        }
    }
    shuffled
}

fn unshuffle<const W: usize>(shuffled: &[u8], out: &mut [u8]) {
    let count = out.len() / W;
    let planes: Vec<&[u8]> = shuffled.chunks_exact(count.max(1)).collect();
    for (block, out) in out.chunks_mut(W * BLOCK).enumerate() {
        for (significance, plane) in planes.iter().enumerate() {
            let plane = &plane[block * BLOCK..];
            for (element, byte) in out.as_chunks_mut::<W>().0.iter_mut().zip(plane) {
                element[significance] = *byte;
            }
        }
    }
}

/// Elements of a block.
const BLOCK: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_codec::ElementType;

    #[test]
    fn arrays_of_each_width_come_back() {
        for element in ElementType::ALL {
            for count in [1, 1023, 1024, 5000] {
                let mut bytes = vec![0; count * element.width()];
                forebay_testkit::random::Random::new(1).fill(&mut bytes);
                let base = None;
                let array = FloatArray {
                    element,
                    bytes,
                    base,
                };
                let mut out = vec![0; array.bytes.len()];
                decode(&encode(&array, 3).unwrap(), element.width(), &mut out).unwrap();
                assert!(out == array.bytes, "{element:?} {count}");
            }
        }
    }

    #[test]
    fn bytes_of_equal_significance_come_together() {
        assert_eq!(shuffle::<2>(&[1, 2, 3, 4, 5, 6]), [1, 3, 5, 2, 4, 6]);
    }
}
