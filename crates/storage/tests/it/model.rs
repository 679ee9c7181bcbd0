//! Random histories of all operations agree with a plain map, over flushes, compactions and reopening.
use bytes::Bytes;
use forebay_storage::{Batch, Durability, Keyspace, Options, OsIo, Scan, Snapshot, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Apply(Vec<(u8, Vec<u8>, Option<Vec<u8>>)>),
    Get(u8, Vec<u8>),
    Scan(u8, Bound<Vec<u8>>, Bound<Vec<u8>>),
    Snapshot,
    Flush,
    Compact,
    Sync,
    Reopen { clean: bool },
    Check,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0u8..4, 0..4),
        proptest::collection::vec(any::<u8>(), 0..3)
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        6 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 500usize..3000).prop_map(|(b, n)| vec![b; n]),
    ];
    let op = (
        prop_oneof![Just(0u8), Just(1), Just(15)],
        key(),
        proptest::option::weighted(0.7, value),
    );
    let ks = prop_oneof![Just(0u8), Just(1), Just(15), Just(7)];
    prop_oneof![
        12 => proptest::collection::vec(op, 1..6).prop_map(Step::Apply),
        6 => (ks.clone(), key()).prop_map(|(k, key)| Step::Get(k, key)),
        4 => (ks, bound(), bound()).prop_map(|(k, a, b)| Step::Scan(k, a, b)),
        2 => Just(Step::Snapshot),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Sync),
        2 => any::<bool>().prop_map(|clean| Step::Reopen { clean }),
        1 => Just(Step::Check),
    ]
}

fn options(durability: Durability, background: bool) -> Options {
    Options {
        durability,
        memtable_bytes: 3000,
        cache_bytes: 20_000,
        block_bytes: 200,
        wal_reserve_bytes: 4096,
        table_reserve_bytes: 4096,
        level0_tables: 3,
        level1_bytes: 4000,
        background,
        ..Options::default()
    }
}

fn as_slice(b: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    b.as_ref().map(|v| &v[..])
}

fn want_scan(
    model: &Model,
    ks: u8,
    from: &Bound<Vec<u8>>,
    to: &Bound<Vec<u8>>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let above = |k: &Vec<u8>| match from {
        Bound::Included(b) => k >= b,
        Bound::Excluded(b) => k > b,
        Bound::Unbounded => true,
    };
    let below = |k: &Vec<u8>| match to {
        Bound::Included(b) => k <= b,
        Bound::Excluded(b) => k < b,
        Bound::Unbounded => true,
    };
    let inside = model
        .iter()
        .filter(|((k, key), _)| *k == ks && above(key) && below(key));
    inside
        .map(|((_, key), v)| (key.clone(), v.clone()))
        .collect()
}

fn run(dir: &Path, options: &Options, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let open = || Store::open(Arc::new(OsIo), dir, options.clone()).unwrap();
    let mut store = open();
    let mut model = Model::new();
    let mut snapshots = Vec::new();
    for step in steps {
        match step {
            Step::Apply(ops) => {
                let mut batch = Batch::new();
                for (ks, key, value) in ops {
                    match value {
                        Some(value) => {
                            batch.put(Keyspace(ks), key.clone(), value.clone());
                            model.insert((ks, key), value);
                        }
                        None => {
                            batch.delete(Keyspace(ks), key.clone());
                            model.remove(&(ks, key));
                        }
                    }
                }
                store.apply(batch).unwrap();
            }
            Step::Get(ks, key) => {
                let got = store.get(Keyspace(ks), &key).unwrap();
                prop_assert_eq!(got.as_deref(), model.get(&(ks, key)).map(|v| &v[..]));
            }
            Step::Scan(ks, from, to) => {
                let got: Vec<_> = store
                    .scan(Keyspace(ks), as_slice(&from), as_slice(&to))
                    .map(|e| e.unwrap())
                    .collect();
                let got: Vec<_> = got
                    .into_iter()
                    .map(|(k, v)| (k.to_vec(), v.to_vec()))
                    .collect();
                prop_assert_eq!(got, want_scan(&model, ks, &from, &to));
            }
            Step::Snapshot => {
                let mut started = store.scan(Keyspace(0), Bound::Unbounded, Bound::Unbounded);
                let first = started.next();
                snapshots.push((store.snapshot(), model.clone(), first, started));
            }
            Step::Flush => store.flush().unwrap(),
            Step::Compact => store.compact().unwrap(),
            Step::Sync => store.sync().unwrap(),
            Step::Check => prop_assert!(store.check().is_empty()),
            Step::Reopen { clean } => {
                // Snapshots do not outlive their store.
                verify(std::mem::take(&mut snapshots))?;
                if clean || options.durability == Durability::None {
                    store.close().unwrap();
                }
                drop(store);
                store = open();
            }
        }
    }
    prop_assert!(store.check().is_empty());
    verify(snapshots)
}

type Then = (
    Snapshot,
    Model,
    Option<forebay_storage::Result<(Bytes, Bytes)>>,
    Scan,
);

/// Snapshots and half-read scans, however old and whatever happened since, show their own time.
fn verify(snapshots: Vec<Then>) -> Result<(), TestCaseError> {
    for (snapshot, then, first, rest) in snapshots {
        for ks in [0u8, 1, 15] {
            let all = snapshot.scan(Keyspace(ks), Bound::Unbounded, Bound::Unbounded);
            let got: Vec<_> = all
                .map(|e| e.unwrap())
                .map(|(k, v)| (k.to_vec(), v.to_vec()))
                .collect();
            prop_assert_eq!(
                got,
                want_scan(&then, ks, &Bound::Unbounded, &Bound::Unbounded)
            );
        }
        let got: Vec<_> = first
            .into_iter()
            .chain(rest)
            .map(|e| e.unwrap())
            .map(|(k, v)| (k.to_vec(), v.to_vec()))
            .collect();
        prop_assert_eq!(
            got,
            want_scan(&then, 0, &Bound::Unbounded, &Bound::Unbounded)
        );
        for ((ks, key), value) in &then {
            let got = snapshot.get(Keyspace(*ks), key).unwrap();
            prop_assert_eq!(got.as_deref(), Some(&value[..]));
        }
    }
    Ok(())
}

fn cases() -> u32 {
    forebay_testkit::seeds::count(24, 5000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn histories_agree_with_a_map(
        steps in proptest::collection::vec(step(), 1..150),
        durability in prop_oneof![Just(Durability::None), Just(Durability::Process), Just(Durability::Disk)],
        background in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        run(&dir.path().join("store"), &options(durability, background), steps)?;
    }
}
