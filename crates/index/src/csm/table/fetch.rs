//! Reading blocks of one table file for concurrent requests: from the cache, or in shared rounds of I/O (MetaKV, section
//! III-B).
//!
//! Requests for blocks that are not in memory wait in the table's [`PendingBlockReads`](crate::cluster::PendingBlockReads). One waiting thread is the
//! reader: it takes a round, which is the region with the most requests a block, reads it in one I/O, and gives each request
//! its blocks. Requests that arrive during the read join the next round. Once the reader has its own blocks, another waiting
//! thread becomes the reader.
//!
//! # Invariants
//! - A waiting request is in the table's `PendingBlockReads`, or in the round that is being read. When a reader ends, even by a
//!   panic, the requests of its round are answered and all waiting threads are woken; the first of them becomes the reader.
//! - A read that fails fails the requests of its round, and no others.
use super::block_map::BlockMap;
use super::cached_table::{BlockTicket, CachedTableState, RawBlock, ReadPiece, SharedBlockTicket};
use super::reader::Table;
use crate::cluster::{ReadRound, Region};
use crate::csm::stats::count;
use forebay_storage::Result;
use parking_lot::Mutex;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A region is widened to the blocks that lie wholly in these units of the file, in bytes. Compressed blocks are small, dozens to a
/// page of the system, and reading a few pages takes hardly longer than one. The other blocks are kept: that saves a read of the
/// same pages for each of them. Of 8 M strided records, random gets with nothing in memory took 352 reads of 7.6 MB with these
/// units, and 4,276 reads of 22 MB with pages.
const WIDE_UNIT: u64 = 32 << 10;
/// The units while hardly anybody asks for those other blocks: the system reads so much anyway.
const NARROW_UNIT: u64 = 4 << 10;

/// The region, widened at both ends to whole units of `unit` bytes.
fn widened(region: Region, places: &BlockMap, unit: u64) -> Region {
    let start = places.offset(region.first as usize);
    let end = places.end(region.last as usize);
    let (from, to) = (start - start % unit, end.next_multiple_of(unit));
    // The first that starts there or after: the one after the last that ends before.
    let first = match from.checked_sub(1) {
        Some(before) => places.within(before) + 1,
        None => 0,
    };
    Region {
        first: (first as u32).min(region.first),
        last: (places.within(to) as u32)
            .saturating_sub(1)
            .max(region.last),
    }
}

/// One block that somebody wants.
#[derive(Clone)]
pub struct WantedBlock {
    /// Its number.
    pub block: u32,
    /// How many requests are for something in it.
    pub requests: u32,
    /// Its bytes, once fetched.
    pub raw: Option<RawBlock>,
}

impl WantedBlock {
    /// Of one request, not fetched yet.
    pub fn one(block: u32) -> WantedBlock {
        WantedBlock {
            block,
            requests: 1,
            raw: None,
        }
    }
}

impl Table {
    /// Fetches the wanted blocks, which ascend and are blocks of this table.
    ///
    /// # Errors
    /// `Corrupt` names the block; `Io`. Some of the blocks may have been fetched then.
    pub fn fetch(&self, wanted: &mut [WantedBlock]) -> Result<()> {
        let places = self.places()?;
        let (slot, shared) = (&*self.cached, &*self.shared);
        slot.mark_used(shared.cache.next_use());
        count(&shared.counters.blocks_asked, wanted.len() as u64);
        shared.width.add_asked(wanted.len() as u64);
        let mut state = slot.state.lock();
        let mut missing = 0;
        for want in &mut *wanted {
            let block = want.block as usize;
            want.raw = match state.kept.get(block) {
                Some(Some(piece)) => Some(RawBlock::new(piece, &places, block)),
                _ => None,
            };
            missing += usize::from(want.raw.is_none());
        }
        let found = wanted.len() - missing;
        count(&shared.counters.cache_hits, found as u64);
        if missing == 0 {
            return Ok(());
        }
        let ticket = Arc::new(Mutex::new(BlockTicket {
            missing,
            ..BlockTicket::default()
        }));
        for want in wanted.iter().filter(|w| w.raw.is_none()) {
            let requests = u64::from(want.requests.max(1));
            state.demand.add(want.block, requests, ticket.clone());
        }
        drop(state);
        self.wait(&ticket, &places);
        let mut ticket = ticket.lock();
        if let Some(failed) = ticket.failed.take() {
            return Err(failed);
        }
        ticket.got.sort_unstable_by_key(|(block, _)| *block);
        for want in wanted.iter_mut().filter(|w| w.raw.is_none()) {
            let found = ticket
                .got
                .binary_search_by_key(&want.block, |(block, _)| *block);
            let (_, piece) = found
                .map(|at| &ticket.got[at])
                .map_err(|_| self.given_up(want.block))?;
            want.raw = Some(RawBlock::new(piece, &places, want.block as usize));
        }
        Ok(())
    }

