//! The cases, by name.

use crate::harness::Case;

/// Where the servers are, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseServers {
    /// In this process.
    Local(u32),
    /// Processes of an MPI job on this machine.
    #[cfg(feature = "mpi")]
    Mpi(u32),
    /// Simulated.
    Simulated(u32),
    /// Simulated, every number from 2 to this.
    Every(u32),
}

/// Every case.
pub const CASES: &[Case<CaseServers>] = &[
    Case::new("ring-local-4", CaseServers::Local(4)),
    Case::new("ring-local-8", CaseServers::Local(8)),
    Case::new("ring-local-16", CaseServers::Local(16)),
    Case::new("ring-local-32", CaseServers::Local(32)),
    Case::new("ring-local-64", CaseServers::Local(64)),
    #[cfg(feature = "mpi")]
    Case::new("ring-mpi-4", CaseServers::Mpi(4)),
    #[cfg(feature = "mpi")]
    Case::new("ring-mpi-7", CaseServers::Mpi(7)),
    #[cfg(feature = "mpi")]
    Case::new("ring-mpi-8", CaseServers::Mpi(8)),
    #[cfg(feature = "mpi")]
    Case::new("ring-mpi-16", CaseServers::Mpi(16)),
    #[cfg(feature = "mpi")]
    Case::new("ring-mpi-32", CaseServers::Mpi(32)),
    #[cfg(feature = "mpi")]
    Case::new("ring-mpi-64", CaseServers::Mpi(64)),
    Case::new("ring-sim-4", CaseServers::Simulated(4)),
    Case::new("ring-sim-8", CaseServers::Simulated(8)),
    Case::new("ring-sim-16", CaseServers::Simulated(16)),
    Case::new("ring-sim-32", CaseServers::Simulated(32)),
    Case::new("ring-sim-64", CaseServers::Simulated(64)),
    Case::new("ring-sim-128", CaseServers::Simulated(128)),
    Case::new("ring-sim-256", CaseServers::Simulated(256)),
    Case::new("ring-sim-512", CaseServers::Simulated(512)),
    Case::new("ring-sim-1000", CaseServers::Simulated(1000)),
    Case::new("ring-sim-1024", CaseServers::Simulated(1024)),
    Case::new("ring-sim-2048", CaseServers::Simulated(2048)),
    Case::new("ring-sim-4096", CaseServers::Simulated(4096)),
    Case::new("ring-sim-8192", CaseServers::Simulated(8192)),
    Case::new("ring-sim-10000", CaseServers::Simulated(10_000)),
    Case::new("ring-sim-16384", CaseServers::Simulated(16_384)),
    Case::new("ring-sim-every", CaseServers::Every(16_384)),
];

/// For someone who names an unknown one.
pub const HINT: &str = match cfg!(feature = "mpi") {
    true => "",
    false => "; this program was built without the feature `mpi`",
};
