//! A whole service in one process: `nodes` members as threads over `fabric::local`.
//!
//! Start: lock and check the directories, open the members' stores side by side, wire the members, then recover in this
//! order, because each step asks members that have done the ones before: namespace intents and cut-off commits of every
//! member, then the logs that a crash left unsealed. Only then do delegates exist.
use crate::data::{LogId, Room};
use crate::inodes::removed_directories;
use crate::layout::Layout;
use crate::{Config, Delegate, Error, Fid, Node, Peers, Result, keys};
use forebay_fabric::{Fabric, Handler, local};
use forebay_storage::{Io, Store};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of this file.
pub struct Service {
    nodes: Vec<Arc<Node>>,
    delegates: Vec<Arc<Delegate>>,
    fabric: Vec<Arc<dyn Fabric>>,
    /// Given up by [`Service::stop`] (or drop), also if a delegate is still held somewhere.
    locks: Mutex<Vec<File>>,
    config: Config,
}

/// What `forebay status` shows of one member; sizes in bytes.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct MemberStatus {
    /// Its number.
    pub member: u16,
    /// Inodes it owns, without those of removed directories.
    pub files: u64,
    /// Files that its delegate holds open.
    pub open_files: u64,
    /// Extents in its slices.
    pub extents: u64,
    /// File data it stores.
    pub data_bytes: u64,
    /// Its key-value store on disk: table files and write-ahead logs.
    pub index_bytes: u64,
    /// Memory in caches and buffers that it accounts for.
    pub memory_bytes: u64,
    /// What it may use.
    pub memory_budget: u64,
    /// Segment files.
    pub segments: u64,
    /// Reads through its delegate since the start.
    pub reads: u64,
    /// Writes through its delegate since the start.
    pub writes: u64,
    /// Bytes read through its delegate since the start.
    pub read_bytes: u64,
    /// Bytes written through its delegate since the start.
    pub written_bytes: u64,
}

impl Service {
    /// Opens (or creates) the store of a service and starts its members; recovers what a crash cut off.
    ///
    /// # Errors
    /// `Refused` with the next step for a directory that cannot be used; what a store or a recovery fails with.
    pub fn start(io: Arc<dyn Io>, store: &Path, config: Config) -> Result<Service> {
        Service::start_over(io, store, config, |end| end)
    }

    /// As `start`, with each end of the fabric wrapped: tests put faults in between.
    ///
    /// # Errors
    /// See `start`.
    #[doc(hidden)]
    pub fn start_over(
        io: Arc<dyn Io>,
        store: &Path,
        config: Config,
        wrap: impl Fn(Arc<dyn Fabric>) -> Arc<dyn Fabric>,
    ) -> Result<Service> {
        config.check()?;
        let layout = Layout::open(&*io, store, config.nodes)?;
        let ends = local::fabric(u32::from(config.nodes));
        let fabric: Vec<Arc<dyn Fabric>> = ends
            .into_iter()
            .map(|end| wrap(end as Arc<dyn Fabric>))
            .collect();
        let room = Arc::new(config.room());
        let open = |(end, dir): (&Arc<dyn Fabric>, &PathBuf)| {
            open_node(io.clone(), dir, end.clone(), &config, room.clone())
        };
        let opened: Vec<Result<Arc<Node>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = fabric
                .iter()
                .zip(&layout.nodes)
                .map(|pair| scope.spawn(move || open(pair)))
                .collect();
            let join = |t: std::thread::ScopedJoinHandle<'_, Result<Arc<Node>>>| {
                t.join().unwrap_or_else(|_| {
                    Err(Error::Refused(
                        "a member panicked at its start; see the log".into(),
                    ))
                })
            };
            threads.into_iter().map(join).collect()
        });
        let nodes = opened.into_iter().collect::<Result<Vec<_>>>()?;
        // From here on a failure must stop threads: `Service` does so when it is dropped.
        let mut service = Service {
            nodes,
            delegates: Vec::new(),
            fabric,
            locks: Mutex::new(layout.locks),
            config,
        };
        for (end, node) in service.fabric.iter().zip(&service.nodes) {
            end.serve(node.clone() as Arc<dyn Handler>);
        }
        service.recover()?;
        for node in &service.nodes {
            let delegate = Delegate::start(node.clone(), &service.config)?;
            service.delegates.push(delegate);
        }
        Ok(service)
    }

    /// The delegate of member `member`: one per mount.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn delegate(&self, member: u16) -> Arc<Delegate> {
        self.delegates[usize::from(member)].clone()
    }

    /// The members, for tests and tools.
    #[doc(hidden)]
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// What each member holds and has done. Counts files and extents by looking at each: not for a tight loop.
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn status(&self) -> Result<Vec<MemberStatus>> {
        self.nodes
            .iter()
            .zip(&self.delegates)
            .map(|(node, delegate)| self.member_status(node, delegate))
            .collect()
    }

    fn member_status(&self, node: &Node, delegate: &Delegate) -> Result<MemberStatus> {
        let count = |keyspace| {
            let scan = node
                .store
                .scan(keyspace, Bound::Unbounded, Bound::Unbounded);
            scan.map(|entry| entry.map(|_| 1))
                .sum::<forebay_storage::Result<u64>>()
        };
        let store = node.store.stats();
        let data = node.data.stats();
        let (reads, writes, read_bytes, written_bytes) = delegate.counters().totals();
        Ok(MemberStatus {
            member: node.peers.member(),
            // A directory may be removed between the two looks.
            files: count(keys::INODES)?.saturating_sub(removed_directories(&node.store)),
            open_files: delegate.open_files() as u64,
            extents: count(keys::EXTENTS)?,
            data_bytes: data.live,
            index_bytes: store.table_bytes + store.wal_bytes,
            memory_bytes: store.memtable_bytes
                + store.cache_bytes
                + store.table_memory_bytes
                + data.buffers
                + data.span_cache
                + delegate.memory(),
            memory_budget: self.config.memory,
            segments: data.segments,
            reads,
            writes,
            read_bytes,
            written_bytes,
        })
    }

    /// Commits what is pending, stops threads, unlocks the store.
    ///
    /// # Errors
    /// The first failure; everything else is stopped all the same.
    pub fn stop(self) -> Result<()> {
        let mut result = Ok(());
        for delegate in &self.delegates {
            result = result.and(delegate.stop());
        }
        for node in &self.nodes {
            node.tender.stop();
        }
        for node in &self.nodes {
            node.files.close();
        }
        for node in &self.nodes {
            result = result.and(node.data.close());
            result = result.and(node.store.close().map_err(Error::from));
        }
        result
    }

    fn recover(&self) -> Result<()> {
        for node in &self.nodes {
            node.meta.recover()?;
        }
        for node in &self.nodes {
            node.files.recover()?;
        }
        // The delegates of before ended with their process.
        for node in &self.nodes {
            if let Err(e) = node.files.forget_writers() {
                tracing::warn!(member = node.peers.member(), error = %e, "receipts of old commits are not deleted; they cost a little room");
            }
        }
        for node in &self.nodes {
            sort_unsealed(node)?;
        }
        Ok(())
    }
}

