//! Flipped bits and cut files anywhere in a store: no wrong byte, no panic, no silence, no store that cannot be salvaged.
//!
//! A store with files of many kinds is made once, stopped cleanly or left as by SIGKILL. Each try damages a copy of it at one random
//! place of one random file, and reads everything by every way there is: a start, `fsck`, a salvage, a repair and a start after it.
//! Files of which the damaged bytes hold nothing must be whole; what is not whole must be told by its name; bytes that are read must be right.
//!
//! There are 5 tries of each of the twelve kinds; with `SOAK` 85, some 1,000 in all.
mod place;
mod store;
mod stored;
mod tries;

use forebay_client::{Client, OpenOptions};
use forebay_server::salvage::Salvage;
use forebay_storage::OsIo;
use forebay_testkit::seeds;
use place::{DamageKind, DamagedPlace};
use std::sync::Arc;
use store::{MadeStore, Stop, Thing};
use stored::StoredBytes;
use tries::DamageTries;

/// Damages copies of one store and counts what became of them.
fn damages(nodes: u16, stop: Stop, kind: DamageKind) {
    let made = MadeStore::new(nodes, stop);
    let seed = seeds::asked_seed().unwrap_or(0xF0_2EBA);
    let mut tries = DamageTries::new(&made, seed);
    tries.whole();
    seeds::with_seed("damage", seed, || {
        for _ in 0..seeds::count(5, 85) {
            tries.one(kind);
        }
    });
    eprintln!("{nodes} nodes, {stop:?}, {kind:?}: {tries}");
    tries.judge();
}

#[test]
fn a_flipped_bit_after_a_clean_stop_costs_what_it_touches() {
    damages(1, Stop::Clean, DamageKind::Flip);
}

#[test]
fn a_flipped_bit_after_a_kill_costs_what_it_touches() {
    damages(1, Stop::Killed, DamageKind::Flip);
}

#[test]
fn a_cut_file_costs_what_was_in_it() {
    damages(1, Stop::Clean, DamageKind::Cut);
    damages(1, Stop::Killed, DamageKind::Cut);
}

#[test]
fn overwritten_bytes_cost_what_they_held() {
    damages(1, Stop::Clean, DamageKind::Overwritten);
    damages(1, Stop::Killed, DamageKind::Overwritten);
}

#[test]
fn a_sector_of_zeros_costs_what_it_held() {
    damages(1, Stop::Clean, DamageKind::Zeroed);
    damages(1, Stop::Killed, DamageKind::Zeroed);
}

#[test]
fn a_page_written_to_the_wrong_place_costs_what_it_replaced() {
    damages(1, Stop::Clean, DamageKind::Misplaced);
    damages(1, Stop::Killed, DamageKind::Misplaced);
}

#[test]
fn damage_of_one_member_leaves_the_others_whole() {
    damages(3, Stop::Clean, DamageKind::Overwritten);
    damages(3, Stop::Killed, DamageKind::Cut);
}

/// A store whose last run wrote one small file and overwrote a part of another, and was killed.
fn with_one_small_file() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let service = store::start(&store, 1).unwrap();
    let client = Client::new(service.delegate(0));
    client.write("/old", &[1; 9000]).unwrap();
    drop(client);
    service.stop().unwrap();
    let service = store::start(&store, 1).unwrap();
    let client = Client::new(service.delegate(0));
    client.write("/small", &[2; 3000]).unwrap();
    let old = OpenOptions::new().write(true).open(&client, "/old");
    let old = old.unwrap();
    old.write_at(&[3; 500], 4000).unwrap();
    old.close().unwrap();
    drop(client);
    drop(service);
    dir
}

#[test]
fn a_lost_record_of_the_log_is_told_with_the_file_whose_bytes_it_placed() {
    let made = with_one_small_file();
    let store = made.path().join("store");
    let mut content = vec![1; 9000];
    content[4000..4500].fill(3);
    let wanted = [("/small", vec![2; 3000]), ("/old", content)];
    let (mut lost, mut by_name) = (0, 0);
    let records = StoredBytes::of(&store).unwrap();
    for (file, bytes, batch) in records.batches() {
        let copied = made.path().join(format!("copy{batch}"));
        tries::copy(&store, &copied);
        let middle = (bytes.start + bytes.end) / 2;
        assert!(DamagedPlace::overwritten(&file, middle..middle + 8).damage(&copied));
        let (config, scratch) = (store::config(1), made.path());
        let salvage =
            Salvage::start(Arc::new(OsIo), &[copied], scratch, &config, &mut |_| {}).unwrap();
        let losses = salvage.losses().clone();
        let client = Client::new(salvage.service().unwrap().delegate(0));
        for (name, content) in &wanted {
            let found = client.read(name);
            if found.as_ref().is_ok_and(|found| found == content) {
                continue;
            }
            lost += 1;
            let text = losses.text();
            let placed = losses.lost.iter().any(|l| l.path == *name);
            let again = || store::found(&client).contains(&Thing::File(content.clone()));
            assert!(
                placed || again(),
                "batch {batch}, {name}: {found:?}, told: {text}"
            );
            by_name += u64::from(placed);
        }
        drop(client);
        salvage.stop().unwrap();
    }
    assert!(lost >= 4 && by_name >= 3, "{by_name} of {lost}");
}
