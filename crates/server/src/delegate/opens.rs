//! Open and close requests to the files' owners, which count opens; and the handling of lost replies.
//!
//! # Invariants
//! 1. An owner hears of a close only when the writes before it are published.
//! 2. An open whose reply was lost is closed in the background, so no count leaks.
use super::combine::{CreateOutcome, NewFile};
use super::commit::LayerCommitter;
use super::commit_plan::FileCut;
use super::context::DelegateContext;
use super::counted_open::{CountedOpen, UnansweredOpen};
use super::handles::Handle;
use super::kernel_leases::{LeasedPart, ProgramThread};
use super::open_file::{FileState, OpenFile, StalePages};
use crate::{Attr, Error, Fid, Kind, NewInode, OpenFlags, Result};
use forebay_fabric::Error as Fabric;
use forebay_proto::meta::{CreateReply, NewOpen};
use forebay_proto::{files, meta};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most requests to open or close whose answers were lost.
pub const MAX_TRIES: u32 = 4;
/// How often `create` looks again when what it found is removed before it is open.
const CREATE_TRIES: u32 = 16;

/// The answer to an open.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// Names the open file in later calls.
    pub handle: Handle,
    /// As this node sees the file.
    pub attr: Attr,
    /// Pages that the kernel may have of this file, if they must be dropped: as after an fsync
    /// ([`Delegate::fsync`](super::Delegate::fsync)), before the program gets the handle.
    pub stale: Option<StalePages>,
    /// Bypass the page cache (append and posix handles, and write-only ones of which the page cache would have nothing).
    pub direct: bool,
    /// The file was made by this call.
    pub made: bool,
    /// The kernel may keep the attributes.
    pub leased: bool,
}

/// See the head of this file.
pub struct OpenClient {
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) committer: Arc<LayerCommitter>,
    /// Opens without an answer: they may be counted at the owner.
    pub(super) lost_opens: Mutex<Vec<UnansweredOpen>>,
}

