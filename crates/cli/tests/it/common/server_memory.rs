//! Memory of a running server as the kernel counts it.
//!
//! What a budget can promise is **anonymous** memory: the heap, stacks and buffers the server asked for. Pages of files (the
//! program's own text, which the kernel drops and reads again as it likes) are not counted. The kernel keeps the highest
//! total (`VmHWM`) but no highest anonymous part, so the peak here is `VmHWM` less the file pages that were there from the
//! start: never less than the true anonymous peak, and more by what was paged in of the program since.
use std::fmt;

/// One look; bytes.
#[derive(Clone, Copy, Debug)]
pub struct ServerMemory {
    /// Heap, stacks, buffers now (`RssAnon`).
    pub anonymous: u64,
    /// Pages of files and shared memory now (`RssFile` + `RssShmem`).
    pub files: u64,
    /// Highest total ever (`VmHWM`).
    pub high: u64,
}

impl ServerMemory {
    /// Of a process that lives.
    #[track_caller]
    pub fn of(pid: u32) -> ServerMemory {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            line.split_whitespace()
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap()
                << 10
        };
        ServerMemory {
            anonymous: field("RssAnon:"),
            files: field("RssFile:") + field("RssShmem:"),
            high: field("VmHWM:"),
        }
    }

    /// The most anonymous memory there can have been since `start` was taken.
    pub fn peak_since(&self, start: &ServerMemory) -> u64 {
        self.high - start.files
    }
}

/// A size for people.
pub struct Mib(pub u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MiB", self.0 as f64 / f64::from(1 << 20))
    }
}
