//! Flipped bits and cut files anywhere in a store: no wrong byte, no panic, no silence, no store that cannot be salvaged.
//!
//! A store with files of many kinds is made once, stopped cleanly or left as by SIGKILL. Each try damages a copy of it at one random
//! place of one random file, and reads everything by every way there is: a start, `fsck`, a salvage, a repair and a start after it.
//! A name that is missing, and bytes that cannot be read, must be told; bytes that are read must be right.
//!
//! `FOREBAY_DAMAGE_TRIES` says how many tries of each of the six kinds (8; with `SOAK` 170, some 1,000 in all), `FOREBAY_DAMAGE_SEED`
//! the seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#[path = "damage/store.rs"]
mod store;
#[path = "damage/tries.rs"]
mod tries;

use store::{Made, Stop};
use tries::{Harm, Tries};

fn number() -> u64 {
    let number = std::env::var("FOREBAY_DAMAGE_TRIES");
    let usual = if std::env::var_os("SOAK").is_some() {
        170
    } else {
        8
    };
    number.map_or(usual, |text| text.parse().unwrap())
}

fn seed() -> u64 {
    let seed = std::env::var("FOREBAY_DAMAGE_SEED");
    seed.map_or(0xF0_2EBA, |text| text.parse().unwrap())
}

/// Damages copies of one store and counts what became of them.
fn harm(nodes: u16, stop: Stop, harm: Harm) {
    let made = Made::new(nodes, stop);
    let mut tries = Tries::new(&made, seed());
    tries.whole();
    for _ in 0..number() {
        tries.one(harm);
    }
    eprintln!("{nodes} nodes, {stop:?}, {harm:?}: {tries}");
    tries.judge();
}

#[test]
fn a_flipped_bit_after_a_clean_stop_costs_what_it_touches() {
    harm(1, Stop::Clean, Harm::Flip);
}

#[test]
fn a_flipped_bit_after_a_kill_costs_what_it_touches() {
    harm(1, Stop::Killed, Harm::Flip);
}

#[test]
fn a_cut_file_costs_what_was_in_it() {
    harm(1, Stop::Clean, Harm::Cut);
    harm(1, Stop::Killed, Harm::Cut);
}

#[test]
fn damage_of_one_member_leaves_the_others_whole() {
    harm(3, Stop::Clean, Harm::Flip);
    harm(3, Stop::Killed, Harm::Cut);
}
