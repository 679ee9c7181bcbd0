//! Forebay as a subject: a service of one node, whose mount the files are copied into and read from.
use super::peers::TakenFile;
use super::source::{SourceFiles, each_piece};
use super::status::{self, ServiceFigures};
use crate::cpu;
use crate::fail::{Context, Result};
use crate::subjects::{ServerProcess, forebay_command};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

/// The threads of a server that settle, that free what is stored twice, and that keep the records of both (and of all else).
const BACKGROUND_THREADS: [&str; 4] = [
    "forebay-settle",
    "forebay-clean",
    "store-flush",
    "store-compact",
];

/// Options of a service.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The program `forebay`.
    pub program: PathBuf,
    /// It has the setting `settle`.
    pub has_setting: bool,
}

/// A store, and the service on it.
pub struct SettlingService {
    options: ServiceOptions,
    /// Log bytes are settled.
    settles: bool,
    home: PathBuf,
    /// `None` while it is stopped.
    server: Option<ServerProcess>,
}

impl SettlingService {
    /// Starts a service with a new store in `home`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(options: &ServiceOptions, settles: bool, home: &Path) -> Result<SettlingService> {
        let mut service = SettlingService {
            options: options.clone(),
            settles,
            home: home.to_owned(),
            server: None,
        };
        for dir in [service.store(), service.point()] {
            std::fs::create_dir_all(&dir).doing(dir.display())?;
        }
        service.open()?;
        Ok(service)
    }

    /// Starts the service, if it was stopped.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn open(&mut self) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let mut command = forebay_command(&self.options.program, &self.home)?;
        command.args(["mount", "--foreground", "--nodes", "1"]);
        command.args(["--durability", "disk"]);
        if self.options.has_setting {
            command.args(["--settle", if self.settles { "auto" } else { "off" }]);
        }
        command.stdin(Stdio::null());
        command.arg(self.store()).arg(self.point());
        let points = vec![self.point()];
        self.server = Some(ServerProcess::start(command, &self.home, points)?);
        Ok(())
    }

    /// Stops it; returns its last figures.
    ///
    /// # Errors
    /// If it does not report them.
    pub fn stop(&mut self) -> Result<ServiceFigures> {
        let figures = ServiceFigures::ask(&self.options.program, &self.store());
        self.server = None;
        figures
    }

    /// The directory of its store.
    pub fn store(&self) -> PathBuf {
        self.home.join("store")
    }

    fn point(&self) -> PathBuf {
        self.home.join("mount")
    }

    fn cpu(&self) -> Result<f64> {
        self.server.as_ref().map_or(Ok(0.0), ServerProcess::cpu)
    }

    /// Processor seconds so far of what works on stored files in the background.
    fn dedup_cpu(&self) -> Result<f64> {
        let seconds = |server: &ServerProcess| server.cpu_of_threads(&BACKGROUND_THREADS);
        self.server.as_ref().map_or(Ok(0.0), seconds)
    }

    /// Copies a file into the mount: how long until it is closed, and what it cost until it is settled.
    ///
    /// # Errors
    /// If a write fails, or it is not settled.
    pub fn take(&mut self, source: &SourceFiles, name: &str) -> Result<(f64, TakenFile)> {
        let mut from = source.open(name)?;
        let to = self.point().join(name);
        let (before, dedup_before) = (self.cpu()?, self.dedup_cpu()?);
        let (begin, own) = (Instant::now(), cpu::of_thread());
        let mut copy = || {
            let mut file = File::create(&to)?;
            each_piece(&mut from, |piece| file.write_all(piece))?;
            file.sync_all()
        };
        copy().doing(to.display())?;
        let written = begin.elapsed().as_secs_f64();
        let own = cpu::of_thread() - own;
        status::wait_until_settled(&self.options.program, &self.store(), self.settles)?;
        let taken = TakenFile {
            seconds: begin.elapsed().as_secs_f64(),
            cpu: self.cpu()? - before + own,
            dedup_cpu: self.dedup_cpu()? - dedup_before,
        };
        Ok((written, taken))
    }

    /// Reads a file; how many bytes.
    ///
    /// # Errors
    /// If it cannot be read, or as `take`.
    pub fn read(&self, name: &str, take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<u64> {
        let path = self.point().join(name);
        let mut file = File::open(&path).doing(path.display())?;
        each_piece(&mut file, take).doing(path.display())
    }
}
