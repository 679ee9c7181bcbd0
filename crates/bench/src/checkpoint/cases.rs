//! The cases: so many writers, so many writes each, with bytes or without.

use crate::fail::{Failure, Result};

/// One case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Writers, and writes of each.
    pub name: &'static str,
    /// Processes that write.
    pub writers: u64,
    /// Writes of each.
    pub calls: u64,
    /// Its bytes are written and read. Else only the index is.
    pub data: bool,
    /// It takes minutes, or gigabytes: only by name.
    pub large: bool,
}

impl Case {
    const fn new(name: &'static str, writers: u64, calls: u64, data: bool, large: bool) -> Case {
        Case {
            name,
            writers,
            calls,
            data,
            large,
        }
    }

    /// Processes that read it again, when they are not as many as wrote.
    pub fn others(&self) -> u64 {
        self.writers / 2
    }
}

const K: u64 = 1024;

/// All of them.
pub const CASES: &[Case] = &[
    Case::new("fs-test-64x4k", 64, 4 * K, true, false),
    Case::new("fs-test-16x16k", 16, 16 * K, true, false),
    Case::new("fs-test-512x1k", 512, K, false, false),
    Case::new("fs-test-512x4k", 512, 4 * K, false, false),
    Case::new("fs-test-512x16k", 512, 16 * K, false, false),
    Case::new("fs-test-512x64k", 512, 64 * K, false, true),
    Case::new("fs-test-512x256k", 512, 256 * K, false, true),
];

/// The cases named, or all that are not large.
pub fn select(names: &[String]) -> Result<Vec<Case>> {
    if names.is_empty() {
        return Ok(CASES.iter().copied().filter(|c| !c.large).collect());
    }
    let find = |name: &String| {
        let found = CASES.iter().copied().find(|c| c.name == name);
        found.ok_or_else(|| Failure::new(format!("no case {name:?}; --list names them")))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_done() {
        for case in CASES {
            let shape = format!("fs-test-{}x{}k", case.writers, case.calls / K);
            assert_eq!(case.name, shape);
        }
        assert!(select(&["fs-test-512x256k".into()]).is_ok_and(|c| c.len() == 1));
        assert!(select(&["fs-test".into()]).is_err_and(|e| e.0.contains("fs-test")));
        assert!(select(&[]).is_ok_and(|c| c.iter().all(|c| !c.large)));
    }
}
