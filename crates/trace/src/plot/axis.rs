//! Axes of a chart: the values that one shows, where a value lies on it, and the marks with their texts.

/// A linear or logarithmic axis. On a logarithmic one all values are above 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    title: String,
    low: f64,
    high: f64,
    log: bool,
    /// Values and texts, ascending, inside the range.
    ticks: Vec<(f64, String)>,
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
    /// Of exactly these nanoseconds, in the unit that suits them, which follows the title.
    pub fn time(title: &str, low: u64, high: u64) -> Axis {
        Axis::in_units(title, low, high, &TIMES, &[1.0, 2.0, 5.0], 10.0)
    }

    /// Of exactly these bytes, with marks at multiples of powers of two, and the unit after the title.
    pub fn bytes(title: &str, low: u64, high: u64) -> Axis {
        Axis::in_units(title, low, high, &SIZES, &[1.0], 2.0)
    }

    /// Of exactly these counts.
    pub fn counts(title: &str, low: u64, high: u64) -> Axis {
        Axis::in_units(title, low, high, &[(1.0, "")], &[1.0, 2.0, 5.0], 10.0)
    }

    fn in_units(
        title: &str,
        low: u64,
        high: u64,
        units: &[(f64, &str)],
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
        let title = match unit {
            "" => title.into(),
            unit => format!("{title} ({unit})"),
        };
        Axis {
            title,
            low,
            high,
            log: false,
            ticks: (first..=last).map(tick).collect(),
        }
    }

    /// From 0 to at least `high`, in round steps.
    pub fn linear(title: &str, high: f64) -> Axis {
        let high = if high > 0.0 { high } else { 1.0 };
        let rough = high / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power);
        let step = step.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let count = (high / step - 1e-9).ceil().max(1.0) as u32;
        let ticks = (0..=count).map(|i| f64::from(i) * step);
        Axis {
            title: title.into(),
            low: 0.0,
            high: f64::from(count) * step,
            log: false,
            ticks: ticks.map(|t| (t, three_digits(t))).collect(),
        }
    }

    /// Logarithmic, with all of `low..=high`: marks at powers of ten, and at 2 and 5 times them where there are few.
    pub fn log(title: &str, low: f64, high: f64) -> Axis {
        // Nothing lies on an edge.
        let low = low.max(f64::MIN_POSITIVE) / 1.1;
        let high = (high * 1.1).max(low * 2.0);
        let wide = (high / low).log10() > 2.0;
        let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let marks = (first..=last).flat_map(|p| steps.iter().map(move |s| s * 10f64.powi(p)));
        let marks: Vec<f64> = marks.collect();
        // The marks just outside are the ends.
        let from = marks.iter().rposition(|m| *m <= low * 1.000_001);
        let to = marks.iter().position(|m| *m >= high * 0.999_999);
        let to = to.unwrap_or(marks.len() - 1);
        let marks = marks[from.unwrap_or(0)..=to].iter();
        Axis::log_at(title, marks.map(|m| (*m, with_unit_letter(*m))).collect())
    }

    /// Logarithmic, from the first of `ticks` to the last, which ascend.
    pub fn log_at(title: &str, ticks: Vec<(f64, String)>) -> Axis {
        let end = |t: Option<&(f64, String)>| t.map_or(1.0, |t| t.0);
        Axis {
            title: title.into(),
            low: end(ticks.first()),
            high: end(ticks.last()),
            log: true,
            ticks,
        }
    }

    /// What is written along it.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Where a value lies: 0 at the low end, 1 at the high one, clipped to them.
    pub fn place(&self, value: f64) -> f64 {
        let at = |v: f64| if self.log { v.ln() } else { v };
        let (low, high) = (at(self.low), at(self.high));
        if high <= low {
            return 0.5;
        }
        // The logarithm of 0 is minus infinity, which is clipped too.
        ((at(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Where the marks lie, and their texts, ascending.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().map(|(v, text)| (self.place(*v), &**text))
    }
}

/// A number with three significant digits, and commas between thousands.
pub fn three_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    // What is rounded to two digits after the point may need one before it more: 9.996 is 10.0.
    let digits = 2 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 9) as usize);
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = thousands(whole);
    let part = part.trim_end_matches('0');
    if !part.is_empty() {
        out.push('.');
        out.push_str(part);
    }
    out
}

