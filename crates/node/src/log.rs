//! The destination of a server's log: standard error in the foreground; else `STORE/log`, and memory until that is known to be
//! its own.
//!
//! Nothing may be written into a directory before the server holds the store's lock, so the first lines wait in memory.
use crate::failure::{Context, Result};
use crate::settings::Settings;
use forebay_server::escape::escaped;
use parking_lot::Mutex;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tracing_subscriber::prelude::*;

/// A log longer than this is moved to `log.old` when the server starts.
const MAX_LOG_BYTES: u64 = 8 << 20;

enum LogTarget {
    Memory(Vec<u8>),
    Stderr,
    File(File),
}

/// The process's log.
#[derive(Clone)]
pub struct Log(Arc<Mutex<LogTarget>>);

impl Log {
    /// Starts logging; to standard error, or for now to memory.
    pub fn start(settings: &Settings, foreground: bool) -> Log {
        let log = Log(Arc::new(Mutex::new(if foreground {
            LogTarget::Stderr
        } else {
            LogTarget::Memory(Vec::new())
        })));
        let writer = log.clone();
        let filter: tracing_subscriber::filter::Targets = settings.log.parse().unwrap_or_default();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_target(true)
            .with_writer(move || writer.clone());
        // A second subscriber in one process is not set; the first one's place stays.
        let _ = tracing_subscriber::registry()
            .with(layer.with_filter(filter))
            .try_init();
        log
    }

    /// Moves the lines in memory to `STORE/log`, and redirects standard error there. Does nothing if the log is elsewhere.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn move_to(&self, store: &Path) -> Result {
        let mut target = self.0.lock();
        let LogTarget::Memory(held) = &*target else {
            return Ok(());
        };
        let path = store.join("log");
        let next = "check the permissions of the store's directory";
        if std::fs::metadata(&path).is_ok_and(|m| m.len() > MAX_LOG_BYTES) {
            std::fs::rename(&path, store.join("log.old"))
                .or_fail(format!("cannot move {}", path.display()), next)?;
        }
        let mut file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .or_fail(format!("cannot open the log {}", path.display()), next)?;
        // A panic's words go to the log as well.
        rustix::stdio::dup2_stderr(&file).or_fail(
            "cannot redirect standard error",
            "raise the limit on open files",
        )?;
        file.write_all(held).or_fail(
            format!("cannot write the log {}", path.display()),
            "free space on the disk",
        )?;
        *target = LogTarget::File(file);
        Ok(())
    }
}

impl Write for Log {
    /// One event, which is one line: names in it could otherwise fake lines, or move the terminal that shows them.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = format!("{}\n", escaped(text.strip_suffix('\n').unwrap_or(&text)));
        match &mut *self.0.lock() {
            LogTarget::Memory(held) => held.write_all(line.as_bytes()),
            LogTarget::Stderr => std::io::stderr().write_all(line.as_bytes()),
            LogTarget::File(file) => file.write_all(line.as_bytes()),
        }?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
