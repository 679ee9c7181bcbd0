//! A process that has a file open for writing, and does what it is told; and what a test asks beside it.
use crate::common::{open_to_write, role};
use forebay_testkit::random::seeded_bytes;
use rustix::fs::{StatVfs, statvfs};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The process: opens a file for writing and does what it is told, a line at a time; says what became of it.
pub fn run(path: &Path) {
    let mut file = Some(open_to_write(path));
    println!("\nREADY");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let call = words.next().unwrap();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let done = match (call, &file) {
            ("write", Some(f)) => {
                let (at, len, seed) = (number(), number(), number());
                f.write_all_at(&seeded_bytes(seed, len as usize), at)
            }
            ("fsync", Some(f)) => f.sync_all(),
            ("close", _) => close(file.take().unwrap()),
            ("mtime", Some(f)) => {
                let m = f.metadata().unwrap();
                println!("{} {}", m.mtime(), m.mtime_nsec());
                continue;
            }
            other => panic!("{other:?}"),
        };
        println!(
            "{}",
            done.map_or_else(|e| e.raw_os_error().unwrap(), |()| 0)
        );
    }
}

/// What `close` says.
pub fn close(file: File) -> std::io::Result<()> {
    // SAFETY: the descriptor is the file's own, which does not close it any more.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A process that has a file open for writing.
pub struct WriterProcess {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl WriterProcess {
    /// Which begins by opening this file.
    pub fn start(path: &Path) -> WriterProcess {
        WriterProcess::of(role("writer", &[path.to_str().unwrap()]))
    }

    /// The same, as whoever this command runs it.
    pub fn of(mut command: Command) -> WriterProcess {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line != "READY\n" {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the writer ended");
        }
        WriterProcess { child, said }
    }

    /// Has it make a call; what it says.
    pub fn ask(&mut self, call: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{call}").unwrap();
        let mut answer = String::new();
        self.said.read_line(&mut answer).unwrap();
        answer.trim().to_string()
    }

    /// Has it write bytes of a seed; the number of the error, or 0.
    pub fn write(&mut self, at: usize, len: usize, seed: u64) -> i32 {
        self.number(&format!("write {at} {len} {seed}"))
    }

    /// Has it `fsync` or `close`; the number of the error, or 0.
    pub fn number(&mut self, call: &str) -> i32 {
        self.ask(call).parse().unwrap()
    }
}

impl Drop for WriterProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Bytes that the service has, whatever the disk has besides.
pub fn used(mount: &Path) -> u64 {
    let space = statvfs(mount).unwrap();
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

/// Bytes that a program can still write, as `df` says.
pub fn free(mount: &Path) -> u64 {
    let StatVfs {
        f_bavail, f_frsize, ..
    } = statvfs(mount).unwrap();
    f_bavail * f_frsize
}
