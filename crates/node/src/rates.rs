//! Requests and bytes a second of the members in this process, over the last ten seconds.
//!
//! Invariant: a thread samples the counters once a second. It locks the members for that moment only, and stops when this value
//! is dropped.
use crate::control::Rates;
use crate::failure::Result;
use crate::server_context::ServerContext;
use crate::threads;
use forebay_server::delegate::Traffic;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Time from one sample of the counters to the next.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Samples that are kept: the rates are over about this many times `SAMPLE_INTERVAL`.
const SAMPLES_KEPT: usize = 10;

/// What was counted at one moment, by member.
type TrafficSample = (Instant, BTreeMap<u16, Traffic>);

#[derive(Default)]
struct Samples(VecDeque<TrafficSample>);

impl Samples {
    fn add(&mut self, sample: TrafficSample) {
        self.0.push_back(sample);
        if self.0.len() > SAMPLES_KEPT {
            self.0.pop_front();
        }
    }

    fn rates(&self, member: u16, traffic: &Traffic, now: Instant) -> Rates {
        let Some((then, counted)) = self.0.front() else {
            return Rates::default();
        };
        let before = counted.get(&member).copied().unwrap_or_default();
        Rates::between(&before, traffic, now.saturating_duration_since(*then))
    }
}

/// See the head of this file.
pub struct RateSampler {
    samples: Arc<Mutex<Samples>>,
    /// Dropping it ends the thread.
    _stop: Sender<()>,
}

impl RateSampler {
    /// Begins to look at the members of `server`.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(server: Arc<ServerContext>) -> Result<RateSampler> {
        let samples = Arc::new(Mutex::new(Samples::default()));
        let (stop, stopped) = channel::<()>();
        let kept = samples.clone();
        let look = move || {
            loop {
                let Some(sample) = sample(&server) else {
                    return;
                };
                kept.lock().add(sample);
                if stopped.recv_timeout(SAMPLE_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        threads::spawn("rates", "the thread that measures rates", look)?;
        Ok(RateSampler {
            samples,
            _stop: stop,
        })
    }

    /// The rates of `member`, which has counted `traffic` by now.
    pub fn rates(&self, member: u16, traffic: &Traffic) -> Rates {
        let samples = self.samples.lock();
        samples.rates(member, traffic, Instant::now())
    }
}

/// What the members have counted; `None` if the service has stopped.
fn sample(server: &ServerContext) -> Option<TrafficSample> {
    let members = server.members.lock();
    let delegates = members.as_ref()?.delegates();
    let counted = delegates
        .into_iter()
        .map(|(member, delegate)| (member, delegate.counters.totals()));
    Some((Instant::now(), counted.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(reads: u64) -> Traffic {
        Traffic {
            reads,
            ..Traffic::default()
        }
    }

    #[test]
    fn rates_are_over_the_last_looks_and_since_the_start_before() {
        let mut samples = Samples::default();
        let start = Instant::now();
        assert_eq!(samples.rates(0, &reads(5), start), Rates::default());
        for second in 0..60 {
            // 100 reads a second in the first half of a minute, 10 in the second.
            let counted = |second: u64| second.min(30) * 100 + second.saturating_sub(30) * 10;
            let at = start + Duration::from_secs(second);
            samples.add((at, BTreeMap::from([(7, reads(counted(second)))])));
            let later = at + Duration::from_secs(1);
            let rates = samples.rates(7, &reads(counted(second + 1)), later);
            let window = (second + 1).min(SAMPLES_KEPT as u64);
            assert_eq!(rates.seconds, window as f64);
            let expected = match second {
                0..30 => Some(100.0),
                40.. => Some(10.0),
                _ => None,
            };
            assert!(expected.is_none_or(|e| rates.reads == e), "{rates:?}");
        }
        // A member that is new has counted nothing before.
        let at = start + Duration::from_secs(60);
        assert!(samples.rates(8, &reads(10), at).reads > 0.0);
    }
}
