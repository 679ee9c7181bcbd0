//! The paths of directories, as this node last saw them: for patterns that choose codec hints by paths, and for series of files. Without
//! either nothing is kept.
//!
//! A directory is known from the lookups of programs: nobody makes a file in one that was not looked up before. What is not known any
//! more is looked for in its parent. Another node may rename a directory meanwhile: that is seen at the next lookup of its new name.
use super::context::DelegateContext;
use crate::{Fid, Result};
use forebay_proto::meta;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// Directories remembered; some 10 MiB.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// Longest path, in names.
const MAX_DEPTH: usize = 512;
/// Names asked for at once.
const NAMES_PER_REQUEST: u32 = 4096;

/// Of each known directory its parent, and its name there.
type KnownPlaces = LruCache<Fid, (Fid, Vec<u8>)>;

/// See the head of this file.
pub(super) struct DirectoryPaths {
    /// `None`: nothing is kept.
    places: Option<Mutex<KnownPlaces>>,
}

impl DirectoryPaths {
    /// Knows nothing yet. `kept`: paths will be asked for.
    pub fn new(kept: bool) -> DirectoryPaths {
        DirectoryPaths {
            places: kept.then(|| Mutex::new(LruCache::new(MAX_KNOWN))),
        }
    }

    /// The directory has this name.
    pub fn note(&self, fid: Fid, parent: Fid, name: &[u8]) {
        if let Some(places) = &self.places {
            places.lock().put(fid, (parent, name.to_vec()));
        }
    }

    /// These may have other names now.
    pub fn forget(&self, fids: &[Fid]) {
        if let Some(places) = &self.places {
            let mut places = places.lock();
            for fid in fids {
                places.pop(fid);
            }
        }
    }

    fn place(&self, ctx: &DelegateContext, fid: Fid) -> Result<Option<(Fid, Vec<u8>)>> {
        let known = self.places.as_ref();
        if let Some(place) = known.and_then(|places| places.lock().get(&fid).cloned()) {
            return Ok(Some(place));
        }
        let parent = ctx.call(fid.owner(), meta::GetParent { fid })?;
        let mut after = None;
        loop {
            let request = meta::ReadDir {
                fid: parent,
                after,
                limit: NAMES_PER_REQUEST,
            };
            let entries = ctx.call(parent.owner(), request)?;
            if let Some(entry) = entries.iter().find(|entry| entry.fid == fid) {
                self.note(fid, parent, &entry.name);
                return Ok(Some((parent, entry.name.clone())));
            }
            // It was renamed or removed meanwhile.
            let Some(last) = entries.into_iter().next_back() else {
                return Ok(None);
            };
            after = Some(last.name);
        }
    }

    /// The path of a directory as far as that is known without asking: the directory where it begins, and the names below that.
    pub fn known_path(&self, fid: Fid) -> (Fid, Vec<Vec<u8>>) {
        let (mut names, mut at) = (Vec::new(), fid);
        if let Some(places) = &self.places {
            let mut places = places.lock();
            while names.len() < MAX_DEPTH
                && let Some((parent, name)) = places.get(&at)
            {
                names.push(name.clone());
                at = *parent;
            }
        }
        names.reverse();
        (at, names)
    }

    /// The names of a directory and of those above it, from the root on. `None`: it has no path any more, or a member that would know
    /// it does not answer.
    pub fn path(&self, ctx: &DelegateContext, fid: Fid) -> Option<Vec<Vec<u8>>> {
        let (mut names, mut at) = (Vec::new(), fid);
        while at != Fid::ROOT && names.len() < MAX_DEPTH {
            let place = self.place(ctx, at).unwrap_or_else(|e| {
                tracing::debug!(fid = at.0, error = %e, "the path of a directory is not known");
                None
            });
            let (parent, name) = place?;
            names.push(name);
            at = parent;
        }
        names.reverse();
        (at == Fid::ROOT).then_some(names)
    }
}
