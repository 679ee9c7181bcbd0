//! Reports of damage to a store and of what may be lost with it: from an open, from a check, and from reads of a store that is
//! opened to [salvage](crate::Store::salvage) what is whole.
use crate::{Error, names};
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// One damaged place.
#[derive(Debug)]
pub struct Damage {
    /// Which file, where, and what is wrong with it.
    pub error: Error,
    /// What it may have held.
    pub lost: PossibleLoss,
}

/// What damaged bytes may have held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PossibleLoss {
    /// Nothing that is not elsewhere too: a second copy, a checksum of something whole, what a table file holds already.
    Nothing,
    /// Nothing: one bit was flipped, and is [put right](crate::bit_correction) wherever the bytes are read.
    Corrected {
        /// The byte of the file that it is in.
        byte: u64,
    },
    /// Entries with keys from `first` to `last`, both included, their keyspace byte first. Older entries of these keys are whole, but
    /// not shown, because what replaced or deleted them may be lost.
    Keys {
        /// The least key.
        first: Bytes,
        /// The greatest key.
        last: Bytes,
    },
    /// Entries of the attached [engine](crate::Engine) from `first` to `last`, both included, as that engine writes its keys: in ascending order.
    EngineKeys {
        /// The least key.
        first: Bytes,
        /// The greatest key.
        last: Bytes,
    },
    /// Batches with these numbers, and so the newest changes of the store.
    Batches {
        /// The first that is missing.
        first: u64,
        /// The last that is missing; `None`: how many there were is not known.
        last: Option<u64>,
    },
}

impl PossibleLoss {
    /// Batches from `first` on, through `last` if that is known.
    pub(crate) fn batches(first: u64, last: Option<u64>) -> PossibleLoss {
        PossibleLoss::Batches { first, last }
    }

    /// Whether nothing is lost.
    pub fn is_nothing(&self) -> bool {
        matches!(self, PossibleLoss::Nothing | PossibleLoss::Corrected { .. })
    }
}

/// The damage that reads of an open store met, each place once.
#[derive(Debug, Default)]
pub struct DamageNotes(Mutex<KeptDamage>);

#[derive(Debug, Default)]
struct KeptDamage {
    kept: Vec<Arc<Damage>>,
    full: bool,
}

/// Places that are kept. Further ones are neither kept nor logged, for it could not be told which of them is new.
const NOTED: usize = 256;

impl DamageNotes {
    /// Notes a damaged place, and logs it the first time.
    pub fn note(&self, damage: Damage) {
        let mut notes = self.0.lock();
        let place = |d: &Damage| (d.path().to_path_buf(), d.offset());
        let at = place(&damage);
        let known = |d: &Arc<Damage>| place(d) == at && d.lost == damage.lost;
        if notes.full || notes.kept.iter().any(known) {
            return;
        }
        if notes.kept.len() == NOTED {
            notes.full = true;
            tracing::error!(
                "reads met more than {NOTED} damaged places; `forebay fsck` tells of all"
            );
            return;
        }
        tracing::error!("a read met damage: {damage}");
        notes.kept.push(Arc::new(damage));
    }

    /// All of it so far.
    pub fn all(&self) -> Vec<Arc<Damage>> {
        self.0.lock().kept.clone()
    }
}

impl Damage {
    /// Damage that costs nothing.
    pub fn without_loss(error: Error) -> Damage {
        Damage {
            error,
            lost: PossibleLoss::Nothing,
        }
    }

    /// The damaged file.
    pub fn path(&self) -> &Path {
        self.error.path()
    }

    /// Where it starts in the file, bytes, if that is known.
    pub fn offset(&self) -> Option<u64> {
        match self.error {
            Error::Corrupt { offset, .. } => Some(offset),
            _ => None,
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.error)?;
        match &self.lost {
            PossibleLoss::Nothing => write!(f, " (nothing is lost by it)"),
            PossibleLoss::Corrected { byte } => write!(
                f,
                " (one flipped bit, in byte {byte}, is put right: nothing is lost)"
            ),
            PossibleLoss::Keys { first, last } => write!(
                f,
                " (it may have held keys from {} to {})",
                first.escape_ascii(),
                last.escape_ascii()
            ),
            PossibleLoss::EngineKeys { first, last } => write!(
                f,
                " (it may have held entries of the index from {} to {})",
                first.escape_ascii(),
                last.escape_ascii()
            ),
            PossibleLoss::Batches {
                first,
                last: Some(last),
            } => {
                write!(f, " (batches {first} to {last} are missing)")
            }
            PossibleLoss::Batches { first, last: None } => {
                write!(f, " (batches from {first} on are missing)")
            }
        }
    }
}

/// How the log ended when the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// The store is new.
    New,
    /// It was closed, with everything that it had taken.
    Clean,
    /// It was not closed. At durability `process` and `none`, what was written since the last sync may be missing.
    Unclean {
        /// The last batch that is there.
        last: u64,
        /// Through this batch everything is known to have been on disk.
        synced: u64,
        /// Where the log was cut because a crash had torn it. A log that ends at the end of a record is not cut: nobody can see what
        /// it may have lost.
        cut: Option<LogCut>,
    },
}

/// Where the log was cut: everything after it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCut {
    /// The number of the log file.
    pub file: u64,
    /// The first byte that went.
    pub offset: u64,
}

impl std::fmt::Display for LogEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LogEnd::Unclean { last, synced, cut } = self else {
            return write!(f, "it was closed, or is new");
        };
        write!(f, "it was not closed; ")?;
        if let Some(LogCut { file, offset }) = cut {
            let name = names::log(Path::new(""), *file);
            write!(
                f,
                "its log {} was torn by a crash and cut at byte {offset}; ",
                name.display()
            )?;
        }
        write!(
            f,
            "what came behind batch {last} of its log, if anything, is lost (through batch {synced} everything was on disk)"
        )
    }
}

/// What was found when a store was opened.
#[derive(Debug)]
pub struct OpenReport {
    /// How the log ended.
    pub end: LogEnd,
    /// What was damaged, and put right where it could be. Damage of table files is not looked for: [`Store::survey`] finds it.
    ///
    /// [`Store::survey`]: crate::Store::survey
    pub damage: Vec<Damage>,
}
