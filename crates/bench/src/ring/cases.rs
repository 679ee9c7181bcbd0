//! The cases, by name.

use crate::harness::NamedCase;

/// Where the servers are, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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
    pub kind: Kind,
}

const fn case(name: &'static str, kind: Kind) -> Case {
    Case { name, kind }
}

/// Every case.
pub const CASES: &[Case] = &[
    case("ring-local-4", Kind::Local(4)),
    case("ring-local-8", Kind::Local(8)),
    case("ring-local-16", Kind::Local(16)),
    case("ring-local-32", Kind::Local(32)),
    case("ring-local-64", Kind::Local(64)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-4", Kind::Mpi(4)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-7", Kind::Mpi(7)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-8", Kind::Mpi(8)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-16", Kind::Mpi(16)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-32", Kind::Mpi(32)),
    #[cfg(feature = "mpi")]
    case("ring-mpi-64", Kind::Mpi(64)),
    case("ring-sim-4", Kind::Simulated(4)),
    case("ring-sim-8", Kind::Simulated(8)),
    case("ring-sim-16", Kind::Simulated(16)),
    case("ring-sim-32", Kind::Simulated(32)),
    case("ring-sim-64", Kind::Simulated(64)),
    case("ring-sim-128", Kind::Simulated(128)),
    case("ring-sim-256", Kind::Simulated(256)),
    case("ring-sim-512", Kind::Simulated(512)),
    case("ring-sim-1000", Kind::Simulated(1000)),
    case("ring-sim-1024", Kind::Simulated(1024)),
    case("ring-sim-2048", Kind::Simulated(2048)),
    case("ring-sim-4096", Kind::Simulated(4096)),
    case("ring-sim-8192", Kind::Simulated(8192)),
    case("ring-sim-10000", Kind::Simulated(10_000)),
    case("ring-sim-16384", Kind::Simulated(16_384)),
    case("ring-sim-every", Kind::Every(16_384)),
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
