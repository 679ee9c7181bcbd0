//! The bytes of a session moved by MPI.

use super::idle;
use super::safe_calls::{self, Comm, MpiError, PendingReceive, PendingSend};
use bytes::Bytes;
use forebay_fabric::session::{ByteTransport, Pause, Waker};
use std::ffi::c_int;
use std::time::Duration;

/// MPI, started; a process is an MPI rank.
pub(super) struct MpiTransport {
    comm: Comm,
    gathering: Option<PendingReceive>,
}

impl MpiTransport {
    /// Starts MPI. Once per process.
    pub fn init() -> Result<MpiTransport, MpiError> {
        Ok(MpiTransport {
            comm: safe_calls::init()?,
            gathering: None,
        })
    }
}

impl ByteTransport for MpiTransport {
    const NAME: &'static str = "MPI";
    const PROCESS: &'static str = "MPI rank";
    const START_ADVICE: &'static str =
        "start the servers with the mpirun or srun of the MPI they were built for";
    /// MPI libraries do not look everywhere each time.
    const POLLS_AFTER_PAUSE: usize = 2;
    type Error = MpiError;
    type PendingSend = PendingSend;
    type PendingReceive = PendingReceive;

    fn process(&self) -> u32 {
        self.comm.rank as u32
    }

    fn processes(&self) -> u32 {
        self.comm.size as u32
    }

    fn host(&self) -> String {
        safe_calls::host()
    }

    fn exchange(&mut self, own: Vec<u8>) -> Result<(), MpiError> {
        self.gathering = Some(self.comm.gather(own)?);
        Ok(())
    }

    fn poll_exchange(&mut self) -> Result<Option<Bytes>, MpiError> {
        match &mut self.gathering {
            Some(gathering) => gathering.test(),
            None => Ok(None),
        }
    }

    fn send_first(&mut self, to: u32, bytes: Bytes) -> Result<PendingSend, MpiError> {
        self.comm.send_first(bytes, to as c_int)
    }

    fn send_large(&mut self, to: u32, bytes: Bytes) -> Result<PendingSend, MpiError> {
        self.comm.send_pieces(bytes, to as c_int)
    }

    fn poll_send(&mut self, sending: &mut PendingSend) -> Result<bool, MpiError> {
        sending.test()
    }

    fn poll_first(&mut self) -> Result<Option<(u32, PendingReceive)>, MpiError> {
        let found = self.comm.probe()?;
        Ok(found.map(|(rank, receiving)| (rank as u32, receiving)))
    }

    fn receive_large(&mut self, from: u32, len: usize) -> Result<PendingReceive, MpiError> {
        self.comm.receive_pieces(len, from as c_int)
    }

    fn poll_receive(&mut self, receiving: &mut PendingReceive) -> Result<Option<Bytes>, MpiError> {
        receiving.test()
    }

    fn pause(&self, idle: Duration, moving: bool) -> Pause {
        idle::pause(idle, moving)
    }

    /// Arrivals do not end it, as MPI has nothing to wait on; parking costs one system call each way.
    fn sleep(&mut self, at_most: Duration) {
        std::thread::park_timeout(at_most);
    }

    fn waker(&self) -> Waker {
        let thread = std::thread::current();
        Box::new(move || thread.unpark())
    }

    fn finish(self) -> Result<(), MpiError> {
        self.comm.finalize()
    }
}
