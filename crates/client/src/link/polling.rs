//! Adaptive polling: each end polls briefly for the next packet before it blocks, because to be woken takes longer than most calls do.
//!
//! After [`MAX_FRUITLESS_POLLS`] polls in a row that brought nothing (the other end computes between its calls, or the processors have other
//! work) it blocks at once for a number of packets, twice as many each time.
use super::socket::{PacketSocket, ReceivedPacket};
use std::io;
use std::time::{Duration, Instant};

/// How long is looked.
const POLL_TIME: Duration = Duration::from_micros(40);
/// So many times in fruitless, and it is left out.
const MAX_FRUITLESS_POLLS: u32 = 3;
/// For how many packets: at first, and at most.
const FIRST_PAUSE: u32 = 16;
const MAX_PAUSE: u32 = 1024;

/// What one end knows of whether it is worth it.
#[derive(Debug)]
pub(super) struct PacketPolling {
    fruitless: u32,
    /// Packets until it is tried again.
    unpolled: u32,
    pause: u32,
}

impl PacketPolling {
    pub fn new() -> PacketPolling {
        PacketPolling {
            fruitless: 0,
            unpolled: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Receives one packet, as [`PacketSocket::receive`] does.
    pub fn receive(
        &mut self,
        socket: &PacketSocket,
        buffer: &mut [u8],
    ) -> io::Result<ReceivedPacket> {
        if self.unpolled > 0 {
            self.unpolled -= 1;
            return socket.receive(buffer);
        }
        let end = Instant::now() + POLL_TIME;
        loop {
            match socket.receive_now(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                received => {
                    (self.fruitless, self.pause) = (0, FIRST_PAUSE);
                    return received;
                }
            }
            if Instant::now() >= end {
                break;
            }
            // Whoever is to send it may need this processor.
            std::thread::yield_now();
        }
        self.fruitless += 1;
        if self.fruitless >= MAX_FRUITLESS_POLLS {
            (self.fruitless, self.unpolled) = (0, self.pause);
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        socket.receive(buffer)
    }
}
