//! The events that a running server waits for: signals, a stop request, and its mounts being unmounted by others.
use crate::control::ControlReply;
use crate::failure::Result;
use crate::mount_table::{self, MountChanges};
use crate::process_handle::wait_for_any;
use crate::threads;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, SyncSender};
use std::time::Duration;

/// One of them.
pub enum ServerEvent {
    /// There is a reason to stop.
    Stop(StopCause),
    /// A stop is asked for over the control socket; the answer goes back through the channel.
    StopRequest {
        /// Also if files are open.
        force: bool,
        /// The process that asks.
        asker: u32,
        /// Takes the answer.
        reply: SyncSender<ControlReply>,
    },
}

/// Why a server stops.
pub struct StopCause {
    /// For people.
    pub why: String,
    /// The programs that the service was there for have ended.
    pub over: bool,
    /// The other members have declared this process dead, and act without it.
    pub expelled: bool,
    /// Whom to tell when it has.
    pub reply: Option<SyncSender<ControlReply>>,
}

impl StopCause {
    /// For this reason.
    pub fn for_reason(why: impl Into<String>) -> StopCause {
        StopCause {
            why: why.into(),
            over: false,
            expelled: false,
            reply: None,
        }
    }
}

/// Gives signals as events to `send`; the second one ends the process at once.
///
/// # Errors
/// If signals cannot be caught.
pub fn signals(send: impl Fn(ServerEvent) + Send + 'static) -> Result {
    let mut stops = false;
    threads::on_signals(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        if std::mem::replace(&mut stops, true) && signal != SIGHUP {
            tracing::error!(
                "stopped at once by a second signal; recovery follows at the next start"
            );
            std::process::exit(i32::from(crate::failure::FAILED));
        }
        send(ServerEvent::Stop(StopCause::for_reason(format!(
            "signal {signal}"
        ))));
    })
}

/// The list of mounts is read again after this long though no change was told, for one missed in between.
const MOUNTS_RECHECK: Duration = Duration::from_secs(30);

/// Sends an event once none of `points` is mounted from `store` any more.
///
/// # Errors
/// If the kernel's list of mounts cannot be watched.
pub fn unmounts(store: PathBuf, points: Vec<PathBuf>, events: Sender<ServerEvent>) -> Result {
    let changes = MountChanges::watch()?;
    let watch = move || loop {
        wait_for_any(&[], &[changes.ready()], MOUNTS_RECHECK);
        match mount_table::of_store(&store) {
            Ok(mounts) if !mounts.iter().any(|m| points.contains(&m.point)) => {
                let cause = StopCause::for_reason("every mount was unmounted");
                let _ = events.send(ServerEvent::Stop(cause));
                return;
            }
            _ => {}
        }
    };
    threads::spawn("mount watch", "the thread that watches mounts", watch)
}
