//! The client's end of one connection: one call at a time, each a request and its reply.
use super::address;
use super::error::LinkError;
use super::polling::PacketPolling;
use super::process_local::this_process;
use super::request::{CallFailure, Request};
use super::shared_buffer::SharedBuffer;
use super::socket::{PacketSocket, ReceivedPacket};
use super::wire::{
    Hello, MAX_HEAD_BYTES, MAX_INLINE_BYTES, MAX_LONG_HEAD_BYTES, MAX_PACKET_BYTES, Packet,
    PacketPrefix, SHARED_BYTES, Secret, ServedMember, VERSION, Welcome,
};
use crate::peer_credentials::PeerCredentials;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long the welcome to a new session may take: it is given before anything is asked of a member.
pub(super) const WELCOME_LIMIT: Duration = Duration::from_secs(10);

/// See the head of this file.
pub(super) struct Connection {
    socket: PacketSocket,
    /// Of its process: a forked child may only close its descriptors.
    process: u32,
    /// Its number in the session.
    pub number: u64,
    last_request: u32,
    shared: Option<SharedBuffer>,
    polling: PacketPolling,
    /// Where requests are written.
    head: Box<[u8]>,
    /// Where replies come.
    buffer: Box<[u8]>,
}

/// The bytes that go with a request, and where those of its reply go.
pub(super) enum BulkTransfer<'a> {
    None,
    Write(&'a [u8]),
    /// At most [`SHARED_BYTES`].
    Read(&'a mut [u8]),
    /// A descriptor comes with the reply.
    Descriptor(&'a mut Option<OwnedFd>),
}

/// Whether a request is still being carried out: asked when its reply does not come.
pub(super) type ProgressCheck<'a> = &'a dyn Fn(u64, u32) -> Result<(), LinkError>;

/// How a call failed.
pub(super) enum ConnectionError {
    /// The request has not reached the server.
    Unsent,
    /// The connection is of no more use.
    Broken(LinkError),
    /// The call cannot be made so; the connection is as it was.
    Refused(LinkError),
}

impl Connection {
    /// Connects, and begins a session or joins one; waits for each step at most `limit`.
    pub fn open(
        socket: &Path,
        session: Option<Secret>,
        limit: Duration,
    ) -> Result<(Connection, ServedMember), LinkError> {
        let not_running = |source| LinkError::NotRunning {
            socket: socket.to_path_buf(),
            source,
        };
        let silent = || LinkError::Silent {
            socket: socket.to_path_buf(),
            after: limit,
        };
        let end = address::connect(socket, limit).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => not_running(e),
            io::ErrorKind::WouldBlock => silent(),
            _ => LinkError::Local(e),
        })?;
        let owner = PeerCredentials::of(&end).map_err(LinkError::Local)?.uid;
        if owner != rustix::process::geteuid() {
            return Err(LinkError::Refused {
                socket: socket.to_path_buf(),
                why: format!(
                    "it is user {}'s; use your own store, or the mount",
                    owner.as_raw()
                ),
                errno: Errno::PERM,
            });
        }
        let end = PacketSocket::new(end, limit).map_err(LinkError::Local)?;
        let version = VERSION;
        // One that is refused at once may be closed already: what it was told is still there.
        let said = end.send_raw(&Hello { version, session }.encode());
        let mut buffer = vec![0; MAX_PACKET_BYTES].into_boxed_slice();
        let received = end.receive(&mut buffer).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => silent(),
            _ => LinkError::Local(e),
        })?;
        if received.bytes == 0 {
            let ended = said.err().unwrap_or_else(|| Errno::CONNRESET.into());
            return Err(not_running(ended));
        }
        match Welcome::decode(&buffer[..received.bytes]) {
            Some(Welcome::Served(served)) => {
                let connection = Connection {
                    socket: end,
                    process: this_process(),
                    number: served.connection,
                    last_request: 0,
                    shared: None,
                    polling: PacketPolling::new(),
                    head: vec![0; MAX_HEAD_BYTES].into(),
                    buffer,
                };
                Ok((connection, served))
            }
            Some(Welcome::Refused(why, version, text)) => {
                let socket = socket.to_path_buf();
                Err(LinkError::refused(socket, why, version, text))
            }
            None => Err(LinkError::Unreadable("no welcome")),
        }
    }

    /// How long a reply is waited for before it is asked what keeps it.
    pub fn limit(&self, limit: Duration) -> Result<(), LinkError> {
        let limited = self.socket.limit_receive(Some(limit));
        limited.map_err(LinkError::Local)
    }

    /// Whether the other end is closed.
    pub fn is_ended(&self) -> bool {
        match self.socket.receive_now(&mut [0; 1]) {
            Ok(received) => received.bytes == 0,
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Makes a call; what `read` makes of the head of the reply, and how many bytes came with it.
    pub fn call<T>(
        &mut self,
        request: &Request<'_>,
        bulk: BulkTransfer<'_>,
        check: ProgressCheck<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, LinkError>,
    ) -> Result<(T, usize), ConnectionError> {
        let number = match &bulk {
            BulkTransfer::None | BulkTransfer::Descriptor(_) => self.send(request, &[])?,
            BulkTransfer::Write(bytes) => {
                self.share_for(bytes.len(), check)?;
                self.send(request, bytes)?
            }
            BulkTransfer::Read(into) => self.begin_read(request, into.len(), check)?,
        };
        self.finish(number, bulk, check, read)
    }

    /// Sends a request with whose reply at most `bytes` come; its number, for [`Connection::finish`].
    pub fn begin_read(
        &mut self,
        request: &Request<'_>,
        bytes: usize,
        check: ProgressCheck<'_>,
    ) -> Result<u32, ConnectionError> {
        self.share_for(bytes, check)?;
        self.send(request, &[])
    }

    fn share_for(&mut self, bytes: usize, check: ProgressCheck<'_>) -> Result<(), ConnectionError> {
        match bytes > MAX_INLINE_BYTES && self.shared.is_none() {
            true => self.share(check),
            false => Ok(()),
        }
    }

    /// Takes the reply to the request that was sent last.
    pub fn finish<T>(
        &mut self,
        number: u32,
        bulk: BulkTransfer<'_>,
        check: ProgressCheck<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, LinkError>,
    ) -> Result<(T, usize), ConnectionError> {
        let mut received = self.reply(number, check)?;
        let packet = Packet::decode(&self.buffer[..received.bytes]);
        let packet = packet.ok_or_else(|| broken(LinkError::Unreadable("a packet")))?;
        let came = match packet.prefix.shared {
            0 => packet.inline.len(),
            shared => shared as usize,
        };
        match bulk {
            BulkTransfer::Read(into) => {
                let into = into.get_mut(..came);
                let into = into.ok_or_else(|| broken(LinkError::Unreadable("too many bytes")))?;
                match (packet.prefix.shared, &self.shared) {
                    (0, _) => into.copy_from_slice(packet.inline),
                    (_, Some(shared)) => {
                        let copied = shared.read(into);
                        copied.map_err(|e| broken(LinkError::Local(e)))?;
                    }
                    (_, None) => return Err(broken(LinkError::Unreadable("shared bytes"))),
                }
            }
            BulkTransfer::Descriptor(into) if came == 0 && packet.prefix.head > 0 => {
                *into = received.descriptor.take();
            }
            _ if came > 0 => return Err(broken(LinkError::Unreadable("unasked bytes"))),
            _ => {}
        }
        if packet.prefix.head == 0 {
            let head = long_head(received).map_err(broken)?;
            return Ok((read(&head).map_err(broken)?, came));
        }
        Ok((read(packet.head).map_err(broken)?, came))
    }

    /// Sends a request; its number.
    fn send(&mut self, request: &Request<'_>, bytes: &[u8]) -> Result<u32, ConnectionError> {
        let encoded = postcard::to_slice(request, &mut self.head);
        let too_long = || ConnectionError::Refused(LinkError::TooLong(MAX_HEAD_BYTES));
        let head = encoded.map_err(|_| too_long())?;
        let shared = self.shared.as_ref();
        let shared = shared.filter(|_| bytes.len() > MAX_INLINE_BYTES);
        let (inline, in_shared) = match shared {
            None => (bytes, 0),
            Some(shared) => {
                let copied = shared.write(bytes);
                copied.map_err(|e| broken(LinkError::Local(e)))?;
                (&[][..], bytes.len())
            }
        };
        if head.len() + inline.len() > MAX_HEAD_BYTES {
            return Err(too_long());
        }
        let number = self.last_request.wrapping_add(1);
        let prefix = PacketPrefix {
            number,
            head: head.len() as u32,
            inline: inline.len() as u32,
            shared: in_shared as u32,
        };
        self.socket
            .send(prefix, head, inline, None)
            .map_err(unsent)?;
        self.last_request = number;
        Ok(number)
    }

    /// Has the server share a buffer with this end.
    fn share(&mut self, check: ProgressCheck<'_>) -> Result<(), ConnectionError> {
        let local = |e| ConnectionError::Refused(LinkError::Local(e));
        let shared = SharedBuffer::new(SHARED_BYTES).map_err(local)?;
        let head = postcard::to_slice(&Request::ShareBuffer, &mut self.head);
        let head = head.map_err(|_| broken(LinkError::Unreadable("a request")))?;
        let number = self.last_request.wrapping_add(1);
        let prefix = PacketPrefix {
            number,
            head: head.len() as u32,
            ..PacketPrefix::default()
        };
        let sent = self.socket.send(prefix, head, &[], Some(shared.as_fd()));
        sent.map_err(unsent)?;
        self.last_request = number;
        let received = self.reply(number, check)?;
        let packet = Packet::decode(&self.buffer[..received.bytes]);
        let reply = packet
            .and_then(|packet| postcard::from_bytes::<Result<(), CallFailure>>(packet.head).ok());
        match reply {
            Some(Ok(())) => {
                self.shared = Some(shared);
                Ok(())
            }
            Some(Err(failure)) => {
                let errno = failure.into_error(0).errno();
                let error = LinkError::Local(errno.into());
                Err(ConnectionError::Refused(error))
            }
            None => Err(broken(LinkError::Unreadable("a packet"))),
        }
    }

    /// Whether the reply to the request that was sent last is there; it is taken then, and nobody gets it.
    pub fn has_skipped_reply(&mut self, number: u32) -> bool {
        let received = self.socket.receive_now(&mut self.buffer);
        received.is_ok_and(|received| {
            let packet = Packet::decode(&self.buffer[..received.bytes]);
            packet.is_some_and(|packet| packet.prefix.number == number)
        })
    }

    /// Waits for the reply to a request; it is in the buffer then.
    fn reply(
        &mut self,
        number: u32,
        check: ProgressCheck<'_>,
    ) -> Result<ReceivedPacket, ConnectionError> {
        loop {
            match self.polling.receive(&self.socket, &mut self.buffer) {
                Ok(received) if received.bytes == 0 => return Err(broken(LinkError::Closed)),
                Ok(received) => {
                    let answers = Packet::decode(&self.buffer[..received.bytes])
                        .is_some_and(|packet| packet.prefix.number == number);
                    return match answers {
                        true => Ok(received),
                        false => Err(broken(LinkError::Unreadable("another reply"))),
                    };
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    check(self.number, number).map_err(broken)?;
                }
                Err(e) => return Err(broken(LinkError::Local(e))),
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child has a descriptor of it too, and the server is to hear of its end from this process.
        if self.process == this_process() {
            self.socket.end();
        }
    }
}

fn broken(error: LinkError) -> ConnectionError {
    ConnectionError::Broken(error)
}

fn unsent(error: io::Error) -> ConnectionError {
    match error.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected => ConnectionError::Unsent,
        _ => broken(LinkError::Local(error)),
    }
}

/// The head of a reply that does not fit a packet.
fn long_head(received: ReceivedPacket) -> Result<Vec<u8>, LinkError> {
    let descriptor = received.descriptor;
    let descriptor = descriptor.ok_or(LinkError::Unreadable("a reply without its memory"))?;
    let fits = |len| len <= MAX_LONG_HEAD_BYTES as u64;
    let shared = SharedBuffer::received(descriptor, fits).map_err(LinkError::Local)?;
    let mut head = vec![0; shared.len()];
    shared.read(&mut head).map_err(LinkError::Local)?;
    Ok(head)
}
