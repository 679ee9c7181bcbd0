//! What reading and writing cost: the paper's model of reference points, and one of codecs.
//!
//! The paper (section 2): a file of `S` bytes and `N` entries with `R` reference points takes `R S / (N Bw)` longer to write, and
//! the last entry comes `(S - S/R) / Br` sooner. The difference `F(R)` is largest at `sqrt(N Bw / Br)`, or the better of the
//! whole numbers beside it.
//!
//! It leaves out how much shorter the file became, and how long encoding and decoding take. [`StoreSeconds`] counts these.
use std::ops::Add;

/// Measured bandwidths of the store, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidths {
    /// Of reading.
    pub read: f64,
    /// Of writing.
    pub write: f64,
}

impl Bandwidths {
    /// The same both ways.
    pub fn both(bytes_per_second: f64) -> Bandwidths {
        Bandwidths {
            read: bytes_per_second,
            write: bytes_per_second,
        }
    }

    /// Seconds that the paper's model saves with so many reference points: `F(R)`.
    pub fn saved_by_points(&self, points: u64, entries: u64, bytes: u64) -> f64 {
        let (r, n, s) = (points as f64, entries as f64, bytes as f64);
        (s - s / r) / self.read - r * s / (n * self.write)
    }

    /// The number of reference points that saves most; at least 1, at most one an entry.
    pub fn best_points(&self, entries: u64, bytes: u64) -> u64 {
        let entries = entries.max(1);
        let best = (entries as f64 * self.write / self.read).sqrt();
        // A bandwidth that is not known, or none, says nothing of the distance of points.
        let best = if best.is_finite() { best } else { 1.0 };
        let floor = (best.floor() as u64).clamp(1, entries);
        let ceiling = (best.ceil() as u64).clamp(1, entries);
        let saved = |points| self.saved_by_points(points, entries, bytes);
        if saved(floor) > saved(ceiling) {
            floor
        } else {
            ceiling
        }
    }
}

/// How fast a codec is on one core, in raw bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecSpeed {
    /// Encoding.
    pub encode: f64,
    /// Decoding.
    pub decode: f64,
}

/// Seconds of writing and of reading again. Encoding runs beside the disk, so the slower of the two counts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StoreSeconds {
    /// Encoding and writing.
    pub write: f64,
    /// Reading and decoding.
    pub read: f64,
}

impl StoreSeconds {
    /// Of so many raw bytes, which become so many encoded ones. `speed` is `None` for raw bytes.
    pub fn of(
        raw: f64,
        encoded: f64,
        speed: Option<CodecSpeed>,
        store: &Bandwidths,
    ) -> StoreSeconds {
        let codec = |rate: fn(CodecSpeed) -> f64| speed.map_or(0.0, |speed| raw / rate(speed));
        StoreSeconds {
            write: (encoded / store.write).max(codec(|speed| speed.encode)),
            read: (encoded / store.read).max(codec(|speed| speed.decode)),
        }
    }

    /// Both.
    pub fn total(&self) -> f64 {
        self.write + self.read
    }
}

impl Add for StoreSeconds {
    type Output = StoreSeconds;

    fn add(self, other: StoreSeconds) -> StoreSeconds {
        StoreSeconds {
            write: self.write + other.write,
            read: self.read + other.read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_number_of_points_is_the_papers_square_root() {
        assert_eq!(Bandwidths::both(1e9).best_points(1 << 18, 1 << 20), 512);
        let slow_reads = Bandwidths {
            read: 1e8,
            write: 4e8,
        };
        assert_eq!(slow_reads.best_points(1 << 18, 1 << 20), 1024);
    }

    #[test]
    fn no_other_number_of_points_saves_more() {
        for entries in [1u64, 2, 3, 10, 1000, 12345] {
            for (read, write) in [(1.0, 1.0), (3.0, 1.0), (1.0, 7.0)] {
                let store = Bandwidths { read, write };
                let best = store.best_points(entries, 4 * entries);
                let saved = |points| store.saved_by_points(points, entries, 4 * entries);
                for other in 1..=entries.min(400) {
                    assert!(
                        saved(best) >= saved(other) - 1e-9,
                        "{best} of {entries}, not {other}"
                    );
                }
            }
        }
    }

    #[test]
    fn bandwidths_that_say_nothing_give_one_point() {
        for store in [
            Bandwidths::both(0.0),
            Bandwidths {
                read: 0.0,
                write: 1.0,
            },
        ] {
            assert_eq!(store.best_points(1000, 4000), 1);
        }
    }
}
