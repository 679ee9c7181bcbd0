//! The cases, by name.

use crate::harness::NamedCase;

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

/// A case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: CaseServers,
}

const fn case(name: &'static str, kind: CaseServers) -> Case {
    Case { name, kind }
}

/// Every case.
pub const CASES: &[Case] = &[
    case("ring-local-4", CaseServers::Local(4)),
    case("ring-local-8", CaseServers::Local(8)),
    case("ring-local-16", CaseServers::Local(16)),
    case("ring-local-32", CaseServers::Local(32)),
    case("ring-local-64", CaseServers::Local(64)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-4", CaseServers::Mpi(4)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-7", CaseServers::Mpi(7)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-8", CaseServers::Mpi(8)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-16", CaseServers::Mpi(16)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-32", CaseServers::Mpi(32)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-64", CaseServers::Mpi(64)),
    case("ring-sim-4", CaseServers::Simulated(4)),
    case("ring-sim-8", CaseServers::Simulated(8)),
    case("ring-sim-16", CaseServers::Simulated(16)),
    case("ring-sim-32", CaseServers::Simulated(32)),
    case("ring-sim-64", CaseServers::Simulated(64)),
    case("ring-sim-128", CaseServers::Simulated(128)),
    case("ring-sim-256", CaseServers::Simulated(256)),
    case("ring-sim-512", CaseServers::Simulated(512)),
    case("ring-sim-1000", CaseServers::Simulated(1000)),
    case("ring-sim-1024", CaseServers::Simulated(1024)),
    case("ring-sim-2048", CaseServers::Simulated(2048)),
    case("ring-sim-4096", CaseServers::Simulated(4096)),
    case("ring-sim-8192", CaseServers::Simulated(8192)),
    case("ring-sim-10000", CaseServers::Simulated(10_000)),
    case("ring-sim-16384", CaseServers::Simulated(16_384)),
    case("ring-sim-every", CaseServers::Every(16_384)),
];

impl NamedCase for Case {
    const HINT: &'static str = match cfg!(feature = "mpi") {
        true => "",
        false => "; this program was built without the feature `mpi`",
    };

    fn name(&self) -> &'static str {
        self.name
    }
}
