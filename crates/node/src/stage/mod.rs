//! The stage jobs of a running service, over all its server processes.
//!
//! ```text
//!  client --Start--> desk of the asked server -- coordinator --+-- its own part: walk, copy what its nodes hold
//!                                                              +-- Start, Look ... Look, End --> a part at every other server
//! ```
//!
//! | file | what |
//! |---|---|
//! | `service` | the jobs of this server: answers `forebay stage`, and the other servers |
//! | `coordinator` | one job: has every server do its part, adds up, does the end |
//! | `part` | what one server does of a job, for its own coordinator or another's |
//! | `hosting` | what a part needs of this server: nodes, journals, paths |
//! | `slot` | a job as it is shown |
//! | `messages` | what the servers say to each other |
//!
//! Invariants: the server that is asked leads the job; a service in one process is the same with no other server. A part that
//! nobody looks at any more ends by itself. The end comes only after all parts have ended well and have seen the same
//! source; only then do the journals go. Job numbers are the service's: any server tells from one who leads the job.
mod coordinator;
mod hosting;
mod messages;
mod part;
mod service;
mod slot;
#[cfg(test)]
mod tests;

pub use messages::PartAsk;
pub use service::StageDesk;
