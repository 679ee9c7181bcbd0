//! The cases, by name.
use super::order::Order;
use super::workload::Workload;
use crate::fail::{Failure, Result};
use crate::harness::Case;

/// What is written, and in which order it arrives.
#[derive(Debug, Clone)]
pub struct IndexWork {
    /// The records.
    pub workload: fn() -> Workload,
    /// The order.
    pub order: Order,
}

const fn case(name: &'static str, workload: fn() -> Workload, order: Order) -> Case<IndexWork> {
    Case::new(name, IndexWork { workload, order })
}

/// 16 writers, transfers of 1 KiB; millions (of 2^20) of records.
fn ior(millions: u64) -> Workload {
    Workload::strided(16, (millions << 20) / 16, 1024)
}

/// Tiles of 4096 x 32768 bytes, 16 of them beside each other.
fn tile() -> Workload {
    Workload::strided(16, 32_768, 4096)
}

/// Every case.
pub const CASES: &[Case<IndexWork>] = &[
    case("ior-1m-lockstep", || ior(1), Order::Lockstep),
    case("ior-1m-drift", || ior(1), Order::Drift),
    case("ior-1m-random", || ior(1), Order::Random),
    case("ior-8m-lockstep", || ior(8), Order::Lockstep),
    case("ior-8m-drift", || ior(8), Order::Drift),
    case("ior-8m-random", || ior(8), Order::Random),
    case("ior-32m-lockstep", || ior(32), Order::Lockstep),
    case("ior-32m-drift", || ior(32), Order::Drift),
    case("ior-32m-random", || ior(32), Order::Random),
    case("tile-io", tile, Order::Drift),
    case("btio-c", || Workload::bt(162, 8), Order::Drift),
    case("btio-d", || Workload::bt(408, 12), Order::Drift),
    case("btio-e", || Workload::bt(1020, 20), Order::Drift),
];

/// What is done in the case of this name.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<&'static IndexWork> {
    let found = CASES.iter().find(|c| c.name == name);
    let found = found.map(|case| &case.work);
    found.ok_or_else(|| Failure::new(format!("no case '{name}'; --list names them")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_the_records_that_their_names_say() {
        let total = |name| (find(name).unwrap().workload)().total();
        assert_eq!(total("ior-1m-drift"), 1 << 20);
        assert_eq!(total("ior-32m-random"), 32 << 20);
        assert_eq!(total("tile-io"), 1 << 19);
        assert_eq!(total("btio-d"), 1_997_568);
        assert!(find("ior-2m").is_err_and(|e| e.0.contains("ior-2m")));
    }
}
