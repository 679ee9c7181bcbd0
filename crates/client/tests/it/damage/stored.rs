//! What the bytes of a service's stores hold, by file and place, while they are whole: so that a test that damages some of them knows which
//! files these may cost, and which not.
use forebay_data::container::{self, Container, ContainerId};
use forebay_data::pieces::ChecksummedPieces;
use forebay_data::segment_header;
use forebay_data::span::{self, Span};
use forebay_index::Record;
use forebay_index::{CompressedEngine, Settings};
use forebay_index::{Extent, ExtentIndex};
use forebay_server::files::check::pattern_extents;
use forebay_server::record_subject::RecordSubject;
use forebay_server::{Fid, Member, Result, keys};
use forebay_storage::{Io, Op, Options, OsIo, Store};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are checked as a whole, and what they hold.
struct Piece {
    member: Member,
    /// The file, by its path in the stores' directory.
    path: PathBuf,
    bytes: Range<u64>,
    /// The number of the batch, of a log.
    batch: Option<u64>,
    /// With the keyspace first, or [`INDEX`].
    keys: BTreeMap<Vec<u8>, RecordSubject>,
    /// Live addresses that its spans name, by log.
    spans: Vec<(u64, Range<u64>)>,
    /// Files whose bytes these are.
    content: BTreeSet<Fid>,
}

/// What stands before keys of the index.
const INDEX: u8 = u8::MAX;

/// Extents of all files, by where their bytes are.
type Extents = HashMap<(Member, u64), Vec<(Fid, Extent)>>;

/// What some bytes hold.
#[derive(Debug, Clone, Default)]
pub struct HeldRecords {
    /// Inodes whose attributes or content are there, or what says where that is.
    pub inodes: BTreeSet<Fid>,
    /// Names, with their directories.
    pub names: BTreeSet<(Fid, Vec<u8>)>,
    /// Batches.
    pub batches: BTreeSet<u64>,
    /// Inodes of which other records of the same store have keys between those that are there: newer records of them may have been there too.
    pub between: BTreeSet<Fid>,
    /// The same by the number of the file: extents of any of these may have been there.
    pub files_between: Vec<RangeInclusive<u64>>,
    /// As `between`, names.
    pub names_between: BTreeSet<(Fid, Vec<u8>)>,
    /// Whether some of the bytes are in no piece: what there is of them in two copies, or can be made again.
    pub others: bool,
}

impl HeldRecords {
    fn add(&mut self, subject: &RecordSubject, between: bool) {
        use RecordSubject::*;
        let (inodes, names) = match between {
            true => (&mut self.between, &mut self.names_between),
            false => (&mut self.inodes, &mut self.names),
        };
        match subject {
            Inode(fid)
            | Attributes(fid)
            | Patterns(fid)
            | Commit(fid)
            | Orphan(fid)
            | Extent { fid, .. } => {
                inodes.insert(*fid);
            }
            Entry { dir, name } => {
                names.insert((*dir, name.clone()));
                // A listing is not whole without it.
                inodes.insert(*dir);
            }
            Span { .. } | Container(_) | Intent | Message | OpenLog(_) | Counter(_) | Displaced => {
            }
        }
    }
}

/// All files of a service's stores.
pub struct StoredBytes {
    /// By file, then by place.
    pieces: Vec<Piece>,
    keys: BTreeMap<(Member, Vec<u8>), RecordSubject>,
    extents: Extents,
    /// Files whose bytes a span names.
    spans: BTreeMap<(Member, Vec<u8>), BTreeSet<Fid>>,
    /// Files that have a chunk of a container.
    containers: HashMap<(Member, ContainerId), BTreeSet<Fid>>,
}

impl Piece {
    fn new(member: Member, root: &Path, path: &Path, bytes: Range<u64>) -> Piece {
        Piece {
            member,
            path: path.strip_prefix(root).unwrap_or(path).to_path_buf(),
            bytes,
            batch: None,
            keys: BTreeMap::new(),
            spans: Vec::new(),
            content: BTreeSet::new(),
        }
    }

    fn row(&mut self, row: &Op) {
        let key = [&[row.keyspace.0], &row.key[..]].concat();
        if let Some(subject) = RecordSubject::of(row.keyspace, &row.key) {
            self.keys.insert(key, subject);
        }
        if let (keys::SPANS, Some(value)) = (row.keyspace, &row.value)
            && let Ok(span) = Span::decode(&row.key, value)
        {
            self.spans.push((span.log, span.live));
        }
    }

