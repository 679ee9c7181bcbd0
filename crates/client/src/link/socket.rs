//! One end of a connection: whole packets, and at most one descriptor with each.
use super::wire::{MAX_PACKET_BYTES, PacketPrefix};
use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// A connected `SEQPACKET` socket.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

/// A packet that has come: its length, and the descriptor that came with it. Length 0: the other end is closed.
pub(crate) struct ReceivedPacket {
    pub bytes: usize,
    pub descriptor: Option<OwnedFd>,
}

impl PacketSocket {
    /// An unconnected one, of the kind that the link uses.
    pub fn unconnected() -> io::Result<OwnedFd> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        Ok(rustix::net::socket_with(
            family,
            kind,
            SocketFlags::CLOEXEC,
            None,
        )?)
    }

    /// Of a connected socket. A send waits at most `limit`, so does a receive.
    pub fn new(socket: OwnedFd, limit: Duration) -> io::Result<PacketSocket> {
        // Where the kernel allows less, the longest packets fail.
        set_socket_send_buffer_size(&socket, 2 * MAX_PACKET_BYTES)?;
        let socket = PacketSocket(socket);
        set_socket_timeout(&socket.0, Timeout::Send, Some(limit))?;
        socket.limit_receive(Some(limit))?;
        Ok(socket)
    }

    /// How long a receive waits; `None`: until something comes.
    pub fn limit_receive(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, limit)?)
    }

    /// Sends one packet of its own form.
    pub fn send_raw(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL;
        retry_on_intr(|| rustix::net::send(&self.0, bytes, flags))?;
        Ok(())
    }

    /// The same, if there is room for it now.
    pub fn send_now(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry_on_intr(|| rustix::net::send(&self.0, bytes, flags))?;
        Ok(())
    }

    /// Sends a request or a reply.
    pub fn send(
        &self,
        prefix: PacketPrefix,
        head: &[u8],
        inline: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let prefix = prefix.encode();
        let parts = [
            IoSlice::new(&prefix),
            IoSlice::new(head),
            IoSlice::new(inline),
        ];
        let descriptors = descriptor.map(|fd| [fd]);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let flags = SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptors) = &descriptors {
            // Fits: the space is for one.
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        retry_on_intr(|| rustix::net::sendmsg(&self.0, &parts, &mut control, flags))?;
        Ok(())
    }

    /// Receives one packet. `WouldBlock`: none came in time.
    ///
    /// # Errors
    /// `InvalidData` for one that is longer than `buffer`.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<ReceivedPacket> {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// The same, if one is there now.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<ReceivedPacket> {
        self.receive_with(buffer, RecvFlags::DONTWAIT)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<ReceivedPacket> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut reset = false;
        let message = loop {
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = flags | RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
                Err(Errno::INTR) => {}
                // The other end was closed with something unread. What it had sent before comes after that.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(Errno::CONNRESET) => {
                    return Ok(ReceivedPacket {
                        bytes: 0,
                        descriptor: None,
                    });
                }
                received => break received?,
            }
        };
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a packet is longer than any of the link",
            ));
        }
        Ok(ReceivedPacket {
            bytes: message.bytes,
            descriptor,
        })
    }

    /// Ends the connection for both sides, whoever else has a descriptor of it.
    pub fn end(&self) {
        // Fails only if it has ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
