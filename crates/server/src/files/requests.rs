//! Which request of a member is answered by what.
use super::Files;
use super::commit::CommitRequest;
use super::records::CommitId;
use crate::{Member, Result};
use forebay_proto::files::{FilesReply, FilesRequest};

impl Files {
    /// Answers a request of member `from` (opens are counted by member).
    ///
    /// # Errors
    /// Those of POSIX for the operation; `Stale`: plan again from a new view; others are failures.
    pub fn handle(&self, from: Member, request: FilesRequest) -> Result<FilesReply> {
        use FilesRequest as R;
        match request {
            R::Open { fid, flags, token } => self.opens.open(from, fid, flags, token),
            R::OpenUnnamed { new, write, token } => {
                self.opens.open_unnamed(from, new, write, token)
            }
            R::Close { fid, token } => self.opens.close(from, fid, token),
            R::OpenTeam {
                fid,
                flags,
                token,
                members,
            } => self.opens.open_team(fid, flags, token, &members),
            R::CloseTeam {
                fid,
                token,
                members,
            } => self.opens.close_team(fid, token, &members),
            R::Abandon { token } => self.opens.abandon(from, token),
            R::Commit {
                fid,
                token,
                own,
                patterns,
                staged,
                attr,
                sync,
            } => self.committer.commit(CommitRequest {
                id: CommitId {
                    fid,
                    writer: from,
                    token,
                },
                own,
                patterns,
                staged,
                attr,
                sync,
            }),
            R::Stage {
                fid,
                token,
                changes,
                sync,
            } => self.staged.stage(
                CommitId {
                    fid,
                    writer: from,
                    token,
                },
                &changes,
                sync,
            ),
            R::Publish {
                fid,
                writer,
                token,
                seq,
                promised,
                sync,
            } => self
                .staged
                .publish(CommitId { fid, writer, token }, seq, promised, sync),
            R::Drop { fid, writer, token } => self.staged.give_up(CommitId { fid, writer, token }),
            R::Decision {
                fid,
                writer,
                token,
                abort,
            } => self
                .outcomes
                .decision(CommitId { fid, writer, token }, abort),
            R::View { fid } => self.reader.view(fid),
            R::Extents {
                fid,
                start,
                end,
                limit,
            } => self.reader.extents(fid, start, end, limit),
            R::Patterns { fid } => self.patterns.for_readers(fid),
            R::Named { fid, member, from } => self.reader.named(fid, member, from),
            R::Survey { fids } => self.reader.survey(&fids),
            R::Append {
                fid,
                len,
                pending_end,
            } => self.opens.append(fid, len, pending_end),
            R::Laminate { fid } => self.opens.laminate(fid),
            R::Sync { fid } => {
                self.sequences.promise(fid);
                self.context.store.sync()?;
                Ok(FilesReply::Done)
            }
            R::Remove { fid } => self.staged.remove(fid),
        }
    }
}
