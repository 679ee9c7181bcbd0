//! Global entries: local ones that abut, of many processes.

use super::unit::{Unit, discover};
use super::{Local, LogLocation};
use forebay_codec::varint;

/// Local entries of one stride, length and count that lie beside each other; only the logs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// The log of each slot: columns of the first global stride, then of the next.
    pub ids: Vec<u64>,
    /// Offsets of slot 0.
    pub logical: Unit,
    /// Length of every piece.
    pub length: u64,
    /// Address of each log's first piece.
    pub addr: u64,
}

/// Global entries of what can be merged, and the local ones that cannot.
pub fn merge(mut locals: Vec<Local>) -> (Vec<Global>, Vec<Local>) {
    locals.sort_by_key(|l| l.logical.init);
    let (mut globals, mut rest): (Vec<Global>, Vec<Local>) = Default::default();
    for local in locals {
        let Some(one) = Global::of(&local) else {
            rest.push(local);
            continue;
        };
        match globals.last_mut() {
            Some(last) if last.abuts(&one) => last.ids.extend(one.ids),
            _ => globals.push(one),
        }
    }
    (globals, rest)
}

impl Global {
    /// An entry of one slot, if all its pieces have one stride, one length, and follow each other in the log.
    fn of(local: &Local) -> Option<Global> {
        let flat = |units: &[Unit], delta: i64| {
            let unit = units.first()?;
            (units.len() == 1 && (unit.count() == 1 || unit.deltas == [delta])).then_some(unit.init)
        };
        let length = flat(&local.length, 0)?;
        let addr = flat(&local.physical, length as i64)?;
        let stride = local.logical.stride();
        let fits =
            local.logical.deltas.len() == 1 && length > 0 && stride >= length && stride >> 62 == 0;
        (fits && stride.is_multiple_of(length)).then(|| Global {
            ids: vec![local.log],
            logical: local.logical.clone(),
            length,
            addr,
        })
    }

    /// Slots in a global stride.
    fn columns(&self) -> u64 {
        self.logical.stride() / self.length
    }

    /// Bytes of a global stride.
    fn size(&self) -> u64 {
        self.logical.stride() * self.logical.count()
    }

    fn slot_start(&self, slot: u64) -> u64 {
        self.logical.init
            + slot / self.columns() * self.size()
            + slot % self.columns() * self.length
    }

    fn abuts(&self, next: &Global) -> bool {
        let same = |g: &Global| (g.length, g.logical.stride(), g.logical.count());
        let next_addr =
            self.occurrences(next.ids[0], self.ids.len()) * self.logical.count() * self.length;
        same(self) == same(next)
            && next.logical.init == self.slot_start(self.ids.len() as u64)
            && next.addr == self.addr + next_addr
    }

    fn occurrences(&self, id: u64, before: usize) -> u64 {
        self.ids[..before].iter().filter(|i| **i == id).count() as u64
    }

    /// Bytes when written as varints, the ids as units if that is shorter.
    pub fn bytes(&self) -> usize {
        let ids: usize = self.ids.iter().map(|id| varint::len(*id)).sum();
        let units: usize = discover(&self.ids).iter().map(Unit::bytes).sum();
        ids.min(units)
            + 1
            + self.logical.bytes()
            + varint::len(self.length)
            + varint::len(self.addr)
    }

    /// Algorithm 3: where `offset` is, if this entry has it. Slots are counted from 0.
    pub fn lookup(&self, offset: u64) -> Option<LogLocation> {
        let relative = offset.checked_sub(self.logical.init)?;
        let (id, rest) = (relative / self.size(), relative % self.size());
        let row = rest / self.logical.stride();
        let column = rest % self.logical.stride() / self.length;
        let slot = id * self.columns() + column;
        let log = *self.ids.get(usize::try_from(slot).ok()?)?;
        let piece = self.slot_start(slot) + row * self.logical.stride();
        let shift = offset - piece;
        let rows = self.occurrences(log, slot as usize) * self.logical.count() + row;
        Some(LogLocation {
            log,
            addr: self.addr + rows * self.length + shift,
            len: self.length - shift,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::entries;
    use super::*;
    use forebay_pattern::Element;

    /// Figure 10: groups of three processes share a global stride of four rows.
    #[test]
    fn the_example_of_the_paper_is_found() {
        let ids = [4, 7, 6, 2, 8, 9, 4, 7, 6, 2, 8, 9];
        let mut written: Vec<(u64, u64)> = Vec::new();
        let mut locals = Vec::new();
        for (slot, &id) in ids.iter().enumerate() {
            let base = 1000 + slot as u64 / 3 * 120 + slot as u64 % 3 * 10;
            let first = written.iter().filter(|w| w.0 == id).count() as u64 * 10;
            let writes = (0..4).map(|row| Element {
                offset: base + row * 30,
                len: 10,
                addr: first + row * 10,
            });
            written.extend([(id, 0); 4]);
            locals.extend(entries(id, writes));
        }
        let (globals, rest) = merge(locals);
        assert_eq!((globals.len(), rest.len()), (1, 0));
        assert_eq!(globals[0].ids, ids);
        let place = globals[0].lookup(1250).unwrap();
        assert_eq!((place.log, place.addr, place.len), (7, 40, 10));
        assert_eq!(globals[0].lookup(999), None);
        assert_eq!(globals[0].lookup(1000 + 480), None);
    }
}
