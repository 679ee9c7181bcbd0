//! Writing patterns anew once more of them is hidden than counts, or holes are many: what a file's patterns take stays in
//! proportion to what they hold.
//!
//! Only parts that have lost bytes are written anew; each keeps its log and its commit. After that no part has a byte that does not count, so no
//! hole is needed. What readers see does not change, so neither does the sequence, and maps that they have stay right: the index is
//! left as it is.
use super::super::Shared;
use super::commit::Writer;
use super::join::Joined;
use super::over::{Over, Read, page};
use super::records::{Id, MERGED, SEGMENT, merged_value};
use super::table::{HoleRecord, Part, Table, visible};
use crate::inodes::Inode;
use crate::{Error, Fid, Layout, Result, keys};
use forebay_pattern::{Folder, Segment};
use forebay_storage::Batch;
use std::collections::BTreeMap;
use std::sync::Arc;

/// More holes are not kept.
const HOLES: usize = 1024;
/// Elements of parts that have lost bytes; with more, these stay as they are.
const ELEMENTS: u64 = 1 << 22;

impl Table {
    /// Whether both are of the same records.
    pub(super) fn same(&self, other: &Table) -> bool {
        let part = |p: &Part| (p.id, p.bytes, p.hidden);
        let hole = |h: &HoleRecord| (h.id, h.range.clone());
        self.parts.iter().map(part).eq(other.parts.iter().map(part))
            && self.holes.iter().map(hole).eq(other.holes.iter().map(hole))
            && self.lost.len() == other.lost.len()
    }

    /// Whether it should be written anew.
    fn untidy(&self) -> bool {
        let hidden: u64 = self.parts.iter().map(|p| p.hidden).sum();
        let all: u64 = self.parts.iter().map(|p| p.bytes).sum();
        (hidden > all - hidden || self.holes.len() > HOLES) && self.tidies()
    }

    /// Whether it can be.
    fn tidies(&self) -> bool {
        let partly = self.parts.iter().filter(|p| p.hidden > 0);
        let elements: u64 = partly.map(|p| p.segment.pattern.elements()).sum();
        // What is lost would be lost for good, and holes hide it.
        self.lost.is_empty() && elements <= ELEMENTS
    }

    /// Counts the hidden bytes of all parts by a look at each piece that counts; `over`: the extents of the index.
    pub(super) fn recount(&mut self, over: &Read<'_>) -> Result<()> {
        let mut counts = vec![0; self.parts.len()];
        let mut over = Over::new(over, 0..u64::MAX);
        visible(self.map(), self, 0..u64::MAX, &mut |piece| {
            over.uncovered(piece, &mut |p| {
                if let Some(at) = self.part_of(p.source, p.sequence, p.addr) {
                    counts[at] += p.len;
                }
            });
        });
        over.done()?;
        for (part, counts) in self.parts.iter_mut().zip(counts) {
            part.hidden = part.bytes.saturating_sub(counts);
        }
        self.uncounted = false;
        Ok(())
    }

    fn anew(&self, over: &Read<'_>) -> Result<Vec<Part>> {
        let mut numbers = BTreeMap::new();
        for part in &self.parts {
            let next = numbers.entry(part.id.seq).or_insert(0);
            *next = part.id.number.max(*next);
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            if part.hidden == 0 {
                parts.push(part.clone());
                continue;
            }
            let mut id = part.id;
            let mut bytes = 0;
            for segment in self.left(part, over)? {
                let new = Part::new(id, segment);
                bytes += new.bytes;
                parts.push(new);
                let number = numbers.entry(id.seq).or_default();
                *number += 1;
                id.number = *number;
            }
            if bytes != part.bytes - part.hidden {
                let Id { seq, number } = part.id;
                return Err(Error::Corrupt(format!(
                    "pattern {number} of commit {seq}: {bytes} bytes of it count, {} expected; run `forebay fsck`",
                    part.bytes - part.hidden
                )));
            }
        }
        parts.sort_by_key(|p| p.id);
        Ok(parts)
    }

    /// What counts of a part, folded anew.
    fn left(&self, part: &Part, over: &Read<'_>) -> Result<Vec<Segment>> {
        let source = part.segment.source;
        let mut over = Over::new(over, part.bounds.0..part.bounds.1);
        let mut folder = Folder::joining();
        let mut failed = None;
        for e in part.segment.pattern.iter() {
            visible(self.map(), self, e.offset..e.end(), &mut |piece| {
                let own = (piece.source, piece.sequence) == (source, part.id.seq)
                    && piece.addr.wrapping_sub(piece.offset) == e.addr.wrapping_sub(e.offset);
                if own {
                    over.uncovered(piece, &mut |p| {
                        if let Err(error) = folder.push_at(p.offset, p.len, p.addr) {
                            failed = Some(error);
                        }
                    });
                }
            });
        }
        over.done()?;
        if let Some(error) = failed {
            return Err(Error::Corrupt(error.to_string()));
        }
        let patterns = folder.finish().into_iter();
        Ok(patterns
            .map(|pattern| Segment::new(source, part.id.seq, pattern))
            .collect())
    }
}

