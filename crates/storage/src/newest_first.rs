//! Merging sorted cursors into one sequence, of rows or of an engine's own records: newer cursors hide older ones, key by key.
//!
//! Cursors are given newest first. Each key is yielded once, in ascending order, from the newest cursor that has it. Nothing is collected, and
//! nothing is called dynamically.
//!
//! A range that a cursor cannot read is an error at the first key of the range, so a caller that stops before that key
//! does not see it. The error ends the merge, unless the cursor goes on after the range, as in a store that is salvaged:
//! then older entries of keys inside the range are left out, because newer ones may be lost.
//!
//! The least key is looked for among all cursors: they are few, one for each MemTable, table of level 0,
//! deeper level, or run.

/// A place in a sorted source.
pub trait SortedCursor {
    /// What entries are sorted by.
    type Key<'a>: Ord
    where
        Self: 'a;
    /// What it yields.
    type Entry;
    /// Why something cannot be read.
    type Failure;

    /// The key at hand, or the first that cannot be read. `None`: the end.
    fn key(&self) -> Option<Self::Key<'_>>;

    /// The entry at hand, where it can be read.
    fn entry(&self) -> Option<Self::Entry>;

    /// The key of an entry.
    fn key_of<'a>(entry: &'a Self::Entry) -> Self::Key<'a>
    where
        Self: 'a;

    /// Goes to the next entry; stays where something cannot be read.
    ///
    /// # Errors
    /// Ends the merge.
    fn advance(&mut self) -> Result<(), Self::Failure>;

    /// What cannot be read at hand, if that is so. A cursor of a salvaged store goes on after it.
    fn fail(&mut self) -> Option<Self::Failure>;

    /// Whether it went on after something that it could not read.
    fn has_gaps(&self) -> bool;

    /// Whether an entry of this key may have stood there.
    fn may_hide(&self, key: Self::Key<'_>) -> bool;
}

/// See the head of this file. Yields deletes too.
pub struct NewestFirst<C> {
    /// With their place in the given order.
    cursors: Vec<(usize, C)>,
    /// Those with gaps that have ended.
    ended: Vec<(usize, C)>,
}

impl<C: SortedCursor> NewestFirst<C> {
    /// Of these cursors, newest first.
    pub fn new(cursors: impl IntoIterator<Item = C>) -> NewestFirst<C> {
        let cursors = cursors.into_iter().enumerate();
        NewestFirst {
            cursors: cursors.filter(|(_, c)| c.key().is_some()).collect(),
            ended: Vec::new(),
        }
    }

    /// The cursor with the least key, the newest of such.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, C::Key<'_>)> = None;
        for (i, (_, cursor)) in self.cursors.iter().enumerate() {
            let Some(key) = cursor.key() else { continue };
            match &least {
                Some((_, other)) if *other <= key => {}
                _ => least = Some((i, key)),
            }
        }
        least.map(|(i, _)| i)
    }

    /// Takes out the cursors that have ended, but for what they may hide.
    fn drop_ended(&mut self) {
        let ended = self.cursors.extract_if(.., |(_, c)| c.key().is_none());
        self.ended.extend(ended.filter(|(_, c)| c.has_gaps()));
    }
}

impl<C: SortedCursor> Iterator for NewestFirst<C> {
    /// The next key's newest entry with the place of its cursor, or what cannot be read.
    type Item = Result<(usize, C::Entry), C::Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.least()?;
            let (rank, cursor) = &mut self.cursors[at];
            let rank = *rank;
            if let Some(failure) = cursor.fail() {
                match cursor.has_gaps() {
                    true => self.drop_ended(),
                    false => self.cursors.clear(),
                }
                return Some(Err(failure));
            }
            let entry = cursor.entry()?;
            let mut failed = cursor.advance().err();
            let mut over = cursor.key().is_none();
            for (_, older) in &mut self.cursors[at + 1..] {
                if older.key().is_some_and(|key| key == C::key_of(&entry)) {
                    failed = failed.or(older.advance().err());
                    over |= older.key().is_none();
                }
            }
            if let Some(failure) = failed {
                self.cursors.clear();
                return Some(Err(failure));
            }
            let hides = |c: &C| c.may_hide(C::key_of(&entry));
            let hidden = self.cursors[..at].iter().any(|(_, c)| hides(c))
                || self.ended.iter().any(|(r, c)| *r < rank && hides(c));
            if over {
                self.drop_ended();
            }
            if !hidden {
                return Some(Ok((rank, entry)));
            }
        }
    }
}
