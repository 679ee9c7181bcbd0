//! Axes: a range of values, with marks at round ones and texts in a unit that suits them.

/// A linear axis over `low..=high`.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    /// The value and its text, inside the range.
    pub ticks: Vec<(f64, String)>,
    /// What the texts count: `s`, `ms`, `MiB`, or nothing.
    pub unit: &'static str,
}

const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
const SIZES: [(f64, &str); 6] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1_048_576.0, "MiB"),
    (1_073_741_824.0, "GiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_125_899_906_842_624.0, "PiB"),
];

impl Axis {
    /// Of nanoseconds.
    pub fn time(low: u64, high: u64) -> Axis {
        Axis::scaled(low, high, &TIMES, &[1.0, 2.0, 5.0], 10.0)
    }

    /// Of bytes, at multiples of powers of two.
    pub fn bytes(low: u64, high: u64) -> Axis {
        Axis::scaled(low, high, &SIZES, &[1.0], 2.0)
    }

    /// Of numbers.
    pub fn calls(low: u64, high: u64) -> Axis {
        Axis::scaled(low, high, &[(1.0, "")], &[1.0, 2.0, 5.0], 10.0)
    }

    fn scaled(
        low: u64,
        high: u64,
        units: &[(f64, &'static str)],
        steps: &[f64],
        base: f64,
    ) -> Axis {
        let (low, high) = (low as f64, (high as f64).max(low as f64 + 1.0));
        let fitting = units.iter().rev().find(|(scale, _)| high / scale >= 2.0);
        let (scale, unit) = fitting.copied().unwrap_or((1.0, units[0].1));
        // The largest round step with at least five marks; in bytes, whole ones.
        let rough = (high - low) / 5.0 / scale;
        let power = base.powf((rough.ln() / base.ln()).floor());
        let fine = steps.iter().rev().map(|s| s * power).find(|s| *s <= rough);
        let step = (fine.unwrap_or(power) * scale).max(1.0);
        let digits = match step / scale {
            s if s >= 1.0 && s.fract() == 0.0 => 0,
            s => (-s.log10().floor()).clamp(1.0, 6.0) as usize,
        };
        let first = (low / step).ceil() as u64;
        let last = (high / step).floor() as u64;
        let tick = |i: u64| {
            let value = i as f64 * step;
            (value, format!("{:.digits$}", value / scale))
        };
        Axis {
            low,
            high,
            ticks: (first..=last).map(tick).collect(),
            unit,
        }
    }

    /// Where a value lies: 0 at the low end, 1 at the high one.
    pub fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}
