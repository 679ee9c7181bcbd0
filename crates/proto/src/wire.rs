//! The messages between members: a request to one part, a one-way message.
//!
//! A head on the wire is the postcard form of [`Request`], or of `Result<Reply, WireError>` with the reply type of that request
//! (`call` draws both). Members of one service run the same version ([`VERSION`]), so heads carry no version of their own.
use crate::call::{Call, RereadReply, ServiceCall, reread};
use crate::data::{DataRequest, DataService};
use crate::files::{FilesRequest, FilesService};
use crate::locks::{GrantNotice, LocksRequest, LocksService};
use crate::meta::{LeafRequest, LeafService, OperationRequest, OperationService};
use crate::{Attr, Error, Fid, Member, Result};
use forebay_fabric::Message;
use serde::{Deserialize, Serialize};

/// Raised when any message changes its meaning; the handshake compares it.
pub const VERSION: u32 = 11;

/// The parts of a member: the enum of the requests to each, the method of [`MemberServices`] that gives the part, and its service.
/// A new line moves the tag of [`Request::Kernel`]: raise [`VERSION`].
macro_rules! parts {
    ($( $(#[$about:meta])* $Part:ident($Requests:ident) => $part:ident: $Service:ident; )*) => {
        /// A request to another member.
        #[derive(Debug, Clone, Serialize, Deserialize)]
        pub enum Request {
            $( $(#[$about])* $Part($Requests), )*
            /// For the kernel of the member's node, which has to drop what it holds. Answered once it has.
            Kernel(KernelInvalidation),
        }

        /// The parts of a member that answer requests. A part that a member has not got is an error.
        pub trait MemberServices: Send + Sync {
            $( $(#[$about])* fn $part(&self) -> Result<&(dyn $Service + 'static)>; )*
            /// A lock that this node waits for is there.
            fn granted(&self, notice: GrantNotice);
            /// This node's kernel has to drop something; `done` hears when it has. Does not wait itself.
            fn invalidate_kernel(&self, what: KernelInvalidation, done: InvalidationDone);
        }

        impl Request {
            /// Has the part answer it that it is for, in this thread, for member `from`.
            pub(crate) fn serve(self, services: &dyn MemberServices, from: Member) -> Result<Message> {
                match self {
                    $( Request::$Part(request) => Ok(request.answer(services.$part()?, from)), )*
                    Request::Kernel(_) => {
                        let why = "a kernel is not asked by a part of its own member";
                        Err(Error::Refused(why.into()))
                    }
                }
            }

            /// Reads the head of a reply to it, and writes it again: for tests of the encoding.
            ///
            /// # Errors
            /// When it is none.
            pub fn reread_reply(&self, head: &[u8]) -> postcard::Result<RereadReply> {
                match self {
                    $( Request::$Part(request) => request.reread_reply(head), )*
                    Request::Kernel(_) => reread::<KernelInvalidation>(head),
                }
            }
        }

        $(
            impl From<$Requests> for Request {
                fn from(request: $Requests) -> Request {
                    Request::$Part(request)
                }
            }

            impl MemberPart for dyn $Service {
                fn of(services: &dyn MemberServices) -> Result<&Self> {
                    services.$part()
                }
            }
        )*
    };
}

parts! {
    /// For operations of the namespace.
    Operations(OperationRequest) => operations: OperationService;
    /// For the names and attributes that the member has.
    Leaf(LeafRequest) => leaf: LeafService;
    /// For file content and sequences.
    Files(FilesRequest) => files: FilesService;
    /// For log bytes.
    Data(DataRequest) => data: DataService;
    /// For advisory locks.
    Locks(LocksRequest) => locks: LocksService;
}

/// A service that is a part of a member.
pub trait MemberPart {
    /// That part of this member.
    ///
    /// # Errors
    /// If the member has no such part.
    fn of(services: &dyn MemberServices) -> Result<&Self>;
}

/// A request that can be asked of a member: one to a part of it.
pub trait PeerCall: ServiceCall<Service: MemberPart, Requests: Into<Request>> {}

impl<C: ServiceCall<Service: MemberPart, Requests: Into<Request>>> PeerCall for C {}

impl<C: PeerCall> From<C> for Request {
    fn from(request: C) -> Request {
        C::Requests::from(request).into()
    }
}

/// Hears that a node's kernel has dropped what it had to, or why it has not.
pub type InvalidationDone = Box<dyn FnOnce(Result<()>) + Send>;

/// What the kernel of another node must not show any more as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelInvalidation {
    /// A file's bytes or size were changed, and published: as it is since.
    Changed(Attr),
    /// The directory was moved to another parent.
    Moved {
        /// Which.
        fid: Fid,
        /// Where it is now, from the root on.
        path: Vec<u8>,
    },
    /// The attributes of this inode, which were leased, are about to change.
    Attributes(Fid),
    /// What this name in a directory names, which was leased, is about to change.
    Entry {
        /// The directory.
        parent: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
}

impl From<KernelInvalidation> for Request {
    fn from(request: KernelInvalidation) -> Request {
        Request::Kernel(request)
    }
}

impl Call for KernelInvalidation {
    type Reply = ();
}

/// A one-way message to another member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum OneWay {
    /// A lock that it waits for is there.
    Lock(GrantNotice),
}
