//! The table against a plain map of all chunks, and how much it finds with little memory.
use super::*;
use crate::fingerprint::FingerprintKind;
use forebay_proto::Error;
use forebay_testkit::random::Random;
use forebay_testkit::seeds::{count, for_each_seed};
use std::collections::{BTreeMap, BTreeSet};

/// Containers as a store has them.
#[derive(Debug, Default, Clone)]
struct Containers(BTreeMap<u64, Vec<Option<Fingerprint>>>);

impl FingerprintLists for Containers {
    fn fingerprints(&self, container: u64) -> Result<Option<Vec<Option<Fingerprint>>>> {
        Ok(self.0.get(&container).cloned())
    }
}

impl Containers {
    fn has(&self, location: ChunkLocation, fingerprint: &Fingerprint) -> bool {
        let list = self.0.get(&location.container);
        list.and_then(|list| list.get(location.index as usize).copied().flatten())
            .as_ref()
            == Some(fingerprint)
    }

    fn all(&self) -> impl Iterator<Item = (u64, Vec<Option<Fingerprint>>)> + use<'_> {
        self.0
            .iter()
            .map(|(container, list)| (*container, list.clone()))
    }
}

fn fingerprint(n: u64) -> Fingerprint {
    FingerprintKind::Blake3.of(&n.to_le_bytes())
}

fn options(budget: usize) -> CitOptions {
    CitOptions { budget }
}

/// Entries, but for those of cached lists.
fn entries(cit: &Cit) -> BTreeSet<(usize, Entry)> {
    let parts = cit.shards.iter().enumerate();
    parts
        .flat_map(|(i, shard)| shard.lock().iter().map(|e| (i, e)).collect::<Vec<_>>())
        .filter(|(_, e)| e.level != CACHED)
        .collect()
}

fn yes(_: ChunkLocation) -> Result<bool> {
    Ok(true)
}

/// Random chunks are stored and removed, in containers that fill up; each answer is a chunk that is there and has the
/// fingerprint, and while the table is exact, one is found if there is one.
fn agrees_with_a_map(seed: u64, budget: usize, kind: FingerprintKind) {
    let mut random = Random::new(seed);
    let (mut containers, cit) = (Containers::default(), Cit::new(options(budget)));
    let mut exact = true;
    let mut open = 0;
    for _ in 0..count(3000, 20_000) {
        let fingerprint = kind.of(&random.below(2000).to_le_bytes());
        match random.below(10) {
            0..6 => {
                let list = containers.0.entry(open).or_default();
                // A container has a chunk once.
                if list.contains(&Some(fingerprint)) && kind == FingerprintKind::Blake3 {
                    continue;
                }
                let index = list.len() as u32;
                list.push(Some(fingerprint));
                cit.insert(
                    ChunkLocation {
                        container: open,
                        index,
                    },
                    &fingerprint,
                );
                if random.chance(2) || list.len() == MAX_CONTAINER_CHUNKS as usize {
                    open += 1 + random.below(2);
                }
            }
            6 => {
                let Some((container, list)) = containers.0.iter_mut().nth(random.index(5)) else {
                    continue;
                };
                let index = random.index(list.len());
                if let Some(gone) = list[index].take() {
                    let location = ChunkLocation {
                        container: *container,
                        index: index as u32,
                    };
                    cit.remove(location, &gone);
                }
            }
            7 if random.chance(5) => {
                let Some(container) = containers.0.keys().nth(random.index(5)).copied() else {
                    continue;
                };
                // Its number never comes again.
                open += u64::from(container == open);
                if let Some(list) = containers.0.remove(&container) {
                    for (index, fingerprint) in (0..).zip(&list) {
                        if let Some(fingerprint) = fingerprint {
                            cit.remove(ChunkLocation { container, index }, fingerprint);
                        }
                    }
                }
            }
            _ => {
                exact &= cit.stats().rate == 1;
                let known = containers
                    .0
                    .values()
                    .flatten()
                    .any(|f| *f == Some(fingerprint));
                let found = cit.find(&fingerprint, &containers, yes).unwrap();
                assert!(found.is_none_or(|l| containers.has(l, &fingerprint)));
                let told = found.is_some() == known || !exact || kind == FingerprintKind::EightBits;
                assert!(told, "{fingerprint:?} is {found:?}");
            }
        }
        // One list of some hundred chunks stays, however little room there is.
        let most = (budget + 60_000) as u64;
        assert!(cit.stats().memory <= most, "{:?}", cit.stats());
    }
    let rebuilt = Cit::rebuild(options(budget), containers.all());
    if exact && kind != FingerprintKind::EightBits {
        assert!(entries(&rebuilt) == entries(&cit), "not as rebuilt");
    }
}

#[test]
fn an_exact_table_finds_what_a_map_finds() {
    for_each_seed("cit, exact", (5, 200), |seed| {
        agrees_with_a_map(seed, 1 << 20, FingerprintKind::Blake3)
    });
}

