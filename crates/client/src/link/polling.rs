//! Looking for the next packet for a moment before sleeping: to be woken takes longer than most calls do.
//!
//! Both ends do so. Where it was in vain some times in a row, as with a client that computes between its calls, or on a machine
//! whose processors have other work, it is left out for a while.
use super::socket::{PacketSocket, ReceivedPacket};
use std::io;
use std::time::{Duration, Instant};

/// How long is looked.
const POLL_TIME: Duration = Duration::from_micros(40);
/// So many times in vain, and it is left out.
const MAX_VAIN: u32 = 3;
/// For how many packets: at first, and at most.
const FIRST_PAUSE: u32 = 16;
const MAX_PAUSE: u32 = 1024;

/// What one end knows of whether it is worth it.
#[derive(Debug)]
pub(super) struct PacketPolling {
    vain: u32,
    /// Packets until it is tried again.
    left_out: u32,
    pause: u32,
}

impl PacketPolling {
    pub fn new() -> PacketPolling {
        PacketPolling {
            vain: 0,
            left_out: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Receives one packet, as [`PacketSocket::receive`] does.
    pub fn receive(
        &mut self,
        socket: &PacketSocket,
        buffer: &mut [u8],
    ) -> io::Result<ReceivedPacket> {
        if self.left_out > 0 {
            self.left_out -= 1;
            return socket.receive(buffer);
        }
        let end = Instant::now() + POLL_TIME;
        loop {
            match socket.receive_now(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                received => {
                    (self.vain, self.pause) = (0, FIRST_PAUSE);
                    return received;
                }
            }
            if Instant::now() >= end {
                break;
            }
            // Whoever is to send it may need this processor.
            std::thread::yield_now();
        }
        self.vain += 1;
        if self.vain >= MAX_VAIN {
            (self.vain, self.left_out) = (0, self.pause);
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        socket.receive(buffer)
    }
}
