//! Safe wrappers of the calls of MPI: buffers live as long as MPI may touch them.
//!
//! Everything here stays on the thread that called [`init`]: the types hold a pointer that is not `Send`. So
//! `MPI_THREAD_FUNNELED` is enough. Errors are returned, not fatal.
//!
//! **Invariant:** a buffer given to MPI is freed only after MPI has said that it is done with it. A transfer that is
//! given up (its peer is dead) leaks its buffer: MPI may still read or write it, and cancelling a send is
//! not something MPI libraries do.

use bytes::Bytes;
use mpi::ffi;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};

/// The longest single MPI message of a large buffer: how long one copy may keep the progress thread.
const MAX_PIECE: usize = 8 << 20;

/// Tag of first messages.
const TAG_FIRST: c_int = 1;
/// Tag of pieces. A sender's pieces follow in the order of its first messages, and are received in that order.
const TAG_PIECES: c_int = 2;

/// What MPI said, in its words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub(super) struct MpiError {
    call: &'static str,
    text: String,
}

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the length MPI asks for; `len` is written only.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
    let text = &text[..(len.max(0) as usize).min(text.len())];
    Err(MpiError {
        call,
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

/// The MPI library this program runs with, as it calls itself.
pub fn library() -> String {
    const ROOM: usize = 8192;
    // SAFETY: a constant of the library; read only.
    let asked = unsafe { ffi::RSMPI_MAX_LIBRARY_VERSION_STRING } as usize;
    let mut text = vec![0u8; ROOM.max(asked + 1)];
    let mut len = 0;
    // SAFETY: allowed before `MPI_Init`; the buffer is at least as long as the library asks for.
    unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast(), &mut len) };
    text.truncate(len.max(0) as usize);
    String::from_utf8_lossy(&text)
        .trim_end_matches('\0')
        .to_owned()
}

/// The name of this host, as MPI knows it. After [`init`], on its thread.
pub(super) fn host() -> String {
    // SAFETY: a constant of the library; read only.
    let room = unsafe { ffi::RSMPI_MAX_PROCESSOR_NAME } as usize;
    let mut name = vec![0u8; room + 1];
    let mut len = 0;
    // SAFETY: the buffer is at least as long as the library asks for.
    unsafe { ffi::MPI_Get_processor_name(name.as_mut_ptr().cast(), &mut len) };
    name.truncate(len.max(0) as usize);
    String::from_utf8_lossy(&name).into_owned()
}

/// Our own copy of the communicator of all ranks.
pub(super) struct Comm {
    raw: ffi::MPI_Comm,
    pub rank: c_int,
    pub size: c_int,
    /// Not `Send`: MPI is called from one thread.
    here: PhantomData<*const ()>,
}

/// Starts MPI. Once per process, and from then on MPI is called on this thread only.
pub(super) fn init() -> Result<Comm, MpiError> {
    let mut given = 0;
    let mut comm = Comm {
        // SAFETY: a constant of the library; read only.
        raw: unsafe { ffi::RSMPI_COMM_NULL },
        rank: 0,
        size: 0,
        here: PhantomData,
    };
    // SAFETY: null arguments are allowed since MPI-2; the caller starts MPI once. The handles are the library's own,
    // and all pointers are to locals that outlive their call.
    unsafe {
        let null = std::ptr::null_mut();
        let wanted = ffi::RSMPI_THREAD_FUNNELED;
        let code = ffi::MPI_Init_thread(null, null.cast(), wanted, &mut given);
        check("MPI_Init_thread", code)?;
        let world = ffi::RSMPI_COMM_WORLD;
        let handler = ffi::RSMPI_ERRORS_RETURN;
        let code = ffi::MPI_Comm_set_errhandler(world, handler);
        check("MPI_Comm_set_errhandler", code)?;
        check("MPI_Comm_dup", ffi::MPI_Comm_dup(world, &mut comm.raw))?;
        let code = ffi::MPI_Comm_set_errhandler(comm.raw, handler);
        check("MPI_Comm_set_errhandler", code)?;
        let code = ffi::MPI_Comm_rank(comm.raw, &mut comm.rank);
        check("MPI_Comm_rank", code)?;
        let code = ffi::MPI_Comm_size(comm.raw, &mut comm.size);
        check("MPI_Comm_size", code)?;
        if given < wanted {
            return Err(MpiError {
                call: "MPI_Init_thread",
                text: "this MPI cannot run beside other threads".into(),
            });
        }
    }
    Ok(comm)
}

