//! The server process: opens the store, mounts, answers the control socket, and stops cleanly.
//!
//! Invariants: mount points are made ready before the first mount starts, and nothing below a mount of this process is
//! touched after that; starting and stopping each end within a limit, with a word about where they hung.
#[cfg(feature = "mpi")]
pub mod launcher;
mod mount_points;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "mpi")]
mod server_paths;

use crate::descriptors;
use crate::events;
use crate::failure::{Context, Failure, Result};
use crate::log::Log;
use crate::members::LocalMembers;
use crate::metrics::Endpoint;
use crate::mount_cleaner;
use crate::mount_table::{self, detach_all};
use crate::processes;
use crate::serving::{self, ServedPrograms, ServerParts};
use crate::settings::Settings;
use crate::spec::{SalvageSpec, ServerReport, ServerSpec};
use crate::watchdog::Watchdog;
use forebay_fuse::{MountOptions, Pending};
use forebay_server::Service;
use forebay_server::salvage::Salvage;
use forebay_storage::{Io, OsIo, PooledIo};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

/// The hidden verb: reads its specification from standard input, reports on standard output, serves in the background.
/// `resolve` makes values of the settings' texts.
///
/// # Errors
/// Never after it is ready: from then on only the log is told.
pub fn background(resolve: impl FnOnce(&BTreeMap<String, String>) -> Result<Settings>) -> Result {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_fail(
        "cannot read the server's specification",
        "start it with `forebay mount`",
    )?;
    let spec: ServerSpec = serde_json::from_str(&text)
        .or_fail("this is an internal command", "use `forebay mount`")?;
    if spec.with_parent {
        follow_parent("the starting process")?;
    }
    // A session of its own: Ctrl-C at the terminal is not for it. Fails only if it leads one already.
    let _ = rustix::process::setsid();
    rustix::thread::set_name(c"forebay").or_fail("cannot name the process", "report this")?;
    // The umask and directory of whoever started it do not matter to a server.
    std::env::set_current_dir("/").or_fail("cannot change to /", "report this")?;
    let report = |report: &ServerReport| -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, report)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    let served = resolve(&spec.settings).and_then(|settings| run(&spec, &settings, false, report));
    served.map_err(|failure| {
        tracing::error!("{failure}");
        let _ = report(&ServerReport::Failed {
            code: failure.code,
            text: failure.text.clone(),
            follows: false,
            for_others: false,
        });
        // Standard error may be the starting terminal; the report has said it.
        Failure {
            text: String::new(),
            ..failure
        }
    })
}

/// Serves until told to stop. `report` hears each step of the start; if it fails, nobody waits and the server stops.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub fn run(
    spec: &ServerSpec,
    settings: &Settings,
    foreground: bool,
    report: impl Fn(&ServerReport) -> std::io::Result<()> + Clone + Send + 'static,
) -> Result {
    descriptors::raise_limit();
    let log = Log::start(settings, foreground);
    let (sender, events) = mpsc::channel();
    events::signals(sender.clone())?;
    let detach = spec.mounts.clone();
    let (store, tell) = (spec.store.clone(), report.clone());
    // Until the store is locked, its mounts are those of another server, and none of our business.
    let opened = Arc::new(AtomicBool::new(false));
    let ours = opened.clone();
    let watchdog = Watchdog::start(settings.start_limit, "start-limit", move |failure, _| {
        let _ = tell(&ServerReport::Failed {
            code: failure.code,
            text: failure.text.clone(),
            follows: false,
            for_others: false,
        });
        if ours.load(Ordering::SeqCst) {
            detach_all(&store, &detach);
        }
    });
    let stage = |text: String| {
        watchdog.step(&text);
        report(&ServerReport::Step(text)).or_fail("the starting process is gone", "start again")
    };

    // A new store has no mounts yet: all that may be refused comes before it is made, for a start that fails should not
    // leave a store behind, of a number of nodes that nobody settled on. Who touches a mount waits until it is.
    let new =
        !forebay_server::superblock::is_in(&forebay_storage::OsIo, &spec.store).unwrap_or(false);
    let options = MountOptions {
        source: mount_table::source(&spec.store),
        allow_other: settings.allow_other,
        read_only: spec.salvage.is_some(),
        ..MountOptions::default()
    };
    let prepare = || {
        stage(String::from("preparing the mount points"))?;
        mount_points::prepare(&spec.store, &spec.mounts)?;
        let address = settings.metrics.as_ref();
        let metrics = address
            .map(|address| Endpoint::open(address, 0))
            .transpose()?;
        if spec.with_parent && !spec.mounts.is_empty() {
            mount_cleaner::start(&spec.store, processes::parent().as_slice())?;
        }
        let mount = |(member, point): (usize, &PathBuf)| {
            stage(format!(
                "mounting node {member} of {} on {}",
                spec.mounts.len(),
                point.display()
            ))?;
            Pending::mount(point, options.clone()).map_err(Failure::plain)
        };
        let pending = spec.mounts.iter().enumerate().map(mount);
        // What is mounted by then is unmounted with the list.
        let pending = pending.collect::<Result<Vec<Pending>>>()?;
        Ok::<_, Failure>((metrics, pending))
    };
    let own_mounts = || {
        opened.store(true, Ordering::SeqCst);
        report(&ServerReport::Opened).or_fail("the starting process is gone", "start again")
    };
    let early = match new {
        true => Some(prepare()?),
        false => None,
    };
    if new {
        own_mounts()?;
    }
    stage(format!("opening the store {}", spec.store.display()))?;
    let kept = descriptors::open_files(spec.mounts.len().max(1), options.thread_count(), false)?;
    let io = Arc::new(PooledIo::new(OsIo, kept));
    let service = open(io, spec, settings, &stage)?;
    own_mounts()?;
    if !foreground {
        log.move_to(&spec.store)?;
    }
    tracing::info!(
        "forebay {} serves {} with {:?}",
        env!("CARGO_PKG_VERSION"),
        spec.store.display(),
        settings.service
    );
    let (metrics, pending) = match early {
        Some(early) => early,
        None => prepare()?,
    };
    let mut mounts = Vec::new();
    for (pending, (_, delegate)) in pending.into_iter().zip(service.delegates()) {
        match pending.answer(delegate).map_err(Failure::plain) {
            Ok(mount) => mounts.push(mount),
            Err(failure) => {
                detach_all(&spec.store, &spec.mounts);
                return Err(failure);
            }
        }
    }
    let parts = ServerParts {
        store: spec.store.clone(),
        settings: spec.settings.clone(),
        points: spec.mount_status(),
        mounts,
        service,
        peer_rpc: None,
        metrics,
        programs: spec.with_parent.then(|| ServedPrograms {
            starter: processes::parent(),
            early: Box::new(|_, _| {}),
        }),
    };
    serving::until_stopped(parts, settings, (sender, events), || {
        drop(watchdog);
        let heard = report(&ServerReport::Ready).is_ok();
        if !foreground {
            release_streams()?;
        }
        Ok(heard)
    })
}

