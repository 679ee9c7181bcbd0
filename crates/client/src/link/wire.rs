//! What travels on the link: one hello each way, then requests and replies, each one packet of a `SEQPACKET` socket.
//!
//! Numbers are little-endian. Both ends are on one machine and the kernel keeps packets whole, so there is no checksum.
//!
//! ```text
//! hello, 32 bytes                                    welcome, 48 bytes and a text
//!  0  8  "FBAYLINK"                                   0  8  "FBAYLINK"
//!  8  4  version: the one thing that is compared      8  4  version
//! 12  4  1 begin a session  2 join one               12  4  0 welcome, else why not ([`Refusal`])
//! 16 16  secret of the session; zeros to begin one   16 16  secret of the session
//!                                                    32  8  number of the connection in it
//!                                                    40  2  member of the server   42  2  members of the service
//!                                                    44  4  milliseconds that an answer may take
//!                                                    48  …  for people: why not, at most 1,024 bytes of UTF-8
//!
//! request, reply
//!  0  4  number of the request: one more than that before on the connection, from 1; in the reply the same
//!  4  4  length of the head
//!  8  4  bytes that follow the head in the packet
//! 12  4  bytes that lie in the shared buffer, from its start; never beside bytes in the packet
//! 16  …  head, in postcard: a `Request`, or a `Result` of the reply's type and `CallFailure`
//!  …  …  the bytes
//! ```
//!
//! The magic, the version and the status keep their places in all versions, so that each end can tell the other which it has.
//!
//! A packet may carry one descriptor: a request to share a buffer carries that buffer, a sealed memfd; the reply that shares change
//! counters carries theirs (`forebay_server::delegate::ChangeCounters`), and that to a request for a segment file carries the file; a
//! reply whose head does not fit a packet has length 0 there and carries a sealed memfd with the head ([`MAX_LONG_HEAD_BYTES`]).

/// Raised when any message changes its meaning.
pub const VERSION: u32 = 6;

/// Length of a hello.
pub const HELLO_BYTES: usize = 32;
/// Length of a welcome without its text.
pub const WELCOME_BYTES: usize = 48;
/// Longest text of a refusal.
pub const MAX_REFUSAL_BYTES: usize = 1024;
/// Length of what comes before the head.
pub const PREFIX_BYTES: usize = 16;
/// Bytes that travel in a packet, at most; more lie in the shared buffer.
pub const MAX_INLINE_BYTES: usize = 64 << 10;
/// Longest head in a packet: an attribute's value, a path and two names.
pub const MAX_HEAD_BYTES: usize = 72 << 10;
/// Longest packet.
pub const MAX_PACKET_BYTES: usize = PREFIX_BYTES + MAX_HEAD_BYTES;
/// Longest head that is passed in a memfd.
pub const MAX_LONG_HEAD_BYTES: usize = 64 << 20;
/// Length of the buffer that both ends of a connection share: what one call reads or writes.
pub const SHARED_BYTES: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"FBAYLINK";

/// Names a session.
pub type Secret = [u8; 16];

/// The first packet of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Of the client.
    pub version: u32,
    /// The session that the connection belongs to; `None`: a new one.
    pub session: Option<Secret>,
}

impl Hello {
    /// As it travels.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        let kind = if self.session.is_some() { 2u32 } else { 1 };
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..].copy_from_slice(&self.session.unwrap_or_default());
        bytes
    }

    /// `None`: it is none. Of one of another version only the version is read.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let version = number(bytes, 8)?;
        if version != VERSION {
            let session = None;
            return Some(Hello { version, session });
        }
        let secret: Secret = bytes.get(16..)?.try_into().ok()?;
        let session = match number(bytes, 12)? {
            1 if secret == Secret::default() => None,
            2 => Some(secret),
            _ => return None,
        };
        Some(Hello { version, session })
    }
}

/// Why a server does not serve a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It speaks another version.
    Version,
    /// It serves another user.
    User,
    /// It has as many connections, or sessions, as it may.
    Full,
    /// It does not know the session.
    UnknownSession,
    /// It was sent something else than a hello.
    NoHello,
    /// It stops.
    Stopping,
}

impl Refusal {
    const ALL: [Refusal; 6] = [
        Refusal::Version,
        Refusal::User,
        Refusal::Full,
        Refusal::UnknownSession,
        Refusal::NoHello,
        Refusal::Stopping,
    ];

