//! A request and the one reply it has; how a part of a member declares the requests that it answers.
//!
//! A new request is declared in the `service!` of its part (in `meta`, `files`, `data`, `locks`), with its fields and its reply,
//! and answered by a method of that part's service trait: the compiler asks for the method. Append it to the list, so that
//! the other tags stay, and raise `wire::VERSION`.
//!
//! ```text
//! head of a request   | tag of the part | tag of the request | its fields |          postcard
//! head of a reply     | 0 | the reply's fields |  or  | 1 | WireError |                postcard
//! ```
//!
//! A reply carries no tag of its type: the requester knows it. Bulk bytes travel beside the head, never in it.
use crate::{Error, Member, Result, WireError};
use bytes::Bytes;
use forebay_fabric::Message;
use serde::{Serialize, de::DeserializeOwned};

/// A request to another member, and the type of its reply.
pub trait Call: Sized {
    /// What the member answers.
    type Reply: Serialize + DeserializeOwned;

    /// Takes the bytes out of a reply that travel beside the head.
    fn take_bulk(_reply: &mut Self::Reply) -> Vec<Bytes> {
        Vec::new()
    }

    /// Puts the bytes back that travelled beside the head.
    fn put_bulk(_reply: &mut Self::Reply, _bulk: Vec<Bytes>) {}

    /// The message that brings a reply, or an error in its place.
    fn encode_reply(reply: Result<Self::Reply>) -> Message {
        let mut bulk = Vec::new();
        let head = reply.map_err(|e| WireError::from(&e)).map(|mut reply| {
            bulk = Self::take_bulk(&mut reply);
            reply
        });
        let encoded = postcard::to_stdvec(&head).or_else(|e| {
            bulk = Vec::new();
            let error = WireError::Other(format!("the reply cannot be encoded: {e}"));
            postcard::to_stdvec(&Err::<(), _>(error))
        });
        Message {
            // A text can always be encoded; were it not so, no bytes would be told as an unreadable reply.
            head: encoded.unwrap_or_default().into(),
            bulk,
        }
    }

    /// The reply of member `from`.
    ///
    /// # Errors
    /// What the member answered in place of a reply; `Peer` if it cannot be read.
    fn decode_reply(from: Member, message: Message) -> Result<Self::Reply> {
        match postcard::from_bytes(&message.head) {
            Ok(Ok(mut reply)) => {
                Self::put_bulk(&mut reply, message.bulk);
                Ok(reply)
            }
            Ok(Err(error)) => Err(WireError::into_error(error, from)),
            Err(e) => Err(Error::Peer {
                member: from,
                reason: format!("unreadable reply: {e}"),
            }),
        }
    }
}

/// A request that a part of a member answers in the thread that brings it.
pub trait ServiceCall: Call {
    /// The part: one of the `*Service` traits.
    type Service: ?Sized;
    /// All requests to that part, as they travel.
    type Requests: From<Self>;

    /// Has the part answer it, for member `from`.
    ///
    /// # Errors
    /// As the request says.
    fn serve(self, service: &Self::Service, from: Member) -> Result<Self::Reply>;
}

/// A reply that was read, for tests of the encoding: as text, and encoded once more.
pub type RereadReply = Result<(String, Vec<u8>), WireError>;

pub(crate) fn reread<C: Call>(head: &[u8]) -> postcard::Result<RereadReply>
where
    C::Reply: std::fmt::Debug,
{
    match postcard::from_bytes::<Result<C::Reply, WireError>>(head)? {
        Ok(reply) => {
            let text = format!("{reply:?}");
            let again = postcard::to_stdvec(&Ok::<_, WireError>(reply))?;
            Ok(Ok((text, again)))
        }
        Err(error) => Ok(Err(error)),
    }
}

/// The requests that one part of a member answers: a struct for each, with its reply; the service, with a method for each; and
/// the enum that travels, in which the place of a request in the list is its tag.
///
/// One is `method(Request { FIELDS }) -> Reply;`. `bulk FIELD` after it names the field of the reply whose bytes travel beside
/// the head.
macro_rules! service {
    (@request $(#[$what:meta])* $Request:ident) => {
        $(#[$what])*
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        pub struct $Request;
    };
    (@request $(#[$what:meta])* $Request:ident { $( $(#[$which:meta])* $field:ident: $Type:ty, )* }) => {
        $(#[$what])*
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        pub struct $Request {
            $( $(#[$which])* pub $field: $Type, )*
        }
    };
    (
        $(#[$about:meta])*
        $Service:ident, $Requests:ident {
            $(
                $(#[$what:meta])*
                $method:ident($Request:ident $($fields:tt)?) -> $Reply:ty $(, bulk $bulk:ident)?;
            )*
        }
    ) => {
        $( $crate::call::service! { @request $(#[$what])* $Request $($fields)? } )*

        $(#[$about])*
        ///
        /// # Errors
        /// Each method fails as its request says, with POSIX errors; any other error is a failure of the member.
        pub trait $Service: Send + Sync {
            $(
                #[doc = concat!("Answers [`", stringify!($Request), "`] of member `from`.")]
                fn $method(&self, from: $crate::Member, request: $Request) -> $crate::Result<$Reply>;
            )*
        }

        #[doc = concat!("The requests to [`", stringify!($Service), "`], as they travel.")]
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        pub enum $Requests {
            $(
                #[doc = concat!("See [`", stringify!($Request), "`].")]
                $Request($Request),
            )*
        }

        impl $Requests {
            /// Has `service` answer it, for member `from`.
            pub fn answer(self, service: &dyn $Service, from: $crate::Member) -> forebay_fabric::Message {
                use $crate::call::Call;
                match self {
                    $( $Requests::$Request(request) => $Request::encode_reply(service.$method(from, request)), )*
                }
            }

            /// Reads the head of a reply to it, and writes it again.
            ///
            /// # Errors
            /// When it is none.
            pub fn reread_reply(&self, head: &[u8]) -> postcard::Result<$crate::call::RereadReply> {
                match self {
                    $( $Requests::$Request(_) => $crate::call::reread::<$Request>(head), )*
                }
            }
        }

        $(
            impl From<$Request> for $Requests {
                fn from(request: $Request) -> $Requests {
                    $Requests::$Request(request)
                }
            }

            impl $crate::call::Call for $Request {
                type Reply = $Reply;
                $(
                    fn take_bulk(reply: &mut $Reply) -> Vec<bytes::Bytes> {
                        std::mem::take(&mut reply.$bulk)
                    }
                    fn put_bulk(reply: &mut $Reply, bulk: Vec<bytes::Bytes>) {
                        reply.$bulk = bulk;
                    }
                )?
            }

            impl $crate::call::ServiceCall for $Request {
                type Service = dyn $Service;
                type Requests = $Requests;
                fn serve(self, service: &(dyn $Service + 'static), from: $crate::Member) -> $crate::Result<$Reply> {
                    service.$method(from, self)
                }
            }
        )*
    };
}
pub(crate) use service;

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serializer, ser::Error as _};

    /// A reply that has no encoding.
    #[derive(Debug, Deserialize)]
    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("no such bytes"))
        }
    }

    struct AskUnwritable;

    impl Call for AskUnwritable {
        type Reply = Unwritable;
    }

    #[test]
    fn a_reply_that_cannot_be_encoded_arrives_as_an_error() {
        let message = AskUnwritable::encode_reply(Ok(Unwritable));
        let error = AskUnwritable::decode_reply(4, message).unwrap_err();
        assert!(matches!(error, Error::Peer { member: 4, .. }), "{error}");
        assert!(error.to_string().contains("cannot be encoded"), "{error}");
    }
}
