//! What a client asks its server, and the one reply that each request has.
//!
//! A call on a path is declared once, in `path_calls!`: its fields, its reply, and how the server's own client carries it out. The
//! embedded backend runs it at once; the link sends it. The place of a call in the list is its tag: new ones come last, and raise
//! [`VERSION`](super::wire::VERSION).
use crate::TeamSpec;
use crate::embedded::{DirBatch, EmbeddedClient, FileLock};
use forebay_server::delegate::{Fallocate, FileDescription};
use forebay_server::proto::WireError;
use forebay_server::proto::locks::LockSpace;
use forebay_server::{Attr, Caller, Error, Fid, Kind, Member, Result, SetAttr, SpaceTotals};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A call on a path and the type of its reply.
pub(crate) trait PathCall<'a>: Into<PathRequest<'a>> {
    type Reply: Serialize + DeserializeOwned;

    /// Carries it out.
    ///
    /// # Errors
    /// As the call of the same name of [`Client`](crate::Client).
    fn run(self, client: &EmbeddedClient) -> Result<Self::Reply>;
}

macro_rules! path_calls {
    ($( $(#[$what:meta])* $Call:ident { $($field:ident: $Type:ty),* } -> $Reply:ty = |$client:ident| $run:expr; )*) => {
        $(
            $(#[$what])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            pub(crate) struct $Call<'a> {
                pub path: &'a [u8],
                $( pub $field: $Type, )*
            }

            impl<'a> PathCall<'a> for $Call<'a> {
                type Reply = $Reply;

                fn run(self, $client: &EmbeddedClient) -> Result<$Reply> {
                    let $Call { path, $($field),* } = self;
                    #[allow(unused_variables, reason = "a call on the whole service has no path")]
                    let path = as_path(path);
                    ($run)(path)
                }
            }

            impl<'a> From<$Call<'a>> for PathRequest<'a> {
                fn from(call: $Call<'a>) -> PathRequest<'a> {
                    PathRequest::$Call(call)
                }
            }
        )*

        /// Any call on a path, as it travels.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum PathRequest<'a> {
            $( #[serde(borrow)] $Call($Call<'a>), )*
        }

        impl<'a> PathRequest<'a> {
            /// Carries it out; the head of the reply.
            pub fn answer(self, client: &EmbeddedClient) -> Vec<u8> {
                match self {
                    $( PathRequest::$Call(call) => encode_reply(&call.run(client)), )*
                }
            }
        }
    };
}

path_calls! {
    /// Attributes.
    Stat { follow: bool } -> Attr = |client| |path| client.stat(path, follow);
    /// The first entries of a directory.
    List { bytes: u32 } -> DirBatch = |client| |path| client.list(path, bytes as usize);
    /// Those after `path`, which is a name in directory `dir`.
    ListAfter { dir: Fid, bytes: u32 } -> DirBatch =
        |client| |name: &Path| client.list_after(dir, Some(name.as_os_str().as_bytes()), bytes as usize);
    /// A directory or a symbolic link.
    Make { kind: Kind, mode: u32, target: &'a [u8] } -> () = |client| |path| client.make(path, kind, mode, target);
    /// A name that is not a directory goes.
    RemoveFile {} -> () = |client| |path| client.remove_file(path);
    /// An empty directory goes.
    RemoveDir {} -> () = |client| |path| client.remove_dir(path);
    /// Another name.
    Rename { to: &'a [u8] } -> () = |client| |path| client.rename(path, as_path(to));
    /// What a symbolic link says.
    ReadLink {} -> Vec<u8> = |client| |path| client.read_link(path);
    /// A second name.
    HardLink { to: &'a [u8] } -> () = |client| |path| client.hard_link(path, as_path(to));
    /// Where the bytes are.
    Describe {} -> FileDescription = |client| |path| client.describe(path);
    /// Room of the service.
    Space {} -> SpaceTotals = |client| |_| client.space();
    /// Attributes but for the size.
    SetAttributes { set: SetAttr } -> () = |client| |path| client.set_attributes(path, &set);
    /// Read-only for ever.
    Laminate {} -> () = |client| |path| client.laminate(path);
    /// The value of an extended attribute.
    GetXattr { name: &'a [u8] } -> Vec<u8> = |client| |path| client.xattr(path, name);
    /// The same is set.
    SetXattr { name: &'a [u8], value: &'a [u8] } -> () = |client| |path| client.set_xattr(path, name, value);
    /// Names of extended attributes.
    ListXattrs {} -> Vec<Vec<u8>> = |client| |path| client.list_xattrs(path);
    /// One of them goes.
    RemoveXattr { name: &'a [u8] } -> () = |client| |path| client.remove_xattr(path, name);
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// A call on a path, for this owner of new files. Replies as declared above.
    Path(Caller, #[serde(borrow)] PathRequest<'a>),
    /// Replies [`OpenReply`].
    Open(Caller, #[serde(borrow)] OpenPath<'a>),
    /// A file that the parent of a forked process had opened. Replies [`OpenReply`].
    Reopen(Caller, ReopenFile),
    /// On an open file.
    File(u64, FileRequest),
    /// Joins a team. Replies the team's number in the session.
    Join(Caller, TeamSpec),
    /// By a client of a team.
    Team(u64, #[serde(borrow)] TeamRequest<'a>),
    /// Has that connection of the session begun with this request, and not answered it? Replies [`CallProgress`].
    Progress(u64, u32),
    /// From now on the buffer that comes with this packet is shared. Replies `()`.
    ShareBuffer,
    /// Replies `()`; the memory of the server's change counters comes with it.
    ChangeCounters,
    /// Replies `()`; the segment file of this number comes with it, for reading only.
    Segment(u32),
}

impl Request<'_> {
    /// Whether it may wait without limit for what other clients do.
    pub fn is_open_ended(&self) -> bool {
        match self {
            Request::File(_, FileRequest::Lock { wait, .. }) => *wait,
            Request::Team(_, TeamRequest::Leave) => false,
            Request::Team(..) => true,
            _ => false,
        }
    }
}

/// How a path is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenPath<'a> {
    pub path: &'a [u8],
    /// As [`OpenOptions::bits`](crate::OpenOptions).
    pub options: u32,
    /// Permission bits of a new file.
    pub mode: u32,
}

/// How a file is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReopenFile {
    pub fid: Fid,
    /// As [`OpenPath::options`], without those that are only for the first open.
    pub options: u32,
}

/// The reply to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenReply {
    /// Its number in the session.
    pub file: u64,
    pub fid: Fid,
}

/// On an open file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileRequest {
    /// Replies `()`; the bytes come with it.
    Read { offset: u64, len: u32 },
    /// Replies `Option<ChangeMark>`, taken before the records were read; the bytes of the first records come with it. Only the last of these
    /// may be short, at the end of the file. `None`: the bytes must not be kept.
    ReadAhead(StridedRecords),
    /// Writes the bytes that come with it. Replies `()`.
    Write { offset: u64 },
    /// Replies `()`.
    Commit,
    /// Replies `()`.
    SetLen(u64),
    /// Replies [`Attr`].
    Attributes,
    /// Replies `()`.
    Allocate {
        punch: bool,
        zero: bool,
        keep_size: bool,
        offset: u64,
        len: u64,
    },
    /// The next data or hole. Replies `u64`.
    Seek { offset: u64, hole: bool },
    /// Replies `()`.
    Lock { lock: FileLock, wait: bool },
    /// Replies `()`.
    Unlock { space: LockSpace, range: Range<u64> },
    /// Replies `Option<HeldLock>`.
    TestLock(FileLock),
    /// Commits and closes. Replies `()`; the file is closed also if that fails.
    Close,
    /// Replies `Option<DirectRead>`: where the bytes of records lie, which are read one behind the other. `None`: not all can be read directly,
    /// or they are in more than so many runs.
    Locate { records: StridedRecords, most: u32 },
    /// The process has read so much itself. Replies `()`.
    CountReads { reads: u64, bytes: u64 },
}

/// Bytes of one [`FileRequest::Locate`], at most: the reply has five bytes for each 4 KiB.
pub(crate) const MAX_LOCATED_BYTES: u32 = 8 << 20;
/// Runs of one reply, at most: some 30 bytes each, and ten for checksums of pieces that two runs share.
pub(crate) const MAX_LOCATED_RUNS: u32 = 1024;

/// StridedRecords of one request, at most.
pub(crate) const MAX_RECORDS: u32 = 4096;

/// StridedRecords of one length, a fixed stride apart, none overlapping the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StridedRecords {
    /// Offset of the first.
    pub start: u64,
    /// Bytes of each.
    pub len: u32,
    /// Bytes from the start of one to that of the next.
    pub stride: u64,
    pub count: u32,
}

impl StridedRecords {
    /// One record.
    pub fn one(start: u64, len: u32) -> StridedRecords {
        StridedRecords {
            start,
            len,
            stride: len.into(),
            count: 1,
        }
    }

    /// Of all of them.
    pub fn bytes(&self) -> usize {
        (self.len as usize).saturating_mul(self.count as usize)
    }

    /// Whether these are as the others, from the same offset on, but for how many they are.
    pub fn continues(&self, other: &StridedRecords) -> bool {
        let in_row = |records: &StridedRecords| records.count == 1;
        self.start == other.start
            && match (in_row(self), in_row(other)) {
                (true, true) => true,
                (false, false) => (self.len, self.stride) == (other.len, other.stride),
                _ => false,
            }
    }

    /// `None`: they are empty, overlap, go on behind the last offset, or are more than [`MAX_RECORDS`].
    pub fn ranges(&self) -> Option<Vec<Range<u64>>> {
        let len = u64::from(self.len);
        let behind = u64::from(self.count).checked_sub(1)?;
        let last = self.start.checked_add(self.stride.checked_mul(behind)?)?;
        let fits = len > 0
            && self.stride >= len
            && self.count <= MAX_RECORDS
            && last.checked_add(len).is_some();
        let start = |n: u32| self.start + u64::from(n) * self.stride;
        fits.then(|| (0..self.count).map(|n| start(n)..start(n) + len).collect())
    }
}

impl FileRequest {
    pub fn allocate(what: Fallocate, offset: u64, len: u64) -> FileRequest {
        FileRequest::Allocate {
            punch: what.punch,
            zero: what.zero,
            keep_size: what.keep_size,
            offset,
            len,
        }
    }
}

/// By a client of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TeamRequest<'a> {
    /// Replies [`Attr`].
    Stat { path: &'a [u8] },
    /// Replies [`OpenReply`].
    #[serde(borrow)]
    Open(OpenPath<'a>),
    /// Replies [`Attr`].
    Close { file: u64 },
    /// Replies `()`.
    Leave,
}

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallProgress {
    /// It has not arrived.
    Unknown,
    /// It is being carried out.
    Working,
    /// It was answered.
    Answered,
}

/// An error as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallFailure {
    /// Of the service.
    Service(WireError),
    /// See [`Error::TeamTaken`], whose number is not that of other failures.
    TeamTaken(u32),
}

impl From<&Error> for CallFailure {
    fn from(error: &Error) -> CallFailure {
        match error {
            Error::TeamTaken(number) => CallFailure::TeamTaken(*number),
            other => CallFailure::Service(WireError::from(other)),
        }
    }
}

impl CallFailure {
    /// The error as the asking client sees it; `member` answered.
    pub fn into_error(self, member: Member) -> Error {
        match self {
            CallFailure::Service(error) => error.into_error(member),
            CallFailure::TeamTaken(number) => Error::TeamTaken(number),
        }
    }
}

/// The head of a reply.
pub(crate) fn encode_reply<T: Serialize>(reply: &Result<T>) -> Vec<u8> {
    let reply = reply.as_ref().map_err(CallFailure::from);
    postcard::to_stdvec(&reply).unwrap_or_else(|e| {
        let error = WireError::Other(format!("the reply cannot be encoded: {e}"));
        // A text can always be encoded; were it not so, no bytes would be told as an unreadable reply.
        postcard::to_stdvec(&Err::<(), _>(CallFailure::Service(error))).unwrap_or_default()
    })
}
