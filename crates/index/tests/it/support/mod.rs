//! What tests of the whole index share: a plain model of it, and an index on a disk that fails.
use forebay_index::Settings;
use forebay_index::{Change, Extent, ExtentIndex, SLICE};
use forebay_storage::fault::FaultIo;
use forebay_storage::{Batch, Durability, Io, Keyspace, Options, Result, Store};
use forebay_testkit::random::Random;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Holds the number of batches, written with each of them.
const COUNT: Keyspace = Keyspace(0);
pub const DIR: &str = "/store";
/// Files of the model, and where the bytes of each begin: the last one lies over the end of a slice.
pub const FILES: u64 = 3;
pub const LEN: u64 = 1000;

/// A range of the bytes that the files of the model have.
pub fn range(random: &mut Random) -> Range<u64> {
    let (a, b) = (random.below(LEN + 1), random.below(LEN + 1));
    a.min(b)..a.max(b)
}

/// Where a byte of a file comes from: member, log, address, sequence.
pub type Byte = (u16, u64, u64, u64);

/// The bytes of all files, from `base` on.
#[derive(Clone, PartialEq, Default)]
pub struct Model(Vec<Arc<Vec<Option<Byte>>>>);

/// Offset of the model's first byte of a file.
pub fn base(fid: u64) -> u64 {
    if fid + 1 == FILES { SLICE - LEN / 2 } else { 0 }
}

impl Model {
    pub fn new() -> Model {
        Model(
            (0..FILES)
                .map(|_| Arc::new(vec![None; LEN as usize]))
                .collect(),
        )
    }

    fn file(&mut self, fid: u64) -> &mut Vec<Option<Byte>> {
        Arc::make_mut(&mut self.0[fid as usize])
    }

    /// Applies changes whose offsets are those of the index.
    pub fn change(&mut self, fid: u64, changes: &[Change]) {
        for change in changes {
            let (start, end) = match change {
                Change::Put(e) => (e.offset, e.offset + e.len),
                Change::Cut { start, end } => (*start, *end),
            };
            let base = base(fid);
            for at in start.max(base)..end.min(base + LEN) {
                self.file(fid)[(at - base) as usize] = match change {
                    Change::Put(e) => Some((e.member, e.log, e.addr + (at - e.offset), e.seq)),
                    Change::Cut { .. } => None,
                };
            }
        }
    }

    /// What a range of a file holds, which begins at the file's base.
    pub fn bytes(&self, fid: u64, range: &Range<u64>) -> Vec<Option<Byte>> {
        match self.0.get(fid as usize) {
            Some(file) => file[range.start as usize..range.end as usize].to_vec(),
            None => vec![None; (range.end - range.start) as usize],
        }
    }

    /// The log bytes that a file has.
    pub fn log_bytes(&self, fid: u64) -> std::collections::BTreeSet<(u16, u64, u64)> {
        let bytes = self.0[fid as usize].iter().flatten();
        bytes
            .map(|(member, log, addr, _)| (*member, *log, *addr))
            .collect()
    }
}

/// The bytes of a range as extents tell of them, which must ascend, lie inside and not be empty.
pub fn told(extents: &[Extent], fid: u64, range: &Range<u64>) -> Vec<Option<Byte>> {
    let mut bytes = vec![None; (range.end - range.start) as usize];
    let mut end = base(fid) + range.start;
    for e in extents {
        assert!(e.len > 0 && e.offset >= end, "{extents:?} in {range:?}");
        end = e.offset + e.len;
        for i in 0..e.len {
            let at = (e.offset + i - base(fid) - range.start) as usize;
            bytes[at] = Some((e.member, e.log, e.addr + i, e.seq));
        }
    }
    bytes
}

/// Settings with which a short history makes many blocks, tables and runs.
pub fn small(random: &mut Random) -> Settings {
    Settings {
        block_bytes: [100, 300, 1000][random.below(3) as usize],
        table_blocks: 1 + random.below(4) as usize,
        memtable_bytes: 4096,
        buffer_bytes: 4096,
        cache_bytes: [100, 4000, 1 << 20][random.below(3) as usize],
        coverage_bytes: [100, 1500, 1 << 20][random.below(3) as usize],
        background: false,
        ..Settings::default()
    }
}

