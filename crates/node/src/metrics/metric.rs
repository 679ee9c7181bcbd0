//! The definition of a metric, with how its values are taken from a status.
//!
//! Invariants: a value that is not known is left out, never zero; the labels tell which member and which peer.
use crate::control::{PeerHealth, ProcessStatus, Status};
use forebay_server::MemberStatus;

/// A value with its labels.
pub(super) struct MetricSample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

/// Whole numbers stay whole.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

/// One metric.
pub struct Metric {
    /// As its samples are called.
    pub name: &'static str,
    /// One sentence, without the full stop.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    pub(super) read: fn(&Status) -> Vec<MetricSample>,
}

/// What a row of the table gives: a number, or none where it is not known.
pub(super) trait IntoValue {
    fn value(self) -> Option<Value>;
}

impl IntoValue for Value {
    fn value(self) -> Option<Value> {
        Some(self)
    }
}

impl IntoValue for u64 {
    fn value(self) -> Option<Value> {
        Some(Value::Whole(self))
    }
}

impl IntoValue for f64 {
    fn value(self) -> Option<Value> {
        Some(Value::Real(self))
    }
}

impl<F: IntoValue> IntoValue for Option<F> {
    fn value(self) -> Option<Value> {
        self.and_then(F::value)
    }
}

/// The sample of a value, if that is known.
fn sample(labels: Vec<(&'static str, String)>, value: impl IntoValue) -> Option<MetricSample> {
    let value = value.value()?;
    Some(MetricSample { labels, value })
}

pub(super) fn members<F: IntoValue>(
    status: &Status,
    value: impl Fn(&MemberStatus) -> F,
) -> Vec<MetricSample> {
    let figures = status.members.iter().map(|m| &m.figures);
    figures
        .filter_map(|m| sample(vec![("member", m.member.to_string())], value(m)))
        .collect()
}

/// One sample a member and kind.
pub(super) fn kinds<const N: usize>(
    status: &Status,
    label: &'static str,
    values: impl Fn(&MemberStatus) -> [(&'static str, Option<Value>); N],
) -> Vec<MetricSample> {
    let figures = status.members.iter().map(|m| &m.figures);
    let values = figures.flat_map(|m| values(m).map(|(kind, value)| (m.member, kind, value)));
    values
        .filter_map(|(member, kind, value)| {
            let labels = vec![("member", member.to_string()), (label, kind.to_string())];
            sample(labels, value)
        })
        .collect()
}

pub(super) fn process<F: IntoValue>(
    status: &Status,
    value: impl Fn(&ProcessStatus) -> F,
) -> Vec<MetricSample> {
    let own = status.processes.first();
    own.and_then(|p| sample(Vec::new(), value(p)))
        .into_iter()
        .collect()
}

pub(super) fn peers<F: IntoValue>(
    status: &Status,
    value: impl Fn(&PeerHealth) -> F,
) -> Vec<MetricSample> {
    let mut samples = Vec::new();
    for process in &status.processes {
        for member in &process.members {
            samples.extend(process.peers.iter().filter_map(|peer| {
                let labels = vec![
                    ("member", member.to_string()),
                    ("peer", peer.member.to_string()),
                ];
                sample(labels, value(peer))
            }));
        }
    }
    samples
}

/// The table `METRICS`: a row is whose value it is, its name, how it is read in brackets, and its help.
macro_rules! metrics {
    ($($of:ident $name:literal ($($read:tt)*) $help:literal;)*) => {
        /// All metrics, in the order of the page.
        pub const METRICS: &[$crate::metrics::Metric] = &[
            $($crate::metrics::metric::row!($of $name ($($read)*) $help)),*
        ];
    };
}

/// One row of [`metrics`].
macro_rules! row {
    (member $name:literal (|$m:ident| $value:expr) $help:literal) => {
        $crate::metrics::metric::row!($name, $help, &["member"], |status| {
            $crate::metrics::metric::members(status, |$m| $value)
        })
    };
    (kinds $name:literal ($label:literal, |$m:ident| $($kind:literal => $value:expr,)*) $help:literal) => {
        $crate::metrics::metric::row!($name, $help, &["member", $label], |status| {
            use $crate::metrics::metric::{IntoValue, kinds};
            kinds(status, $label, |$m| [$(($kind, IntoValue::value($value))),*])
        })
    };
    (peers $name:literal (|$peer:ident| $value:expr) $help:literal) => {
        $crate::metrics::metric::row!($name, $help, &["member", "peer"], |status| {
            $crate::metrics::metric::peers(status, |$peer| $value)
        })
    };
    (process $name:literal (|$process:ident| $value:expr) $help:literal) => {
        $crate::metrics::metric::row!($name, $help, &[], |status| {
            $crate::metrics::metric::process(status, |$process| $value)
        })
    };
    // Always 1, with a text of the status in a label.
    (label $name:literal ($label:literal, |$status:ident| $text:expr) $help:literal) => {
        $crate::metrics::metric::row!($name, $help, &[$label], |$status| {
            vec![$crate::metrics::metric::MetricSample {
                labels: vec![($label, $text)],
                value: $crate::metrics::metric::Value::Whole(1),
            }]
        })
    };
    ($name:literal, $help:literal, $labels:expr, $read:expr) => {
        $crate::metrics::Metric {
            name: $name,
            help: $help,
            labels: $labels,
            read: $read,
        }
    };
}

pub(super) use {metrics, row};