/// What takes the place of a table's parts.
enum Anew {
    Parts(Vec<Part>),
    Joined(Joined),
}

impl Shared {
    /// Writes the patterns of a file anew if that is due. The caller has the file's commit lock, and not the inode's.
    pub(in super::super) fn tidy(&self, fid: Fid) {
        // After a commit of a file with patterns its table is in memory.
        if self.tables.get(fid).is_none() {
            return;
        }
        let tidied = || {
            let table = {
                let _inode = self.inodes.lock(fid);
                match self.inodes.get(fid)?.layout {
                    Layout::Patterned => self.table(fid)?,
                    Layout::Fresh | Layout::Spread => return Ok(()),
                }
            };
            let anew = match table.untidy() {
                true => Anew::Parts(table.anew(&|range| page(&self.index, fid, range))?),
                false => match table.join()? {
                    Some(joined) => Anew::Joined(joined),
                    None => return Ok(()),
                },
            };
            let _inode = self.inodes.lock(fid);
            // A lamination may have been quicker.
            let now = self.table(fid)?;
            match anew {
                _ if !now.same(&table) => Ok(()),
                Anew::Parts(parts) => self.replace(fid, &now, parts),
                Anew::Joined(joined) => self.put_joined(fid, &now, joined),
            }
        };
        if let Err::<(), Error>(error) = tidied() {
            tracing::warn!(fid = fid.0, %error, "the patterns of a file were not written anew; they take more room than they need");
        }
    }

    /// The file was laminated: writes its patterns as few as they can be, and beside them what readers get. The caller has the
    /// inode's lock.
    pub(in super::super) fn finish_patterns(&self, fid: Fid, inode: &Inode) {
        if inode.layout != Layout::Patterned {
            return;
        }
        let finish = || {
            let mut table = self.table(fid)?;
            if table.tidies()
                && (table.parts.iter().any(|p| p.hidden > 0) || !table.holes.is_empty())
            {
                let parts = table.anew(&|range| page(&self.index, fid, range))?;
                self.replace(fid, &table, parts)?;
                table = self.table(fid)?;
            }
            if table.kept.is_none() && table.lost.is_empty() && table.parts.len() > 1 {
                self.keep_merged(fid, inode.seq, &table)?;
            }
            Ok(())
        };
        if let Err(error) = finish() {
            let error: Error = error;
            tracing::warn!(fid = fid.0, %error, "the patterns of a laminated file were not merged on disk; its owner merges them in memory");
        }
    }

    fn keep_merged(&self, fid: Fid, seq: u64, table: &Arc<Table>) -> Result<()> {
        let key = Id { seq, number: 0 }.key(fid, MERGED);
        let value = merged_value(table.parts.len() as u64, table.merged());
        let mut batch = Batch::new();
        batch.put(keys::PATTERNS, key.clone(), value);
        self.store.apply(batch)?;
        let mut kept = Table::clone(table);
        kept.kept = Some(key);
        self.tables.put(fid, Arc::new(kept));
        Ok(())
    }

    /// Writes these parts, which `table` has made anew.
    fn replace(&self, fid: Fid, table: &Table, parts: Vec<Part>) -> Result<()> {
        let mut batch = Batch::new();
        let mut writer = Writer {
            batch: &mut batch,
            fid,
        };
        for old in table.parts.iter().filter(|p| p.hidden > 0) {
            writer.delete(old);
        }
        writer.drop_holes(&mut table.holes.clone(), |_| true);
        writer.drop_merged(table);
        let known = |part: &Part| {
            let at = table.parts.binary_search_by_key(&part.id, |p| p.id);
            at.is_ok_and(|at| table.parts[at].hidden == 0)
        };
        for part in parts.iter().filter(|p| !known(p)) {
            writer.put(part.id, SEGMENT, part.value());
        }
        self.step("rewrite")?;
        self.tables.forget(fid);
        self.store.apply(batch)?;
        let table = Table::new(parts, Vec::new(), Vec::new());
        self.tables.put(fid, Arc::new(table));
        Ok(())
    }
}
