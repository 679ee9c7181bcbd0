//! Markov chains of many files share one bound on memory.
use super::*;
use crate::delegate::prefetch::markov::{BLOCK, MarkovPredictor};

fn read(chain: &Arc<MarkovChain>, blocks: std::ops::Range<u64>) -> MarkovPredictor {
    let mut reader = MarkovPredictor::new(chain.clone());
    blocks.for_each(|block| {
        reader.observe(ReadRequest {
            offset: block * BLOCK,
            len: BLOCK,
        });
    });
    reader
}

#[test]
fn chains_of_many_files_stay_in_their_share_and_the_oldest_idle_ones_go() {
    let config = PrefetchConfig {
        policy: PrefetchPolicy::Markov,
        cache: Some(1 << 20),
        ..PrefetchConfig::default()
    };
    let prefetch = Prefetcher::new(&config, 64 << 20, Weak::new()).unwrap();
    let share = config.chain_bytes(64 << 20);
    assert_eq!(share, (1 << 20) / 4);
    let chain = |fid: u64| prefetch.remembered(Fid(fid)).chain;
    // One that stays open, and is the oldest.
    let first = chain(0);
    let open = read(&first, 0..200);
    for fid in 1..40 {
        let chain = chain(fid);
        drop(read(&chain, 0..400));
        drop(chain);
        assert!(prefetch.memory() <= share);
        if prefetch.room.wanted() {
            make_room(&mut prefetch.files.lock(), &prefetch.room);
            assert!(prefetch.room.has_some());
        }
    }
    let files = prefetch.files.lock();
    assert!(files.contains(&Fid(0)) && files.contains(&Fid(39)) && !files.contains(&Fid(1)));
    assert!(files.len() >= 3, "{}", files.len());
    drop(files);
    drop((open, first));
    assert_eq!(read(&chain(0), 0..1).predict(3).len(), 3);
}
