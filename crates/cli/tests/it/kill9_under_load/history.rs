//! What a worker has been told is done, and what it was doing when the service died.
use std::collections::BTreeMap;

/// An operation that has begun.
#[derive(Debug, Clone)]
pub enum PendingMount {
    /// Nothing.
    None,
    /// Bytes of one file, then fsync or close; a file that was not there is created first.
    Write {
        name: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// One name takes the place of another.
    Rename { from: String, to: String },
    /// A file goes away.
    Unlink { name: String },
}

/// The files of one worker as it has been told they are.
#[derive(Debug, Clone, Default)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl Files {
    /// The files after `pending` has happened.
    pub fn after(&self, pending: &PendingMount) -> Files {
        let mut files = self.clone();
        match pending {
            PendingMount::None => {}
            PendingMount::Write {
                name,
                offset,
                bytes,
            } => {
                let content = files.0.entry(name.clone()).or_default();
                if content.len() < offset + bytes.len() {
                    content.resize(offset + bytes.len(), 0);
                }
                content[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            PendingMount::Rename { from, to } => {
                if let Some(content) = files.0.remove(from) {
                    files.0.insert(to.clone(), content);
                }
            }
            PendingMount::Unlink { name } => {
                files.0.remove(name);
            }
        }
        files
    }

    /// Takes what was found after a crash if it may be: exactly as before `pending`, or as after it; bytes of a write
    /// that had not returned may be old or new one by one (they were not committed yet), but nothing else.
    pub fn accept(
        &mut self,
        pending: &PendingMount,
        found: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), String> {
        let after = self.after(pending);
        if found != self.0 && found != after.0 {
            let PendingMount::Write { name, .. } = pending else {
                return Err(format!(
                    "{pending:?}: neither done nor not; {}",
                    difference(&self.0, &found)
                ));
            };
            let (mut old, mut new, mut seen) = (self.0.clone(), after.0.clone(), found.clone());
            let (old, new, seen) = (
                old.remove(name).unwrap_or_default(),
                new.remove(name),
                seen.remove(name),
            );
            let (new, Some(seen)) = (new.unwrap_or_default(), seen) else {
                return Err(format!("{name} is gone while it was written"));
            };
            if seen.len() != old.len()
                && seen.len() != new.len()
                && (seen.len() < old.len() || seen.len() > new.len())
            {
                return Err(format!(
                    "{name} has {} bytes, not {} or {}",
                    seen.len(),
                    old.len(),
                    new.len()
                ));
            }
            let at = |bytes: &[u8], i: usize| bytes.get(i).copied().unwrap_or(0);
            if let Some(i) =
                (0..seen.len()).find(|i| seen[*i] != at(&old, *i) && seen[*i] != at(&new, *i))
            {
                return Err(format!(
                    "{name}, byte {i}: {} is neither old nor new",
                    seen[i]
                ));
            }
            let others = |files: &BTreeMap<String, Vec<u8>>| {
                let mut files = files.clone();
                files.remove(name);
                files
            };
            if others(&found) != others(&self.0) {
                return Err(format!(
                    "besides {name}: {}",
                    difference(&others(&self.0), &others(&found))
                ));
            }
        }
        self.0 = found;
        Ok(())
    }
}

/// The first difference, in words.
fn difference(expected: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>) -> String {
    for (name, bytes) in expected {
        match found.get(name) {
            None => return format!("{name} is missing"),
            Some(other) if other.len() != bytes.len() => {
                return format!("{name} has {} bytes, not {}", other.len(), bytes.len());
            }
            Some(other) => {
                if let Some(i) = (0..bytes.len()).find(|i| bytes[*i] != other[*i]) {
                    return format!(
                        "{name} is wrong at byte {i}: {} instead of {}",
                        other[i], bytes[i]
                    );
                }
            }
        }
    }
    match found.keys().find(|name| !expected.contains_key(*name)) {
        Some(name) => format!("{name} should not be there"),
        None => String::from("no difference"),
    }
}
