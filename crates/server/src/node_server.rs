//! Start, recovery and stop of one member: first its [`MemberParts`], then its delegate.
//!
//! A service in one process has several ([`Service`](crate::Service)); a process of an MPI job has one
//! ([`JoinedMember`](crate::JoinedMember)). Both take the same steps: each step of [`NodeServer::START_STEPS`] asks members that have done the
//! ones before, so all members finish a step before any begins the next. Delegates start after the last.
mod stats;

use crate::cached_stats::CachedStats;
use crate::stats_scans::{DiskScan, RecordScan};
use crate::superblock::{refused_at, unwritable};
use crate::{Config, Delegate, Error, Fid, MemberParts, Peers, Result};
use forebay_data::{DiskReserve, LogId};
use forebay_fabric::{Fabric, Handler};
use forebay_index::ExtentIndex;
use forebay_storage::{Io, Store};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A step of a start or stop.
pub type ServerStep = fn(&NodeServer) -> Result<()>;

/// See the head of this file. Dropping it stops its threads, without committing anything.
pub struct NodeServer {
    node: Arc<MemberParts>,
    delegate: Option<Arc<Delegate>>,
    end: Arc<dyn Fabric>,
    config: Config,
    /// Of its superblocks: what was damaged or missing when it was opened, and made again.
    superblock_notes: Vec<String>,
    records: CachedStats<RecordScan>,
    disk: CachedStats<DiskScan>,
}

impl NodeServer {
    /// What a start does after all members serve: finish or take back what a crash cut off, namespace first, then
    /// commits, then what they displaced; delete what only the delegates of before could ask about; sort the logs that were left unsealed.
    pub const START_STEPS: [ServerStep; 9] = [
        |s| {
            s.node.meta.coordinator.remake_left();
            Ok(())
        },
        |s| s.node.meta.recovery.recover(),
        // What was replayed from the logs of a killed process may be in the system's cache only; what follows relies on it.
        |s| Ok(s.node.store.barrier()?),
        |s| s.node.files.recover(),
        |s| s.node.files.restore.find_unreadable_tails(),
        |s| s.node.files.restore.restore_bytes(),
        |s| s.node.files.restore.cut_unreadable_tails(),
        |s| {
            // The delegates of before ended with their process.
            if let Err(e) = s.node.files.forget_writers() {
                tracing::warn!(member = s.node.peers.member(), error = %e, "receipts of old commits are not deleted; they cost a little room");
            }
            Ok(())
        },
        |s| sort_unsealed(&s.node),
    ];

    /// What a stop does: commit what is pending, which needs all members; stop what works in the background; close.
    pub const STOP_STEPS: [ServerStep; 4] = [
        |s| s.delegate.as_ref().map_or(Ok(()), |d| d.stop()),
        |s| {
            s.node.recovery_thread.stop();
            if let Err(e) = s.node.files.outbox.release_displaced() {
                tracing::warn!(member = s.node.peers.member(), error = %e, "bytes that replaced others may not be on disk; the next start looks");
            }
            // What is not forgotten now is finished once more at the next start.
            s.node.meta.coordinator.forget_done()
        },
        |s| {
            s.node.files.close();
            Ok(())
        },
        |s| {
            s.records.end();
            s.disk.end();
            let data = s.node.data.close();
            data.and(s.node.store.close().map_err(Error::from))
        },
    ];

    /// Opens the store in `dir` for the member that `end` is the end of. Nothing is served or recovered yet. `superblock_notes`: what was
    /// wrong with its superblock, see [`MemberStatus::notes`](crate::MemberStatus::notes).
    ///
    /// # Errors
    /// `Refused` for a directory that cannot be used; what the store fails with.
    pub fn open(
        io: Arc<dyn Io>,
        dir: &Path,
        end: Arc<dyn Fabric>,
        config: &Config,
        reserve: Arc<DiskReserve>,
        superblock_notes: Vec<String>,
    ) -> Result<NodeServer> {
        let (kv, data) = (dir.join("kv"), dir.join("data"));
        must_have_records(&*io, &kv, &data)?;
        for sub in [&kv, &data] {
            let made = io.create_dir_all(sub);
            // The name of the first is on disk before that of the second, see `must_have_records`.
            let made = made.and_then(|()| io.sync_dir(dir));
            made.map_err(|e| unwritable(sub, &e))?;
        }
        sync_segments(&*io, &data)?;
        let store = Arc::new(Store::open(io.clone(), &kv, config.store_options())?);
        ExtentIndex::open(&store, config.index.settings(config.memory))?;
        let peers = Peers::new(end.clone(), config.deadline);
        let member = peers.member();
        let disk = io.space(&data).ok().map(|(_, total)| total);
        let options = config.log_store_options(member, reserve, disk);
        let node = MemberParts::new(io, &data, store, peers, options)?;
        node.files.set_pattern_memory(config.pattern_memory());
        Ok(NodeServer {
            records: CachedStats::new(RecordScan(node.store.clone())),
            disk: CachedStats::new(DiskScan(node.clone())),
            node,
            delegate: None,
            end,
            config: config.clone(),
            superblock_notes,
        })
    }

