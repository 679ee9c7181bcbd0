//! The packets of one connection: hello, then requests and replies until the client goes.
use super::acceptor::{AcceptorHandle, WatchedSession, process_end};
use super::session::{ReplyBytes, ServedReply, Session, SessionTable};
use crate::link::polling::PacketPolling;
use crate::link::request::Request;
use crate::link::shared_buffer::SharedBuffer;
use crate::link::socket::PacketSocket;
use crate::link::wire::{
    Hello, MAX_HEAD_BYTES, MAX_LONG_HEAD_BYTES, MAX_PACKET_BYTES, Packet, PacketPrefix, Refusal,
    SHARED_BYTES, ServedMember, VERSION, Welcome,
};
use crate::peer_credentials::PeerCredentials;
use forebay_server::Error;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a client may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// A connection as its session knows it.
pub(super) struct ServedConnection {
    pub socket: PacketSocket,
    /// Requests that have come, and that were answered.
    pub begun: AtomicU32,
    pub answered: AtomicU32,
}

/// Serves one connection until its end.
pub(super) fn serve(
    socket: OwnedFd,
    permit: Arc<()>,
    sessions: &Arc<SessionTable>,
    acceptor: &AcceptorHandle,
) -> io::Result<()> {
    let credentials = PeerCredentials::of(&socket)?;
    let socket = PacketSocket::new(socket, sessions.limits.deadline)?;
    socket.limit_receive(Some(HELLO_LIMIT))?;
    let mut buffer = vec![0; MAX_PACKET_BYTES];
    // Received before anyone is refused: closing a connection on which something is unread would cost the client the answer.
    let received = socket.receive(&mut buffer)?;
    let own = rustix::process::geteuid();
    if credentials.uid != own {
        let (peer, own) = (credentials.uid.as_raw(), own.as_raw());
        tracing::warn!("refused user {peer} on the link");
        let why = format!("it belongs to user {own}, and you are user {peer}; use the mount");
        return refuse(&socket, Refusal::User, why);
    }
    let Some(hello) = Hello::decode(&buffer[..received.bytes]) else {
        let why = "it was sent something else than a hello; use a client of Forebay".into();
        return refuse(&socket, Refusal::NoHello, why);
    };
    if hello.version != VERSION {
        let theirs = hello.version;
        let why = format!("it speaks version {VERSION} of the link, and you version {theirs}");
        return refuse(&socket, Refusal::Version, why);
    }
    let delegate = &sessions.delegate;
    let served = |session: &Session, connection| {
        let deadline = sessions.limits.deadline.as_millis();
        Welcome::Served(ServedMember {
            session: session.secret,
            connection,
            member: delegate.member(),
            members: delegate.members(),
            deadline_ms: deadline.min(u128::from(u32::MAX)) as u32,
        })
    };
    let Some(secret) = hello.session else {
        let Some(session) = sessions.begin(credentials.process()) else {
            return refuse(&socket, Refusal::Stopping, "it stops".into());
        };
        let welcomed = socket.send_raw(&served(&session, 0).encode());
        acceptor.watch(WatchedSession {
            session,
            liveness: socket,
            process: credentials.pid.and_then(process_end),
            _permit: permit,
        });
        return welcomed;
    };
    let Some(session) = sessions.find(&secret) else {
        let why = "the session has ended; connect again".into();
        return refuse(&socket, Refusal::UnknownSession, why);
    };
    let connection = Arc::new(ServedConnection {
        socket,
        begun: AtomicU32::new(0),
        answered: AtomicU32::new(0),
    });
    let Some(joined) = session.join(&connection) else {
        let why = "the session has ended; connect again".into();
        return refuse(&connection.socket, Refusal::UnknownSession, why);
    };
    let socket = &connection.socket;
    socket.send_raw(&served(&session, joined.number).encode())?;
    socket.limit_receive(None)?;
    let mut requests = Requests {
        session: &session,
        connection: &connection,
        shared: None,
        polling: PacketPolling::new(),
        buffer,
    };
    while requests.serve_one()? {}
    Ok(())
}

fn refuse(socket: &PacketSocket, why: Refusal, text: String) -> io::Result<()> {
    socket.send_raw(&Welcome::Refused(why, VERSION, text).encode())
}

