//! The cases, by name.

use crate::harness::Case;

/// Where the servers are, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseServers {
    /// Threads of this process.
    Local(u32),
    /// Processes of an MPI job on this machine.
    #[cfg(feature = "mpi")]
    Mpi(u32),
    /// So many, simulated.
    Simulated(u32),
    /// Simulated, every number from 2 to this.
    Every(u32),
}

/// The cases of `ring`.
pub fn all() -> Vec<Case<CaseServers>> {
    let case = |transport, n, work| Case::named(format!("ring-{transport}-{n}"), work);
    let mut cases = Vec::new();
    cases.extend([4, 8, 16, 32, 64].map(|n| case("local", n, CaseServers::Local(n))));
    #[cfg(feature = "mpi")]
    cases.extend([4, 7, 8, 16, 32, 64].map(|n| case("mpi", n, CaseServers::Mpi(n))));
    let simulated = [
        4, 8, 16, 32, 64, 128, 256, 512, 1000, 1024, 2048, 4096, 8192, 10_000, 16_384,
    ];
    cases.extend(simulated.map(|n| case("sim", n, CaseServers::Simulated(n))));
    cases.push(Case::new("ring-sim-every", CaseServers::Every(16_384)));
    cases
}

/// For someone who names an unknown one.
pub const HINT: &str = match cfg!(feature = "mpi") {
    true => "",
    false => "; this program was built without the feature `mpi`",
};
