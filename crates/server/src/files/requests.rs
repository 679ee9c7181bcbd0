//! The requests about file content that this member answers. A POSIX error is an outcome for the caller; `Replan` asks for a new commit
//! plan from a new view of the file; every other error is a failure of storage or transport. Opens are counted by member.
use super::FileContent;
use super::records::CommitId;
use crate::inodes::leases::{LeaseChange, LeasedObject};
use crate::{Attr, Fid, Member, Result};
use forebay_proto::files::{
    AbandonOpen, Close, CloseTeam, Commit, CommitReply, DropStaged, ExtentsReply, FileLogRanges,
    FileSurvey, FilesService, GetDecision, GetExtents, GetLogRanges, GetNamedRanges, GetPatterns,
    GetView, Laminate, NamedRanges, Open, OpenTeam, OpenUnnamed, PatternsReply, PublishReply,
    PublishStaged, RemoveProgress, RemoveSlices, ReserveAppend, StageChanges, SurveyFiles,
    SyncFile,
};

impl FilesService for FileContent {
    fn open(&self, from: Member, r: Open) -> Result<Attr> {
        self.opens.open(from, r.fid, r.flags, r.token)
    }
    fn open_unnamed(&self, from: Member, r: OpenUnnamed) -> Result<Attr> {
        self.opens.open_unnamed(from, r.new, r.write, r.token)
    }
    fn close(&self, from: Member, r: Close) -> Result<()> {
        self.opens.close(from, r.fid, r.token)
    }
    fn open_team(&self, _: Member, r: OpenTeam) -> Result<Attr> {
        self.opens.open_team(r.fid, r.flags, r.token, &r.members)
    }
    fn close_team(&self, _: Member, r: CloseTeam) -> Result<Attr> {
        self.opens.close_team(r.fid, r.token, &r.members)
    }
    fn abandon_open(&self, from: Member, r: AbandonOpen) -> Result<()> {
        self.opens.abandon(from, r.token)
    }
    fn commit(&self, from: Member, r: Commit) -> Result<CommitReply> {
        let _change = self.begin_change(from, r.fid);
        self.committer.commit(from, r)
    }
    fn stage_changes(&self, from: Member, r: StageChanges) -> Result<()> {
        let id = id(r.fid, from, r.token);
        self.staged.stage(id, &r.changes, r.sync)
    }
    fn publish_staged(&self, _: Member, r: PublishStaged) -> Result<Option<PublishReply>> {
        let id = id(r.fid, r.writer, r.token);
        self.staged.publish(id, r.seq, r.has_synced_bytes, r.sync)
    }
    fn drop_staged(&self, _: Member, r: DropStaged) -> Result<()> {
        self.staged.give_up(id(r.fid, r.writer, r.token))
    }
    fn get_decision(&self, _: Member, r: GetDecision) -> Result<Option<u64>> {
        let id = id(r.fid, r.writer, r.token);
        self.components.outcomes.decision(id, r.abort)
    }
    fn get_view(&self, _: Member, r: GetView) -> Result<Attr> {
        self.reader.view(r.fid)
    }
    fn get_extents(&self, _: Member, r: GetExtents) -> Result<ExtentsReply> {
        self.reader.extents(r.fid, r.start, r.end, r.limit)
    }
    fn reserve_append(&self, _: Member, r: ReserveAppend) -> Result<u64> {
        self.opens.append(r.fid, r.len, r.pending_end)
    }
    fn laminate(&self, from: Member, r: Laminate) -> Result<Attr> {
        let _change = self.begin_change(from, r.fid);
        self.opens.laminate(r.fid)
    }
    fn sync_file(&self, _: Member, r: SyncFile) -> Result<()> {
        self.components.sequences.synced.mark_synced(r.fid);
        Ok(self.components.context.store.sync()?)
    }
    fn survey_files(&self, _: Member, r: SurveyFiles) -> Result<Vec<Option<FileSurvey>>> {
        self.reader.survey(&r.fids)
    }
    fn get_patterns(&self, _: Member, r: GetPatterns) -> Result<PatternsReply> {
        self.components.patterns.for_readers(r.fid)
    }
    fn get_named_ranges(&self, _: Member, r: GetNamedRanges) -> Result<NamedRanges> {
        self.reader.named(r.fid, r.member, r.from)
    }
    fn get_log_ranges(&self, _: Member, r: GetLogRanges) -> Result<FileLogRanges> {
        self.reader.log_ranges(r.fid, r.from)
    }
    fn remove_slices(&self, _: Member, r: RemoveSlices) -> Result<RemoveProgress> {
        self.staged.remove(r.fid)
    }
}

impl FileContent {
    /// The file's attributes are leased to no kernel until the answer is dropped.
    fn begin_change(&self, by: Member, fid: Fid) -> LeaseChange<'_> {
        let leases = &self.components.context.inodes.leases;
        leases.begin_change(Some(by), [LeasedObject::Attributes(fid)])
    }
}

fn id(fid: Fid, writer: Member, token: u64) -> CommitId {
    CommitId { fid, writer, token }
}