    /// Until the ticket is answered: waits, or is the reader.
    fn wait(&self, ticket: &SharedBlockTicket, places: &BlockMap) {
        let (slot, shared) = (&*self.cached, &*self.shared);
        let mut state = slot.state.lock();
        while ticket.lock().missing > 0 {
            if state.reading {
                slot.changed.wait(&mut state);
                continue;
            }
            let unit = if shared.width.is_narrow() {
                NARROW_UNIT
            } else {
                WIDE_UNIT
            };
            // Not answered and nobody reads: it is in the demand.
            let Some(ReadRound { region, requests }) =
                state.demand.round(|region| widened(region, places, unit))
            else {
                break;
            };
            state.reading = true;
            drop(state);
            let role = ReaderRole {
                table: self,
                places,
                requests,
            };
            let read = self.read_piece(region, places);
            count(&shared.counters.rounds, 1);
            shared.width.add_round();
            if let Ok((piece, whole)) = &read {
                count(&shared.counters.blocks_read, whole.len() as u64);
                count(&shared.counters.bytes_read, piece.bytes.len() as u64);
            }
            state = slot.state.lock();
            if let Ok((piece, whole)) = &read {
                shared
                    .cache
                    .add_bytes(state.keep(places.len(), piece, whole));
            }
            role.end(&mut state, &read);
            drop(state);
            shared.cache.trim();
            state = slot.state.lock();
        }
    }

    /// Reads a region, and says which blocks came whole. The checksums are verified here, once.
    fn read_piece(&self, region: Region, places: &BlockMap) -> Result<(Arc<ReadPiece>, Vec<u32>)> {
        let blocks = region.first..region.last + 1;
        let start = places.offset(region.first as usize);
        let end = places.end(region.last as usize);
        let mut bytes = self.read_bytes(start, (end - start) as usize)?;
        let mut whole = |i: &u32| {
            let place = places.at(*i as usize);
            let (from, to) = (
                (place.offset - start) as usize,
                (place.end() - start) as usize,
            );
            let to = to.min(bytes.len());
            bytes.get_mut(from..to).is_some_and(|raw| {
                let sound = forebay_checksum::crc32c(raw) == place.crc
                    && raw.len() == place.length as usize;
                sound || self.correct(&place, raw).is_ok()
            })
        };
        let whole = blocks.filter(|i| whole(i)).collect();
        Ok((
            Arc::new(ReadPiece {
                start,
                bytes: bytes.into(),
            }),
            whole,
        ))
    }
}

/// The reader's role in one round. However it ends, nobody waits for it any more.
struct ReaderRole<'a> {
    table: &'a Table,
    places: &'a BlockMap,
    requests: Vec<(u32, Vec<SharedBlockTicket>)>,
}

impl ReaderRole<'_> {
    /// Answers the requests with a piece and the blocks that are whole in it.
    fn end(mut self, state: &mut CachedTableState, read: &Result<(Arc<ReadPiece>, Vec<u32>)>) {
        let places = self.places;
        self.answer(|table, block| match read {
            Ok((piece, whole)) if whole.binary_search(&block).is_ok() => Ok(piece.clone()),
            Ok((piece, _)) => {
                Err(table.damaged(&places.at(block as usize), piece.start, &piece.bytes))
            }
            Err(e) => Err(e.clone()),
        });
        state.reading = false;
        self.table.cached.changed.notify_all();
    }

    fn answer(&mut self, with: impl Fn(&Table, u32) -> Result<Arc<ReadPiece>>) {
        for (block, tickets) in self.requests.drain(..) {
            for ticket in tickets {
                let mut ticket = ticket.lock();
                ticket.missing -= 1;
                match with(self.table, block) {
                    Ok(piece) => ticket.got.push((block, piece)),
                    Err(e) => ticket.failed = Some(e),
                }
            }
        }
    }
}

impl Drop for ReaderRole<'_> {
    fn drop(&mut self) {
        // A round has requests; they are answered if it ended as it should, and not if its read panicked.
        if !self.requests.is_empty() {
            self.answer(|table, block| Err(table.given_up(block)));
            self.table.cached.state.lock().reading = false;
            self.table.cached.changed.notify_all();
        }
    }
}
