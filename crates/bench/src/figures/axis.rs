//! An axis: which values it shows, where they lie, and what is written beside them.

/// From the lowest value to the highest; on a logarithmic one, both are above 0.
#[derive(Debug, Clone)]
pub struct Axis {
    title: String,
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
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
            ticks: ticks.map(|t| (t, show(t))).collect(),
        }
    }

    /// Logarithmic, with all of `low..=high`: at decades, and at 2 and 5 times them where there are few.
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
        let marks = &marks[from.unwrap_or(0)..=to];
        Axis::log_at(
            title,
            &marks.iter().map(|m| (*m, brief(*m))).collect::<Vec<_>>(),
        )
    }

    /// Logarithmic, from the first of `ticks` to the last, which are ascending.
    pub fn log_at(title: &str, ticks: &[(f64, String)]) -> Axis {
        let end = |t: Option<&(f64, String)>| t.map_or(1.0, |t| t.0);
        Axis {
            title: title.into(),
            low: end(ticks.first()),
            high: end(ticks.last()),
            log: true,
            ticks: ticks.to_vec(),
        }
    }

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

    /// Places and words, ascending.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().map(|(v, text)| (self.place(*v), &**text))
    }
}

/// A number with three digits that count, and commas between thousands.
pub fn show(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    // What is rounded to two digits after the point may need one before it more: 9.996 is 10.0.
    let digits = 2 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 9) as usize);
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    let part = part.trim_end_matches('0');
    if !part.is_empty() {
        out.push('.');
        out.push_str(part);
    }
    out
}

/// The same in as few letters, where there is little room.
pub fn brief(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, letter)) => format!("{} {letter}", show(value / unit)),
        None => show(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|t| t.1).collect()
    }

    #[test]
    fn round_steps() {
        let axis = Axis::linear("", 4.3);
        assert_eq!(words(&axis), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(
            words(&Axis::linear("", 0.07)),
            ["0", "0.02", "0.04", "0.06", "0.08"]
        );
        assert_eq!(
            words(&Axis::log("", 0.3, 2000.0)),
            ["0.1", "1", "10", "100", "1,000", "10,000"]
        );
        assert_eq!(words(&Axis::log("", 3.0, 18.0)), ["2", "5", "10", "20"]);
        assert_eq!(
            words(&Axis::log("", 2e5, 2e7)),
            ["100,000", "1 M", "10 M", "100 M"]
        );
    }

    #[test]
    fn numbers_for_people() {
        let shown = [0.0, 0.00123, 0.25, 9.996, 12.34, 1234.5, 37_805_000.0].map(show);
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
