//! Requests about file content. Offsets, lengths and sizes in bytes. A request goes to the file's owner or
//! to the member that owns the slices in question ("slice owner").
//!
//! A token is the asking member's name for one commit or open; it never uses it again for another. Requests can be sent
//! again after a lost answer: they answer the same.
use crate::call::service;
use crate::{Attr, Fid, LogId, Member, OpenFlags, Time, hint_text};
use forebay_codec::CodecHint;
use forebay_index::{Change, Extent};
use serde::{Deserialize, Serialize};

/// What a commit says of the attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommitAttr {
    /// The end of the furthest extent published: the size becomes at least this.
    pub end: Option<u64>,
    /// Truncate and extend: the size becomes exactly this. Comes with a cut from there to `u64::MAX`.
    pub size: Option<u64>,
    /// The new modification time; `None`: unchanged.
    pub mtime: Option<Time>,
    /// Set-id bits go, as after a write by someone without privilege.
    pub clear_setid: bool,
}

/// Bytes that a later change than the patterns below took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternHole {
    /// Patterns of larger sequences lie above it.
    pub seq: u64,
    /// First byte.
    pub start: u64,
    /// Behind the last byte; may be `u64::MAX`.
    pub end: u64,
}

/// What a copy of many files wants to know of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSurvey {
    /// Attributes.
    pub attr: Attr,
    /// It has extended attributes. If it has not, it had none at `attr`'s time of change either.
    pub xattrs: bool,
    /// Published bytes by the member that stores them; `None`: more than one answer looks at.
    pub held: Option<Vec<(u16, u64)>>,
}

/// A set of members, as first and last of each unbroken row: short for the usual team, that of all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemberSet(pub Vec<(Member, Member)>);

impl MemberSet {
    /// Of these members, in any order.
    pub fn of(members: impl IntoIterator<Item = Member>) -> MemberSet {
        let mut members: Vec<Member> = members.into_iter().collect();
        members.sort_unstable();
        let mut spans: Vec<(Member, Member)> = Vec::new();
        for member in members {
            match spans.last_mut() {
                Some((_, last)) if member <= last.saturating_add(1) => *last = member,
                _ => spans.push((member, member)),
            }
        }
        MemberSet(spans)
    }

    /// Whether the member is in it.
    pub fn contains(&self, member: Member) -> bool {
        let mut spans = self.0.iter();
        spans.any(|(first, last)| (*first..=*last).contains(&member))
    }

    /// The members.
    pub fn iter(&self) -> impl Iterator<Item = Member> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

/// A file that is made without a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnnamedFile {
    /// Permission and set-id bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// It may get a name.
    pub linkable: bool,
    /// The codec hint of its directory.
    #[serde(with = "hint_text")]
    pub codec: Option<CodecHint>,
}