impl Drop for Service {
    /// Stops the threads, without committing anything (that is what `stop` does first).
    fn drop(&mut self) {
        for delegate in &self.delegates {
            delegate.stop_finishing();
        }
        for node in &self.nodes {
            node.tender.stop();
            node.files.close();
        }
        for end in &self.fabric {
            end.close();
        }
        self.locks.lock().clear();
    }
}

fn open_node(
    io: Arc<dyn Io>,
    dir: &Path,
    end: Arc<dyn Fabric>,
    config: &Config,
    room: Arc<Room>,
) -> Result<Arc<Node>> {
    let (kv, data) = (dir.join("kv"), dir.join("data"));
    for sub in [&kv, &data] {
        let made = io.create_dir_all(sub);
        made.map_err(|e| {
            Error::Refused(format!(
                "{}: {e}; check the disk and who may write there",
                sub.display()
            ))
        })?;
    }
    sync_segments(&*io, &data)?;
    let store = Arc::new(Store::open(io.clone(), &kv, config.store_options())?);
    let peers = Peers::new(end, config.deadline);
    let member = peers.member();
    Node::new(io, &data, store, peers, config.data_options(member, room))
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
    synced.map_err(|e: std::io::Error| {
        Error::Refused(format!("{}: {e}; check the disk", dir.display()))
    })
}

/// A crash leaves logs with bytes that no commit ever named: keeps what extents name, gives the rest back.
fn sort_unsealed(node: &Node) -> Result<()> {
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
                Err(Error::Storage(e @ forebay_storage::Error::Corrupt { .. })) => {
                    tracing::warn!(log, error = %e, "cannot give back what this unfinished log holds for nobody");
                }
                retained => retained?,
            }
        }
    }
    Ok(())
}

/// The address ranges of this member's logs that extents of the file name, on all slice owners.
fn named_ranges(node: &Node, fid: Fid) -> Result<HashMap<LogId, Vec<Range<u64>>>> {
    let own = node.peers.member();
    let mut named: HashMap<LogId, Vec<Range<u64>>> = HashMap::new();
    for member in 0..node.peers.members() {
        for extent in node.all_extents(member, fid)? {
            if extent.member == own {
                named
                    .entry(extent.log)
                    .or_default()
                    .push(extent.addr..extent.addr + extent.len);
            }
        }
    }
    Ok(named)
}
