//! Settings of prefetching as people give them.
use forebay_pattern::ReadRequest;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Who guesses what is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefetchPolicy {
    /// Nobody: nothing is fetched before it is asked for.
    None,
    /// As kernels do: a window that doubles while reads follow each other.
    Readahead,
    /// Blocks of 8 KiB, each followed by the one that followed it most often when the file was read before.
    Markov,
    /// The loop that the reader is in, or the steps of those who have read the same before it.
    #[default]
    Pattern,
    /// Someone who knows: what readers ask for was given beforehand.
    Perfect,
}

impl PrefetchPolicy {
    /// All of them.
    pub const ALL: [PrefetchPolicy; 5] = [
        PrefetchPolicy::None,
        PrefetchPolicy::Readahead,
        PrefetchPolicy::Markov,
        PrefetchPolicy::Pattern,
        PrefetchPolicy::Perfect,
    ];

    /// As settings call it.
    pub fn name(self) -> &'static str {
        match self {
            PrefetchPolicy::None => "none",
            PrefetchPolicy::Readahead => "readahead",
            PrefetchPolicy::Markov => "markov",
            PrefetchPolicy::Pattern => "pattern",
            PrefetchPolicy::Perfect => "perfect",
        }
    }
}

impl std::str::FromStr for PrefetchPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<PrefetchPolicy, String> {
        let found = PrefetchPolicy::ALL.into_iter().find(|p| p.name() == text);
        found.ok_or_else(|| {
            format!(
                "'{text}' is no way to prefetch; write none, readahead, markov, pattern or perfect"
            )
        })
    }
}

/// Settings of each member's prefetching; sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefetchConfig {
    /// Who guesses.
    pub policy: PrefetchPolicy,
    /// Most bytes fetched and not read yet, or kept; with [`PrefetchPolicy::Markov`] a quarter of it is for what it knows. `None`: a 16th of
    /// the memory.
    pub cache: Option<u64>,
    /// Most requests that a reader is fetched ahead.
    pub depth: u32,
    /// What [`PrefetchPolicy::Perfect`] knows.
    pub future: Option<Arc<FutureReads>>,
}

impl Default for PrefetchConfig {
    fn default() -> PrefetchConfig {
        PrefetchConfig {
            policy: PrefetchPolicy::default(),
            cache: None,
            depth: 64,
            future: None,
        }
    }
}

/// The least of a cache.
const MIN_CACHE: u64 = 64 << 10;
/// Chains have 1 / `CHAIN_SHARE` of a cache.
const CHAIN_SHARE: u64 = 4;
const DEPTHS: std::ops::RangeInclusive<u32> = 1..=4096;

impl PrefetchConfig {
    /// Bytes of the cache of a member of this much memory.
    pub fn cache_bytes(&self, memory: u64) -> u64 {
        self.cache.unwrap_or(memory / 16)
    }

    /// Bytes of the cache that chains of blocks may take.
    pub(crate) fn chain_bytes(&self, memory: u64) -> u64 {
        match self.policy {
            PrefetchPolicy::Markov => self.cache_bytes(memory) / CHAIN_SHARE,
            _ => 0,
        }
    }

    /// # Errors
    /// The setting, and what is wrong with it.
    pub fn check(&self, memory: u64) -> Result<(), (&'static str, String)> {
        if !DEPTHS.contains(&self.depth) {
            let text = format!("{} is no depth; write 1 to {}", self.depth, DEPTHS.end());
            return Err(("prefetch_depth", text));
        }
        let bytes = self.cache_bytes(memory);
        if bytes < MIN_CACHE || bytes > memory / 4 {
            let most = memory / 4;
            let text = format!(
                "{bytes} bytes; write auto, or from 64KiB to a quarter of `memory` ({most} bytes)"
            );
            return Err(("prefetch_cache", text));
        }
        if self.policy == PrefetchPolicy::Perfect && self.future.is_none() {
            let text = "`perfect` knows what is read from a trace; name one as `prefetch_trace`";
            return Err(("prefetch", text.into()));
        }
        Ok(())
    }
}

/// The requests to come of each reader, in order. Readers are told apart by what they ask for first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FutureReads {
    readers: Vec<Arc<[ReadRequest]>>,
    /// By offset and length of the first request.
    first: HashMap<(u64, u64), VecDeque<usize>>,
}

impl FutureReads {
    /// Of these readers.
    pub fn new(readers: impl IntoIterator<Item = Vec<ReadRequest>>) -> FutureReads {
        let mut future = FutureReads::default();
        for requests in readers {
            let Some(first) = requests.first() else {
                continue;
            };
            let place = future.readers.len();
            let same = future.first.entry((first.offset, first.len)).or_default();
            same.push_back(place);
            future.readers.push(requests.into());
        }
        future
    }

    /// The readers that begin so, in the order given.
    pub(crate) fn readers_starting_with(
        &self,
        first: ReadRequest,
    ) -> impl Iterator<Item = &Arc<[ReadRequest]>> {
        let places = self.first.get(&(first.offset, first.len));
        let places = places.into_iter().flatten();
        places.filter_map(|place| self.readers.get(*place))
    }
}
