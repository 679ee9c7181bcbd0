//! The shuffle: bytes of equal significance together.
//!
//! Both directions go through all planes at once, in loops that the compiler turns into shuffles of vectors.
use crate::cpu::dispatch;

/// Puts the bytes of elements of 2, 4 or 8 bytes into planes. Both slices are as long, in whole elements.
pub(super) fn shuffle(size: usize, elements: &[u8], planes: &mut [u8]) {
    match size {
        2 => shuffle2(elements, planes),
        4 => shuffle4(elements, planes),
        _ => shuffle8(elements, planes),
    }
}

/// The reverse.
pub(super) fn unshuffle(size: usize, planes: &[u8], elements: &mut [u8]) {
    match size {
        2 => unshuffle2(planes, elements),
        4 => unshuffle4(planes, elements),
        _ => unshuffle8(planes, elements),
    }
}

dispatch! {
    fn shuffle2(elements: &[u8], planes: &mut [u8]) {
        let (a, b) = planes.split_at_mut(elements.len() / 2);
        let planes = a.iter_mut().zip(b);
        for (element, (a, b)) in elements.as_chunks::<2>().0.iter().zip(planes) {
            [*a, *b] = *element;
        }
    }
}

dispatch! {
    fn unshuffle2(planes: &[u8], elements: &mut [u8]) {
        let (a, b) = planes.split_at(elements.len() / 2);
        let planes = a.iter().zip(b);
        for (element, (a, b)) in elements.as_chunks_mut::<2>().0.iter_mut().zip(planes) {
            *element = [*a, *b];
        }
    }
}

dispatch! {
    fn shuffle4(elements: &[u8], planes: &mut [u8]) {
        let n = elements.len() / 4;
        let (ab, cd) = planes.split_at_mut(2 * n);
        let ((a, b), (c, d)) = (ab.split_at_mut(n), cd.split_at_mut(n));
        let planes = a.iter_mut().zip(b).zip(c.iter_mut().zip(d));
        for (element, ((a, b), (c, d))) in elements.as_chunks::<4>().0.iter().zip(planes) {
            [*a, *b, *c, *d] = *element;
        }
    }
}

dispatch! {
    fn unshuffle4(planes: &[u8], elements: &mut [u8]) {
        let n = elements.len() / 4;
        let (ab, cd) = planes.split_at(2 * n);
        let ((a, b), (c, d)) = (ab.split_at(n), cd.split_at(n));
        let planes = a.iter().zip(b).zip(c.iter().zip(d));
        for (element, ((a, b), (c, d))) in elements.as_chunks_mut::<4>().0.iter_mut().zip(planes) {
            *element = [*a, *b, *c, *d];
        }
    }
}

/// Elements of eight bytes that are turned at once, as a matrix of 8 x 8 bytes.
const BLOCK: usize = 8;

/// The transpose of a matrix of 8 x 8 bytes, a row a word: swaps halves, quarters, then single bytes across the diagonal.
#[inline(always)]
fn transpose8(mut rows: [u64; BLOCK]) -> [u64; BLOCK] {
    const STEPS: [(usize, u32, u64); 3] = [
        (4, 32, 0x0000_0000_ffff_ffff),
        (2, 16, 0x0000_ffff_0000_ffff),
        (1, 8, 0x00ff_00ff_00ff_00ff),
    ];
    for (distance, bits, low) in STEPS {
        for i in 0..BLOCK {
            if i & distance == 0 {
                let (upper, lower) = (rows[i], rows[i + distance]);
                rows[i] = upper & low | (lower & low) << bits;
                rows[i + distance] = upper >> bits & low | lower & !low;
            }
        }
    }
    rows
}

dispatch! {
    fn shuffle8(elements: &[u8], planes: &mut [u8]) {
        let n = elements.len() / 8;
        let (blocks, rest) = elements.as_chunks::<{ 8 * BLOCK }>();
        for (k, block) in blocks.iter().enumerate() {
            let words = block.as_chunks::<8>().0;
            let turned = transpose8(std::array::from_fn(|i| u64::from_le_bytes(words[i])));
            for (plane, word) in turned.iter().enumerate() {
                planes[plane * n + k * BLOCK..][..BLOCK].copy_from_slice(&word.to_le_bytes());
            }
        }
        for (k, element) in rest.as_chunks::<8>().0.iter().enumerate() {
            for (plane, byte) in element.iter().enumerate() {
                planes[plane * n + blocks.len() * BLOCK + k] = *byte;
            }
        }
    }
}

dispatch! {
    fn unshuffle8(planes: &[u8], elements: &mut [u8]) {
        let n = elements.len() / 8;
        let (blocks, rest) = elements.as_chunks_mut::<{ 8 * BLOCK }>();
        let done = blocks.len() * BLOCK;
        for (k, block) in blocks.iter_mut().enumerate() {
            let turned = transpose8(std::array::from_fn(|plane| {
                let word = planes[plane * n + k * BLOCK..].first_chunk::<8>();
                // Each plane has a byte for each element.
                word.map_or(0, |word| u64::from_le_bytes(*word))
            }));
            for (element, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(turned) {
                *element = word.to_le_bytes();
            }
        }
        for (k, element) in rest.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *element = std::array::from_fn(|plane| planes[plane * n + done + k]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::seeded_bytes;

    #[test]
    fn planes_hold_each_byte_of_the_elements_in_order() {
        for size in [2, 4, 8] {
            for n in [0, 1, 7, 8, 9, 31, 64, 511, 512] {
                let elements = seeded_bytes(n as u64, n * size);
                let mut planes = vec![0; n * size];
                shuffle(size, &elements, &mut planes);
                for (i, byte) in planes.iter().enumerate() {
                    assert_eq!(*byte, elements[i % n * size + i / n]);
                }
                let mut back = vec![0; n * size];
                unshuffle(size, &planes, &mut back);
                assert_eq!(back, elements, "{n} elements of {size} bytes");
            }
        }
    }
}