impl Comm {
    /// Sends a first message.
    pub fn send_first(&self, bytes: Bytes, to: c_int) -> Result<PendingSend, MpiError> {
        self.send(bytes, to, TAG_FIRST, usize::MAX)
    }

    /// Sends a large buffer in pieces.
    pub fn send_pieces(&self, bytes: Bytes, to: c_int) -> Result<PendingSend, MpiError> {
        self.send(bytes, to, TAG_PIECES, MAX_PIECE)
    }

    fn send(
        &self,
        bytes: Bytes,
        to: c_int,
        tag: c_int,
        cut: usize,
    ) -> Result<PendingSend, MpiError> {
        let mut sending = PendingSend {
            requests: Requests::default(),
            bytes: ManuallyDrop::new(bytes),
        };
        let mut at = 0;
        while at < sending.bytes.len() || sending.requests.is_empty() {
            let piece = &sending.bytes[at..(at.saturating_add(cut)).min(sending.bytes.len())];
            let len = count(piece.len())?;
            // SAFETY: the piece lies in `bytes`, which `Sending` frees only when all its requests are done.
            let code = unsafe {
                let request = sending.requests.next();
                let byte = ffi::RSMPI_UINT8_T;
                ffi::MPI_Isend(piece.as_ptr().cast(), len, byte, to, tag, self.raw, request)
            };
            check("MPI_Isend", code)?;
            at += piece.len();
        }
        Ok(sending)
    }

    /// The next first message that has arrived, with its sender, being received.
    pub fn probe(&self) -> Result<Option<(c_int, PendingReceive)>, MpiError> {
        let mut found = 0;
        let mut message = MaybeUninit::<ffi::MPI_Message>::uninit();
        let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: all pointers are to locals; message and status are read only if MPI says that it filled them. The
        // buffer has room for `len` bytes, and `Receiving` frees it only when the request is done.
        unsafe {
            let (any, comm) = (ffi::RSMPI_ANY_SOURCE, self.raw);
            let (to_message, to_status) = (message.as_mut_ptr(), status.as_mut_ptr());
            let code = ffi::MPI_Improbe(any, TAG_FIRST, comm, &mut found, to_message, to_status);
            check("MPI_Improbe", code)?;
            if found == 0 {
                return Ok(None);
            }
            let mut len = 0;
            let code = ffi::MPI_Get_count(to_status, ffi::RSMPI_UINT8_T, &mut len);
            check("MPI_Get_count", code)?;
            let mut receiving = PendingReceive::room(len.max(0) as usize)?;
            let buffer = receiving.buffer.as_mut_ptr().cast::<c_void>();
            let request = receiving.requests.next();
            let byte = ffi::RSMPI_UINT8_T;
            let code = ffi::MPI_Imrecv(buffer, len, byte, to_message, request);
            check("MPI_Imrecv", code)?;
            Ok(Some(((*to_status).MPI_SOURCE, receiving)))
        }
    }

    /// Receives a buffer of `len` bytes that `from` sends in pieces.
    pub fn receive_pieces(&self, len: usize, from: c_int) -> Result<PendingReceive, MpiError> {
        let mut receiving = PendingReceive::room(len)?;
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(MAX_PIECE);
            let piece_len = count(piece)?;
            // SAFETY: `at + piece` is within the capacity, and `Receiving` frees the buffer only when all its requests
            // are done.
            let code = unsafe {
                let place = receiving.buffer.as_mut_ptr().add(at).cast::<c_void>();
                let request = receiving.requests.next();
                let byte = ffi::RSMPI_UINT8_T;
                ffi::MPI_Irecv(place, piece_len, byte, from, TAG_PIECES, self.raw, request)
            };
            check("MPI_Irecv", code)?;
            at += piece;
        }
        Ok(receiving)
    }

    /// Begins to gather `own` from all ranks, by MPI rank.
    pub fn gather(&self, own: Vec<u8>) -> Result<PendingReceive, MpiError> {
        let len = count(own.len())?;
        let mut receiving = PendingReceive::room(own.len() * self.size as usize)?;
        // The status of a collective operation has no count.
        receiving.requests.count = false;
        receiving.buffer.resize(receiving.len, 0);
        receiving.own = ManuallyDrop::new(own);
        // SAFETY: both buffers have the lengths given; `Receiving` frees neither before the request is done.
        let code = unsafe {
            let (from, to) = (receiving.own.as_ptr(), receiving.buffer.as_mut_ptr());
            let request = receiving.requests.next();
            let byte = ffi::RSMPI_UINT8_T;
            let (from, to) = (from.cast(), to.cast());
            ffi::MPI_Iallgather(from, len, byte, to, len, byte, self.raw, request)
        };
        check("MPI_Iallgather", code)?;
        Ok(receiving)
    }

    /// Ends MPI. Waits for the others to do so.
    pub fn finalize(self) -> Result<(), MpiError> {
        // SAFETY: the only `Comm` is used up; transfers under way keep their buffers.
        check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }
}

