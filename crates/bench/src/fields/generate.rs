//! Generated arrays of binary32. Each follows from the seed alone.
use super::array::FloatArray;
use super::cases::GeneratedArray;
use forebay_codec::ElementType;
use forebay_testkit::random::Random;

/// Values in a row of a wave.
const ROW: usize = 1024;
/// Waves along each dimension.
const WAVES: usize = 4;
/// Their mean, as of temperatures.
const MEAN: f64 = 280.0;
/// The most that noise adds or takes: of values about [`MEAN`] some 14 of the 23 bits of the mantissa become random.
const NOISE: f64 = 0.25;

/// An array of about `size` bytes, whole elements.
pub fn generate(array: GeneratedArray, size: u64, seed: u64) -> FloatArray {
    let count = (size as usize / 4).max(1);
    let mut numbers = Random::new(seed);
    let bytes = match array {
        GeneratedArray::Smooth => waves(count, &mut numbers, 0.0),
        GeneratedArray::Noisy => waves(count, &mut numbers, NOISE),
        GeneratedArray::Random => {
            let mut bytes = vec![0; 4 * count];
            numbers.fill(&mut bytes);
            bytes
        }
    };
    FloatArray {
        element: ElementType::F32,
        bytes,
        base: None,
    }
}

/// A sum of products of waves along rows and columns, with noise of at most so much.
fn waves(count: usize, numbers: &mut Random, noise: f64) -> Vec<u8> {
    let rows = count.div_ceil(ROW);
    let mut wave = |len: usize| -> Vec<[f64; WAVES]> {
        let shape: [(f64, f64); WAVES] = std::array::from_fn(|k| {
            // Shorter ones are lower.
            let length = 1000.0 / (k + 1) as f64 * (0.75 + 0.5 * numbers.unit());
            (std::f64::consts::TAU / length, numbers.unit())
        });
        let at = |i: usize| shape.map(|(step, phase)| (i as f64 * step + phase).sin());
        (0..len).map(at).collect()
    };
    let (down, along) = (wave(rows), wave(ROW));
    let mut bytes = Vec::with_capacity(4 * count);
    for i in 0..count {
        let pairs = down[i / ROW].iter().zip(&along[i % ROW]).enumerate();
        let mut value: f64 = MEAN
            + pairs
                .map(|(k, (d, a))| 16.0 / (k + 1) as f64 * d * a)
                .sum::<f64>();
        if noise > 0.0 {
            value += noise * (2.0 * numbers.unit() - 1.0);
        }
        bytes.extend_from_slice(&(value as f32).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [GeneratedArray; 3] = [
        GeneratedArray::Smooth,
        GeneratedArray::Noisy,
        GeneratedArray::Random,
    ];

    #[test]
    fn arrays_follow_from_the_seed() {
        for array in ALL {
            let made = generate(array, 100_000, 1);
            assert_eq!(made.bytes.len(), 100_000);
            assert!(made == generate(array, 100_000, 1), "{array:?}");
            assert!(made != generate(array, 100_000, 2), "{array:?}");
        }
    }

    #[test]
    fn neighbours_differ_little_if_smooth_more_if_noisy() {
        let steps = |array| {
            let bytes = generate(array, 1 << 16, 3).bytes;
            let values: Vec<f32> = bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect();
            let step = values[..ROW].windows(2).map(|w| (w[1] - w[0]).abs());
            step.sum::<f32>() / (ROW - 1) as f32
        };
        let (smooth, noisy) = (steps(GeneratedArray::Smooth), steps(GeneratedArray::Noisy));
        assert!(smooth > 0.001 && smooth < 0.2, "{smooth}");
        assert!(noisy > smooth && noisy < 0.5, "{noisy}");
    }
}
