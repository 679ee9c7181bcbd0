//! Many threads rename across each other's paths: every wait ends, nothing is lost, no loop of directories is made.
use super::net::*;
use crate::*;
use forebay_testkit::random::Random;
use rustix::io::Errno;
use std::sync::Arc;

fn storm(net: &Arc<Net>, spots: &[(Fid, String)], rounds: u64, flags: fn(u64) -> RenameFlags) {
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..rounds {
                    let from = &spots[random.index(spots.len())];
                    let to = &spots[random.index(spots.len())];
                    if let Err(e) =
                        net.rename((from.0, &from.1), (to.0, &to.1), flags(random.below(2)))
                    {
                        let fine = [
                            Errno::NOENT,
                            Errno::EXIST,
                            Errno::INVAL,
                            Errno::NOTEMPTY,
                            Errno::STALE,
                        ];
                        assert!(fine.contains(&e.errno()), "{e}");
                    }
                }
            });
        }
    });
}

#[test]
fn files_that_change_places_are_all_still_there() {
    let net = Net::new(3);
    let dirs = [0, 1, 2].map(|m| net.dir_at(Fid::ROOT, m));
    let spots: Vec<(Fid, String)> = (0..9)
        .map(|i| (dirs[i % 3], format!("s{}", i / 3)))
        .collect();
    for (i, (dir, name)) in spots.iter().enumerate().take(6) {
        net.create_as(
            *dir,
            name,
            file(0o600),
            Caller {
                uid: i as u32,
                gid: 0,
            },
        )
        .unwrap();
    }
    storm(&net, &spots, 150, |roll| RenameFlags {
        no_replace: roll == 0,
        exchange: roll == 1,
    });
    let mut left: Vec<u32> = net
        .tree()
        .values()
        .filter(|v| v.0 == Kind::File)
        .map(|v| v.2)
        .collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 3, 4, 5]);
    assert_eq!(net.check(), vec![]);
}

#[test]
fn directories_that_move_into_each_other_never_close_a_loop() {
    let net = Net::new(3);
    let dirs: Vec<Fid> = (0..6).map(|i| net.dir_at(Fid::ROOT, i % 3)).collect();
    let listed = net.readdir(Fid::ROOT, None, 100).unwrap();
    let name = |fid| {
        String::from_utf8(listed.iter().find(|e| e.fid == fid).unwrap().name.clone()).unwrap()
    };
    // Every directory may be in the root or in any other, always under its own name.
    let names: Vec<String> = dirs.iter().map(|fid| name(*fid)).collect();
    let mut homes = dirs.clone();
    homes.push(Fid::ROOT);
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            let (net, names, homes) = (&net, &names, &homes);
            scope.spawn(move || {
                let mut random = Random::new(seed * 0x2545_F491);
                for _ in 0..120 {
                    let name = &names[random.below(6) as usize];
                    let (from, to) = (
                        homes[random.below(7) as usize],
                        homes[random.below(7) as usize],
                    );
                    if let Err(e) = net.rename((from, name), (to, name), RenameFlags::default()) {
                        assert!([Errno::NOENT, Errno::INVAL].contains(&e.errno()), "{e}");
                    }
                }
            });
        }
    });
    assert_eq!(
        net.tree().len(),
        6,
        "every directory is still below the root"
    );
    assert_eq!(net.check(), vec![]);
}
