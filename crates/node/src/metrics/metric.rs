//! What a metric is, and how its values are taken from a status.
//!
//! Invariants: a figure that is not known is left out, never zero; the labels tell which member and which peer.
use crate::control::{Member, Peer, Process, Status};
use forebay_server::MemberStatus;

/// A value with its labels.
pub(super) struct Sample {
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
    pub(super) read: fn(&Status) -> Vec<Sample>,
}

impl Metric {
    /// It only grows, while the process lives.
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

pub(super) const MEMBER: &[&str] = &["member"];

pub(super) fn members(
    status: &Status,
    value: impl Fn(&MemberStatus) -> Option<Value>,
) -> Vec<Sample> {
    let sample = |m: &Member| {
        Some(Sample {
            labels: vec![("member", m.figures.member.to_string())],
            value: value(&m.figures)?,
        })
    };
    status.members.iter().filter_map(sample).collect()
}

/// One sample a member and kind.
pub(super) fn kinds<const N: usize>(
    status: &Status,
    label: &'static str,
    values: impl Fn(&MemberStatus) -> [(&'static str, Option<u64>); N],
) -> Vec<Sample> {
    let samples = |m: &Member| {
        let member = m.figures.member.to_string();
        values(&m.figures)
            .into_iter()
            .filter_map(move |(kind, value)| {
                Some(Sample {
                    labels: vec![("member", member.clone()), (label, kind.to_string())],
                    value: Value::Whole(value?),
                })
            })
    };
    status.members.iter().flat_map(samples).collect()
}

pub(super) fn process(status: &Status, value: impl Fn(&Process) -> Option<Value>) -> Vec<Sample> {
    let sample = |p: &Process| {
        Some(Sample {
            labels: Vec::new(),
            value: value(p)?,
        })
    };
    status.processes.iter().take(1).filter_map(sample).collect()
}

pub(super) fn peers(status: &Status, value: impl Fn(&Peer) -> Value) -> Vec<Sample> {
    let mut samples = Vec::new();
    for process in &status.processes {
        for (member, peer) in process
            .members
            .iter()
            .flat_map(|m| process.peers.iter().map(move |p| (m, p)))
        {
            samples.push(Sample {
                labels: vec![
                    ("member", member.to_string()),
                    ("peer", peer.member.to_string()),
                ],
                value: value(peer),
            });
        }
    }
    samples
}

/// A figure of each member.
macro_rules! of_member {
    ($name:literal, $help:literal, |$m:ident| $value:expr) => {
        Metric {
            name: $name,
            help: $help,
            labels: MEMBER,
            read: |status| members(status, |$m| $value),
        }
    };
}

/// Figures of each member, one a kind.
macro_rules! of_kinds {
    ($name:literal, $label:literal, $help:literal, |$m:ident| $values:expr) => {
        Metric {
            name: $name,
            help: $help,
            labels: &["member", $label],
            read: |status| kinds(status, $label, |$m| $values),
        }
    };
}

pub(super) use {of_kinds, of_member};
