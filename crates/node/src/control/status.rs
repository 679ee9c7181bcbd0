//! The status of a running service: its members, its server processes, and what they know of each other.
//!
//! Invariants: a figure is of one member, and comes from the process that the member runs in; a member whose process did not
//! answer is in `missing`, with the reason, and in no sum; what is not known is absent, never zero.
use crate::processes::ProcessMemory;
pub use forebay_fabric::session::Health;
use forebay_server::MemberStatus;
use forebay_server::delegate::Traffic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One mount of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The member whose delegate serves it.
    pub member: u16,
    /// Where.
    pub path: PathBuf,
}

/// Requests and bytes a second, over the last `seconds`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Over how long; 0: not known yet, and all rates are 0.
    pub seconds: f64,
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// All other requests of mounts and libraries.
    pub others: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
}

impl Rates {
    /// From what was counted before and is counted now. Counters that went back are those of another process: no rates.
    pub fn between(before: &Traffic, now: &Traffic, time: Duration) -> Rates {
        let seconds = time.as_secs_f64();
        let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 / seconds);
        let rates = || {
            Some(Rates {
                seconds,
                reads: rate(before.reads, now.reads)?,
                writes: rate(before.writes, now.writes)?,
                others: rate(before.others, now.others)?,
                read_bytes: rate(before.read_bytes, now.read_bytes)?,
                written_bytes: rate(before.written_bytes, now.written_bytes)?,
            })
        };
        Some(seconds)
            .filter(|s| *s > 0.0)
            .and_then(|_| rates())
            .unwrap_or_default()
    }

    /// The rates of two members together.
    pub fn and(self, other: Rates) -> Rates {
        Rates {
            seconds: self.seconds.max(other.seconds),
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            others: self.others + other.others,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// One member.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MemberEntry {
    /// What it holds and has done.
    #[serde(flatten)]
    pub figures: MemberStatus,
    /// What it does now.
    pub rates: Rates,
}

impl MemberEntry {
    /// All together.
    pub fn total(members: &[MemberEntry]) -> MemberEntry {
        MemberEntry {
            figures: MemberStatus::sum(members.iter().map(|m| &m.figures)),
            rates: members
                .iter()
                .fold(Rates::default(), |sum, m| sum.and(m.rates)),
        }
    }
}

/// What a process knows of a member in another process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PeerHealth {
    /// The member.
    pub member: u16,
    /// How it stands.
    pub health: Health,
    /// Since when nothing was heard of it.
    pub silent_seconds: f64,
}

/// One server process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its number on its machine.
    pub pid: u32,
    /// Its machine, by the name it calls itself.
    pub host: String,
    /// Its store.
    pub store: PathBuf,
    /// Version of the program.
    pub program: String,
    /// Seconds since it was ready.
    pub uptime_seconds: u64,
    /// Memory of the whole process. `None`: the kernel did not tell.
    pub memory: Option<ProcessMemory>,
    /// The members that run in it.
    pub members: Vec<u16>,
    /// Where it serves metrics, if it does.
    pub metrics: Option<String>,
    /// Stage jobs that run.
    pub stage_jobs: u64,
    /// Processes that are connected over the link, and the files that they have open.
    pub link_clients: u64,
    /// See `link_clients`.
    pub link_open_files: u64,
    /// The members in other processes, as it sees them.
    pub peers: Vec<PeerHealth>,
}

/// A member that did not answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MissingMember {
    /// Why, for people.
    pub why: String,
    /// How the process that was asked sees it.
    pub health: Option<Health>,
    /// Since when that process has heard nothing of it.
    pub silent_seconds: Option<f64>,
}

/// A running service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The store of the process that was asked.
    pub store: PathBuf,
    /// That process.
    pub pid: u32,
    /// Version of its program.
    pub program: String,
    /// Seconds since it was ready.
    pub uptime_seconds: u64,
    /// Its memory. `None`: the kernel did not tell.
    pub memory: Option<ProcessMemory>,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// All mounts, by member.
    pub mounts: Vec<MountStatus>,
    /// All members that answered, by number.
    pub members: Vec<MemberEntry>,
    /// Those that did not.
    #[serde(default)]
    pub missing: BTreeMap<u16, MissingMember>,
    /// All processes that answered, by their first member.
    pub processes: Vec<ProcessStatus>,
}

impl Status {
    /// The process that `member` runs in.
    pub fn process_of(&self, member: u16) -> Option<&ProcessStatus> {
        self.processes.iter().find(|p| p.members.contains(&member))
    }

    /// Takes in what another process of the service said of itself.
    pub fn add(&mut self, other: Status) {
        self.members.extend(other.members);
        self.mounts.extend(other.mounts);
        self.processes.extend(other.processes);
        self.members.sort_by_key(|m| m.figures.member);
        self.mounts.sort_by_key(|m| m.member);
        self.processes.sort_by_key(|p| p.members.first().copied());
    }

    /// How the other processes see `member`: the number that see it alive, and the number that see it otherwise.
    pub fn seen(&self, member: u16) -> (usize, usize) {
        let views = self.processes.iter().flat_map(|p| &p.peers);
        let views = views.filter(|peer| peer.member == member);
        let (alive, not): (Vec<&PeerHealth>, Vec<&PeerHealth>) =
            views.partition(|peer| peer.health == Health::Alive);
        (alive.len(), not.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_and_none_if_the_counters_began_anew() {
        let before = Traffic {
            reads: 10,
            read_bytes: 1000,
            ..Traffic::default()
        };
        let now = Traffic {
            reads: 30,
            read_bytes: 5000,
            writes: 2,
            ..before
        };
        let rates = Rates::between(&before, &now, Duration::from_secs(2));
        assert_eq!((rates.seconds, rates.reads, rates.writes), (2.0, 10.0, 1.0));
        assert_eq!(rates.read_bytes, 2000.0);
        let anew = Rates::between(&now, &before, Duration::from_secs(2));
        assert_eq!(anew, Rates::default());
        assert_eq!(
            Rates::between(&before, &now, Duration::ZERO),
            Rates::default()
        );
    }

    #[test]
    fn a_member_travels_with_its_figures_beside_its_rates() {
        let member = MemberEntry {
            figures: MemberStatus {
                member: 3,
                files: None,
                extents: Some(u64::MAX),
                ..MemberStatus::default()
            },
            rates: Rates::default(),
        };
        let text = serde_json::to_string(&member).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value["files"].is_null() && value["member"] == 3);
        let back: MemberEntry = serde_json::from_str(&text).unwrap();
        assert_eq!(back.figures.extents, Some(u64::MAX));
        assert_eq!(back.figures.files, None);
    }
}
