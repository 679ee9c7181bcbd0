//! Random histories of the whole index against a plain model: puts, overwrites, truncates, removals, gets of one and of many
//! ranges, flushes, compactions, restarts; with failing calls, full disks, killed processes and lost power in between.
//!
//! What an error leaves: a batch that was refused for want of room never happened; after any other failed write the store is
//! opened anew, and what it then says of the batch under way holds, whole or not at all.
//!
//! Short form: 30 seeds. `SOAK=1`: 10,000, going on with the seed in `$SOAK_DIR/index-histories.next`.
//! `FOREBAY_SEED=n` replays one.

use crate::support::*;
use forebay_index::Settings;
use forebay_index::{Change, Extent};
use forebay_storage::fault::FaultIo;
use forebay_storage::{Engine, Result};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::collections::BTreeSet;
use std::io::ErrorKind;

struct History {
    random: Random,
    settings: Settings,
    /// `None` while it is being opened anew.
    world: Option<World>,
    io: FaultIo,
    /// The model after each batch.
    states: Vec<Model>,
    /// Batches that lost power must not lose.
    synced: u64,
    addr: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = Random::new(seed);
        let settings = Settings {
            background: seed % 4 == 3,
            ..small(&mut random)
        };
        let io = FaultIo::new(seed);
        let world = World::open(&io, &settings).unwrap();
        History {
            random,
            settings,
            world: Some(world),
            io,
            states: vec![Model::new()],
            synced: 0,
            addr: 0,
        }
    }

    fn world(&mut self) -> &mut World {
        self.world.as_mut().unwrap()
    }

    fn model(&self) -> &Model {
        self.states.last().unwrap()
    }

    /// Opens the store on `io`, where at least so many batches must be.
    fn reopen(&mut self, io: FaultIo, least: u64) {
        self.world = None;
        self.io = io;
        self.io.fail_after(0, ErrorKind::Other);
        let world = World::open(&self.io, &self.settings).unwrap();
        let most = self.states.len() as u64 - 1;
        assert!(
            (least..=most).contains(&world.batches),
            "{} batches of {least}..={most}",
            world.batches
        );
        self.states.truncate(world.batches as usize + 1);
        self.synced = self.synced.min(world.batches);
        assert!(world.index.engine().check().is_empty());
        self.world = Some(world);
    }

    /// One batch of changes; the state after it, if it happened.
    fn change(&mut self) -> Result<()> {
        let fid = self.random.below(FILES);
        let seq = self.states.len() as u64;
        let changes = changes(&mut self.random, fid, seq, &mut self.addr);
        let mut next = self.model().clone();
        next.change(fid, &changes);
        let mut before = self.model().log_bytes(fid);
        before.extend(changes.iter().flat_map(put_bytes));
        let unused: BTreeSet<_> = before.difference(&next.log_bytes(fid)).copied().collect();
        let batches = self.world().batches;
        self.states.push(next);
        let done = self.world().change(fid, &changes);
        match done {
            Ok(displaced) => {
                let displaced: Vec<_> = displaced.iter().flat_map(extent_bytes).collect();
                assert_eq!(displaced.len(), unused.len(), "displaced, each byte once");
                assert!(displaced.into_iter().collect::<BTreeSet<_>>() == unused);
                Ok(())
            }
            Err(e) => {
                if e.is_no_space() {
                    self.states.truncate(batches as usize + 1);
                }
                Err(e)
            }
        }
    }

    /// Removes the first extents of a file, as the removal of a file does.
    fn remove(&mut self) -> Result<()> {
        let (fid, limit) = (self.random.below(FILES), 1 + self.random.below(40) as usize);
        let world = self.world();
        let (mut batch, batches) = (world.batch(), world.batches);
        let removed = world.index.remove(&mut batch, fid, limit)?;
        let mut next = self.model().clone();
        for e in &removed {
            let start = e.offset - base(fid);
            let range = start..start + e.len;
            assert!(told(&[*e], fid, &range) == next.bytes(fid, &range));
            next.change(
                fid,
                &[Change::Cut {
                    start: e.offset,
                    end: e.offset + e.len,
                }],
            );
        }
        let left = next.bytes(fid, &(0..LEN)).iter().any(Option::is_some);
        assert!(removed.len() == limit || !left, "all that is left");
        self.states.push(next);
        let done = self.world().apply(batch);
        if done.as_ref().is_err_and(|e| e.is_no_space()) {
            self.states.truncate(batches as usize + 1);
        }
        done
    }

    fn get(&mut self) -> Result<()> {
        let count = 1 + self.random.below(30);
        let mut one = || (self.random.below(FILES + 1), range(&mut self.random));
        let ranges: Vec<_> = (0..count).map(|_| one()).collect();
        let offsets = |(fid, r): &(u64, std::ops::Range<u64>)| {
            (*fid, base(*fid) + r.start..base(*fid) + r.end)
        };
        let requests: Vec<_> = ranges.iter().map(offsets).collect();
        let world = self.world.as_ref().unwrap();
        let found = world.index.get_many(&requests)?;
        assert_eq!(found.len(), requests.len());
        for (i, (fid, range)) in ranges.iter().enumerate() {
            let want = self.model().bytes(*fid, range);
            assert!(
                told(found.get(i), *fid, range) == want,
                "request {i}: {:?}",
                requests[i]
            );
        }
        let (fid, range) = &ranges[0];
        assert!(world.bytes(*fid, range)? == self.model().bytes(*fid, range));
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(24) {
            0 => self.world().index.engine().flush(),
            1 => self.world().index.engine().compact(),
            2 => self.world().store.flush(),
            3 | 4 => {
                self.world().store.sync()?;
                self.synced = self.world().batches;
                Ok(())
            }
            5 => self.remove(),
            6..9 => self.get(),
            _ => self.change(),
        }
    }

    /// Goes on after an error: room comes back, a failed call does not fail again.
    fn go_on(&mut self, e: &forebay_storage::Error) {
        self.io.set_capacity(u64::MAX);
        if !e.is_no_space() {
            // What a failed sync did not bring to disk no later one does: so all that was written counts as on disk.
            let least = self.world().batches;
            let io = FaultIo::with_image(&self.io.kill(), self.random.below(1 << 30));
            self.reopen(io, least);
        }
    }

    /// What goes wrong before the next step.
    fn trouble(&mut self) {
        let batches = self.world().batches;
        match self.random.below(60) {
            0 => {
                let io = self.io.clone();
                self.reopen(io, batches);
            }
            1 => {
                let io = FaultIo::with_image(&self.io.kill(), self.random.below(1 << 30));
                self.reopen(io, batches);
            }
            2 => {
                let io = FaultIo::with_image(&self.io.crash(), self.random.below(1 << 30));
                let synced = self.synced;
                self.reopen(io, synced);
            }
            3..7 => {
                let n = 1 + self.random.below(30);
                let kinds = [ErrorKind::Other, ErrorKind::StorageFull];
                self.io.fail_after(n, kinds[self.random.below(2) as usize]);
            }
            7 | 8 => {
                let more = self.random.below(20) * 4096;
                self.io.set_capacity(self.io.used() + more);
            }
            _ => {}
        }
    }
}