fn count(len: usize) -> Result<c_int, MpiError> {
    c_int::try_from(len).map_err(|_| MpiError {
        call: "a message",
        text: format!("{len} bytes are more than MPI can count"),
    })
}

/// The requests of one transfer, done from the first to the last.
#[derive(Default)]
struct Requests {
    list: Vec<ffi::MPI_Request>,
    done: usize,
    /// Whether to add up what was received.
    count: bool,
    received: usize,
}

impl Requests {
    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn next(&mut self) -> *mut ffi::MPI_Request {
        // SAFETY: a constant of the library; read only.
        self.list.push(unsafe { ffi::RSMPI_REQUEST_NULL });
        // Just pushed: the last element.
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    fn test(&mut self) -> Result<bool, MpiError> {
        while let Some(request) = self.list.get_mut(self.done) {
            let mut done = 0;
            let mut len = 0;
            let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
            // SAFETY: a request that MPI gave us, and that it sets to null when it is done; the status is read only
            // when it is done, and of a receive.
            unsafe {
                let code = ffi::MPI_Test(request, &mut done, status.as_mut_ptr());
                check("MPI_Test", code)?;
                if done == 0 {
                    return Ok(false);
                }
                if self.count {
                    let byte = ffi::RSMPI_UINT8_T;
                    let code = ffi::MPI_Get_count(status.as_ptr(), byte, &mut len);
                    check("MPI_Get_count", code)?;
                }
            }
            self.received += len.max(0) as usize;
            self.done += 1;
        }
        Ok(true)
    }

    fn are_done(&self) -> bool {
        self.done == self.list.len()
    }
}

/// Bytes on their way out.
pub(super) struct PendingSend {
    requests: Requests,
    bytes: ManuallyDrop<Bytes>,
}

impl PendingSend {
    /// Whether all is sent.
    pub fn test(&mut self) -> Result<bool, MpiError> {
        self.requests.test()
    }
}

impl Drop for PendingSend {
    fn drop(&mut self) {
        if self.requests.are_done() {
            // SAFETY: dropped once, here, and MPI is done with it.
            unsafe { ManuallyDrop::drop(&mut self.bytes) };
        }
    }
}

/// A buffer being received. Its length is 0 until it is.
pub(super) struct PendingReceive {
    requests: Requests,
    buffer: ManuallyDrop<Vec<u8>>,
    len: usize,
    /// What this rank gives to a gathering, which MPI reads meanwhile.
    own: ManuallyDrop<Vec<u8>>,
}

impl PendingReceive {
    fn room(len: usize) -> Result<PendingReceive, MpiError> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len).map_err(|_| MpiError {
            call: "a message",
            text: format!("no memory for its {len} bytes"),
        })?;
        let requests = Requests {
            count: true,
            ..Requests::default()
        };
        Ok(PendingReceive {
            requests,
            buffer: ManuallyDrop::new(buffer),
            len,
            own: ManuallyDrop::default(),
        })
    }

    /// The bytes, when all are there. Once.
    pub fn test(&mut self) -> Result<Option<Bytes>, MpiError> {
        if !self.requests.test()? {
            return Ok(None);
        }
        if self.requests.count && self.requests.received != self.len {
            return Err(MpiError {
                call: "a message",
                text: format!("{} bytes for {}", self.requests.received, self.len),
            });
        }
        let mut buffer = std::mem::take(&mut *self.buffer);
        let len = std::mem::take(&mut self.len);
        // SAFETY: capacity for `len` bytes was reserved, and all are filled: each piece was received at its place, none
        // is longer than asked for (that is an error), and their lengths add up; a gathering began with zeros.
        unsafe { buffer.set_len(len) };
        Ok(Some(buffer.into()))
    }
}

impl Drop for PendingReceive {
    fn drop(&mut self) {
        if self.requests.are_done() {
            // SAFETY: dropped once, here, and MPI is done with them.
            unsafe {
                ManuallyDrop::drop(&mut self.buffer);
                ManuallyDrop::drop(&mut self.own);
            }
        }
    }
}