impl OpenClient {
    /// Makes sure that a file exists, and opens it for `handles` handles.
    pub(super) fn make_and_open(
        &self,
        new: &NewFile<'_>,
        exclusive: bool,
        flags: OpenFlags,
        handles: u32,
        thread: ProgramThread,
    ) -> Result<((Attr, Arc<CountedOpen>), CreateOutcome)> {
        for _ in 0..CREATE_TRIES {
            let ticket = self.ctx.kernel_leases.ticket(thread);
            let open = NewOpen {
                write: flags.write,
                token: self.ctx.tokens.next()?,
                lease: ticket.is_some(),
            };
            let created = self.ask_create(new, exclusive, Some(open));
            if let Err(Error::Fabric(_)) = &created {
                // It may have been counted, of a file that is not known here.
                self.note_lost_open(UnansweredOpen::UnknownFile(open.token));
            }
            let CreateReply {
                attr,
                made,
                opened,
                leased,
            } = created?;
            if made {
                // What is not open yet may fail: then the kernel does not know that the file was made.
                self.ctx
                    .forget_names(&[new.parent], thread.filter(|_| opened));
            }
            if opened {
                let leases = &self.ctx.kernel_leases;
                let give = |ticket| leases.give(ticket, attr.fid, LeasedPart::Attributes);
                let leased = leased && ticket.is_some_and(give);
                let counted = CountedOpen::new(open.token, handles);
                return Ok(((attr, counted), CreateOutcome { made, leased }));
            }
            let outcome = CreateOutcome {
                made,
                ..CreateOutcome::default()
            };
            let flags = OpenFlags {
                truncate: flags.truncate && !made,
                ..flags
            };
            match self.ask_open_for(attr.fid, flags, handles) {
                Ok(open) => return Ok((open, outcome)),
                // Removed between the two steps.
                Err(e) if !exclusive && e.errno() == Errno::STALE => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Creates a file, or finds what has the name, unless exclusive; whether it was made.
    ///
    /// # Errors
    /// As open with `O_CREAT`.
    pub fn make_file(&self, new: &NewFile<'_>, exclusive: bool) -> Result<(Attr, bool)> {
        let created = self.ask_create(new, exclusive, None)?;
        if created.made {
            self.ctx.forget_in_kernel(&[new.parent]);
        }
        Ok((created.attr, created.made))
    }

    fn ask_create(
        &self,
        new: &NewFile<'_>,
        exclusive: bool,
        open: Option<NewOpen>,
    ) -> Result<CreateReply> {
        let named = new.becomes.as_ref().unwrap_or(&new.name);
        let request = meta::Create {
            parent: new.parent,
            name: new.name.to_vec(),
            new: NewInode {
                codec: self.ctx.codec_of_name(new.parent, named),
                ..NewInode::new(Kind::File, new.mode)
            },
            caller: new.caller,
            exclusive,
            open,
        };
        let created = self.ctx.call(new.parent.owner(), request)?;
        let (series, directories) = (&self.ctx.file_series, &self.ctx.directory_paths);
        series.note(directories, created.attr.fid, new.parent, named);
        Ok(created)
    }

    /// The owner counts the open, once.
    pub(super) fn ask_open(&self, fid: Fid, flags: OpenFlags) -> Result<(Attr, Arc<CountedOpen>)> {
        self.ctx
            .combine
            .open(fid, flags, |handles| self.ask_open_for(fid, flags, handles))
    }

    /// One open for `handles` handles; empties the file once if the flags say so.
    fn ask_open_for(
        &self,
        fid: Fid,
        flags: OpenFlags,
        handles: u32,
    ) -> Result<(Attr, Arc<CountedOpen>)> {
        let token = self.ctx.tokens.next()?;
        let asked =
            self.ctx
                .call_with_retries(fid.owner(), &files::Open { fid, flags, token }, MAX_TRIES);
        if let Err(Error::Fabric(_)) = &asked {
            // It may have been counted.
            self.note_lost_open(UnansweredOpen::KnownFile(fid, token));
        }
        let attr = match flags.truncate {
            true => self.truncate_opened(&asked?, token)?,
            false => asked?,
        };
        Ok((attr, CountedOpen::new(token, handles)))
    }

    /// Empties a file that was opened under this token; closes it if that fails.
    fn truncate_opened(&self, attr: &Attr, token: u64) -> Result<Attr> {
        let file = self.ctx.table.acquire(attr);
        let emptied = FileCut {
            size: 0,
            mtime: Some(self.ctx.now()),
        };
        let cut = self.committer.cut_at(&file, emptied, None);
        if cut.is_err() {
            file.state.lock().unreported_closes.push(token);
            // The first failure is the one to report; what cannot be told is told in the background.
            let _ = self.tell_closes(&file);
        }
        let attr = file.state.lock().attr.clone();
        self.release(&file);
        cut.map(|()| attr)
    }

    /// An open that may be counted at the owner without a handle here: it is closed in the background.
    pub(super) fn note_lost_open(&self, open: UnansweredOpen) {
        let mut lost = self.lost_opens.lock();
        if !lost.contains(&open) {
            lost.push(open);
            drop(lost);
            self.ctx.deferred_closes.add();
        }
    }

    /// Closes opens whose reply was lost; whether none is left.
    pub(super) fn close_lost(&self) -> bool {
        let lost = std::mem::take(&mut *self.lost_opens.lock());
        let told = |lost: &UnansweredOpen| match *lost {
            UnansweredOpen::KnownFile(fid, token) => {
                let close = files::Close { fid, token };
                match self.ctx.call(fid.owner(), close) {
                    Ok(_) => true,
                    Err(e) => e.errno() == Errno::STALE,
                }
            }
            UnansweredOpen::UnknownFile(token) => self.tell_abandoned(token),
        };
        let left: Vec<_> = lost.into_iter().filter(|open| !told(open)).collect();
        let done = left.is_empty();
        self.lost_opens.lock().extend(left);
        done
    }

    /// A handle of an open that is counted.
    pub(super) fn opened(
        &self,
        attr: &Attr,
        flags: OpenFlags,
        counted: Arc<CountedOpen>,
        made: bool,
    ) -> OpenedFile {
        let file = self.ctx.table.acquire(attr);
        if flags.write && !made {
            // From now on it may change here without a request to its owner.
            self.ctx.forget_in_kernel(&[attr.fid]);
        }
        if file.state.lock().handles == 1 {
            // What an earlier close could not publish is tried again; if that fails again, it stays pending.
            let _ = self.committer.publish(&file);
        }
        let must_be_direct = flags.append || self.ctx.posix;
        let (attr, stale, direct, paging, writes_pages) = {
            let mut state = file.state.lock();
            let size = state.size();
            state.forget_other_kernel_size(size);
            if made && state.handles == 1 {
                // Nobody has read or written it yet.
                file.paged.store(false, Ordering::SeqCst);
                state.kernel = Some(state.attr.generation);
            }
            let direct = must_be_direct || self.writes_direct(flags, &state);
            let paging = flags.read || !direct;
            let writes_pages = flags.write && !direct;
            state.paging_handles += u32::from(paging);
            if writes_pages {
                self.ctx.add_cached_writer(&mut state);
            }
            // Beside a direct handle none are to be left of before.
            let paged = direct && file.paged.load(Ordering::SeqCst);
            let stale = state.stale_pages(file.fid);
            let stale = stale.or_else(|| paged.then(|| state.pages(file.fid)));
            (state.shown(), stale, direct, paging, writes_pages)
        };
        let handle = self
            .ctx
            .table
            .add(file, flags, paging, writes_pages, Some(counted));
        OpenedFile {
            handle,
            attr,
            stale,
            direct,
            made,
            leased: false,
        }
    }

    /// Whether a handle bypasses the page cache for the sake of the others: those that only write do not wait for each other in the kernel
    /// then, as long as none of the file's handles uses the page cache. With one member no file is open on more than one mount, and
    /// the kernel may keep what is written.
    fn writes_direct(&self, flags: OpenFlags, state: &FileState) -> bool {
        let only_writes = flags.write && !flags.read;
        only_writes && state.paging_handles == 0 && self.ctx.members() > 1
    }

    /// Releases the file. Commits and closes that failed are retried in the background.
    pub(super) fn release(&self, file: &Arc<OpenFile>) {
        if !self.ctx.table.release(file) {
            self.ctx.deferred_closes.add();
        }
    }

    /// Sends the owner the closes whose writes are published. Those that cannot be sent stay in `unreported_closes`.
    pub(super) fn tell_closes(&self, file: &Arc<OpenFile>) -> Result<()> {
        let closes = std::mem::take(&mut file.state.lock().unreported_closes);
        for (i, token) in closes.iter().enumerate() {
            let request = files::Close {
                fid: file.fid,
                token: *token,
            };
            let told = self
                .ctx
                .call_with_retries(file.fid.owner(), &request, MAX_TRIES);
            match told {
                // The owner restarted, or the file is gone: nothing is counted there any more.
                Ok(_) => {}
                Err(e) if e.errno() == Errno::STALE => {}
                Err(e) => {
                    file.state
                        .lock()
                        .unreported_closes
                        .extend_from_slice(&closes[i..]);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Sends every member that an open is abandoned; whether all live members have answered.
    pub(super) fn tell_abandoned(&self, token: u64) -> bool {
        let told = |member| match self.ctx.call(member, files::AbandonOpen { token }) {
            Ok(_) => true,
            // What a dead member counted has died with it.
            Err(Error::Fabric(Fabric::Dead(_))) => true,
            Err(e) => {
                tracing::debug!(member, error = %e, "an abandoned open is told again later");
                false
            }
        };
        // All, also after one that cannot be told.
        let untold = (0..self.ctx.members())
            .filter(|member| !told(*member))
            .count();
        untold == 0
    }

    /// Nobody here has a handle of this open, and it is not known whether it was counted, nor of which file. The members are
    /// told in the background. Once for each node.
    pub fn abandon(&self, token: u64) {
        self.note_lost_open(UnansweredOpen::UnknownFile(token));
    }
}
