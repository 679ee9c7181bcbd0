//! A full disk while the index flushes and compacts: puts are refused with "no space", everything before stays readable, deletes and
//! flushes go on as far as they can, and with room again all goes on, in this process and after a restart.

use crate::support::*;
use forebay_index::Settings;
use forebay_storage::fault::FaultIo;
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::time::{Duration, Instant};

fn fill(seed: u64, background: bool) {
    let mut random = Random::new(seed);
    let settings = Settings {
        background,
        ..small(&mut random)
    };
    let io = FaultIo::new(seed);
    let mut world = World::open(&io, &settings).unwrap();
    let (mut model, mut addr, mut refused) = (Model::new(), 0, 0);
    for round in 0..6 {
        // Room for some more pages, each time another number: the disk is full at one step of the work or another.
        io.set_capacity(io.used() + (round + seed % 5) * 4096);
        let mut full = 0;
        for _ in 0..400 {
            let fid = random.below(FILES);
            let changes = changes(&mut random, fid, world.batches + 1, &mut addr);
            match world.change(fid, &changes) {
                Ok(_) => model.change(fid, &changes),
                Err(e) => {
                    assert!(e.is_no_space(), "seed {seed}, round {round}: {e}");
                    full += 1;
                }
            }
            if random.below(20) == 0
                && let Err(e) = world.index.engine().compact()
            {
                assert!(e.is_no_space(), "seed {seed}, round {round}: {e}");
                full += 1;
            }
            if full > 3 {
                break;
            }
        }
        refused += full;
        world.agrees(&model).unwrap();
        if random.below(2) == 0 {
            // It opens on the full disk, too.
            drop(world);
            world = World::open(&io, &settings).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            world.agrees(&model).unwrap();
        }
        io.set_capacity(u64::MAX);
        // The thread of the index tries again by itself, some time later.
        let end = Instant::now() + Duration::from_secs(60);
        let changes = changes(&mut random, 0, world.batches + 1, &mut addr);
        while let Err(e) = world.change(0, &changes) {
            assert!(e.is_no_space() && Instant::now() < end, "seed {seed}: {e}");
            std::thread::sleep(Duration::from_millis(5));
        }
        model.change(0, &changes);
        world
            .index
            .engine()
            .compact()
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        world.agrees(&model).unwrap();
        assert!(world.index.engine().check().is_empty());
    }
    assert!(refused > 0, "seed {seed}: the disk was never full");
    drop(world);
    let world = World::open(&FaultIo::with_image(&io.kill(), 1), &settings).unwrap();
    world.agrees(&model).unwrap();
    // No file is left that nothing names.
    let named = world.store.engine_host().files().len();
    let files = world.io.image();
    let tables = files
        .files()
        .filter(|(p, _)| p.to_string_lossy().contains("side-"));
    assert_eq!(tables.count(), named);
}

#[test]
fn puts_are_refused_and_nothing_is_lost() {
    seeds::for_each_seed("index-full-disk", (6, 1_000), |seed| {
        fill(seed, seed % 2 == 1)
    });
}
