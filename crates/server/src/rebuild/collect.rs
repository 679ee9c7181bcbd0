//! Collects everything that can be read of the members' stores. Whether it fits together is decided later (`names`, `content`).
//!
//! Inodes and entries are held in memory, some hundred bytes each. Records of content stay on disk and are read again when needed.
use super::losses::LossReport;
use super::{ByteCheck, MemberPaths, is_member};
use crate::inodes::{self, Inode};
use crate::log_ranges::{LogRanges, addresses};
use crate::meta::{check::UnfinishedOperations, entries, steps::EntryTarget};
use crate::{Fid, LOST_LOG, Member, Result, files, keys, offline_stores};
use forebay_data::check::{SegmentFiles, StoredBytes};
use forebay_data::container::ContainerId;
use forebay_data::container::keys::RecordKind;
use forebay_data::ranges::subtract;
use forebay_data::span;
use forebay_index::{Extent, ExtentIndex};
use forebay_pattern::LogSource;
use forebay_storage::{Damage, Io, LogEnd, PossibleLoss, Store};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// One member's store.
#[derive(Default)]
pub struct CollectedStore {
    pub member: Member,
    /// `None`: nothing of it can be read.
    pub store: Option<Arc<Store>>,
    pub index: Option<ExtentIndex>,
    /// Some record of it may be lost.
    pub damaged: bool,
    /// Chunks whose fingerprint is not that of their bytes, by container.
    pub wrong_fingerprints: HashMap<ContainerId, Vec<usize>>,
    /// What is damaged of it, but for what the open found.
    found: Vec<Damage>,
}

/// See the head of this file.
#[derive(Default)]
pub struct CollectedRecords {
    pub members: Vec<CollectedStore>,
    pub inodes: HashMap<Fid, Inode>,
    pub entries: BTreeMap<(Fid, Vec<u8>), EntryTarget>,
    pub orphans: HashSet<Fid>,
    /// Operations over several members that a crash cut off.
    pub unfinished: Vec<(Member, UnfinishedOperations)>,
    /// Parts of commits over several members that were decided, in the order of the commits.
    pub decided: Vec<files::check::DecidedCommit>,
    /// Files of which a commit was decided: their bytes need not be counted yet.
    pub unpublished: HashSet<Fid>,
    counters: HashMap<(Member, Vec<u8>), u64>,
    /// Live addresses of all logs.
    pub live: LogRanges,
    /// Those of them whose bytes are damaged or missing.
    bad: LogRanges,
}

impl CollectedStore {
    /// What is damaged of it, each place once.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        let opened = self.store.iter().flat_map(|store| &store.opened().damage);
        opened.chain(&self.found)
    }
}

impl CollectedRecords {
    pub fn read(
        io: &Arc<dyn Io>,
        sources: &[MemberPaths],
        byte_check: ByteCheck,
        losses: &mut LossReport,
    ) -> Result<CollectedRecords> {
        let mut collected = CollectedRecords::default();
        for (member, source) in (0..).zip(sources) {
            let m = open(io, member, source, losses)?;
            collected.members.push(m);
        }
        for (at, source) in sources.iter().enumerate() {
            collected.names(at, losses);
            let data = source.data.as_deref();
            collected.spans(
                at,
                data.map(|data| SegmentFiles::new(&**io, data)),
                byte_check,
            );
        }
        collected.live = collected.live.sorted();
        let stores: Vec<(Member, &Store)> = collected
            .members
            .iter()
            .filter_map(|m| Some((m.member, &**m.store.as_ref()?)))
            .collect();
        let (decided, unpublished) = files::check::decided_commits(&stores);
        let unfinished = stores
            .iter()
            .map(|(member, store)| (*member, UnfinishedOperations::read(store)))
            .collect();
        collected.unfinished = unfinished;
        (collected.decided, collected.unpublished) = (decided, unpublished);
        Ok(collected)
    }

    fn names(&mut self, at: usize, losses: &mut LossReport) {
        let member = self.members[at].member;
        let Some(store) = self.members[at].store.clone() else {
            return;
        };
        let mut odd = 0u64;
        // Items that cannot be read are told with the damage of the store.
        let scan = |keyspace| keys::readable(&store, keyspace);
        for (key, value) in scan(keys::INODES) {
            let inode = keys::fid_of(&key)
                .filter(|fid| fid.owner() == member && key.len() == 8)
                .and_then(|fid| Some((fid, inodes::decode(fid, &value).ok()?)));
            match inode {
                Some((fid, inode)) => drop(self.inodes.insert(fid, inode)),
                None => odd += 1,
            }
        }
        for item in entries::all(&store) {
            match item {
                Ok((dir, name, entry)) if dir.owner() == member => {
                    self.entries.insert((dir, name), entry);
                }
                Ok(_) => odd += 1,
                Err(_) => {}
            }
        }
        let orphans = scan(keys::ORPHANS).filter_map(|(key, _)| keys::fid_of(&key));
        self.orphans.extend(orphans);
        for (name, value) in scan(keys::COUNTERS) {
            if let Ok(value) = <[u8; 8]>::try_from(&value[..]) {
                self.counters
                    .insert((member, name.to_vec()), u64::from_be_bytes(value));
            }
        }
        if odd > 0 {
            losses.damage.push(format!(
                "member {member}: {odd} records of names that make no sense"
            ));
        }
    }

