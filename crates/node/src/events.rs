//! What a running server waits for: signals, a stop request, and its mounts being unmounted by others.
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
pub enum Event {
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// Over the control socket; the answer goes back through the channel.
    Stop {
        /// Also if files are open.
        force: bool,
        /// The process that asks.
        asker: u32,
        /// Takes the answer.
        reply: SyncSender<ControlReply>,
    },
    /// Somebody has unmounted every mount.
    Unmounted,
    /// The other members have declared this process dead, and act without it.
    Expelled(String),
    /// Another process wants it.
    Told {
        /// For this reason.
        why: String,
        /// The programs that the service was there for have ended.
        over: bool,
    },
}

/// Gives signals as events to `send`; the second one ends the process at once.
///
/// # Errors
/// If signals cannot be caught.
pub fn signals(send: impl Fn(Event) + Send + 'static) -> Result {
    let mut stops = false;
    threads::on_signals(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        if std::mem::replace(&mut stops, true) && signal != SIGHUP {
            tracing::error!(
                "stopped at once by a second signal; recovery follows at the next start"
            );
            std::process::exit(i32::from(crate::failure::FAILED));
        }
        send(Event::Signal(signal));
    })
}

/// The list of mounts is read again after this long though no change was told, for one missed in between.
const MOUNTS_RECHECK: Duration = Duration::from_secs(30);

/// Sends an event once none of `points` is mounted from `store` any more.
///
/// # Errors
/// If the kernel's list of mounts cannot be watched.
pub fn unmounts(store: PathBuf, points: Vec<PathBuf>, events: Sender<Event>) -> Result {
    let changes = MountChanges::watch()?;
    let watch = move || loop {
        wait_for_any(&[], &[changes.ready()], MOUNTS_RECHECK);
        let ours = |m: &mount_table::MountEntry| {
            mount_table::store(m).as_ref() == Some(&store) && points.contains(&m.point)
        };
        match mount_table::all() {
            Ok(mounts) if !mounts.iter().any(ours) => {
                let _ = events.send(Event::Unmounted);
                return;
            }
            _ => {}
        }
    };
    threads::spawn("mount watch", "the thread that watches mounts", watch)
}