    fn status(self) -> u32 {
        // Finds it: the list has all.
        Refusal::ALL
            .iter()
            .position(|r| *r == self)
            .map_or(1, |at| at as u32 + 1)
    }
}

/// The answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Welcome {
    /// The connection is served.
    Served(ServedMember),
    /// It is not; the server's version, and the reason for people.
    Refused(Refusal, u32, String),
}

/// What a client is told of the server and its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedMember {
    /// Names the session, for its further connections.
    pub session: Secret,
    /// Names this connection in it.
    pub connection: u64,
    /// The server's member.
    pub member: u16,
    /// Members of the service.
    pub members: u16,
    /// How long an answer may take, in milliseconds.
    pub deadline_ms: u32,
}

impl Welcome {
    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; WELCOME_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        match self {
            Welcome::Served(served) => {
                bytes[16..32].copy_from_slice(&served.session);
                bytes[32..40].copy_from_slice(&served.connection.to_le_bytes());
                bytes[40..42].copy_from_slice(&served.member.to_le_bytes());
                bytes[42..44].copy_from_slice(&served.members.to_le_bytes());
                bytes[44..48].copy_from_slice(&served.deadline_ms.to_le_bytes());
            }
            Welcome::Refused(why, _, text) => {
                bytes[12..16].copy_from_slice(&why.status().to_le_bytes());
                let end = text.floor_char_boundary(MAX_REFUSAL_BYTES);
                bytes.extend_from_slice(&text.as_bytes()[..end]);
            }
        }
        bytes
    }

    /// `None`: it is none, or says nothing that this version knows.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let version = number(bytes, 8)?;
        let status = number(bytes, 12)?;
        let text = bytes.get(WELCOME_BYTES..).unwrap_or_default();
        if status > 0 {
            let why = *Refusal::ALL.get(status as usize - 1)?;
            let text = String::from_utf8_lossy(&text[..text.len().min(MAX_REFUSAL_BYTES)]);
            return Some(Welcome::Refused(why, version, text.into_owned()));
        }
        if version != VERSION || !text.is_empty() {
            return None;
        }
        Some(Welcome::Served(ServedMember {
            session: bytes.get(16..32)?.try_into().ok()?,
            connection: u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?),
            member: u16::from_le_bytes(bytes.get(40..42)?.try_into().ok()?),
            members: u16::from_le_bytes(bytes.get(42..44)?.try_into().ok()?),
            deadline_ms: number(bytes, 44)?,
        }))
    }
}

/// What comes before the head of a request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketPrefix {
    /// Of the request.
    pub number: u32,
    /// Length of the head; 0: it is passed in a memfd.
    pub head: u32,
    /// Bytes in the packet.
    pub inline: u32,
    /// Bytes in the shared buffer.
    pub shared: u32,
}

impl PacketPrefix {
    /// As it travels.
    pub fn encode(&self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        for (at, n) in [self.number, self.head, self.inline, self.shared]
            .iter()
            .enumerate()
        {
            bytes[at * 4..][..4].copy_from_slice(&n.to_le_bytes());
        }
        bytes
    }
}

/// A packet taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its first bytes.
    pub prefix: PacketPrefix,
    /// The head.
    pub head: &'a [u8],
    /// The bytes after it.
    pub inline: &'a [u8],
}

impl Packet<'_> {
    /// `None`: its lengths do not fit each other, or are beyond the limits.
    pub fn decode(bytes: &[u8]) -> Option<Packet<'_>> {
        let prefix = PacketPrefix {
            number: number(bytes, 0)?,
            head: number(bytes, 4)?,
            inline: number(bytes, 8)?,
            shared: number(bytes, 12)?,
        };
        let rest = bytes.get(PREFIX_BYTES..)?;
        let (head, inline) = rest.split_at_checked(prefix.head as usize)?;
        let fits = inline.len() == prefix.inline as usize
            && inline.len() <= MAX_INLINE_BYTES
            && prefix.shared as usize <= SHARED_BYTES
            && (prefix.inline == 0 || prefix.shared == 0);
        fits.then_some(Packet {
            prefix,
            head,
            inline,
        })
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(four))
}
