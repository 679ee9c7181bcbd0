//! Reading: plan from the layers, ask owners for what is missing, gather bytes from the members that have them.
//!
//! A read answers the file as of one generation (with this node's pending writes above it), also when a commit that spans
//! members is being published: every answer of an owner names the last sequence it has published, and one above the
//! reader's view makes the reader start again with a newer view.
use super::context::{DelegateContext, ViewRetry};
use super::intervals::{ByteSource, ReadPlan};
use super::open_file::{FetchedExtents, OpenFile};
use super::runs::{LogRun, runs};
use super::windows::OwnerExtents;
use crate::{Error, Member, Result};
use bytes::Bytes;
use forebay_data::LogPart;
use forebay_data::buffer_pool::{BufferPool, PooledBuffer};
use forebay_data::transfer_form;
use forebay_proto::data::{LogPiece, ReadPieces};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it starts again because bytes were freed: each time the index says something newer.
const MAX_GONE_TRIES: u32 = 64;
/// Pieces that a read works on at a time: a share of the delegate's, within these bounds. A piece costs some 250 bytes
/// on the way.
const MIN_STEP_PIECES: usize = 4 << 10;
const MAX_STEP_PIECES: usize = 16 << 10;

/// Reads files through their layers.
pub(super) struct LayerReader {
    pub ctx: Arc<DelegateContext>,
    pub extents: Arc<OwnerExtents>,
    pub buffers: BufferPool,
}

impl LayerReader {
    /// Reads through the layers. `waited` grows by the time for which it waits for bytes of other members.
    pub fn read_file(
        &self,
        file: &OpenFile,
        offset: u64,
        len: u32,
        waited: &mut Duration,
    ) -> Result<Bytes> {
        let (mut retry, mut gone) = (ViewRetry::default(), 0);
        loop {
            let (generation, range) = {
                let state = file.state.lock();
                let end = offset.saturating_add(u64::from(len)).min(state.size());
                (state.attr.generation, offset..end)
            };
            match self.read_view(file, range, generation, waited) {
                Err(Error::Replan) => {}
                Err(e @ Error::Gone { .. }) => {
                    gone += 1;
                    if gone > MAX_GONE_TRIES {
                        tracing::error!(fid = file.fid.0, error = %e, "an extent names bytes that were given back");
                        return Err(e);
                    }
                    let mut state = file.state.lock();
                    if state.attr.generation == generation {
                        state.empty();
                    }
                }
                result => return result,
            }
            self.ctx.retry_view(file, generation, &mut retry)?;
        }
    }

