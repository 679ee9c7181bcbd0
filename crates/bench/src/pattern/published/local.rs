//! Local entries: what one process wrote, in units of offsets, lengths and addresses.

use super::LogLocation;
use super::unit::{Unit, discover};
use forebay_codec::varint;
use forebay_pattern::Element;

/// One unit of offsets, with the units of lengths and addresses that stand for the same writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// The log (chunk id).
    pub log: u64,
    /// The unit of offsets.
    pub logical: Unit,
    /// The units of lengths.
    pub length: Vec<Unit>,
    /// The units of log addresses.
    pub physical: Vec<Unit>,
}

/// The entries of one process, whose writes come in the order of its log. Writes that follow each other in file and log are one.
pub fn entries(log: u64, writes: impl IntoIterator<Item = Element>) -> Vec<Local> {
    let mut joined: Vec<Element> = Vec::new();
    for write in writes.into_iter().filter(|w| w.len > 0) {
        match joined.last_mut() {
            Some(last) if last.end() == write.offset && last.addr + last.len == write.addr => {
                last.len += write.len;
            }
            _ => joined.push(write),
        }
    }
    let column = |of: fn(&Element) -> u64| joined.iter().map(of).collect::<Vec<u64>>();
    let (offsets, lengths, addrs) = (column(|e| e.offset), column(|e| e.len), column(|e| e.addr));
    let mut at = 0;
    discover(&offsets)
        .into_iter()
        .map(|logical| {
            let part = at..at + logical.count() as usize;
            at = part.end;
            Local {
                log,
                logical,
                length: discover(&lengths[part.clone()]),
                physical: discover(&addrs[part]),
            }
        })
        .collect()
}

fn nth(units: &[Unit], mut k: u64) -> Option<u64> {
    for unit in units {
        if k < unit.count() {
            return Some(unit.value(k));
        }
        k -= unit.count();
    }
    None
}

impl Local {
    /// Encoded bytes, as varints.
    pub fn bytes(&self) -> usize {
        let units = self.length.iter().chain(&self.physical);
        varint::len(self.log)
            + self.logical.bytes()
            + varint::len(self.length.len() as u64)
            + varint::len(self.physical.len() as u64)
            + units.map(Unit::bytes).sum::<usize>()
    }

    /// Write `k` of the entry.
    pub fn get(&self, k: u64) -> Option<Element> {
        (k < self.logical.count()).then_some(Element {
            offset: self.logical.value(k),
            len: nth(&self.length, k)?,
            addr: nth(&self.physical, k)?,
        })
    }

    /// Algorithm 2: where `offset` is, if this entry has it.
    pub fn lookup(&self, offset: u64) -> Option<LogLocation> {
        let relative = offset.checked_sub(self.logical.init)?;
        let stride = self.logical.stride();
        let (row, rest) = relative
            .checked_div(stride)
            .map_or((0, relative), |row| (row, relative % stride));
        let mut sum = 0u64;
        let mut column = 0;
        for delta in &self.logical.deltas {
            sum = sum.wrapping_add(*delta as u64);
            if sum > rest {
                break;
            }
            column += 1;
        }
        let found = self.get(column + row.checked_mul(self.logical.deltas.len() as u64)?)?;
        let shift = offset.checked_sub(found.offset)?;
        (shift < found.len).then_some(LogLocation {
            log: self.log,
            addr: found.addr + shift,
            len: found.len - shift,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of section 2.3: offset 29 is the second piece of the third period.
    #[test]
    fn the_example_of_the_paper_is_found() {
        let offsets = [0, 3, 7, 14, 17, 21, 28, 31, 35, 42, 45];
        let writes = offsets.iter().enumerate().map(|(i, &offset)| Element {
            offset,
            len: 2,
            addr: i as u64 * 2,
        });
        let entries = entries(5, writes);
        assert_eq!(entries[0].logical.deltas, [3, 4, 7]);
        for (i, &offset) in offsets.iter().enumerate() {
            let place = entries.iter().find_map(|e| e.lookup(offset + 1)).unwrap();
            assert_eq!((place.log, place.addr, place.len), (5, i as u64 * 2 + 1, 1));
        }
        assert_eq!(entries.iter().find_map(|e| e.lookup(2)), None);
    }
}
