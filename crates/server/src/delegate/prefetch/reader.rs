//! One watched handle: what it will read next, how far ahead to fetch, and when to stop fetching.
//!
//! Pure: it gets the requests of the handle, and returns which to fetch and which fetches to cancel.
//!
//! - **Trust.** A source of predictions is trusted once its score reaches [`TRUSTED_SCORE`]. A right prediction adds 1 to the
//!   score, a wrong one halves it and takes 1 more. So a loop that ends now and then stays trusted, and random reads never are. An
//!   untrusted source goes on predicting without anything being fetched, which costs next to nothing.
//! - **Depth.** The number of requests fetched ahead doubles when one comes too late, and falls slowly while all are in time. A source
//!   with a low score is not fetched far ahead.
use super::markov::{MarkovChain, MarkovPredictor};
use super::readahead::ReadaheadWindow;
use super::request_history::{HistoryPredictor, RequestHistory};
use crate::prefetch_config::FutureReads;
use forebay_pattern::{Predictor, ReadRequest};
use std::collections::VecDeque;
use std::sync::Arc;

/// Predictions that came right before one is believed.
const TRUSTED_SCORE: usize = 3;
const MAX_SCORE: usize = 64;
/// Requests ahead at first.
const FIRST_DEPTH: usize = 4;
/// The least, once it has fallen.
const MIN_DEPTH: usize = 2;
/// After this many fetches in time the depth falls a little.
const IN_TIME_READS: u32 = 256;
/// Memory of a predictor, at most, bytes: above it, one that knows no loop starts anew.
const MAX_PREDICTOR_MEMORY: usize = 64 << 10;
/// Requests from one check of that memory to the next.
const MEMORY_CHECK_READS: u64 = 512;
/// Requests may come a little out of order.
const MAX_DISORDER: usize = 8;

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// To fetch, soonest first.
    pub fetch: Vec<ReadRequest>,
    /// Fetched, or to be fetched, in vain.
    pub give_up: Vec<ReadRequest>,
}

/// How trustworthy someone was of late.
#[derive(Debug, Default, Clone, Copy)]
struct TrustScore(usize);

impl TrustScore {
    fn add(&mut self, right: bool) {
        self.0 = match right {
            true => (self.0 + 1).min(MAX_SCORE),
            false => (self.0 / 2).saturating_sub(1),
        };
    }

    /// How many of its predictions to believe.
    fn depth(self) -> usize {
        if self.0 < TRUSTED_SCORE {
            0
        } else {
            self.0 * 2
        }
    }
}

/// Who predicts.
#[derive(Debug)]
enum PredictionSource {
    Readahead(ReadaheadWindow),
    Markov(MarkovPredictor),
    Pattern {
        // Large, and most readers never need it.
        predictor: Box<Predictor>,
        seen: u64,
        own: TrustScore,
        follower: HistoryPredictor,
        others: TrustScore,
    },
    Perfect {
        future: Arc<FutureReads>,
        /// Those that have asked for the same so far, and the place in them.
        alike: Vec<(Arc<[ReadRequest]>, usize)>,
        begun: bool,
    },
}

/// See the head of this file.
#[derive(Debug)]
pub struct HandleReader {
    source: PredictionSource,
    /// Fetched or to be fetched, and not read yet; of sources that predict whole requests.
    ahead: VecDeque<ReadRequest>,
    /// Those of them that were read before their turn.
    early: Vec<ReadRequest>,
    depth: usize,
    most: usize,
    in_time: u32,
}

impl HandleReader {
    fn new(source: PredictionSource, most: usize) -> HandleReader {
        HandleReader {
            source,
            ahead: VecDeque::new(),
            early: Vec::new(),
            depth: FIRST_DEPTH.min(most),
            most,
            in_time: 0,
        }
    }

    /// As kernels do.
    pub fn readahead() -> HandleReader {
        HandleReader::new(PredictionSource::Readahead(ReadaheadWindow::default()), 1)
    }

    /// By the blocks that followed each other before; `most` blocks ahead.
    pub fn markov(chain: Arc<MarkovChain>, most: usize) -> HandleReader {
        HandleReader::new(PredictionSource::Markov(MarkovPredictor::new(chain)), most)
    }

    /// By its own loops, and the steps of others.
    pub fn pattern(steps: Arc<RequestHistory>, most: usize) -> HandleReader {
        let source = PredictionSource::Pattern {
            predictor: Box::default(),
            seen: 0,
            own: TrustScore::default(),
            follower: HistoryPredictor::new(steps),
            others: TrustScore::default(),
        };
        HandleReader::new(source, most)
    }

    /// By what is known beforehand.
    pub fn perfect(future: Arc<FutureReads>, most: usize) -> HandleReader {
        let source = PredictionSource::Perfect {
            future,
            alike: Vec::new(),
            begun: false,
        };
        HandleReader::new(source, most)
    }

    /// The reader reads this.
    pub fn observe(&mut self, request: ReadRequest) -> FetchPlan {
        match &mut self.source {
            PredictionSource::Readahead(windows) => FetchPlan {
                fetch: windows.observe(request).into_iter().collect(),
                give_up: Vec::new(),
            },
            PredictionSource::Markov(chain) => {
                chain.observe(request);
                // What was predicted before stays wanted: chains join again.
                let next = chain.predict(self.depth);
                let new = next.iter().filter(|r| !self.ahead.contains(r));
                let fetch = new.copied().collect();
                self.ahead = next.into();
                FetchPlan {
                    fetch,
                    give_up: Vec::new(),
                }
            }
            _ => self.in_order(request),
        }
    }

