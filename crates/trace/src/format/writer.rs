//! Writing a trace block by block, while it grows.

use super::body::{self, CallCoder};
use super::{BLOCK_CALLS, CALLS, END, FILES, MAGIC, MAX_BODY, MAX_TEXT, PROCESSES, VERSION};
use crate::recording::{Call, Process, TraceFile};
use std::io::{self, Write};

/// Writes a trace as it comes. What is written and flushed can be read even if [`Writer::finish`] is never called.
pub struct Writer<W> {
    to: W,
    total: u64,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl<W: Write> Writer<W> {
    /// Writes the header. `begun` is nanoseconds since 1970; `ranks` 0 if not known in advance.
    ///
    /// # Errors
    /// Those of `to`, so for all calls; `InvalidInput` if the name is too long.
    pub fn new(mut to: W, name: &str, begun: u64, ranks: u32) -> io::Result<Writer<W>> {
        let len = u32::try_from(name.len()).ok().filter(|l| *l <= MAX_TEXT);
        let len = len.ok_or_else(|| invalid("the trace's name is too long"))?;
        let mut header = Vec::from(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend([0; 2]);
        header.extend(begun.to_le_bytes());
        header.extend(ranks.to_le_bytes());
        header.extend(len.to_le_bytes());
        header.extend(name.as_bytes());
        header.extend(forebay_checksum::crc32c(&header).to_le_bytes());
        to.write_all(&header)?;
        Ok(Writer { to, total: 0 })
    }

    /// Names files: numbers in order from 0, or again for another path.
    ///
    /// # Errors
    /// As above; `InvalidInput` for a path of more than some megabytes.
    pub fn files<'a>(
        &mut self,
        files: impl IntoIterator<Item = (u32, &'a TraceFile)>,
    ) -> io::Result<()> {
        let put = |out: &mut Vec<u8>, (number, file)| body::put_file(out, number, file);
        self.items(FILES, files, put)
    }

    /// Says who ranks are.
    ///
    /// # Errors
    /// As above.
    pub fn processes<'a>(
        &mut self,
        processes: impl IntoIterator<Item = (u32, &'a Process)>,
    ) -> io::Result<()> {
        let put = |out: &mut Vec<u8>, (rank, process)| body::put_process(out, rank, process);
        self.items(PROCESSES, processes, put)
    }

    fn items<T>(
        &mut self,
        kind: u8,
        items: impl IntoIterator<Item = T>,
        mut put: impl FnMut(&mut Vec<u8>, T),
    ) -> io::Result<()> {
        let (mut out, mut count) = (Vec::new(), 0);
        for item in items {
            put(&mut out, item);
            count += 1;
            if count == 1 && out.len() > MAX_BODY {
                return Err(invalid("a name in the trace is too long"));
            }
            if out.len() > MAX_BODY / 8 {
                self.block(kind, count, &out)?;
                (count, _) = (0, out.clear());
            }
        }
        match count {
            0 => Ok(()),
            _ => self.block(kind, count, &out),
        }
    }

    /// Calls of named files.
    ///
    /// # Errors
    /// As above.
    pub fn calls(&mut self, calls: &[Call]) -> io::Result<()> {
        for calls in calls.chunks(BLOCK_CALLS) {
            let mut out = Vec::with_capacity(calls.len() * 12);
            let mut state = CallCoder::default();
            calls.iter().for_each(|call| state.put(&mut out, call));
            self.block(CALLS, calls.len() as u32, &out)?;
            self.total += calls.len() as u64;
        }
        Ok(())
    }

    /// Hands what was written on.
    ///
    /// # Errors
    /// As above.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Writes the end; gives what was written to, and the number of calls.
    ///
    /// # Errors
    /// As above.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let total = self.total;
        self.block(END, 1, &total.to_le_bytes())?;
        self.to.flush()?;
        Ok((self.to, total))
    }

    fn block(&mut self, kind: u8, count: u32, body: &[u8]) -> io::Result<()> {
        if body.len() > MAX_BODY {
            return Err(invalid("a name in the trace is too long"));
        }
        let mut head = vec![kind, 0, 0, 0];
        head.extend((body.len() as u32).to_le_bytes());
        head.extend(count.to_le_bytes());
        head.extend(forebay_checksum::crc32c(body).to_le_bytes());
        head.extend(forebay_checksum::crc32c(&head).to_le_bytes());
        self.to.write_all(&head)?;
        self.to.write_all(body)
    }
}