service! {
    /// What a member answers about the content of the files that it owns, and of the slices that it holds.
    FilesService, FilesRequest {
        /// To the owner: counts the open of the asking member, answers the attributes. For writing, a file laminated for ever is
        /// `EPERM`, and a softly laminated one becomes writable. `ESTALE` if it was removed.
        open(Open {
            /// The file.
            fid: Fid,
            /// `truncate` is the delegate's: it sends its own commit afterwards.
            flags: OpenFlags,
            /// Names this open.
            token: u64,
        }) -> Attr;

        /// To the asking member itself: makes a file without a name there (`O_TMPFILE`), and counts its open. Answers the
        /// attributes.
        open_unnamed(OpenUnnamed {
            /// What it is.
            new: UnnamedFile,
            /// For writing.
            write: bool,
            /// Names this open.
            token: u64,
        }) -> Attr;

        /// To the owner: undoes the [`Open`] of this token, if it was carried out.
        close(Close {
            /// The file.
            fid: Fid,
            /// Of the open.
            token: u64,
        }) -> ();

        /// To the owner: as an [`Open`] of each of these members, all with the same token, for a call that a team made. Answers the
        /// attributes.
        open_team(OpenTeam {
            /// The file.
            fid: Fid,
            /// `truncate` is the asker's.
            flags: OpenFlags,
            /// Names the open of each; made by the team.
            token: u64,
            /// Whose.
            members: MemberSet,
        }) -> Attr;

        /// To the owner: as a [`Close`] of each of these members. Answers the attributes as they are then.
        close_team(CloseTeam {
            /// The file.
            fid: Fid,
            /// Of the opens.
            token: u64,
            /// Whose.
            members: MemberSet,
        }) -> Attr;

        /// To any member: the asker does not know whether an [`OpenTeam`] of this token counted it, here or elsewhere, or a
        /// [`Create`](crate::meta::Create). It is counted no more, also if the request is still on its way.
        abandon_open(AbandonOpen {
            /// Of the open.
            token: u64,
        }) -> ();

        /// To the owner: publish these changes as one. The owner's own part goes straight in; parts of
        /// other members must have been staged there under `token` before. A POSIX error or `Replan` means that nothing
        /// happened: try again as it is, or [`DropStaged`] the parts and plan again with a new token (after `Replan` from a
        /// new view). Any other error: it may have happened, ask again.
        commit(Commit {
            /// The file.
            fid: Fid,
            /// The asker's name for this commit.
            token: u64,
            /// The owner's part; of a file with patterns all of it, in any slice.
            own: Vec<Change>,
            /// Segments of `forebay_pattern`, encoded, one after the other, in place of the extents that they describe. The
            /// owner gives them their sequence. No two of their elements, and no put of `own`, hold the same byte; they lie
            /// over cuts of `own`.
            patterns: Vec<u8>,
            /// Members that hold staged parts.
            staged: Vec<u16>,
            /// Attributes.
            attr: CommitAttr,
            /// On disk everywhere before the answer.
            sync: bool,
        }) -> CommitReply;

        /// To a slice owner: keep these, unseen, until the owner decides.
        stage_changes(StageChanges {
            /// The file.
            fid: Fid,
            /// Of the commit.
            token: u64,
            /// This member's part.
            changes: Vec<Change>,
            /// On disk before the answer.
            sync: bool,
        }) -> ();

        /// Owner to slice owner: make the staged changes visible. `None`: nothing is staged here under that token.
        publish_staged(PublishStaged {
            /// The file.
            fid: Fid,
            /// Who staged them.
            writer: u16,
            /// Of the commit.
            token: u64,
            /// Of the commit.
            seq: u64,
            /// An fsync may have brought bytes of the file to disk.
            has_synced_bytes: bool,
            /// On disk before the answer.
            sync: bool,
        }) -> Option<PublishReply>;

        /// To a slice owner: the writer gives the commit up. The owner is asked: if it was decided after all, the changes are
        /// published instead; if not, it never will be.
        drop_staged(DropStaged {
            /// The file.
            fid: Fid,
            /// Who staged them.
            writer: u16,
            /// Of the commit.
            token: u64,
        }) -> ();

        /// Slice owner to owner: was it decided, and with which sequence? `None`: it was not.
        get_decision(GetDecision {
            /// The file.
            fid: Fid,
            /// Who staged it.
            writer: u16,
            /// Of the commit.
            token: u64,
            /// `None` shall also be a promise, kept on disk, that it never will be decided.
            abort: bool,
        }) -> Option<u64>;

        /// To the owner: attributes, and the sequence (generation) that a read must show: the generation is
        /// the sequence of the last decided commit.
        get_view(GetView {
            /// The file.
            fid: Fid,
        }) -> Attr;

        /// To a slice owner: extents overlapping the range. If `published` in the reply is above the reader's
        /// view, the reader takes a new view and asks everyone again.
        get_extents(GetExtents {
            /// The file.
            fid: Fid,
            /// First byte.
            start: u64,
            /// Behind the last byte.
            end: u64,
            /// Extents in the reply, at most.
            limit: u32,
        }) -> ExtentsReply;

        /// To the owner: where the next append goes.
        reserve_append(ReserveAppend {
            /// The file.
            fid: Fid,
            /// Length of the append.
            len: u64,
            /// End of the asker's own pending writes.
            pending_end: u64,
        }) -> u64;

        /// To the owner: read-only for ever; `EBUSY` while a member holds it open for writing. Answers the
        /// attributes.
        laminate(Laminate {
            /// The file.
            fid: Fid,
        }) -> Attr;

        /// To the owner or a slice owner: everything published of the file before is on disk when it answers. Leaf.
        sync_file(SyncFile {
            /// The file.
            fid: Fid,
        }) -> ();

        /// To the owner of all of them: what a copy of many files wants to know of each, in the order asked;
        /// `None`: it was removed.
        survey_files(SurveyFiles {
            /// The files, or other objects.
            fids: Vec<Fid>,
        }) -> Vec<Option<FileSurvey>>;

        /// To the owner: the patterns of a file, to read it by.
        get_patterns(GetPatterns {
            /// The file.
            fid: Fid,
        }) -> PatternsReply;

        /// To the owner or a slice owner: which log addresses of a member the file's extents and patterns name there.
        get_named_ranges(GetNamedRanges {
            /// The file.
            fid: Fid,
            /// Whose logs.
            member: u16,
            /// Extents from this offset on.
            from: u64,
        }) -> NamedRanges;

        /// Owner to slice owner: remove all extents of a removed file.
        remove_slices(RemoveSlices {
            /// The file.
            fid: Fid,
        }) -> RemoveProgress;

        /// To the owner or a slice owner: which log addresses of any member the file's extents and patterns name there.
        get_log_ranges(GetLogRanges {
            /// The file.
            fid: Fid,
            /// Extents from this offset on.
            from: u64,
        }) -> FileLogRanges;
    }
}

