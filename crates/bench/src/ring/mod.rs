//! Many servers ask one the same thing at once, as N-1 opens and closes do: measured with servers of this process and with
//! processes of an MPI job, simulated beyond.
//!
//! # Subjects
//! - `ring`: the log-ring of the MetaKV paper. `ring-fitted`: the tree that the file system uses, as many messages at the root, but
//!   fitted to how long a message lasts on a fast network.
//! - `direct`: every server sends its request to the root, which answers all of them once it has all. MetaKV-Direct in
//!   that paper.
//! - `mdhim`: every client asks the root by itself, and is answered by itself.
//! - `best-tree`: the least time any tree can take on the simulated network.
//!
//! Measured latencies are from the moment that all have met until the slowest client has its answer; clients of a server are
//! threads beside it, gathered there first except for `mdhim`. Simulated ones are from server to server: the clients of a
//! server are its own business there, and cost `mdhim` one message each.

mod cases;
mod measure;
#[cfg(feature = "mpi")]
mod processes;
mod table;

pub use measure::RingLoad;
#[cfg(feature = "mpi")]
pub use processes::rank;

use crate::fail::{Context, Result};
use crate::harness::{Case, RunArgs};
use crate::loggp::{self, Network, OptimalTreeTimes};
use crate::report::{Report, Values};
use cases::CaseServers;
use measure::Subject;

/// What `ring` does.
#[derive(Debug, clap::Args)]
pub struct RingArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    work: RingLoad,
    #[command(flatten)]
    network: Network,
}

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case, or MPI does not run.
pub fn run(args: &RingArgs) -> Result<()> {
    let Some(chosen) = args.run.choose(&cases::all(), cases::HINT)? else {
        return Ok(());
    };
    let header = header(args);
    args.run.begin(&header, table::HEAD)?;
    let mut report = Report::new("ring", "direct");
    for case in chosen {
        match case.work {
            CaseServers::Local(n) => {
                measured(&case, args, &mut report, |work| measure::local(n, work))?
            }
            #[cfg(feature = "mpi")]
            CaseServers::Mpi(n) => {
                measured(&case, args, &mut report, |work| processes::start(n, work))?
            }
            CaseServers::Simulated(n) => simulated(&case, n, args, &mut report),
            CaseServers::Every(last) => every(&case, last, &args.network, &mut report),
        }
        args.run.print(&report, case.name, table::rows)?;
    }
    Ok(())
}

fn header(args: &RingArgs) -> String {
    let net = &args.network;
    format!(
        "# ring: {} runs of {} operations each where measured; {} clients a server\n\
         # durability, memory: nothing is stored; caches: none\n\
         # local: servers are threads of this process, so a message is a call, and all share its processors\n\
         # sim: LogGP, L {} ns, o {} + {} ns, g {} ns, G {} ps/B, messages of {} B, {} ns to combine or carry out one\n\
         # best: times the best tree's; direct: how many times faster than direct\n",
        args.run.runs,
        args.work.rounds,
        args.work.clients,
        net.latency,
        net.send,
        net.receive,
        net.gap,
        net.byte,
        net.size,
        net.work,
    )
}

fn measured(
    case: &Case<CaseServers>,
    args: &RingArgs,
    report: &mut Report,
    measure: impl Fn(&RingLoad) -> Result<Vec<measure::RingMeasurement>>,
) -> Result<()> {
    for _ in 0..args.run.runs {
        for found in measure(&args.work).doing(case.name)? {
            let values = values(found.latency_us, found.root_messages);
            report.add_all(case.name, found.subject.name(), values);
        }
    }
    Ok(())
}

fn values(latency_us: f64, root_messages: f64) -> Values {
    vec![
        ("latency_us", "us", latency_us),
        ("root_messages", "messages", root_messages),
    ]
}

fn simulated(case: &Case<CaseServers>, n: u32, args: &RingArgs, report: &mut Report) {
    let net = &args.network;
    let outcome = |subject: Subject| match subject.shape() {
        Some(shape) => loggp::collective(net, shape, n),
        None => loggp::independent(net, n * args.work.clients),
    };
    let trees = Subject::ALL.map(|subject| (subject.name(), outcome(subject)));
    let best = ("best-tree", OptimalTreeTimes::new(net, n).outcome(n));
    for (subject, outcome) in trees.into_iter().chain([best]) {
        let latency = outcome.finished as f64 / 1000.0;
        report.add_all(
            case.name,
            subject,
            values(latency, outcome.root_messages as f64),
        );
    }
}

/// The largest ratio to the best tree over every number of servers, and where it is.
fn every(case: &Case<CaseServers>, last: u32, net: &Network, report: &mut Report) {
    let best = OptimalTreeTimes::new(net, last);
    for subject in [Subject::Ring, Subject::Fitted] {
        let Some(shape) = subject.shape() else {
            continue;
        };
        let mut worst = (0.0, 0);
        let mut wrong = 0u32;
        for n in 2..=last {
            let found = loggp::collective(net, shape, n);
            let ratio = found.finished as f64 / best.outcome(n).finished as f64;
            if ratio > worst.0 {
                worst = (ratio, n);
            }
            let law = u64::from(forebay_fabric::ring::topology::fan_in(n));
            wrong += u32::from(found.root_messages != law);
        }
        let found = vec![
            ("worst_ratio_to_best", "x", worst.0),
            ("worst_at_servers", "servers", f64::from(worst.1)),
            ("sizes_with_other_root_messages", "sizes", f64::from(wrong)),
        ];
        report.add_all(case.name, subject.name(), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::ring::{NetworkCost, TreeShape};

    fn fitted() -> TreeShape {
        TreeShape::Fitted(NetworkCost::default())
    }

    /// The later measurement of the machine that the default network is from.
    const LATER: Network = Network {
        latency: 3156,
        send: 1241,
        receive: 1145,
        gap: 1087,
        byte: 500,
        size: 64,
        work: 0,
    };

    /// On both measured networks, at a sample of sizes: no more than 1.5 times the best tree, with `ceil(log2 n)` messages at
    /// the root. With `SOAK=1` at every size, as the case `ring-sim-every`.
    #[test]
    fn the_fitted_ring_is_near_the_best_tree() {
        let mut sizes: Vec<u32> = (2..=16_384).collect();
        if !forebay_testkit::seeds::is_soak() {
            let near = |n: u32| (n - 1..=n + 1).any(u32::is_power_of_two);
            sizes.retain(|n| *n < 300 || near(*n) || n % 1000 == 0);
        }
        for net in [Network::default(), LATER] {
            let best = OptimalTreeTimes::new(&net, 16_384);
            for n in &sizes {
                let found = loggp::collective(&net, fitted(), *n);
                let limit = 1.5 * best.outcome(*n).finished as f64;
                assert!(found.finished as f64 <= limit, "{n}: {found:?}, {limit}");
                let law = forebay_fabric::ring::topology::fan_in(*n);
                assert_eq!(found.root_messages, u64::from(law), "{n}");
            }
        }
    }

    #[test]
    fn a_thousand_servers_are_ten_times_faster_than_direct() {
        for net in [Network::default(), LATER] {
            let direct = loggp::collective(&net, TreeShape::Direct, 1024).finished;
            for shape in [TreeShape::Ring, fitted()] {
                let found = loggp::collective(&net, shape, 1024);
                assert!(direct >= 10 * found.finished, "{shape:?}: {found:?}");
                assert_eq!(found.root_messages, 10);
            }
        }
    }
}
