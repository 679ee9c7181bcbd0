//! The poison flag of a directory, set by a failed write: nothing more is accepted there until it is opened again.
//!
//! Invariant: it stays poisoned, and the first reason stays.
use crate::{Error, Result};
use parking_lot::Mutex;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the head of this file.
#[derive(Debug)]
pub struct Poison {
    dir: PathBuf,
    poisoned: AtomicBool,
    reason: Mutex<String>,
}

impl Poison {
    /// Not poisoned.
    pub fn new(dir: &Path) -> Poison {
        Poison {
            dir: dir.to_path_buf(),
            poisoned: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// What is, or may be.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Poisons it; whether it was not before.
    pub fn set(&self, reason: &dyn Display) -> bool {
        let mut first = self.reason.lock();
        let new = first.is_empty();
        if new {
            *first = reason.to_string();
        }
        self.poisoned.store(true, Ordering::Release);
        new
    }

    /// Whether it is not poisoned.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn check(&self) -> Result<()> {
        match self.poisoned.load(Ordering::Acquire) {
            true => Err(self.error()),
            false => Ok(()),
        }
    }

    /// The error of who meets it poisoned.
    pub fn error(&self) -> Error {
        Error::Poisoned {
            path: self.dir.clone(),
            reason: self.reason.lock().clone(),
        }
    }
}
