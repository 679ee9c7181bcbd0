//! Runs the handler of a request so that its failure or panic costs this one request, not the mount.
use forebay_server::{Error, Fid, Result};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The inode of the directory of teams, which is no file of the service: nothing in it can be changed. It is numbered as of a
/// member that no service has.
pub(crate) const TEAM_DIRECTORY: Fid = Fid(u64::MAX - 1);

/// Runs a handler. A failure of the service itself is logged, because `EIO` says too little; a panic costs this one
/// request, not the mount.
pub(crate) fn attempt<T>(
    operation: &'static str,
    fid: Fid,
    handler: impl FnOnce() -> Result<T>,
) -> Result<T, Errno> {
    if fid == TEAM_DIRECTORY {
        return Err(match operation.ends_with("xattr") {
            true => Errno::OPNOTSUPP,
            false => Errno::PERM,
        });
    }
    match catch_unwind(AssertUnwindSafe(handler)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Error::Posix(e))) => Err(e),
        Ok(Err(e)) => {
            tracing::error!(operation, inode = fid.0, error = %e, "a request failed");
            Err(e.errno())
        }
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            tracing::error!(
                operation,
                inode = fid.0,
                panic = what,
                "a request met a bug in Forebay: please report it"
            );
            Err(Errno::IO)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_failed_request() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let answer = attempt("test", Fid(1), || -> Result<()> { panic!("boom") });
        std::panic::set_hook(hook);
        assert_eq!(answer.unwrap_err(), Errno::IO);
    }

    #[test]
    fn outcomes_keep_their_number() {
        let answer = attempt("test", Fid(1), || -> Result<()> {
            Err(Errno::NOTEMPTY.into())
        });
        assert_eq!(answer.unwrap_err(), Errno::NOTEMPTY);
        let answer = attempt("test", Fid(1), || -> Result<()> {
            Err(Error::Corrupt("x".into()))
        });
        assert_eq!(answer.unwrap_err(), Errno::IO);
    }
}