/// Opens what the specification names.
fn open(
    io: Arc<dyn Io>,
    spec: &ServerSpec,
    settings: &Settings,
    stage: &dyn Fn(String) -> Result,
) -> Result<Box<dyn LocalMembers>> {
    let Some(salvage) = &spec.salvage else {
        let service = Service::start(io, &spec.store, settings.service.clone());
        return Ok(Box::new(service.map_err(|e| opening(&spec.store, &e))?));
    };
    let mut unheard = Ok(());
    let mut progress = |step: &'static str| {
        if let Err(failure) = stage(format!("salvaging {}: {step}", spec.store.display())) {
            unheard = Err(failure);
        }
    };
    let service = Salvage::start(
        io,
        &salvage.stores,
        &salvage.scratch,
        &settings.service,
        &mut progress,
    );
    let service = service.map_err(|e| opening(&spec.store, &e))?;
    unheard?;
    let list = SalvageSpec::list(&spec.store);
    std::fs::write(&list, service.losses().text()).or_fail(
        format!("cannot write {}", list.display()),
        "check the disk and who may write there",
    )?;
    Ok(Box::new(service))
}

/// This process stops when the one that started it ends.
///
/// The signal is a hang-up: the kernel may send it once for each thread of a parent that is killed, and a second one of
/// another kind would cut the stop short.
fn follow_parent(who: &str) -> Result {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::HUP))
        .or_fail(format!("cannot follow {who}"), "report this")
}

/// The message for a store that cannot be opened.
fn opening(store: &Path, error: &forebay_server::Error) -> Failure {
    let shown = store.display();
    let text = format!("cannot open the store {shown}: {error}");
    // Records of the store say so themselves.
    let next = "; `forebay fsck --repair` keeps what is whole, `forebay mount --salvage` reads it";
    match matches!(error, forebay_server::Error::Corrupt(_)) {
        true => Failure::plain(text + next),
        false => Failure::plain(text),
    }
}

/// Lets go of the streams of the starting process; standard error goes to the log by now.
fn release_streams() -> Result {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .or_fail("cannot open /dev/null", "report this")?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .or_fail(
            "cannot release the starting terminal",
            "raise the limit on open files",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_opened_because_of_damage_says_what_there_is_to_do() {
        let error = forebay_server::Error::Corrupt("the counter is damaged".into());
        let failure = opening(Path::new("/s"), &error);
        for part in [
            "/s: the counter",
            "forebay fsck --repair",
            "forebay mount --salvage",
        ] {
            assert!(failure.text.contains(part), "{failure}");
        }
    }
}
