//! The transport over MPI, under `mpirun`: conformance with 1 to 7 ranks, identity, death, and what idling costs.
//!
//! Each test starts this program again under `mpirun`, where each rank runs `rank`: the scenario named in the environment.
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.

mod large;
mod launch;
mod scenarios;

use launch::Launch;

#[test]
fn one_rank_conforms() {
    Launch::new("conform", 1).succeeds();
}

#[test]
fn two_ranks_conform() {
    Launch::new("conform", 2).succeeds();
}

#[test]
fn three_ranks_conform() {
    Launch::new("conform", 3).succeeds();
}

#[test]
fn four_ranks_conform() {
    Launch::new("conform", 4).succeeds();
}

#[test]
fn seven_ranks_conform() {
    Launch::new("conform", 7).succeeds();
}

#[test]
fn a_gib_arrives() {
    Launch::new("large", 2).succeeds();
}

#[test]
fn members_keep_their_numbers_when_ranks_are_permuted() {
    Launch::new("permuted", 4).succeeds();
}

#[test]
fn a_wrong_secret_is_refused_everywhere() {
    let said = Launch::new("secret", 3).succeeds();
    says(&said, "were started with different job secrets", 3);
}

#[test]
fn a_wrong_version_is_refused_everywhere() {
    let said = Launch::new("version", 3).succeeds();
    says(&said, "run different releases of the server", 3);
}

#[test]
fn a_store_used_twice_is_refused_everywhere() {
    let said = Launch::new("twice", 3).succeeds();
    says(&said, "both run member 0", 3);
    says(&said, "no server runs member 2", 3);
}

#[test]
fn an_idle_server_costs_little_and_wakes_quickly() {
    Launch::new("idle", 2).succeeds();
}

#[test]
fn a_slow_server_is_not_dead_and_deadlines_hold() {
    Launch::new("slow", 2).succeeds();
}

#[test]
fn a_killed_rank_is_noticed_and_its_requests_end() {
    let Some((said, ok)) = Launch::new("killed", 4).with_recovery().output() else {
        return;
    };
    if forebay_mpi::library().contains("Open MPI") {
        says(&said, "saw rank 1 die", 3);
    } else {
        // MPICH's Hydra ends the whole job at once, and says so.
        assert!(!ok, "{said}");
        says(&said, "Killed (signal 9)", 1);
    }
}

#[test]
fn a_collective_over_a_killed_rank_fails_and_others_go_on() {
    let Some((said, ok)) = Launch::new("ring-killed", 4).with_recovery().output() else {
        return;
    };
    if forebay_mpi::library().contains("Open MPI") {
        says(&said, "goes on without rank 1", 3);
    } else {
        assert!(!ok, "{said}");
        says(&said, "Killed (signal 9)", 1);
    }
}

#[test]
fn a_rank_declared_dead_stays_dead() {
    let Some((said, _)) = Launch::new("stopped", 2).with_recovery().output() else {
        return;
    };
    says(&said, "rank 0 is dead and stays so", 1);
    says(&said, "rank 1 is dead and stays so", 1);
    says(&said, "declared dead by rank Ok(0)", 1);
}

/// `said` holds `what` `times` times; skipped runs say nothing.
fn says(said: &str, what: &str, times: usize) {
    let found = said.matches(what).count();
    assert!(
        said.is_empty() || found == times,
        "found {found} of {times}: {what}\n{said}"
    );
}

/// What `mpirun` starts.
#[test]
#[ignore = "started by the other tests under mpirun"]
fn rank() {
    scenarios::run();
}