/// The requests of one connection.
struct Requests<'a> {
    session: &'a Session,
    connection: &'a ServedConnection,
    shared: Option<SharedBuffer>,
    polling: PacketPolling,
    buffer: Vec<u8>,
}

impl Requests<'_> {
    /// Receives a request, carries it out and answers it; `false`: the client is gone.
    fn serve_one(&mut self) -> io::Result<bool> {
        let socket = &self.connection.socket;
        let received = self.polling.receive(socket, &mut self.buffer)?;
        if received.bytes == 0 {
            return Ok(false);
        }
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let packet = Packet::decode(&self.buffer[..received.bytes]);
        let packet = packet.ok_or_else(|| wrong("no packet of the link"))?;
        let number = packet.prefix.number;
        let expected = self.connection.begun.load(Ordering::SeqCst).wrapping_add(1);
        if number != expected {
            return Err(wrong("a request out of order"));
        }
        let (request, rest) = postcard::take_from_bytes::<Request<'_>>(packet.head)
            .map_err(|_| wrong("no request of the link"))?;
        if !rest.is_empty() {
            return Err(wrong("a request with something behind it"));
        }
        self.connection.begun.store(number, Ordering::SeqCst);
        let reply = match request {
            Request::ShareBuffer => {
                let fits = |len| len == SHARED_BYTES as u64;
                match received.descriptor {
                    Some(descriptor) => {
                        self.shared = Some(SharedBuffer::received(descriptor, fits)?);
                        ServedReply::of(&Ok(()))
                    }
                    // This process has no number left for it, so the kernel has dropped it.
                    None => ServedReply::of(&Err::<(), _>(Errno::MFILE.into())),
                }
            }
            Request::ChangeCounters => {
                self.reply_with(number, self.session.change_counters())?;
                return Ok(true);
            }
            Request::Segment(segment) => match self.session.segment(segment) {
                Ok(file) => {
                    self.reply_with(number, file.as_fd())?;
                    return Ok(true);
                }
                Err(e) => ServedReply::of(&Err::<(), _>(e)),
            },
            request => {
                let shared = self.shared.as_ref();
                let bytes = packet.inline;
                match packet.prefix.shared as usize {
                    0 => self.session.answer(request, bytes, shared),
                    len => {
                        let shared = shared.ok_or_else(|| wrong("no buffer is shared"))?;
                        let mut copy = self.session.copies.take();
                        let copied = copy.get_mut(..len).ok_or_else(|| wrong("too many bytes"))?;
                        // From here on the client cannot change them any more.
                        shared.read(copied)?;
                        let reply = self.session.answer(request, copied, Some(shared));
                        self.session.copies.give_back(copy);
                        reply
                    }
                }
            }
        };
        self.reply(number, reply)?;
        self.connection.answered.store(number, Ordering::SeqCst);
        Ok(true)
    }

    /// Replies with a descriptor, and nothing else.
    fn reply_with(&self, number: u32, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let head = ServedReply::of(&Ok(())).head;
        let prefix = PacketPrefix {
            number,
            head: head.len() as u32,
            ..PacketPrefix::default()
        };
        let socket = &self.connection.socket;
        socket.send(prefix, &head, &[], Some(descriptor))?;
        self.connection.answered.store(number, Ordering::SeqCst);
        Ok(())
    }

    fn reply(&self, number: u32, reply: ServedReply) -> io::Result<()> {
        let mut head = reply.head;
        let socket = &self.connection.socket;
        let mut prefix = PacketPrefix {
            number,
            head: head.len() as u32,
            ..PacketPrefix::default()
        };
        if head.len() > MAX_LONG_HEAD_BYTES {
            let why = "the answer is longer than the link carries; use the mount, or `forebay`";
            let refused = Err::<(), _>(Error::Refused(why.into()));
            head = ServedReply::of(&refused).head;
            prefix.head = head.len() as u32;
        }
        if head.len() > MAX_HEAD_BYTES {
            let memory = SharedBuffer::of(&head)?;
            prefix.head = 0;
            return socket.send(prefix, &[], &[], Some(memory.as_fd()));
        }
        match reply.bytes {
            ReplyBytes::Inline(bytes) => {
                prefix.inline = bytes.len() as u32;
                socket.send(prefix, &head, &bytes, None)
            }
            ReplyBytes::Shared(len) => {
                prefix.shared = len;
                socket.send(prefix, &head, &[], None)
            }
        }
    }
}