    /// Reads as of `generation`; `Replan` if that is over before all is read.
    ///
    /// In steps of a bounded number of pieces, however many there are.
    pub fn read_view(
        &self,
        file: &OpenFile,
        range: Range<u64>,
        generation: u64,
        waited: &mut Duration,
    ) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let most = (self.extents.memory.most_pieces / 16).clamp(MIN_STEP_PIECES, MAX_STEP_PIECES);
        let mut asked = FetchedExtents::default();
        let mut buffer: Option<PooledBuffer> = None;
        let mut at = range.start;
        loop {
            let plan = self.plan_step(file, at..range.end, generation, most, &mut asked)?;
            let known = plan.until;
            let step = at..known;
            if step == range
                && let [(_, ByteSource::Log { member, log, addr })] = plan.found[..]
                && member != self.ctx.member()
            {
                // One remote piece: its bytes go on as they came.
                let len = (range.end - range.start) as u32;
                let bulk = self.fetch(member, vec![LogPiece { log, addr, len }], waited)?;
                return bulk.into_iter().next().ok_or(Error::Replan);
            }
            let mut target = match buffer.take() {
                Some(buffer) => buffer,
                None => self.buffers.take((range.end - range.start) as usize),
            };
            let part = (step.start - range.start) as usize..(step.end - range.start) as usize;
            let target_part = &mut target[part];
            zero_holes(&plan.found, &step, target_part);
            self.gather(runs(&plan.found, &step), target_part, waited)?;
            if known == range.end {
                return Ok(target.freeze());
            }
            (at, buffer) = (known, Some(target));
            asked.pieces.clear();
        }
    }

    /// Reads `ranges`, none of them empty, as of `generation`, one after the other into one buffer, until they have more than `most` pieces; how many
    /// ranges that are. `Replan` if that generation is over.
    pub fn read_ranges(
        &self,
        file: &OpenFile,
        ranges: &[Range<u64>],
        generation: u64,
        most: usize,
    ) -> Result<(Bytes, usize)> {
        let mut pieces = Vec::with_capacity(ranges.len().min(most));
        let (mut asked, mut len, mut count) = (FetchedExtents::default(), 0, 0);
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let plan = self.plan_step(file, at..range.end, generation, most, &mut asked)?;
                at = plan.until;
                pieces.extend(plan.placed(range.start, len));
                asked.pieces.clear();
            }
            len += range.end - range.start;
            count += 1;
            if pieces.len() > most {
                break;
            }
        }
        let mut waited = Duration::ZERO;
        let bytes = self.gather_all(&pieces, len, &mut waited)?;
        Ok((bytes, count))
    }

    /// The bytes of these pieces, which cover the first `len` bytes of something.
    fn gather_all(
        &self,
        pieces: &[(Range<u64>, ByteSource)],
        len: u64,
        waited: &mut Duration,
    ) -> Result<Bytes> {
        let runs = runs(pieces, &(0..len));
        if let [run] = &runs[..]
            && run.member != self.ctx.member()
            && run.len as u64 == len
            && run.parts.len() == 1
        {
            // All of it follows each other in one log: it goes on as it came.
            let (log, addr, len) = (run.log, run.addr, run.len as u32);
            let bulk = self.fetch(run.member, vec![LogPiece { log, addr, len }], waited)?;
            return bulk.into_iter().next().ok_or(Error::Replan);
        }
        let mut buffer = self.buffers.take(len as usize);
        zero_holes(pieces, &(0..len), &mut buffer);
        self.gather(runs, &mut buffer, waited)?;
        Ok(buffer.freeze())
    }

    /// Where the first bytes of `range` are as of `generation`, at most `most` pieces of them; owners are asked for what is not known.
    /// `Replan` if that generation is over.
    ///
    /// Every turn either ends, or asks for the first byte that is not known and keeps the answer itself, in `asked`: so it
    /// comes to an end, whatever empties the windows.
    pub fn plan_step(
        &self,
        file: &OpenFile,
        range: Range<u64>,
        generation: u64,
        most: usize,
        asked: &mut FetchedExtents,
    ) -> Result<ReadPlan> {
        loop {
            let (plan, map) = {
                let state = file.state.lock();
                // Shorter only if writes of this node were cut off before they were published.
                if state.attr.generation != generation || state.size() < range.end {
                    return Err(Error::Replan);
                }
                let plan = state.plan(range.clone(), asked, most);
                let map = (!plan.missing.is_empty()).then(|| state.lowest(asked));
                (plan, map.flatten())
            };
            let mut plan = match map {
                Some(map) => map.fill(plan, most),
                None => plan,
            };
            let known = plan.missing.first().map_or(plan.until, |m| m.start);
            if plan.missing.is_empty() || (known > range.start && asked.pieces.len() >= most) {
                let known_pieces = plan.found.partition_point(|p| p.0.start < known);
                plan.found.truncate(known_pieces);
                plan.missing.clear();
                plan.until = known;
                return Ok(plan);
            }
            self.extents
                .ask_extents(file, &plan.missing, generation, most, asked)?;
        }
    }

    /// Writes the bytes of these runs to their places in `buffer`.
    fn gather(&self, runs: Vec<LogRun>, buffer: &mut [u8], waited: &mut Duration) -> Result<()> {
        let own = self.ctx.member();
        let mut remote: BTreeMap<Member, Vec<LogRun>> = BTreeMap::new();
        let mut here = Vec::new();
        for run in runs {
            match run.member == own {
                true => here.push(run),
                false => remote.entry(run.member).or_default().push(run),
            }
        }
        self.read_own(&here, buffer)?;
        for (member, runs) in remote {
            let wanted = runs.iter().map(|run| LogPiece {
                log: run.log,
                addr: run.addr,
                len: run.len as u32,
            });
            let bulk = self.fetch(member, wanted.collect(), waited)?;
            for (run, bytes) in runs.iter().zip(bulk) {
                run.scatter(&bytes, buffer);
            }
        }
        Ok(())
    }

    /// Reads runs of this node to their places in `buffer`.
    fn read_own(&self, runs: &[LogRun], mut buffer: &mut [u8]) -> Result<()> {
        let data = &self.ctx.node.data;
        if let [run] = runs
            && let [part] = &run.parts[..]
        {
            return data.read(run.log, run.addr, &mut buffer[part.clone()]);
        }
        let mut places: Vec<_> = runs.iter().flat_map(LogRun::places).collect();
        places.sort_unstable_by_key(|(place, ..)| place.start);
        let (mut at, mut parts) = (0, Vec::with_capacity(places.len()));
        for (place, log, addr) in places {
            let (into, behind) = buffer[place.start - at..].split_at_mut(place.len());
            (buffer, at) = (behind, place.end);
            parts.push(LogPart { log, addr, into });
        }
        parts.sort_unstable_by_key(|part| (part.log, part.addr));
        data.read_parts(&mut parts)
    }

    /// One buffer a piece, each as long as asked.
    fn fetch(
        &self,
        member: Member,
        pieces: Vec<LogPiece>,
        waited: &mut Duration,
    ) -> Result<Vec<Bytes>> {
        let lengths: Vec<usize> = pieces.iter().map(|p| p.len as usize).collect();
        let begun = Instant::now();
        let read = self.ctx.call(member, ReadPieces { pieces })?;
        *waited += begun.elapsed();
        let mut buffers = read.buffers;
        for at in read.encoded {
            let at = at as usize;
            let (Some(buffer), Some(len)) = (buffers.get_mut(at), lengths.get(at)) else {
                let reason =
                    format!("answered a read with an encoded piece {at} that was not asked for");
                return Err(Error::Peer { member, reason });
            };
            let mut raw = self.buffers.take(*len);
            transfer_form::decode(buffer, &mut raw).map_err(|what| {
                let reason = format!("answered a read with encoded bytes that have {what}");
                Error::Peer { member, reason }
            })?;
            *buffer = raw.freeze();
        }
        if buffers.iter().map(Bytes::len).eq(lengths) {
            return Ok(buffers);
        }
        let lengths: Vec<usize> = buffers.iter().map(Bytes::len).collect();
        Err(Error::Peer {
            member,
            reason: format!("answered a read with buffers of other lengths: {lengths:?}"),
        })
    }
}

/// Clears the places of holes in `buffer`, which is as long as `range`; `pieces` lie in that.
fn zero_holes(pieces: &[(Range<u64>, ByteSource)], range: &Range<u64>, buffer: &mut [u8]) {
    for (part, source) in pieces {
        if *source == ByteSource::Hole {
            let part = part.start - range.start..part.end - range.start;
            buffer[part.start as usize..part.end as usize].fill(0);
        }
    }
}
