//! `forebay demo`, in four parts:
//! 1. A parallel job writes a checkpoint into one shared file on several nodes. The service is killed, its store is checked, it is
//!    restarted, and the job reads everything back through other nodes.
//! 2. A second checkpoint that shares 80 % with the first is written, deduplicated and read.
//! 3. The steps of the first part are repeated on the plain disk.
//! 4. The same kind of checkpoint is written and read on servers that are processes of an MPI job, if there is an MPI (`over_mpi`).
//!
//! Invariant: whatever happens, Ctrl-C included, no process, mount or file of the demo stays behind.
mod content;
pub mod layout;
pub mod over_mpi;
mod phase;
mod report;
mod sandbox;
pub mod worker;

use crate::args::DemoArgs;
use crate::config_file;
use crate::progress;
use crate::settings::{ResolvedSettings, Settings};
use crate::subcommands::fsck;
use forebay_node::control::MemberEntry;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::mount_table;
use forebay_node::processes::memory;
use forebay_server::fsck::ByteCheck;
use forebay_server::{Config, IndexStats};
use forebay_storage::OsIo;
use phase::Phase;
use report::{Report, SecondCheckpoint, Speed};
use sandbox::Sandbox;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many processes write, and how many read the first time.
const WRITERS: u64 = 16;
/// How many read the second time: a job restarted on fewer processes.
const FEWER_READERS: u64 = 6;

/// Runs the subcommand.
///
/// # Errors
/// Wrong settings (2); any wrong byte, failed call or problem in the store (1).
pub fn run(args: &DemoArgs, config: Option<&Path>) -> Result {
    let settings = settings(args, config)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone())
            .or_fail("cannot catch signals", "report this")?;
    }
    let parent = args
        .dir
        .clone()
        .unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let mut sandbox = Sandbox::new(&parent, args.size, &settings)?;
    let measured = Demo {
        size: args.size,
        settings: &settings.values,
        seed: seed(),
        interrupted: &interrupted,
    }
    .run(&mut sandbox);
    // Cleaning up comes first, whatever was measured; the first failure is the one to tell.
    let cleaned = sandbox.stop(settings.values.stop_limit);
    drop(sandbox);
    let report = measured?;
    cleaned?;
    let report = Report {
        over_mpi: over_mpi::show(&parent, args.size, &settings, &interrupted)?,
        ..report
    };
    report.print(args.json)
}

/// The settings; four nodes and deduplication unless the command line says otherwise.
fn settings(args: &DemoArgs, config: Option<&Path>) -> Result<ResolvedSettings> {
    let mut given = args.settings.clone();
    given.or_insert("nodes", "4");
    given.or_insert("settle", "auto");
    let settings = config_file::resolve(config, &given)?;
    if settings.values.service.nodes < 2 {
        return Err(Failure::usage(
            "the demo reads through other nodes than those that wrote",
            "give it --nodes 2 or more",
        ));
    }
    if args.size == 0 {
        return Err(Failure::usage(
            "--size 0 leaves nothing to write",
            "give it a size such as 16MiB",
        ));
    }
    mount_table::need_fuse()?;
    Ok(settings)
}

/// A new content every time, so that nothing left over from another run can pass for it.
fn seed() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32)
}

fn interrupted() -> Failure {
    Failure::new("interrupted", "everything the demo made is removed")
}

struct Demo<'a> {
    size: u64,
    settings: &'a Settings,
    seed: u64,
    interrupted: &'a AtomicBool,
}

