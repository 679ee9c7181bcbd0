//! Limits on how much of a trace is read: a crafted file, or one that never ends, must not take the machine's memory.

use crate::{Error, Result};
use std::path::Path;

/// Most calls, which take some 8 GiB.
const MOST_CALLS: usize = 1 << 27;
/// Most ranks, and most files, of a trace with fewer calls than that: tables of them are as long as the highest number.
const MOST_NUMBERED: usize = 1 << 20;

/// Whether `more` calls may follow on `calls`.
///
/// # Errors
/// `Limit`.
pub(crate) fn more_calls(calls: usize, more: usize, path: &Path) -> Result<()> {
    match calls.saturating_add(more) <= MOST_CALLS {
        true => Ok(()),
        false => Err(Error::limit(path, "it has more than 134,217,728 calls")),
    }
}

/// Whether a trace of `calls` calls may have so many ranks or files.
///
/// # Errors
/// `Limit`.
pub(crate) fn numbered(what: &str, count: u32, calls: usize, path: &Path) -> Result<()> {
    match count as usize <= MOST_NUMBERED.max(calls) {
        true => Ok(()),
        false => {
            let what = format!(
                "numbers of {what} reach {}: a trace has at most 1,048,576, or as many as calls",
                count - 1
            );
            Err(Error::limit(path, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_memory_holds_is_refused_with_the_limit() {
        let path = Path::new("t");
        assert!(more_calls(MOST_CALLS - 1, 1, path).is_ok());
        let error = more_calls(MOST_CALLS, 1, path).unwrap_err().to_string();
        assert!(error.contains("t: it has more than 134,217,728"), "{error}");
        assert_eq!(MOST_CALLS, 134_217_728);
        assert!(numbered("files", 1 << 20, 0, path).is_ok());
        assert!(numbered("files", 1 << 21, 1 << 21, path).is_ok());
        let error = numbered("files", u32::MAX, 7, path).unwrap_err();
        assert!(error.to_string().contains("4294967294"), "{error}");
    }
}
