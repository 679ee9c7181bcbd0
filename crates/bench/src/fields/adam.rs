//! A small training run: a network of three layers learns what another one computes, by Adam (Kingma and Ba), in binary32.
//!
//! The learning rate falls as a cosine to zero. A checkpoint is taken each 100 steps: weights, weights as bfloat16, and both moments.
//!
//! Invariant: a run follows from its shape and seed.
use super::array::FloatArray;
use super::cases::CheckpointPart;
use forebay_codec::ElementType;
use forebay_testkit::random::Random;

/// How large the network is, and how long it learns.
#[derive(Debug, Clone, Copy)]
pub struct TrainingShape {
    /// Inputs, units of both hidden layers, outputs.
    pub units: [usize; 4],
    /// Examples of a step.
    pub batch: usize,
    /// Steps from one checkpoint to the next.
    pub steps: usize,
    /// Checkpoints.
    pub checkpoints: usize,
}

/// That of the benchmark: 201,488 weights.
pub const SHAPE: TrainingShape = TrainingShape {
    units: [128, 512, 256, 16],
    batch: 32,
    steps: 100,
    checkpoints: 6,
};

/// What is stored of a run at some step.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    weights: Vec<f32>,
    first_moments: Vec<f32>,
    second_moments: Vec<f32>,
}

/// The highest learning rate.
const LEARNING_RATE: f32 = 1e-3;
/// How fast the first moments forget.
const BETA1: f32 = 0.9;
/// How fast the second moments forget.
const BETA2: f32 = 0.999;
/// Against division by zero.
const EPSILON: f32 = 1e-8;
/// Standard deviation of what cannot be learnt.
const NOISE: f32 = 0.1;

/// The run's checkpoints, the earliest first.
pub fn train(shape: &TrainingShape, seed: u64) -> Vec<Checkpoint> {
    let mut numbers = Random::new(seed);
    let teacher = Network::random(shape.units, &mut numbers);
    let mut student = Network::random(shape.units, &mut numbers);
    let mut adam = Adam::new(student.weights.len());
    let (mut taught, mut pass) = (TrainingPass::default(), TrainingPass::default());
    let all_steps = shape.steps * shape.checkpoints;
    let mut checkpoints = Vec::with_capacity(shape.checkpoints);
    for step in 1..=all_steps {
        let inputs = shape.batch * shape.units[0];
        let inputs: Vec<f32> = (0..inputs).map(|_| normal(&mut numbers)).collect();
        teacher.forward(&inputs, shape.batch, &mut taught);
        student.forward(&inputs, shape.batch, &mut pass);
        let scale = 2.0 / taught.layers[2].len() as f32;
        let wanted = taught.layers[2]
            .iter()
            .map(|y| y + NOISE * normal(&mut numbers));
        let slopes = pass.layers[2]
            .iter()
            .zip(wanted)
            .map(|(y, w)| scale * (y - w));
        let slopes: Vec<f32> = slopes.collect();
        let gradient = student.backward(&inputs, shape.batch, &pass, slopes);
        let part = step as f32 / all_steps as f32;
        let rate = LEARNING_RATE * 0.5 * (1.0 + (std::f32::consts::PI * part).cos());
        adam.step(&mut student.weights, &gradient, rate);
        if step % shape.steps == 0 {
            checkpoints.push(Checkpoint {
                weights: student.weights.clone(),
                first_moments: adam.first.clone(),
                second_moments: adam.second.clone(),
            });
        }
    }
    checkpoints
}

/// A part of all checkpoints but the first, or all their parts; each has the same of the checkpoint before as its base.
pub fn arrays(checkpoints: &[Checkpoint], part: Option<CheckpointPart>) -> Vec<FloatArray> {
    let parts = match part {
        Some(part) => vec![part],
        None => CheckpointPart::ALL.to_vec(),
    };
    let mut arrays = Vec::new();
    for pair in checkpoints.windows(2) {
        for &part in &parts {
            let (element, bytes) = pair[1].part(part);
            let base = Some(pair[0].part(part).1);
            arrays.push(FloatArray {
                element,
                bytes,
                base,
            });
        }
    }
    arrays
}

