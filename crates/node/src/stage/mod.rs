//! The stage jobs of a running service, over all its server processes.
//!
//! ```text
//!  client --Start--> StageService of the asked server -- coordinator --+-- its own part: walk, copy what its nodes hold
//!                                                                      +-- Start, Look ... Look, End --> a part at every other server
//! ```
//!
//! | file | what |
//! |---|---|
//! | `service` | the jobs of this server: answers `forebay stage`, and the other servers |
//! | `coordinator` | one job: has every server do its part, adds up, finishes it |
//! | `job_part` | what one server does of a job, for its own coordinator or another's |
//! | `environment` | what a part needs of this server: nodes, journals, paths |
//! | `led_job` | a job that this server leads, as it is shown |
//!
//! What the servers send each other is in [`messages`](crate::server_rpc::messages).
//!
//! Invariants: the server that is asked leads the job; a service in one process is the same with no other server. A part
//! whose coordinator stops asking for its progress ends by itself. A job is finished only after all parts have ended well
//! and have seen the same source; only then do the journals go. Job numbers are unique in the service and name the leading
//! server.
mod coordinator;
mod environment;
mod job_part;
mod led_job;
mod service;
#[cfg(test)]
mod tests;

pub use service::StageService;
