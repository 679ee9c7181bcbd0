//! Which request of a member is answered by what.
use super::Files;
use super::commit::Commit;
use super::proto::{FilesReply, FilesRequest};
use super::records::CommitId;
use crate::{Member, Result};

impl Files {
    /// Answers a request of member `from` (opens are counted by member).
    ///
    /// # Errors
    /// Those of POSIX for the operation; `Stale`: plan again from a new view; others are failures.
    pub fn handle(&self, from: Member, request: FilesRequest) -> Result<FilesReply> {
        let files = &*self.shared;
        use FilesRequest as R;
        match request {
            R::Open { fid, flags, token } => files.open(from, fid, flags, token),
            R::OpenUnnamed { new, write, token } => files.open_unnamed(from, new, write, token),
            R::Close { fid, token } => files.close(from, fid, token),
            R::OpenTeam {
                fid,
                flags,
                token,
                members,
            } => files.open_team(fid, flags, token, &members),
            R::CloseTeam {
                fid,
                token,
                members,
            } => files.close_team(fid, token, &members),
            R::Abandon { token } => files.abandon_open(from, token),
            R::Commit {
                fid,
                token,
                own,
                patterns,
                staged,
                attr,
                sync,
            } => files.commit(Commit {
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
            } => files.stage(
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
            } => files.publish(CommitId { fid, writer, token }, seq, promised, sync),
            R::Drop { fid, writer, token } => files.give_up(CommitId { fid, writer, token }),
            R::Decision {
                fid,
                writer,
                token,
                abort,
            } => files.decision(CommitId { fid, writer, token }, abort),
            R::View { fid } => files.view(fid),
            R::Extents {
                fid,
                start,
                end,
                limit,
            } => files.extents(fid, start, end, limit),
            R::Patterns { fid } => files.patterns(fid),
            R::Named { fid, member, from } => files.named(fid, member, from),
            R::Survey { fids } => files.survey(&fids),
            R::Append {
                fid,
                len,
                pending_end,
            } => files.append(fid, len, pending_end),
            R::Laminate { fid } => files.laminate(fid),
            R::Sync { fid } => {
                files.promises.promise(fid);
                files.store.sync()?;
                Ok(FilesReply::Done)
            }
            R::Remove { fid } => files.remove_slices(fid),
        }
    }
}