    fn extent(&mut self, record: &Record) {
        let (fid, offset) = (Fid(record.key.fid), record.key.offset);
        let key = [&[INDEX][..], &fid.0.to_be_bytes(), &offset.to_be_bytes()].concat();
        self.keys.insert(key, RecordSubject::Extent { fid, offset });
    }
}

/// Where the members' stores lie, in their order.
fn node_directories(dir: &Path) -> Vec<PathBuf> {
    let nodes = (0..).map(|member| dir.join(format!("node-{member}")));
    nodes.take_while(|node| node.is_dir()).collect()
}

fn files_of(extents: &Extents, member: Member, log: u64, live: &Range<u64>) -> BTreeSet<Fid> {
    let all = extents.get(&(member, log)).into_iter().flatten();
    let over = |(_, e): &&(Fid, Extent)| e.addr < live.end && live.start < e.addr + e.len;
    all.filter(over).map(|(fid, _)| *fid).collect()
}

impl StoredBytes {
    /// Of the service in `dir`, which is whole and does not run.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of(dir: &Path) -> Result<StoredBytes> {
        let io: Arc<dyn Io> = Arc::new(OsIo);
        let nodes = node_directories(dir);
        let (mut pieces, mut extents, mut data) = (Vec::new(), Extents::new(), Vec::new());
        for (member, node) in (0..).zip(&nodes) {
            let store = Store::salvage(io.clone(), &node.join("kv"), Options::default())?;
            let settings = Settings {
                background: false,
                ..Settings::default()
            };
            let index = ExtentIndex::open(&store, settings)?;
            let mut add = |fid: Fid, extent: Extent| {
                let of_log = extents.entry((extent.member, extent.log)).or_default();
                of_log.push((fid, extent));
            };
            for entry in index.iter()? {
                let (fid, extent) = entry?;
                add(Fid(fid), extent);
            }
            for (fid, extent) in pattern_extents(&store, &index)? {
                add(fid, extent);
            }
            for stored in store.record_locations()? {
                let mut piece = Piece::new(member, dir, &stored.path, stored.bytes);
                piece.batch = stored.batch;
                stored.rows.iter().for_each(|row| piece.row(row));
                let records = stored
                    .entries
                    .iter()
                    .filter_map(|e| CompressedEngine::records_in(e));
                records.flatten().for_each(|r| piece.extent(&r));
                pieces.push(piece);
            }
            for (path, bytes, records) in index.engine().stored_blocks()? {
                let mut piece = Piece::new(member, dir, &path, bytes);
                records.iter().for_each(|r| piece.extent(r));
                pieces.push(piece);
            }
            let spans = span::all(&store).collect::<Result<Vec<Span>>>()?;
            let containers = container::all(&store).collect::<Result<Vec<Container>>>()?;
            data.push((member, node.join("data"), spans, containers));
        }
        let (mut spans, mut users) = (BTreeMap::new(), HashMap::new());
        for (member, data, of_member, containers) in data {
            let stored = |of: &dyn ChecksummedPieces, i: usize, content: BTreeSet<Fid>| {
                let path = data.join(segment_header::name(of.segment()));
                let at = of.segment_range(&of.piece(i));
                Piece {
                    content,
                    ..Piece::new(member, dir, &path, at.start..at.end)
                }
            };
            // Files that have a chunk.
            let mut chunks: HashMap<(ContainerId, usize), BTreeSet<Fid>> = HashMap::new();
            for span in of_member {
                let key = [&[keys::SPANS.0][..], &span.key()].concat();
                let fids = files_of(&extents, member, span.log, &span.live);
                spans.insert((member, key), fids);
                if let Some(raw) = span.raw() {
                    let of_piece = |i| files_of(&extents, member, span.log, &raw.piece(i));
                    pieces.extend((0..raw.crcs.len()).map(|i| stored(raw, i, of_piece(i))));
                }
                let mut at = span.live.start;
                for run in span.runs().into_iter().flat_map(|runs| runs.iter()) {
                    let addresses = at..at + u64::from(run.len);
                    at = addresses.end;
                    let Some((id, positions)) = run.in_container() else {
                        continue;
                    };
                    let named = containers.iter().find(|c| c.id == id);
                    for chunk in named.and_then(|c| c.chunks_over(&positions)).unwrap() {
                        let of_chunk = chunks.entry((id, chunk)).or_default();
                        of_chunk.extend(files_of(&extents, member, span.log, &addresses));
                    }
                }
            }
            for container in &containers {
                let is_stored = |i: &usize| container.chunk(*i).crc.is_some();
                for i in (0..container.count()).filter(is_stored) {
                    let content = chunks.remove(&(container.id, i)).unwrap_or_default();
                    let of_container: &mut BTreeSet<Fid> =
                        users.entry((member, container.id)).or_default();
                    of_container.extend(&content);
                    pieces.push(stored(container, i, content));
                }
            }
        }
        pieces.sort_by(|a, b| (&a.path, a.bytes.start).cmp(&(&b.path, b.bytes.start)));
        let all = pieces.iter().flat_map(|piece| {
            let key = |(k, s): (&Vec<u8>, &RecordSubject)| ((piece.member, k.clone()), s.clone());
            piece.keys.iter().map(key)
        });
        Ok(StoredBytes {
            keys: all.collect(),
            pieces,
            extents,
            spans,
            containers: users,
        })
    }

    /// The records of logs: file, place, number of the batch.
    pub fn batches(&self) -> impl Iterator<Item = (PathBuf, Range<u64>, u64)> {
        let batch = |p: &Piece| Some((p.path.clone(), p.bytes.clone(), p.batch?));
        self.pieces.iter().filter_map(batch)
    }

    /// What these bytes of a file hold, by its path in the directory.
    pub fn held(&self, path: &Path, bytes: Range<u64>) -> HeldRecords {
        let first = self.pieces.partition_point(|p| *p.path < *path);
        let last = self.pieces.partition_point(|p| *p.path <= *path);
        let of_file = &self.pieces[first..last];
        let mut held = HeldRecords::default();
        let mut known = 0;
        for (i, piece) in of_file.iter().enumerate() {
            let both = piece.bytes.start.max(bytes.start)..piece.bytes.end.min(bytes.end);
            if both.is_empty() {
                continue;
            }
            known += both.end - both.start;
            for subject in piece.keys.values() {
                held.add(subject, false);
                held.inodes.extend(self.users(piece.member, subject));
            }
            held.inodes.extend(&piece.content);
            for (log, live) in &piece.spans {
                held.inodes
                    .extend(files_of(&self.extents, piece.member, *log, live));
            }
            held.batches.extend(piece.batch);
            if piece.batch.is_none() {
                let before = i.checked_sub(1).map(|i| &of_file[i]);
                self.between(before, piece, of_file.get(i + 1), &mut held);
            }
        }
        held.others = known < bytes.end - bytes.start;
        held
    }

    /// Files that have a chunk of the container, if the record is of one.
    fn users(&self, member: Member, subject: &RecordSubject) -> impl Iterator<Item = Fid> {
        let users = match subject {
            RecordSubject::Container(id) => self.containers.get(&(member, *id)),
            _ => None,
        };
        users.into_iter().flatten().copied()
    }

    /// What has keys behind those of the block before this one and before those of the block behind.
    fn between(
        &self,
        before: Option<&Piece>,
        this: &Piece,
        behind: Option<&Piece>,
        held: &mut HeldRecords,
    ) {
        let (Some(first), Some(last)) = (this.keys.keys().next(), this.keys.keys().next_back())
        else {
            return;
        };
        let from = before
            .and_then(|p| p.keys.keys().next_back())
            .unwrap_or(first);
        let to = behind.and_then(|p| p.keys.keys().next()).unwrap_or(last);
        if let (
            Some(RecordSubject::Extent { fid: from, .. }),
            Some(RecordSubject::Extent { fid: to, .. }),
        ) = (
            RecordSubject::of_index_key(&from[1..]),
            RecordSubject::of_index_key(&to[1..]),
        ) && first[0] == INDEX
        {
            held.files_between.push(from.0..=to.0);
        }
        let range = (this.member, from.clone())..=(this.member, to.clone());
        for ((member, _), subject) in self.keys.range(range.clone()) {
            held.add(subject, true);
            held.between.extend(self.users(*member, subject));
        }
        for (_, fids) in self.spans.range(range) {
            held.between.extend(fids);
        }
    }
}