/// The same in as few letters as it can be, where there is little room: `12 M`.
pub fn with_unit_letter(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, letter)) => format!("{} {letter}", three_digits(value / unit)),
        None => three_digits(value),
    }
}

/// A count of things for people: `1 call`, `1,234 calls`.
pub fn counted(n: u64, thing: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(n))
}

/// A number for people.
pub fn count(n: u64) -> String {
    thousands(&n.to_string())
}

/// Digits with commas between thousands: `1,234,567`.
fn thousands(digits: &str) -> String {
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|t| t.1).collect()
    }

    #[test]
    fn marks_are_at_round_steps() {
        let axis = Axis::linear("", 4.3);
        assert_eq!(texts(&axis), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(
            texts(&Axis::linear("", 0.07)),
            ["0", "0.02", "0.04", "0.06", "0.08"]
        );
        assert_eq!(
            texts(&Axis::log("", 0.3, 2000.0)),
            ["0.1", "1", "10", "100", "1,000", "10,000"]
        );
        assert_eq!(texts(&Axis::log("", 3.0, 18.0)), ["2", "5", "10", "20"]);
        assert_eq!(
            texts(&Axis::log("", 2e5, 2e7)),
            ["100,000", "1 M", "10 M", "100 M"]
        );
    }

    #[test]
    fn marks_are_in_units_that_fit() {
        let joined = |axis: &Axis| (texts(axis).join(" "), axis.title().to_string());
        assert_eq!(
            joined(&Axis::time("time", 0, 3_000_000_000)),
            ("0.0 0.5 1.0 1.5 2.0 2.5 3.0".into(), "time (s)".into())
        );
        assert_eq!(
            joined(&Axis::bytes("offset", 0, 10 << 20)),
            ("0 2 4 6 8 10".into(), "offset (MiB)".into())
        );
        assert_eq!(
            joined(&Axis::counts("calls", 0, 12)),
            ("0 2 4 6 8 10 12".into(), "calls".into())
        );
        // No range at all, and the largest there is.
        assert!(!texts(&Axis::bytes("", 7, 7)).is_empty());
        assert!((5..15).contains(&texts(&Axis::bytes("", 0, u64::MAX)).len()));
        let axis = Axis::time("", 100, 300);
        assert_eq!(
            (axis.place(100.0), axis.place(200.0), axis.place(900.0)),
            (0.0, 0.5, 1.0)
        );
    }

    #[test]
    fn numbers_for_people() {
        let shown = [0.0, 0.00123, 0.25, 9.996, 12.34, 1234.5, 37_805_000.0].map(three_digits);
        let expected = ["0", "0.00123", "0.25", "10", "12.3", "1,235", "37,805,000"];
        assert_eq!(shown[..5], expected[..5]);
        assert!(shown[5] == "1,234" || shown[5] == "1,235");
        assert_eq!(shown[6], expected[6]);
    }

    proptest! {
        #[test]
        fn all_that_is_to_be_seen_is_inside(low in 1e-6f64..1e6, times in 1.0f64..1e6) {
            let high = low * times;
            for axis in [Axis::log("", low, high), Axis::linear("", high)] {
                prop_assert!((2..=14).contains(&axis.ticks().count()), "{axis:?}");
                prop_assert!(axis.low <= low * 1.000_01 && axis.high >= high * 0.999_99, "{axis:?}");
                let places: Vec<f64> = axis.ticks().map(|t| t.0).collect();
                prop_assert!(places.is_sorted() && places[0] == 0.0 && *places.last().unwrap() == 1.0);
                prop_assert!(axis.place(low) <= axis.place(high));
            }
        }
    }
}
