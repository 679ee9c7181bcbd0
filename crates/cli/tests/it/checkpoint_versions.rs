//! Checkpoints of one run, on a mount that settles and encodes: a later one is stored as what changed, and stays whole when the earlier one
//! is removed, in whatever directory each lies.
use crate::common::{Place, forebay};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::{turns, wait};
use std::fs;

/// Weights of 8 MiB: mantissas of any bits, few exponents.
fn weights() -> Vec<u8> {
    let mut weights = seeded_bytes(1, 8 << 20);
    weights
        .chunks_exact_mut(4)
        .for_each(|word| word[3] = 0x3c + (word[3] & 1));
    weights
}

/// The same some steps later: each weight differs by a little.
fn trained(weights: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let step = |word: &[u8]| {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        word.wrapping_add(random.next() as u32 & 255).to_le_bytes()
    };
    weights.chunks_exact(4).flat_map(step).collect()
}

/// Of the first member.
fn figures(place: &Place) -> serde_json::Value {
    let (code, out, err) = forebay(&["status", &place.store(), "--json"]);
    assert_eq!(code, 0, "{err}");
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    status["members"][0].clone()
}

fn settled(place: &Place, bytes: usize) -> u64 {
    wait::until("all is settled", || {
        let now = figures(place);
        now["settle_backlog_bytes"] == 0 && now["settled_bytes"].as_u64() >= Some(bytes as u64)
    });
    figures(place)["unique_bytes"].as_u64().unwrap()
}

#[test]
fn a_later_checkpoint_is_stored_as_what_changed_and_outlives_the_earlier_one() {
    let _turn = turns::exclusive();
    let Some(place) = Place::mountable() else {
        return;
    };
    let settings = "settle = \"auto\"\ncodec_when = \"settle\"\n";
    fs::write(place.path("c.toml"), settings).unwrap();
    let config = place.text("c.toml");
    place.mount_well(&["--config", &config]);
    let first = weights();
    let later = [trained(&first, 2), trained(&first, 3)];
    let names = [
        "m/run/step_000100/model_0.pt",
        "m/run/step_000200/model_0.pt",
        "m/run/step_000300/model_0.pt",
    ];
    let mut stored = Vec::new();
    for (i, (name, bytes)) in names.iter().zip([&first, &later[0], &later[1]]).enumerate() {
        fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
        fs::write(place.path(name), bytes).unwrap();
        stored.push(settled(&place, (i + 1) * bytes.len()));
    }
    let alone = stored[0];
    for pair in stored.windows(2) {
        let more = pair[1] - pair[0];
        assert!(more * 2 < alone, "{stored:?}");
    }
    let (code, out, err) = forebay(&["stat", &place.text(names[1])]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("field-base"), "{out}");
    fs::remove_file(place.path(names[0])).unwrap();
    // In the background: the other two keep nothing of it.
    wait::until("the space of the first one is free", || {
        let now = figures(&place)["unique_bytes"].as_u64().unwrap();
        now < 2 * alone * 102 / 100
    });
    assert!(fs::read(place.path(names[1])).unwrap() == later[0]);
    place.umount_well();
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 0, "{out}{err}");
    place.mount_well(&["--config", &config]);
    for (name, bytes) in names[1..].iter().zip(&later) {
        assert!(fs::read(place.path(name)).unwrap() == *bytes, "{name}");
    }
    place.umount_well();
}