    fn spans(&mut self, at: usize, files: Option<SegmentFiles<'_>>, byte_check: ByteCheck) {
        let m = &mut self.members[at];
        let Some(store) = &m.store else { return };
        let mut bytes = StoredBytes::new(store, files, byte_check);
        bytes.check_containers(|bytes, container, counts| {
            // Without its fingerprints a chunk is only not found.
            let wrong = bytes.wrong_fingerprints(container, counts);
            let wrong = wrong.unwrap_or_default();
            if !wrong.is_empty() {
                m.wrong_fingerprints.insert(container.id, wrong);
            }
        });
        for span in span::all(store).filter_map(Result::ok) {
            let source = LogSource {
                member: m.member,
                log: span.log,
            };
            for bad in bytes.check_span(&span) {
                self.bad.add(source, bad.range);
            }
            for part in bytes.parts_with_records(&span) {
                self.live.add(source, part.live);
            }
        }
    }

    /// A number that the counter has not given out, as far as is known.
    pub fn counter(&self, member: Member, name: &[u8]) -> u64 {
        let told = self.counters.get(&(member, name.to_vec())).copied();
        let used = match name {
            b"fid" => {
                let fids = self
                    .inodes
                    .keys()
                    .chain(self.entries.values().map(|e| &e.fid));
                let own = fids.filter(|fid| fid.owner() == member);
                own.map(|fid| fid.0 & ((1 << 48) - 1)).max()
            }
            b"log" => {
                let logs = self.live.iter().map(|(source, _)| source);
                let own = logs.filter(|s| s.member == member && s.log != LOST_LOG);
                own.map(|source| source.log).max()
            }
            b"container" => self.containers(member).max(),
            _ => None,
        };
        told.unwrap_or(1).max(used.map_or(1, |n| n + 1))
    }

    /// Numbers of containers that there are, or that are named.
    fn containers(&self, member: Member) -> impl Iterator<Item = ContainerId> {
        let own = self.members.iter().filter(move |m| m.member == member);
        own.filter_map(|m| m.store.as_ref()).flat_map(|store| {
            let records = RecordKind::ALL.into_iter().flat_map(|kind| kind.all(store));
            let records = records.filter_map(|record| record.ok()?.0);
            let spans = span::all(store).filter_map(Result::ok);
            let named = spans.flat_map(|span| {
                let runs = span.runs().into_iter().flat_map(|runs| runs.iter());
                let ids = runs.filter_map(|run| Some(run.in_container()?.0));
                ids.collect::<Vec<_>>()
            });
            records.chain(named)
        })
    }

    /// The parts of an extent whose bytes are not there.
    pub fn missing(&self, extent: &Extent) -> Vec<Range<u64>> {
        let (source, addresses) = addresses(extent);
        let left = subtract(addresses, self.live.of(source));
        let offset = |addr: u64| extent.offset + (addr - extent.addr);
        left.into_iter()
            .map(|r| offset(r.start)..offset(r.end))
            .collect()
    }

    /// Files that have patterns.
    pub fn pattern_files(&self) -> HashSet<Fid> {
        let stores = self.members.iter().filter_map(|m| m.store.as_ref());
        let records = stores.flat_map(|store| keys::all(store, keys::PATTERNS));
        records
            .filter_map(|item| keys::fid_of(&item.ok()?.0))
            .collect()
    }

    /// Bytes of an extent that are there and damaged.
    pub fn damaged(&self, extent: &Extent) -> u64 {
        let (source, own) = addresses(extent);
        let within = |r: &Range<u64>| r.end.min(own.end).saturating_sub(r.start.max(own.start));
        self.bad.of(source).iter().map(within).sum()
    }

    /// Whether records of this inode's member may be lost. Of members that there are not, all are.
    pub fn is_uncertain(&self, fid: Fid) -> bool {
        !is_member(fid, self.members.len()) || self.members[usize::from(fid.owner())].damaged
    }

    /// Whether any member's records may be lost.
    pub fn any_uncertain(&self) -> bool {
        self.members.iter().any(|m| m.damaged)
    }
}

fn open(
    io: &Arc<dyn Io>,
    member: Member,
    source: &MemberPaths,
    losses: &mut LossReport,
) -> Result<CollectedStore> {
    let mut m = CollectedStore {
        member,
        ..CollectedStore::default()
    };
    let Some(kv) = &source.kv else {
        // Told by whoever looked for it.
        m.damaged = true;
        return Ok(m);
    };
    let opened = || -> Result<(Store, ExtentIndex)> {
        let store = Store::salvage(io.clone(), kv, offline_stores::without_threads())?;
        let index = offline_stores::open_index(&store)?;
        Ok((store, index))
    };
    let (store, index) = match opened() {
        Ok(opened) => opened,
        Err(e) => {
            m.damaged = true;
            losses.damage.push(format!(
                "member {member}: nothing of its records can be read: {e}"
            ));
            losses.spans_lost.push(member);
            return Ok(m);
        }
    };
    m.found = store.survey();
    let mut spans_lost = false;
    for damage in store.opened().damage.iter().chain(&m.found) {
        m.damaged |= !damage.lost.is_nothing();
        spans_lost |= match &damage.lost {
            PossibleLoss::Nothing
            | PossibleLoss::Corrected { .. }
            | PossibleLoss::EngineKeys { .. } => false,
            PossibleLoss::Batches { .. } => true,
            PossibleLoss::Keys { first, last } => {
                [keys::SPANS, keys::CONTAINERS].iter().any(|of| {
                    first.first().is_none_or(|k| *k <= of.0)
                        && last.first().is_none_or(|k| *k >= of.0)
                })
            }
        };
    }
    if spans_lost {
        losses.spans_lost.push(member);
    }
    let end = store.opened().end;
    if let LogEnd::Unclean { .. } = end {
        losses.notes.push(format!("member {member}: {end}"));
    }
    m.store = Some(Arc::new(store));
    m.index = Some(index);
    Ok(m)
}
