//! Teams when servers die, are slow, or messages get lost: every call ends, with what happened or with `EIO`; no file is made twice,
//! and no open stays counted for a client that does not have it.
use crate::backends::{BackendKind, over_both_backends};
use crate::teams::TeamCluster;
use forebay_client::OpenOptions;
use forebay_fabric::fault::FaultRates;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::time::Duration;

over_both_backends![
    any_server_may_die_at_any_step,
    lost_and_late_messages_end_in_the_outcome_or_an_error,
    a_client_that_stays_away_fails_it_for_all_and_makes_nothing,
];

/// Short, so that the tests are: what fails has waited for it.
const DEADLINE: Duration = Duration::from_millis(200);

fn soak() -> bool {
    forebay_testkit::seeds::is_soak()
}

/// One file, made or opened by all, written by each, closed by all. What each client heard: the inode, or `EIO`.
fn round(cluster: &TeamCluster, name: &str, exclusive: bool) -> Vec<Option<u64>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match exclusive {
        true => options.create_new(true),
        false => options.create(true),
    };
    let heard = cluster.all(|team| {
        let file = match team.open(name, &options) {
            Ok(file) => file,
            Err(e) => {
                assert_eq!(e.errno(), Errno::IO, "{e}");
                return None;
            }
        };
        let ino = file.metadata().map(|m| m.ino());
        let _ = file.write_at(b"x", team.place());
        // Its own node's trouble, if any; nobody else's.
        if let Err(e) = team.close(file) {
            assert_eq!(e.errno(), Errno::IO, "{e}");
        }
        ino.ok()
    });
    let inodes: BTreeSet<u64> = heard.iter().copied().flatten().collect();
    assert!(inodes.len() <= 1, "{name}: {heard:?}");
    heard
}

/// With all servers there again: every node sees the same, the team works, and nothing is held open.
fn recovers(cluster: &TeamCluster, name: &str, heard: &[Option<u64>]) {
    let before = cluster.client(0).metadata(name).map(|m| m.ino());
    let there: Vec<u64> = heard.iter().copied().flatten().collect();
    if let Some(ino) = there.first() {
        assert_eq!(before.as_ref().ok(), Some(ino), "{name}");
    }
    let options = OpenOptions::new().write(true).create(true).clone();
    let inodes = cluster.all(|team| {
        let file = team.open(name, &options).unwrap();
        team.close(file).unwrap().ino()
    });
    let now = crate::teams::all_same(inodes);
    // What was made once is not made again.
    assert!(before.is_err() || before.unwrap() == now, "{name}");
    cluster.nothing_open();
}

fn any_server_may_die_at_any_step(kind: BackendKind) {
    let cluster = TeamCluster::hasty(4, &[2, 1], DEADLINE).over(kind);
    let mut failed = 0;
    for victim in 0..4u32 {
        for step in 0..30u32 {
            // Some of them, in the short form.
            if !soak() && !(step * 7 + victim).is_multiple_of(11) {
                continue;
            }
            let name = format!("/f{victim}.{step}");
            cluster.kill_at(step.into(), victim);
            let heard = round(&cluster, &name, step % 2 == 0);
            cluster.kill_no_more(victim);
            failed += heard.iter().filter(|h| h.is_none()).count();
            recovers(&cluster, &name, &heard);
        }
    }
    assert!(failed > 5, "deaths hit {failed} clients only");
    cluster.stop();
}

fn lost_and_late_messages_end_in_the_outcome_or_an_error(kind: BackendKind) {
    let mut failed = 0;
    for seed in 0..if soak() { 40 } else { 2 } {
        let cluster = TeamCluster::seeded(5, &[1, 2], DEADLINE, seed).over(kind);
        for k in 0..5 {
            let name = format!("/f{k}");
            cluster.faults.set(FaultRates {
                lose_request: 40,
                lose_reply: 40,
                lose_message: 40,
                late: 60,
                // Longer than anyone waits for one message.
                delay: DEADLINE * 3,
                ..FaultRates::default()
            });
            let heard = round(&cluster, &name, k % 2 == 0);
            cluster.faults.set(FaultRates::default());
            failed += heard.iter().filter(|h| h.is_none()).count();
            recovers(&cluster, &name, &heard);
        }
        // The root directory and one inode a name: none was made twice.
        let files = cluster.service().status().unwrap();
        let files: u64 = files.iter().map(|m| m.files.unwrap()).sum();
        assert_eq!(files, 6, "seed {seed}");
        cluster.stop();
    }
    assert!(failed > 0, "faults hit nobody");
}

fn a_client_that_stays_away_fails_it_for_all_and_makes_nothing(kind: BackendKind) {
    let cluster = TeamCluster::hasty(3, &[2], DEADLINE).over(kind);
    let options = OpenOptions::new().write(true).create_new(true).clone();
    for away in 0..6 {
        let heard = cluster.some(
            |place| place != away,
            |team| team.open("/f", &options).err(),
        );
        for heard in heard
            .into_iter()
            .enumerate()
            .filter(|(k, _)| *k as u64 != away)
        {
            let error = heard.1.unwrap().unwrap();
            assert_eq!(error.errno(), Errno::IO);
            assert!(error.to_string().contains("did not take part"), "{error}");
        }
        assert!(!cluster.client(0).exists("/f"));
        cluster.nothing_open();
    }
    cluster.stop();
}