impl Checkpoint {
    fn part(&self, part: CheckpointPart) -> (ElementType, Vec<u8>) {
        let numbers = match part {
            CheckpointPart::Weights => &self.weights,
            CheckpointPart::FirstMoments => &self.first_moments,
            CheckpointPart::SecondMoments => &self.second_moments,
            CheckpointPart::Bf16Weights => {
                let rounded = self.weights.iter().map(|w| to_bf16(*w));
                let bytes = rounded.flat_map(u16::to_le_bytes).collect();
                return (ElementType::Bf16, bytes);
            }
        };
        let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        (ElementType::F32, bytes)
    }
}

/// The nearest bfloat16 of a finite number, the even one of two.
fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}

/// About normally distributed: the sum of 12 numbers from 0 to 1, less 6.
fn normal(numbers: &mut Random) -> f32 {
    let mut sum = 0u32;
    for _ in 0..3 {
        let bits = numbers.next();
        sum += (0..4)
            .map(|k| (bits >> (16 * k)) as u32 & 0xffff)
            .sum::<u32>();
    }
    sum as f32 / 65536.0 - 6.0
}

/// Three layers, of which the first two end with the hyperbolic tangent.
struct Network {
    units: [usize; 4],
    /// Of each layer: a row of weights for each of its inputs, then its biases.
    weights: Vec<f32>,
}

/// What each layer gave for a batch: a row an example.
#[derive(Default)]
struct TrainingPass {
    layers: [Vec<f32>; 3],
}

impl Network {
    fn random(units: [usize; 4], numbers: &mut Random) -> Network {
        let mut weights = Vec::new();
        for layer in units.windows(2) {
            let deviation = 1.0 / (layer[0] as f32).sqrt();
            weights.extend((0..layer[0] * layer[1]).map(|_| deviation * normal(numbers)));
            weights.extend(std::iter::repeat_n(0.0, layer[1]));
        }
        Network { units, weights }
    }

    /// Where a layer's weights and biases are.
    fn layer(&self, layer: usize) -> (usize, usize, usize) {
        let sizes = self.units.windows(2).map(|u| (u[0] + 1) * u[1]);
        let start = sizes.take(layer).sum();
        (start, self.units[layer], self.units[layer + 1])
    }

    fn forward(&self, inputs: &[f32], batch: usize, pass: &mut TrainingPass) {
        for layer in 0..3 {
            let (start, rows, columns) = self.layer(layer);
            let (before, after) = pass.layers.split_at_mut(layer);
            let inputs = before.last().map_or(inputs, |outputs| outputs);
            let outputs = &mut after[0];
            let weights = &self.weights[start..][..(rows + 1) * columns];
            outputs.clear();
            for _ in 0..batch {
                outputs.extend_from_slice(&weights[rows * columns..]);
            }
            for (row, weights) in weights.chunks_exact(columns).take(rows).enumerate() {
                for (example, outputs) in outputs.chunks_exact_mut(columns).enumerate() {
                    add_scaled(outputs, inputs[example * rows + row], weights);
                }
            }
            if layer < 2 {
                outputs.iter_mut().for_each(|y| *y = y.tanh());
            }
        }
    }

    /// The gradient of the loss by each weight; `slopes` is that by each output.
    fn backward(
        &self,
        inputs: &[f32],
        batch: usize,
        pass: &TrainingPass,
        mut slopes: Vec<f32>,
    ) -> Vec<f32> {
        let mut gradient = vec![0.0; self.weights.len()];
        for layer in (0..3).rev() {
            let (start, rows, columns) = self.layer(layer);
            let inputs = match layer {
                0 => inputs,
                _ => &pass.layers[layer - 1],
            };
            let weights = &self.weights[start..][..rows * columns];
            let (of_weights, of_biases) =
                gradient[start..][..(rows + 1) * columns].split_at_mut(rows * columns);
            for slopes in slopes.chunks_exact(columns) {
                add_scaled(of_biases, 1.0, slopes);
            }
            let mut below = vec![0.0; batch * rows];
            for (row, gradient) in of_weights.chunks_exact_mut(columns).enumerate() {
                let weights = &weights[row * columns..][..columns];
                for (example, slopes) in slopes.chunks_exact(columns).enumerate() {
                    let at = example * rows + row;
                    add_scaled(gradient, inputs[at], slopes);
                    if layer > 0 {
                        // The slope of the hyperbolic tangent.
                        below[at] = dot(weights, slopes) * (1.0 - inputs[at] * inputs[at]);
                    }
                }
            }
            slopes = below;
        }
        gradient
    }
}

