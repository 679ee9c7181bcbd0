//! The calls that fail, by their number from the first.
use std::io::{self, ErrorKind};

/// See the head of this file.
#[derive(Default)]
pub struct CallFaults {
    /// Number of calls so far.
    pub calls: u64,
    fail: Option<(u64, ErrorKind)>,
    stop: Option<u64>,
    /// The name of the one that failed as asked for.
    pub failed_call: Option<&'static str>,
}

impl CallFaults {
    pub fn stop(&mut self) {
        self.stop = Some(self.calls);
    }

    pub fn fail_after(&mut self, n: u64, kind: ErrorKind) {
        self.fail = Some((self.calls + n, kind));
        self.failed_call = None;
    }

    pub fn stop_after(&mut self, n: u64) {
        self.stop = Some(self.calls + n);
        self.failed_call = None;
    }

    /// Counts a call of that name; the error that it shall fail with, if any.
    pub fn call(&mut self, name: &'static str) -> io::Result<()> {
        self.calls += 1;
        if self.stop.is_some_and(|at| self.calls >= at) {
            self.failed_call = Some(name);
            return Err(io::Error::other("the process was stopped here"));
        }
        if let Some((at, kind)) = self.fail
            && self.calls == at
        {
            self.fail = None;
            self.failed_call = Some(name);
            return Err(kind.into());
        }
        Ok(())
    }

    /// Whether the process was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|at| self.calls >= at)
    }

    /// Whether it was, and not by this call.
    pub fn was_stopped_before(&self) -> bool {
        self.stop.is_some_and(|at| self.calls != at)
    }
}
