//! The records that the commits of a file leave at its owner, and the rules by which a commit is admitted. Commits are decided
//! in `committer`.
//!
//! | module | what |
//! |---|---|
//! | `locks` | the commit lock of each file |
//! | `validation` | what a commit may say of a file's bytes, looked at before anything is locked |
//! | `admission` | whether a commit fits the file as it is, and the file's layout after it |
//! | `decisions` | commits decided and not published by all members; publishing |
//! | `outcomes` | which commits happened, for those that ask again |
mod admission;
mod decisions;
mod locks;
mod outcomes;
mod validation;

pub(super) use admission::Admission;
pub(super) use decisions::{CommitDecision, DecidedCommits};
pub(super) use locks::{CommitLock, CommitLocks};
pub(super) use outcomes::CommitOutcomes;
pub(crate) use validation::MAX_COMPARED_PUTS;
pub(super) use validation::validated;