/// `sums += factor * row`
fn add_scaled(sums: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, x) in sums.iter_mut().zip(row) {
        *sum += factor * x;
    }
}

/// In eight sums, so that it is computed by vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

/// The optimiser's state.
struct Adam {
    first: Vec<f32>,
    second: Vec<f32>,
    steps: i32,
}

impl Adam {
    fn new(weights: usize) -> Adam {
        Adam {
            first: vec![0.0; weights],
            second: vec![0.0; weights],
            steps: 0,
        }
    }

    fn step(&mut self, weights: &mut [f32], gradient: &[f32], rate: f32) {
        self.steps += 1;
        let first_scale = 1.0 / (1.0 - BETA1.powi(self.steps));
        let second_scale = 1.0 / (1.0 - BETA2.powi(self.steps));
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((weight, g), (first, second)) in weights.iter_mut().zip(gradient).zip(moments) {
            *first = BETA1 * *first + (1.0 - BETA1) * g;
            *second = BETA2 * *second + (1.0 - BETA2) * g * g;
            let step = *first * first_scale / ((*second * second_scale).sqrt() + EPSILON);
            *weight -= rate * step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: TrainingShape = TrainingShape {
        units: [4, 8, 6, 2],
        batch: 8,
        steps: 20,
        checkpoints: 3,
    };

    #[test]
    fn a_run_follows_from_its_seed() {
        let run = train(&SMALL, 1);
        assert_eq!(run.len(), 3);
        assert_eq!(run[0].weights.len(), 5 * 8 + 9 * 6 + 7 * 2);
        assert!(run == train(&SMALL, 1));
        assert!(run != train(&SMALL, 2));
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let mut numbers = Random::new(3);
        let mut network = Network::random(SMALL.units, &mut numbers);
        let batch = 3;
        let inputs: Vec<f32> = (0..batch * 4).map(|_| normal(&mut numbers)).collect();
        let wanted: Vec<f32> = (0..batch * 2).map(|_| normal(&mut numbers)).collect();
        let mut pass = TrainingPass::default();
        let loss = |network: &Network, pass: &mut TrainingPass| -> f64 {
            network.forward(&inputs, batch, pass);
            let errors = pass.layers[2].iter().zip(&wanted).map(|(y, w)| y - w);
            errors.map(|e| 0.5 * f64::from(e).powi(2)).sum()
        };
        loss(&network, &mut pass);
        let slopes = pass.layers[2]
            .iter()
            .zip(&wanted)
            .map(|(y, w)| y - w)
            .collect();
        let gradient = network.backward(&inputs, batch, &pass, slopes);
        for (at, slope) in gradient.iter().enumerate() {
            let weight = network.weights[at];
            let mut beside = |by: f32| {
                network.weights[at] = weight + by;
                loss(&network, &mut TrainingPass::default())
            };
            let measured = (beside(1e-2) - beside(-1e-2)) / 2e-2;
            network.weights[at] = weight;
            assert!(
                (measured - f64::from(*slope)).abs() < 1e-2,
                "{at}: {measured} {slope}"
            );
        }
    }

    #[test]
    fn arrays_have_the_checkpoint_before_as_their_base() {
        let run = train(&SMALL, 1);
        let whole = arrays(&run, None);
        assert_eq!(whole.len(), 2 * 4);
        let moments = arrays(&run, Some(CheckpointPart::SecondMoments));
        assert_eq!(moments.len(), 2);
        assert_eq!(moments[1].base.as_ref(), Some(&moments[0].bytes));
        assert!(moments[1] == whole[7]);
    }

    #[test]
    fn weights_are_rounded_to_the_nearest_bfloat16() {
        for (number, bits) in [
            (1.0, 0x3f80),
            (1.003_906_3, 0x3f80),
            (1.011_718_8, 0x3f82),
            (-1.005, 0xbf81),
        ] {
            assert_eq!(to_bf16(number), bits, "{number}");
        }
    }
}