impl Demo<'_> {
    fn run(&self, sandbox: &mut Sandbox) -> Result<Report> {
        sandbox.start()?;
        let nodes = self.settings.service.nodes;
        let write = |sandbox: &Sandbox, label, checkpoint| {
            let path =
                |s: &Sandbox, rank: u64| s.shared((rank % u64::from(nodes)) as usize, checkpoint);
            self.phase(sandbox, label, true, WRITERS, checkpoint, &path)
        };
        let read = |sandbox: &Sandbox, label, readers, checkpoint| {
            let path = |s: &Sandbox, rank: u64| s.shared(reader(rank, readers, nodes), checkpoint);
            self.phase(sandbox, label, false, readers, checkpoint, &path)
        };
        let (write_first, _) = write(sandbox, "forebay: write", 0)?;
        let (members, before) = self.state(sandbox)?;

        sandbox.kill();
        let found = fsck::check(&[sandbox.store().to_path_buf()], ByteCheck::Bytes)?;
        fsck::fail_on_problems(&found, sandbox.store())?;
        let begun = Instant::now();
        sandbox.start()?;
        let restart = begun.elapsed();
        let (read_same, verified_same) = read(sandbox, "forebay: read, 16", WRITERS, 0)?;
        let (read_fewer, verified_fewer) = read(sandbox, "forebay: read, 6", FEWER_READERS, 0)?;
        let (_, after) = self.state(sandbox)?;

        sandbox.stop(self.settings.stop_limit)?;
        let index = write_index(sandbox.store(), &self.settings.service)?;
        let mut verified = verified_same + verified_fewer;
        let mut second = None;
        if self.settings.service.settle.enabled {
            sandbox.start()?;
            let (write_second, _) = write(sandbox, "forebay: second checkpoint", 1)?;
            let (settle, held) = self.settled(sandbox)?;
            let (_, bytes) = read(sandbox, "forebay: read it", WRITERS, 1)?;
            verified += bytes;
            second = Some(SecondCheckpoint {
                write: write_second,
                settle,
                data_bytes: held.data_bytes,
                stored_bytes: held.stored_bytes,
            });
            sandbox.stop(self.settings.stop_limit)?;
        }
        let plain = |s: &Sandbox, _rank: u64| s.plain();
        let plain_phase = |label, write, ranks| self.phase(sandbox, label, write, ranks, 0, &plain);
        let (plain_write, _) = plain_phase("plain disk: write", true, WRITERS)?;
        let (plain_same, _) = plain_phase("plain disk: read, 16", false, WRITERS)?;
        let (plain_fewer, _) = plain_phase("plain disk: read, 6", false, FEWER_READERS)?;
        Ok(Report {
            size: self.size,
            nodes,
            cold: sandbox::cold_cache().is_ok(),
            speeds: vec![
                Speed::new("write", WRITERS, write_first, plain_write),
                Speed::new("read", WRITERS, read_same, plain_same),
                Speed::new("read", FEWER_READERS, read_fewer, plain_fewer),
            ],
            members,
            index,
            server_peak_bytes: before.max(after),
            restart,
            verified,
            second,
            over_mpi: None,
        })
    }

    /// One phase, from a cold page cache where that is allowed.
    fn phase(
        &self,
        sandbox: &Sandbox,
        label: &str,
        write: bool,
        ranks: u64,
        checkpoint: u64,
        path: &dyn Fn(&Sandbox, u64) -> PathBuf,
    ) -> Result<(Duration, u64)> {
        // Not being root is told in the report, not an error.
        let _ = sandbox::cold_cache();
        let path = |rank| path(sandbox, rank);
        Phase {
            label,
            write,
            ranks,
            path: &path,
            size: self.size,
            seed: self.seed,
            checkpoint,
            interrupted: self.interrupted,
        }
        .run()
    }

    /// Waits until nothing waits to be deduplicated: how long that took, and the members' totals then.
    fn settled(&self, sandbox: &Sandbox) -> Result<(Duration, forebay_server::MemberStatus)> {
        let begun = Instant::now();
        let mut bar = None;
        let (mut last, mut since) = (u64::MAX, Instant::now());
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            let answer = sandbox
                .server()?
                .client()?
                .status(Duration::from_secs(30))?;
            let total = MemberEntry::total(&answer.members).figures;
            let waits = total.settle_backlog_bytes;
            if waits == 0 {
                return Ok((begun.elapsed(), total));
            }
            let bar = bar.get_or_insert_with(|| progress::bytes("forebay: deduplicate", waits));
            bar.set_position(bar.length().unwrap_or(waits).saturating_sub(waits));
            if waits != last {
                (last, since) = (waits, Instant::now());
            }
            if since.elapsed() > Duration::from_secs(60) {
                return Err(Failure::new(
                    format!("{waits} bytes wait to be deduplicated, and nothing moves"),
                    "see the service's log",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The members' totals, and the most memory the server has used.
    fn state(&self, sandbox: &Sandbox) -> Result<(forebay_server::MemberStatus, u64)> {
        let server = sandbox.server()?;
        let begun = Instant::now();
        loop {
            let answer = server.client()?.status(Duration::from_secs(30))?;
            let total = MemberEntry::total(&answer.members).figures;
            // Counts from before the question may miss what was written last.
            let counted = total.counted_seconds_ago <= begun.elapsed().as_secs_f64();
            if total.extents.is_some() && counted {
                let peak = memory(server.pid()).map_or(0, |m| m.peak);
                return Ok((total, peak));
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(Failure::new(
                    "the service does not count its extents",
                    "see its log",
                ));
            }
            // A service answers questions only: it cannot tell when its count is done.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The node through which reader `rank` of `readers` reads: one that wrote none of its records, if there is one.
fn reader(rank: u64, readers: u64, nodes: u16) -> usize {
    let nodes = u64::from(nodes);
    let wrote =
        |node: u64| (0..WRITERS).any(|nth| (rank + nth * readers) % WRITERS % nodes == node);
    let others = (1..nodes).map(|step| (rank + step) % nodes);
    others
        .clone()
        .find(|node| !wrote(*node))
        .unwrap_or((rank + 1) % nodes) as usize
}

/// Brings the index of the stopped service to table files, as a running one does once its memory for it is full.
fn write_index(store: &Path, config: &Config) -> Result<IndexStats> {
    let stores = [store.to_path_buf()];
    let written = forebay_server::index_files::write(Arc::new(OsIo), &stores, config);
    written.map_err(|e| {
        Failure::plain(format!(
            "cannot write the index of {}: {e}",
            store.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_use_nodes_that_wrote_none_of_their_records() {
        for readers in [WRITERS, FEWER_READERS] {
            for rank in 0..readers {
                let node = reader(rank, readers, 4) as u64;
                for record in (rank..1000).step_by(readers as usize) {
                    assert_ne!(
                        record % WRITERS % 4,
                        node,
                        "record {record} of reader {rank} of {readers}"
                    );
                }
            }
        }
    }
}