    /// Answers other members from now on.
    pub fn serve(&self) {
        self.end.serve(self.node.clone() as Arc<dyn Handler>);
    }

    /// Starts the delegate, once all members have taken all steps of the start.
    ///
    /// # Errors
    /// When the store fails, or there is no thread.
    pub fn start_delegate(&mut self) -> Result<Arc<Delegate>> {
        let delegate = Delegate::start(self.node.clone(), &self.config)?;
        self.delegate = Some(delegate.clone());
        Ok(delegate)
    }

    /// The delegate, once started.
    pub fn delegate(&self) -> Option<&Arc<Delegate>> {
        self.delegate.as_ref()
    }

    /// The parts.
    pub fn node(&self) -> &Arc<MemberParts> {
        &self.node
    }

    /// Ends the threads that may call other members.
    pub(crate) fn end(&self) {
        if let Some(delegate) = &self.delegate {
            delegate.stop_threads();
        }
        self.node.recovery_thread.stop();
        self.node.files.close();
        self.records.end();
        self.disk.end();
    }

    /// Answers no one from now on.
    pub(crate) fn close(&self) {
        self.end.close();
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        self.end();
        self.close();
    }
}

/// What a killed process wrote may be in the system's cache only. An fsync from now on knows nothing of it, so it is
/// brought to disk here. Costs little if it is there already.
fn sync_segments(io: &dyn Io, dir: &Path) -> Result<()> {
    let synced = (|| {
        for entry in io.list(dir)?.iter().filter(|e| !e.is_dir) {
            io.open(&dir.join(&entry.name))?.sync()?;
        }
        io.sync_dir(dir)
    })();
    synced.map_err(|e: std::io::Error| refused_at(dir, &e, "check the disk"))
}

/// A store whose records are gone is no new one: made anew, it would lack their names, and take its file data for garbage and remove it.
fn must_have_records(io: &dyn Io, kv: &Path, data: &Path) -> Result<()> {
    let there = |path: &Path| {
        let there = io.exists(path);
        there.map_err(|e| refused_at(path, &e, "check the disk"))
    };
    if there(kv)? {
        return Ok(());
    }
    let cut_off = kv.with_file_name(crate::repair_marker::NEW_RECORDS);
    if there(&cut_off)? {
        return Err(Error::Refused(format!(
            "{}: a repair was cut off before its last step; run `forebay fsck --repair` again",
            cut_off.display()
        )));
    }
    // That directory is made after this one.
    match there(data)? {
        true => Err(Error::Refused(format!(
            "{} is missing, and {} beside it is there, so this is no new store: put it back from a copy; without one `forebay fsck --repair` \
             makes records of what the other members know, and sets file data aside",
            kv.display(),
            data.display()
        ))),
        false => Ok(()),
    }
}

/// A crash leaves logs with bytes that no commit ever named: keeps what extents name, gives the rest back.
fn sort_unsealed(node: &MemberParts) -> Result<()> {
    let mut files: HashMap<Fid, Vec<LogId>> = HashMap::new();
    for (log, fid) in node.data.unsealed()? {
        files.entry(fid).or_default().push(log);
    }
    for (fid, logs) in files {
        let named = match named_ranges(node, fid) {
            Ok(named) => named,
            Err(e) => {
                // A log that stays whole costs room, not data; the next start looks again.
                tracing::warn!(fid = fid.0, error = %e, "cannot tell which bytes of this file's unfinished logs are in use; all are kept");
                continue;
            }
        };
        for log in logs {
            let keep = named.get(&log).map_or(&[][..], Vec::as_slice);
            match node.data.retain(log, keep) {
                Err(e) if e.is_damage() => {
                    tracing::warn!(log, error = %e, "cannot give back what this unfinished log holds for nobody");
                }
                retained => retained?,
            }
        }
    }
    Ok(())
}

/// The address ranges of this member's logs that extents and patterns of the file name, on all slice owners.
fn named_ranges(node: &MemberParts, fid: Fid) -> Result<HashMap<LogId, Vec<Range<u64>>>> {
    let own = node.peers.member();
    let mut named: HashMap<LogId, Vec<Range<u64>>> = HashMap::new();
    for member in 0..node.peers.members() {
        for (log, range) in node.named(member, fid, own)? {
            named.entry(log).or_default().push(range);
        }
    }
    Ok(named)
}