fn extent_bytes(e: &Extent) -> impl Iterator<Item = (u16, u64, u64)> + use<> {
    let e = *e;
    (0..e.len).map(move |i| (e.member, e.log, e.addr + i))
}

fn put_bytes(change: &Change) -> Vec<(u16, u64, u64)> {
    match change {
        Change::Put(e) => extent_bytes(e).collect(),
        Change::Cut { .. } => Vec::new(),
    }
}

fn run(seed: u64) {
    let mut history = History::new(seed);
    for step in 0..60 {
        history.trouble();
        if let Err(e) = history.step() {
            history.go_on(&e);
        }
        // A call that is to fail may do so in this check, or when the store is opened: that is another test.
        history.io.fail_after(0, ErrorKind::Other);
        let (world, model) = (history.world.as_ref().unwrap(), history.model());
        let agrees = world.agrees(model);
        agrees.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
    history.io.set_capacity(u64::MAX);
    let batches = history.world().batches;
    let io = history.io.clone();
    history.reopen(io, batches);
    history.world().index.engine().compact().unwrap();
    let (world, model) = (history.world.as_ref().unwrap(), history.model());
    world.agrees(model).unwrap();
    assert!(world.index.engine().check().is_empty());
}

#[test]
fn histories_with_faults_agree_with_a_plain_model() {
    seeds::for_each_seed("index-histories", (30, 10_000), run);
}
