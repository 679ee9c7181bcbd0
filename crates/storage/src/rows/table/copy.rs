//! The copy of those blocks of a table that are mirrored (entries of keyspaces from `Keyspace::FIRST_MIRRORED` on), read where
//! the table's own cannot be.
use super::frame;
use super::index::Index;
use super::metadata::{TableMetadata, TableTail, read_in};
use crate::damage::Damage;
use crate::rows::block::Block;
use crate::{Error, Keyspace, Result, TableFile};
use std::sync::OnceLock;

/// See the head of this file.
pub struct TableCopy {
    /// Its path.
    pub file: TableFile,
    /// Set at first use; `None`: it cannot be read.
    opened: OnceLock<Option<TableMetadata>>,
}

impl TableCopy {
    /// The copy in this file, which is opened at first use.
    pub fn new(file: TableFile) -> TableCopy {
        TableCopy {
            file,
            opened: OnceLock::new(),
        }
    }

    /// Its metadata, if that can be read.
    pub fn metadata(&self) -> Option<&TableMetadata> {
        if let Some(copy) = self.opened.get() {
            return copy.as_ref();
        }
        match self.open() {
            Ok(copy) => self.opened.get_or_init(|| Some(copy)).as_ref(),
            Err(e) if is_missing(&e) || matches!(e, Error::Corrupt { .. }) => {
                self.opened.get_or_init(|| None).as_ref()
            }
            // Another try may go better.
            Err(_) => None,
        }
    }

    fn open(&self) -> Result<TableMetadata> {
        match TableTail::read(&self.file.open()?, &self.file)? {
            TableTail::Whole(opened) => Ok(opened),
            TableTail::Damaged { mut damage, .. } => {
                let unknown = || self.file.corrupt("table footer", 0, 0, 0);
                Err(damage.pop().unwrap_or_else(unknown))
            }
        }
    }

    /// The block with this first and last key.
    pub fn block(&self, first: &[u8], last: &[u8]) -> Option<Block> {
        let copy = self.metadata()?;
        let i = copy.index.find(first);
        let same = i < copy.index.len() && copy.index.first(i) == first;
        if !same || copy.index.last(i) != last {
            return None;
        }
        let mut blocks = read_in(&self.file, &copy.index, i, 1).ok()?;
        blocks.pop()
    }

    /// Whether it can be read, and holds the same blocks as the table with this number and region.
    pub fn check(&self, table: u64, index: Option<&Index>, damage: &mut Vec<Damage>) {
        let mut tell = |error| damage.push(Damage::without_loss(error));
        let copy = match self.open() {
            Ok(copy) => copy,
            Err(error) => return tell(error),
        };
        copy.damage.into_iter().for_each(&mut tell);
        for i in 0..copy.index.len() {
            let read = read_in(&self.file, &copy.index, i, 1).map(drop);
            let framed = frame::check(&self.file, table, copy.index.place(i));
            [read, framed]
                .into_iter()
                .filter_map(Result::err)
                .for_each(&mut tell);
        }
        let ends = |index: &Index| {
            let first = index.find(&[Keyspace::FIRST_MIRRORED.0]);
            let ends = |i| (index.first(i).to_vec(), index.last(i).to_vec());
            (first..index.len()).map(ends).collect::<Vec<_>>()
        };
        // A table that was put together again may lack some.
        if index.is_some_and(|index| ends(index) != ends(&copy.index)) {
            tell(self.file.corrupt("key ranges of blocks", 0, 0, 0));
        }
    }
}

/// Whether the error is that a file does not exist.
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
