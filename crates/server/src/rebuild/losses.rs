//! The list of what a rebuild lost, as text and as data.
use serde::{Deserialize, Serialize};

/// One name and what is the matter with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DamagedPath {
    /// The path in the service.
    pub path: String,
    /// What is lost of it, or how it got there.
    pub what: String,
}

/// What a salvage or repair found missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossReport {
    /// The damaged places, and what each may have held.
    pub damage: Vec<String>,
    /// Names of which something is lost: reading that answers `EIO`.
    pub lost: Vec<DamagedPath>,
    /// What was found without a name, under its new one.
    pub found: Vec<DamagedPath>,
    /// Other things worth knowing.
    pub notes: Vec<String>,
    /// Inodes there are.
    pub files: u64,
    /// Files of which bytes in segment files are damaged or missing: no new records mend that.
    pub damaged_files: u64,
    /// Members whose spans may not all be known: their segment files may hold bytes of files that no record names.
    pub spans_lost: Vec<u16>,
}

impl LossReport {
    /// Whether everything is as it was.
    pub fn is_empty(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty() && self.found.is_empty()
    }

    pub(super) fn lose(&mut self, path: String, what: impl Into<String>) {
        let what = what.into();
        self.lost.push(DamagedPath { path, what });
    }

    pub(super) fn sort(&mut self) {
        self.lost.sort();
        self.lost.dedup();
        self.found.sort();
        self.found.dedup();
    }

    /// As lines of text: damage, losses, what was found, notes.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |words: &str, text: &str| {
            out.push_str(words);
            out.push_str(text);
            out.push('\n');
        };
        self.damage.iter().for_each(|d| line("damaged: ", d));
        for loss in &self.lost {
            line("not whole: ", &format!("{}: {}", loss.path, loss.what));
        }
        for loss in &self.found {
            line("found: ", &format!("{}: {}", loss.path, loss.what));
        }
        self.notes.iter().for_each(|n| line("note: ", n));
        out
    }
}