#[test]
fn a_sampled_table_finds_nothing_that_a_map_does_not() {
    for_each_seed("cit, sampled", (5, 200), |seed| {
        agrees_with_a_map(seed, 4096, FingerprintKind::Blake3)
    });
}

#[test]
fn fingerprints_of_8_bits_are_of_chunks_that_are_there() {
    for_each_seed("cit, 8 bits", (5, 200), |seed| {
        agrees_with_a_map(seed, 1 << 16, FingerprintKind::EightBits)
    });
}

#[test]
fn candidates_are_offered_until_one_is_taken() {
    let (mut containers, cit) = (Containers::default(), Cit::new(options(1 << 20)));
    for container in 0..3 {
        containers
            .0
            .insert(container, vec![Some(fingerprint(1)); 2]);
        cit.insert_container(container, &[Some(fingerprint(1)); 2]);
    }
    let mut offered = BTreeSet::new();
    let found = cit.find(&fingerprint(1), &containers, |location| {
        offered.insert(location);
        Ok(offered.len() == 6)
    });
    assert!(found.unwrap().is_some() && offered.len() == 6);
    let refused = cit.find(&fingerprint(1), &containers, |_| {
        Err(Error::Refused("no".into()))
    });
    assert!(refused.is_err());
}

#[test]
fn a_chunk_that_goes_while_its_list_is_read_is_not_found() {
    /// Removes the chunk once the list with it was read.
    struct Racing<'a>(&'a Cit, Mutex<Containers>);
    impl FingerprintLists for Racing<'_> {
        fn fingerprints(&self, container: u64) -> Result<Option<Vec<Option<Fingerprint>>>> {
            let mut containers = self.1.lock();
            let read = containers.0.get(&container).cloned();
            if let Some(gone) = containers
                .0
                .get_mut(&container)
                .and_then(|list| list[0].take())
            {
                self.0.remove(
                    ChunkLocation {
                        container,
                        index: 0,
                    },
                    &gone,
                );
            }
            Ok(read)
        }
    }
    let cit = Cit::new(options(1 << 20));
    let list = vec![Some(fingerprint(1)), Some(fingerprint(2))];
    cit.insert_container(7, &list);
    let racing = Racing(&cit, Mutex::new(Containers([(7, list)].into())));
    assert_eq!(cit.find(&fingerprint(1), &racing, yes).unwrap(), None);
    let second = ChunkLocation {
        container: 7,
        index: 1,
    };
    assert_eq!(
        cit.find(&fingerprint(2), &racing, yes).unwrap(),
        Some(second)
    );
}

#[test]
fn what_was_saved_equals_what_is_rebuilt_or_is_refused() {
    let mut containers = Containers::default();
    for container in 0..300 {
        let list = (0..100).map(|i| Some(fingerprint(container * 100 + i)).filter(|_| i % 7 != 3));
        containers.0.insert(container, list.collect());
    }
    for budget in [1 << 20, 100_000] {
        let cit = Cit::rebuild(options(budget), containers.all());
        assert_eq!(cit.stats().rate > 1, budget < 1 << 20);
        let saved = cit.encode(17);
        let read = Cit::decode(options(budget), 17, &saved).unwrap();
        assert!(entries(&read) == entries(&cit));
        assert_eq!(read.stats().rate, cit.stats().rate);
        let probe = fingerprint(64);
        let found = |cit: &Cit| cit.find(&probe, &containers, yes).unwrap();
        assert_eq!((found(&read), found(&cit).is_some()), (found(&cit), true));
        assert!(Cit::decode(options(budget), 18, &saved).is_none());
        for at in (0..saved.len()).step_by(saved.len() / 500) {
            let mut damaged = saved.clone();
            damaged[at] ^= 1;
            assert!(Cit::decode(options(budget), 17, &damaged).is_none());
            assert!(Cit::decode(options(budget), 17, &saved[..at]).is_none());
        }
    }
}

#[test]
fn threads_share_it_while_it_becomes_sampled() {
    let cit = Cit::new(options(200_000));
    let containers = Mutex::new(Containers::default());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cit, containers) = (&cit, &containers);
            scope.spawn(move || {
                for i in 0..100 {
                    let container = 4 * i + thread;
                    let list: Vec<_> = (0..200)
                        .map(|c| Some(fingerprint(container * 1000 + c)))
                        .collect();
                    containers.lock().0.insert(container, list.clone());
                    for (index, fingerprint) in (0..).zip(list.iter().flatten()) {
                        cit.insert(ChunkLocation { container, index }, fingerprint);
                    }
                    let seen = containers.lock().clone();
                    let sought: Vec<_> = list.into_iter().flatten().collect();
                    let found = cit.find_batch(&sought, &seen, |_, _| Ok(true)).unwrap();
                    let right = |(f, l): (&Fingerprint, &Option<ChunkLocation>)| {
                        l.is_none_or(|l| seen.has(l, f))
                    };
                    assert!(sought.iter().zip(&found).all(right));
                    assert!(found.iter().flatten().count() > 100);
                }
            });
        }
    });
    let stats = cit.stats();
    assert!(stats.rate > 1 && stats.memory <= 220_000, "{stats:?}");
}