/// An index, and the number of batches in it.
pub struct World {
    pub io: FaultIo,
    pub store: Store,
    pub index: ExtentIndex,
    pub batches: u64,
}

impl World {
    pub fn open(io: &FaultIo, settings: &Settings) -> Result<World> {
        let options = Options {
            durability: Durability::Process,
            memtable_bytes: 2000,
            wal_bytes: 6000,
            wal_reserve_bytes: 0,
            table_reserve_bytes: 0,
            background: settings.background,
            ..Options::default()
        };
        let store = Store::open(Arc::new(io.clone()) as Arc<dyn Io>, Path::new(DIR), options)?;
        let index = ExtentIndex::open(&store, settings.clone())?;
        let count = store.get(COUNT, b"batches")?;
        let batches = count.map_or(0, |b| u64::from_be_bytes(b[..].try_into().unwrap()));
        Ok(World {
            io: io.clone(),
            store,
            index,
            batches,
        })
    }

    /// A batch that carries the next number.
    pub fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        batch.put(COUNT, "batches", (self.batches + 1).to_be_bytes().to_vec());
        batch
    }

    pub fn apply(&mut self, batch: Batch) -> Result<()> {
        self.store.apply(batch)?;
        self.batches += 1;
        Ok(())
    }

    pub fn change(&mut self, fid: u64, changes: &[Change]) -> Result<Vec<Extent>> {
        let mut batch = self.batch();
        let displaced = self.index.change(&mut batch, fid, changes)?;
        self.apply(batch)?;
        Ok(displaced)
    }

    /// The bytes of a range that begins at the file's base.
    pub fn bytes(&self, fid: u64, range: &Range<u64>) -> Result<Vec<Option<Byte>>> {
        let from = base(fid);
        let found = self
            .index
            .get(fid, from + range.start..from + range.end, usize::MAX)?;
        Ok(told(&found, fid, range))
    }

    /// All bytes of all files, read in both ways, are those of the model.
    pub fn agrees(&self, model: &Model) -> Result<()> {
        let requests: Vec<_> = (0..FILES)
            .map(|fid| (fid, base(fid)..base(fid) + LEN))
            .collect();
        let many = self.index.get_many(&requests)?;
        for fid in 0..FILES {
            let want = model.bytes(fid, &(0..LEN));
            assert!(
                told(many.get(fid as usize), fid, &(0..LEN)) == want,
                "file {fid}, get_many"
            );
            assert!(self.bytes(fid, &(0..LEN))? == want, "file {fid}, get");
        }
        Ok(())
    }
}

/// Changes of one batch. Log bytes are new ones, from `addr` on.
pub fn changes(random: &mut Random, fid: u64, seq: u64, addr: &mut u64) -> Vec<Change> {
    let (base, member, log) = (base(fid), random.below(3) as u16, random.below(4));
    let mut put = |start: u64, len: u64| {
        let put = Change::Put(Extent {
            offset: base + start,
            len,
            member,
            log,
            addr: *addr,
            seq,
        });
        *addr += len;
        put
    };
    match random.below(8) {
        0 => vec![Change::Cut {
            start: base + random.below(LEN),
            end: u64::MAX,
        }],
        1 => {
            let hole = range(random);
            vec![Change::Cut {
                start: base + hole.start,
                end: base + hole.end,
            }]
        }
        2 | 3 => {
            let count = 1 + random.below(6);
            let one = |_| {
                let (start, len) = (random.below(LEN - 100), 1 + random.below(100));
                match random.below(6) {
                    0 => Change::Cut {
                        start: base + start,
                        end: base + start + len,
                    },
                    _ => put(start, len),
                }
            };
            (0..count).map(one).collect()
        }
        // One of several writers of a strided file.
        _ => {
            let (len, writers) = (1 + random.below(9), 1 + random.below(4));
            let stride = len * writers;
            let (start, count) = (random.below(writers) * len, 1 + random.below(60));
            let pieces = (0..count).map(|i| start + i * stride);
            let inside = pieces.filter(|at| at + len <= LEN);
            inside.map(|at| put(at, len)).collect()
        }
    }
}
