//! Whether a lock request is of `flock`.
//!
//! `fuser` 0.18 decodes lock requests without their flags, and the kernel puts `flock` as a record lock on the whole file
//! with a flag. So the flag is read from the request itself, which lies behind the header that `fuser` hands out.
//!
//! ```text
//! 0      4        8        16       24    28    32    36        40
//! | len 4 | opcode 4 | unique 8 | nodeid 8 | uid 4 | gid 4 | pid 4 | padding 4 |      header
//! 40     48      56       64     72     76    80        84        88
//! | fh 8 | owner 8 | start 8 | last 8 | type 4 | pid 4 | lk_flags 4 | padding 4 |      lock
//! ```
use crate::filesystem::Asked;
use fuser::Request;
use std::mem::size_of;
use std::sync::Once;

const HEADER: usize = 40;
const WHOLE: usize = 88;
/// Opcodes of the kernel's `SETLK` and `SETLKW`.
const SETLK: u32 = 32;
const SETLKW: u32 = 33;
/// In `lk_flags`.
const FLOCK: u32 = 1;

/// See the head of this file. A request that does not look as expected counts as a record lock, which excludes as much; it
/// is said in the log.
pub(crate) fn is_flock(req: &Request, asked: &Asked) -> bool {
    let flags = flags(req, asked);
    if flags.is_none() {
        static SAY: Once = Once::new();
        SAY.call_once(|| {
            tracing::warn!(
                "lock requests of this kernel look unknown; flock counts as a record lock"
            );
        });
    }
    flags.is_some_and(|flags| flags & FLOCK != 0)
}

fn flags(req: &Request, asked: &Asked) -> Option<u32> {
    if size_of::<Request>() != HEADER {
        return None;
    }
    let at = std::ptr::from_ref(req).cast::<u8>();
    // SAFETY: the header is as long as the reference says.
    let header = unsafe { std::slice::from_raw_parts(at, HEADER) };
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(word))
    };
    let long = |bytes: &[u8], at: usize| {
        let long = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_ne_bytes(long))
    };
    let known = word(header, 0)? as usize == WHOLE
        && matches!(word(header, 4)?, SETLK | SETLKW)
        && long(header, 8)? == u64::from(req.unique());
    if !known {
        return None;
    }
    // SAFETY: `fuser` refers to the header inside the buffer that it has read the request into, which is much longer than
    // this and lives, unchanged, until the handler returns; the kernel wrote as many bytes as the header says (`WHOLE`).
    let all = unsafe { std::slice::from_raw_parts(at, WHOLE) };
    // It is what `fuser` has decoded, or it is not the request.
    let same = long(all, 40)? == asked.fh.0
        && long(all, 48)? == asked.owner
        && long(all, 56)? == asked.start
        && long(all, 64)? == asked.last
        && word(all, 72)? == asked.typ as u32
        && word(all, 76)? == asked.pid;
    if same { word(all, 80) } else { None }
}
