//! Views of files: what an owner says of a file's attributes and generation.
//!
//! Invariant: a view only moves a file forward (`FileState::observe`); answers may overtake each other.
use super::open_file::OpenFile;
use crate::{Attr, Fid, Kind, Node, Result};
use forebay_proto::files::GetView;
use forebay_proto::meta;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many tries to get a newer view follow each other at once.
const VIEW_TRIES_AT_ONCE: u32 = 20;
/// And so many more after short pauses.
const VIEW_TRIES_SOON: u32 = 80;

/// Asks owners for views.
pub(super) struct OwnerViews {
    pub node: Arc<Node>,
}

impl OwnerViews {
    /// Asks for a newer view than of generation `seen`. If the owner has none, waits a little for one that another call of this
    /// node gets. `EIO` once an operation has done so for the deadline of requests.
    pub fn retry_view(&self, file: &OpenFile, seen: u64, retry: &mut ViewRetry) -> Result<()> {
        let deadline = self.node.peers.deadline();
        let until = *retry.until.get_or_insert_with(|| Instant::now() + deadline);
        if Instant::now() >= until {
            tracing::error!(
                fid = file.fid.0,
                "a commit of this file stays half published; is a member dead?"
            );
            return Err(Errno::IO.into());
        }
        self.refresh(file)?;
        let pause = retry.pause();
        let newer = file.wait_newer(seen, until.min(Instant::now() + pause));
        if !newer && pause.is_zero() {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Fetches the owner's view of the file.
    pub fn refresh(&self, file: &OpenFile) -> Result<()> {
        let owner = file.fid.owner();
        let attr = self.node.peers.call(owner, GetView { fid: file.fid })?;
        file.state.lock().observe(&attr);
        Ok(())
    }

    /// The owner's attributes, without what is pending here.
    pub fn ask_attr(&self, fid: Fid) -> Result<Attr> {
        let request = meta::GetAttr { fid };
        self.node.peers.call(fid.owner(), request)
    }

    /// The owner's attributes of a regular file; `EISDIR`, `EINVAL` for anything else.
    pub fn ask_file(&self, fid: Fid) -> Result<Attr> {
        let attr = self.ask_attr(fid)?;
        match attr.kind {
            Kind::File => Ok(attr),
            Kind::Dir => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }
}

/// The tries of one operation to get a newer view. They follow each other ever more slowly, until the deadline of requests.
#[derive(Default)]
pub(super) struct ViewRetry {
    until: Option<Instant>,
    tries: u32,
}

impl ViewRetry {
    /// The pause after the next try.
    fn pause(&mut self) -> Duration {
        self.tries += 1;
        match self.tries.saturating_sub(VIEW_TRIES_AT_ONCE) {
            0 => Duration::ZERO,
            1..=VIEW_TRIES_SOON => Duration::from_micros(200),
            _ => Duration::from_millis(4),
        }
    }
}
