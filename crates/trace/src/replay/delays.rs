//! Delays between the calls of a rank: it sleeps in place of the computation that the traced program did.

use std::time::Duration;

/// A speed of nearly nothing would wait for ever; a day is long enough.
const MAX_DELAY_SECONDS: f64 = 86_400.0;

/// How long a rank computes before each of its calls. The wait for others at an epoch's end comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Delays {
    /// Not at all.
    #[default]
    None,
    /// As long as it did between its calls in the trace, divided by `speed` (above 0).
    Recorded {
        /// 1: as it was.
        speed: f64,
    },
    /// Always so long.
    Fixed(Duration),
}

impl Delays {
    /// The pause before a call, if the rank computed for `recorded` nanoseconds before it in the trace.
    pub(super) fn pause(self, recorded: u64) -> Duration {
        match self {
            Delays::None => Duration::ZERO,
            Delays::Recorded { speed } => {
                let scaled = recorded as f64 / 1e9 / speed;
                Duration::try_from_secs_f64(scaled.min(MAX_DELAY_SECONDS)).unwrap_or_default()
            }
            Delays::Fixed(pause) => pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::plan::Planner;
    use crate::replay::{Options, PathTarget, inputs, replay};
    use crate::{Kind, Op, Trace};

    #[test]
    fn a_pause_is_as_long_as_recorded_or_faster_and_never_for_ever() {
        let recorded = |speed| Delays::Recorded { speed }.pause(3_000_000_000);
        assert_eq!(recorded(1.0), Duration::from_secs(3));
        assert_eq!(recorded(4.0), Duration::from_millis(750));
        assert_eq!(recorded(1e-300), Duration::from_secs(86_400));
    }

    #[test]
    fn ranks_compute_between_calls_as_the_trace_or_the_options_say() {
        let op = |rank, start, end| Op {
            rank,
            kind: Kind::Write,
            file: 0,
            offset: u64::from(rank) * 10,
            len: 10,
            start,
            end,
        };
        const MS: u64 = 1_000_000;
        // Rank 0 computes 2 ms and 5 ms; rank 1 begins 1 ms late, and overlaps itself.
        let ops = vec![
            op(0, 0, MS),
            op(1, MS, 9 * MS),
            op(0, 3 * MS, 4 * MS),
            op(1, 5 * MS, 6 * MS),
            op(0, 9 * MS, 9 * MS),
        ];
        let trace = Trace {
            name: "t".into(),
            ranks: 2,
            files: vec!["a".into()],
            ops,
        };
        let inputs = inputs::inputs(&trace).unwrap();
        let epochs = Planner::new(&trace, &inputs).window();
        let tasks = epochs.iter().flat_map(|e| &e.tasks);
        let pauses: Vec<u64> = tasks.map(|t| t.pause / MS).collect();
        assert_eq!(pauses, [0, 1, 2, 0, 5]);

        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::new(vec![dir.path().to_owned()]).unwrap();
        let time = |delays| {
            let options = Options {
                delays,
                ..Options::default()
            };
            replay(&trace, &target, &options).unwrap().delays_time
        };
        // A sleep is never too short.
        assert_eq!(time(Delays::None), Duration::ZERO);
        assert!(time(Delays::Recorded { speed: 1.0 }) >= Duration::from_millis(8));
        assert!(time(Delays::Recorded { speed: 4.0 }) >= Duration::from_millis(2));
        assert!(time(Delays::Fixed(Duration::from_millis(1))) >= Duration::from_millis(5));
    }
}