/// The reply to [`Commit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitReply {
    /// It has happened.
    Committed(CommitSummary),
    /// It did not happen. Its bytes must be on disk before it does: some of the file may have been fsynced, and it has
    /// patterns: what a power cut leaves of them could not be repaired. Ask again with `sync`.
    SyncFirst,
}

/// A commit that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitSummary {
    /// Its sequence.
    pub seq: u64,
    /// The file's generation just before it (`None`: no longer known). A reader at that generation knows that
    /// nothing foreign came between.
    pub previous: Option<u64>,
    /// Attributes now.
    pub attr: Attr,
    /// The other members that hold the file open.
    pub open_at: MemberSet,
}

/// The reply to [`PublishStaged`]: the part is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishReply {
    /// Bytes that its extents hold.
    pub added: u64,
    /// Bytes of older extents that it displaced.
    pub freed: u64,
}

/// The reply to [`GetExtents`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentsReply {
    /// By offset, clipped to the range. They never overlap.
    pub extents: Vec<Extent>,
    /// The last sequence published here for this file.
    pub published: u64,
    /// The limit was reached: ask again from the last end.
    pub more: bool,
}

/// The reply to [`GetPatterns`]: what lies beneath the extents that the owner's index has of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternsReply {
    /// For `forebay_pattern::decode_all`.
    pub bytes: Vec<u8>,
    /// Bytes of older patterns that are no more. They may overlap.
    pub holes: Vec<PatternHole>,
    /// First bytes of ranges, and the bytes after their last: only here may something else be seen than what patterns and holes
    /// say. The index has extents here, newer than any pattern, or a pattern cannot be read. [`GetExtents`] says what is right.
    pub residual: Vec<(u64, u64)>,
    /// The file's sequence that this shows.
    pub published: u64,
}

/// The reply to [`GetNamedRanges`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRanges {
    /// Log, first address, and the one after the last. For a pattern these may include bytes that were freed.
    pub ranges: Vec<(LogId, u64, u64)>,
    /// Ask again from this offset for more.
    pub next: Option<u64>,
}

/// The reply to [`GetLogRanges`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLogRanges {
    /// Member, log, first address, and the one after the last: by member, log and address, none in two. For a pattern these may
    /// include bytes that were freed.
    pub ranges: Vec<(Member, LogId, u64, u64)>,
    /// Ask again from this offset for more.
    pub next: Option<u64>,
}

/// The reply to [`RemoveSlices`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoveProgress {
    /// Nothing of the file is left here.
    Done,
    /// Something is: ask again.
    More,
}
