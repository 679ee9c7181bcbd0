//! What verbs say on standard output.
//!
//! Invariant: who reads it may stop at any time, as `head` does; that is no failure.
use crate::fail::{Context, Result};
use std::io::{ErrorKind, Write};

/// Writes it all.
///
/// # Errors
/// If it cannot be written, but for a reader that has seen enough.
pub fn print(text: impl AsRef<[u8]>) -> Result {
    let mut out = std::io::stdout();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.or_fail("cannot write to standard output", "look at where it leads"),
    }
}
