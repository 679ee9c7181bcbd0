//! The batch that settles: it replaces raw spans by mapped ones, with the records and counts of their containers, all or nothing.
//!
//! A span stays raw if its record changed since it was read, if a chunk that it would name is gone by now, or if it would name a container
//! whose base is. Chunks that only such spans would name are not kept.
use super::{SpanTable, unneeded};
use crate::container::{ContainerId, LockedContainers, NewContainer, containers_of};
use crate::segment::SegmentRange;
use crate::span::{self, Span, SpanRuns, StoredHint};
use forebay_proto::{LogId, Result};
use forebay_storage::Batch;
use std::collections::{HashMap, HashSet};

/// A raw span and the mapped one that replaces it.
pub struct SettledSpan {
    /// As it was read.
    pub old: Span,
    /// The same addresses, in containers.
    pub new: Span,
    /// The new container that adopts its raw bytes, if one does.
    pub adopted_by: Option<ContainerId>,
}

/// Spans that are settled together, with the containers created for them, whose bytes are on disk already.
#[derive(Default)]
pub struct SettleBatch {
    /// Ordered so that an adopting container is first named by the span that it adopts.
    pub spans: Vec<SettledSpan>,
    /// New ones.
    pub containers: Vec<NewContainer>,
}

/// The outcome of a batch.
#[derive(Default)]
pub struct SettleOutcome {
    /// Segment ranges that are not needed any more.
    pub dead: Vec<SegmentRange>,
    /// Live bytes that are settled now.
    pub settled: u64,
    /// Spans that stay raw.
    pub undone: Vec<Span>,
}

/// Counts the chunks of new containers' bases. Returns the containers whose base is gone.
fn hold_bases(
    locked: &mut LockedContainers<'_>,
    bases: &HashMap<ContainerId, SpanRuns>,
) -> Result<HashSet<ContainerId>> {
    let mut baseless = HashSet::new();
    for (id, base) in bases {
        match locked.increment_counts(base) {
            Ok(true) => {}
            Err(e) if !e.is_damage() => return Err(e),
            Ok(false) | Err(_) => drop(baseless.insert(*id)),
        }
    }
    Ok(baseless)
}

impl SpanTable {
    /// Sets the hint of a raw span, unless it has changed meanwhile.
    ///
    /// # Errors
    /// As the store.
    pub fn set_hint(&self, span: &Span, hint: StoredHint) -> Result<()> {
        let _lock = self.locks.lock([span.log]);
        if span.raw().is_none_or(|raw| raw.hint == hint) || !self.is_current(span)? {
            return Ok(());
        }
        let mut batch = Batch::reclaiming();
        span.clone().with_hint(hint).put(&mut batch);
        self.apply(batch)?;
        self.cache.forget(span.log, span.live.end);
        Ok(())
    }

    /// Settles spans, in one batch.
    ///
    /// # Errors
    /// As the store: then nothing is settled.
    pub fn settle(&self, batch: SettleBatch) -> Result<SettleOutcome> {
        let SettleBatch { spans, containers } = batch;
        let _locks = self.locks.lock(spans.iter().map(|s| s.old.log));
        let named = spans.iter().filter_map(|s| s.new.runs());
        let named = named.flat_map(|runs| runs.iter().filter_map(|run| run.in_container()));
        let new = containers.iter().map(|new| new.container.id);
        let bases: HashMap<ContainerId, SpanRuns> = containers
            .iter()
            .filter_map(|new| Some((new.container.id, new.container.base()?.clone())))
            .collect();
        let of_bases = bases.values().flat_map(containers_of);
        let ids: HashSet<ContainerId> =
            named.map(|(id, _)| id).chain(new).chain(of_bases).collect();
        let mut locked = self.containers.lock(ids);
        let baseless = hold_bases(&mut locked, &bases)?;
        let adopting: HashSet<ContainerId> = spans.iter().filter_map(|s| s.adopted_by).collect();
        let mut adopted = HashMap::new();
        for new in containers {
            match adopting.contains(&new.container.id) {
                true => drop(adopted.insert(new.container.id, new)),
                false => locked.create(new),
            }
        }
        let mut outcome = SettleOutcome::default();
        let mut done = Vec::with_capacity(spans.len());
        for s in spans {
            let is_current = self.is_current(&s.old)?;
            if is_current && let Some(new) = s.adopted_by.and_then(|id| adopted.remove(&id)) {
                locked.create(new);
            }
            let is_decodable =
                |runs: &&SpanRuns| !containers_of(runs).any(|id| baseless.contains(&id));
            let taken = match s.new.runs().filter(|_| is_current).filter(is_decodable) {
                Some(runs) => locked.increment_counts(runs),
                None => Ok(false),
            };
            match taken {
                Ok(true) => done.push(s),
                Err(e) if !e.is_damage() => return Err(e),
                taken => {
                    if let Err(error) = taken {
                        tracing::warn!(%error, "a span is not settled with damaged chunks");
                    }
                    s.adopted_by.iter().for_each(|id| locked.cancel(*id));
                    outcome.undone.push(s.old);
                }
            }
        }
        for (id, base) in &bases {
            // Nothing names it, so it is not created.
            if !baseless.contains(id) && !locked.is_named(*id) {
                locked.decrement_counts(base)?;
            }
        }
        let mut batch = Batch::new();
        done.iter().for_each(|s| s.new.put(&mut batch));
        locked.put(&mut batch)?;
        let settled: HashSet<(LogId, u64)> =
            done.iter().map(|s| (s.old.log, s.old.live.end)).collect();
        for s in &done {
            outcome.dead.extend(self.given_up(s, &settled)?);
        }
        // The records grow; where more goes of the bytes that they name, a full disk takes them too.
        if outcome.dead.iter().map(|r| r.end - r.start).sum::<u64>() > batch.bytes() {
            batch.set_reclaiming();
        }
        self.apply(batch)?;
        // What is adopted counts twice for a moment, and never not at all.
        outcome.dead.extend(locked.applied());
        for s in &done {
            self.cache.forget(s.old.log, s.old.live.end);
            if let Some(raw) = s.old.raw() {
                self.segments.release(raw.segment, raw.stored_len());
                self.live.release(s.old.live_len());
            }
            outcome.settled += s.old.live_len();
        }
        done.iter()
            .for_each(|s| self.count_mapped(std::slice::from_ref(&s.new)));
        Ok(outcome)
    }

    /// The raw bytes of a settled span that are not needed any more. `settled`: log and live end of all spans settled with it.
    fn given_up(
        &self,
        s: &SettledSpan,
        settled: &HashSet<(LogId, u64)>,
    ) -> Result<Vec<SegmentRange>> {
        let Some(raw) = s.old.raw().filter(|_| s.adopted_by.is_none()) else {
            return Ok(Vec::new());
        };
        let mut kept = Vec::new();
        if s.old.live != raw.stored {
            // Parts of what was one span may share a piece with this one.
            for near in span::overlapping(&self.store, s.old.log, raw.stored.clone()) {
                let near = near?;
                if !settled.contains(&(near.log, near.live.end)) {
                    kept.push(near);
                }
            }
        }
        Ok(unneeded(raw, kept.iter()))
    }
}