    /// For sources that predict whole requests. What comes a little before its turn, as from several threads of a kernel, waits
    /// until then: its source sees all in order.
    fn in_order(&mut self, request: ReadRequest) -> FetchPlan {
        let place = self
            .ahead
            .iter()
            .take(MAX_DISORDER)
            .position(|r| *r == request);
        let known = self.early.contains(&request);
        if place.is_some_and(|p| p > 0) && !known && self.early.len() < MAX_DISORDER {
            self.early.push(request);
            return FetchPlan::default();
        }
        if place != Some(0) {
            // Something else: all as they came.
            let early = std::mem::take(&mut self.early);
            for seen in early.into_iter().chain([request]) {
                self.source.observe(seen);
                self.ahead.retain(|r| *r != seen);
            }
            return self.plan_fetches();
        }
        self.source.observe(request);
        self.ahead.pop_front();
        while let Some(next) = self.ahead.front().copied()
            && let Some(place) = self.early.iter().position(|r| *r == next)
        {
            self.early.swap_remove(place);
            self.source.observe(next);
            self.ahead.pop_front();
        }
        // Fetched in handfuls, so that threads are not woken for each.
        match self.ahead.len() > self.depth / 2 {
            true => FetchPlan::default(),
            false => self.plan_fetches(),
        }
    }

    fn plan_fetches(&mut self) -> FetchPlan {
        let next = self.source.predict(self.depth);
        let same = next.iter().zip(&self.ahead).take_while(|(a, b)| a == b);
        let same = same.count();
        let give_up: Vec<ReadRequest> = self.ahead.drain(same..).collect();
        let fetch = next[same..].to_vec();
        self.ahead.extend(&fetch);
        FetchPlan {
            give_up: give_up.into_iter().filter(|r| !fetch.contains(r)).collect(),
            fetch,
        }
    }

    /// Something that was predicted was read: it was there, or `late`.
    pub fn arrived(&mut self, late: bool) {
        if late {
            self.depth = (self.depth * 2).min(self.most);
            self.in_time = 0;
            return;
        }
        self.in_time += 1;
        if self.in_time >= IN_TIME_READS {
            self.in_time = 0;
            self.depth = (self.depth - self.depth / 4).max(MIN_DEPTH).min(self.most);
        }
    }

    /// There was no room for the last ones of a plan, from `first` on.
    pub fn refused(&mut self, first: ReadRequest) {
        if let Some(place) = self.ahead.iter().position(|r| *r == first) {
            self.ahead.truncate(place);
        }
        self.depth = (self.depth / 2).max(MIN_DEPTH).min(self.most);
    }

    /// Nothing is fetched ahead for it now. What was, and is not read.
    pub fn drop_plan(&mut self) -> Vec<ReadRequest> {
        self.early.clear();
        self.ahead.drain(..).collect()
    }

    /// Requests that it is fetched ahead at most, at the moment.
    #[cfg(test)]
    fn depth(&self) -> usize {
        self.depth
    }
}

impl PredictionSource {
    fn observe(&mut self, request: ReadRequest) {
        match self {
            PredictionSource::Readahead(_) | PredictionSource::Markov(_) => {}
            PredictionSource::Pattern {
                predictor,
                seen,
                own,
                follower,
                others,
            } => {
                *seen += 1;
                if *seen % MEMORY_CHECK_READS == 0
                    && own.0 < TRUSTED_SCORE
                    && predictor.memory() > MAX_PREDICTOR_MEMORY
                {
                    **predictor = Predictor::new();
                }
                // What is too far for it was not right.
                let right = predictor.observe(request.offset, request.len);
                own.add(right.unwrap_or(false));
                others.add(follower.observe(request));
            }
            PredictionSource::Perfect {
                future,
                alike,
                begun,
            } => {
                if !*begun {
                    *begun = true;
                    let all = future.readers_starting_with(request);
                    *alike = all.map(|r| (r.clone(), 1)).collect();
                    return;
                }
                if alike.iter().any(|(r, at)| r.get(*at) == Some(&request)) {
                    alike.retain(|(r, at)| r.get(*at) == Some(&request));
                    alike.iter_mut().for_each(|(_, at)| *at += 1);
                }
            }
        }
    }

    fn predict(&self, count: usize) -> Vec<ReadRequest> {
        match self {
            PredictionSource::Pattern {
                predictor,
                own,
                follower,
                others,
                ..
            } => {
                let ahead = follower.predict(count.min(others.depth()));
                // Who has gone this way knows where a loop ends.
                match others.0 >= own.0 && !ahead.is_empty() {
                    true => ahead,
                    false => predictor.predict(count.min(own.depth())),
                }
            }
            PredictionSource::Perfect { alike, .. } => {
                alike.first().map_or(Vec::new(), |(requests, at)| {
                    let end = requests.len().min(at + count);
                    requests.get(*at..end).unwrap_or_default().to_vec()
                })
            }
            PredictionSource::Markov(_) | PredictionSource::Readahead(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
