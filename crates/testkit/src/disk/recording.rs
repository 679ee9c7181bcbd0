//! The recording of a disk's writes, and the disk that a power cut leaves.
use super::server::{FLUSH, POSITION, WRITE};
use crate::random::Random;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: usize = 512;

/// What happens to writes that no completed flush covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All are lost.
    All,
    /// All are kept: the disk lost its power between two writes.
    None,
    /// Of each write, by the seed, nothing, all, or some sectors are kept.
    Some(u64),
}

enum Event {
    Write { offset: u64, data: Vec<u8> },
    Flush,
}

/// Everything that happened to a disk, in order.
pub struct Recording {
    bytes: u64,
    events: Vec<Event>,
}

/// How many events the disk served in `at` has seen. What is acknowledged to a program before has its writes and flushes
/// among them.
///
/// # Errors
/// If nothing is served there.
pub fn position(at: &Path) -> io::Result<usize> {
    let text = std::fs::read_to_string(at.join(POSITION))?;
    text.trim()
        .parse()
        .map_err(|_| ErrorKind::InvalidData.into())
}

impl Recording {
    /// Reads the spool of a disk of `bytes`. The disk may go on: what it is in the middle of writing is left out.
    ///
    /// # Errors
    /// As the file; `InvalidData` if it is no spool.
    pub fn read(spool: &Path, bytes: u64) -> io::Result<Recording> {
        let mut input = BufReader::new(File::open(spool)?);
        let mut events = Vec::new();
        loop {
            match event(&mut input) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return Ok(Recording { bytes, events }),
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(Recording { bytes, events });
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Writes to the file `image` what the disk holds if its power is cut after the first `at` events.
    ///
    /// # Errors
    /// As the file.
    pub fn cut(&self, at: usize, loss: Loss, image: &Path) -> io::Result<()> {
        let file = File::create(image)?;
        file.set_len(self.bytes)?;
        let seen = &self.events[..at.min(self.events.len())];
        let flushed = seen
            .iter()
            .rposition(|e| matches!(e, Event::Flush))
            .unwrap_or(0);
        let mut random = match loss {
            Loss::Some(seed) => Random::new(seed),
            Loss::All | Loss::None => Random::new(0),
        };
        for (i, event) in seen.iter().enumerate() {
            let Event::Write { offset, data } = event else {
                continue;
            };
            let kept = match loss {
                _ if i < flushed => Kept::All,
                Loss::None => Kept::All,
                Loss::All => Kept::Nothing,
                Loss::Some(_) => match random.below(3) {
                    0 => Kept::Nothing,
                    1 => Kept::All,
                    _ => Kept::Sectors,
                },
            };
            match kept {
                Kept::Nothing => {}
                Kept::All => file.write_all_at(data, *offset)?,
                Kept::Sectors => {
                    for (n, sector) in data.chunks(SECTOR).enumerate() {
                        if random.chance(50) {
                            file.write_all_at(sector, offset + (n * SECTOR) as u64)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

enum Kept {
    Nothing,
    All,
    Sectors,
}

/// The next event; `None` at the end.
fn event(input: &mut impl Read) -> io::Result<Option<Event>> {
    let mut kind = [0];
    if input.read(&mut kind)? == 0 {
        return Ok(None);
    }
    match kind[0] {
        FLUSH => Ok(Some(Event::Flush)),
        WRITE => {
            let (mut offset, mut len) = ([0; 8], [0; 4]);
            input.read_exact(&mut offset)?;
            input.read_exact(&mut len)?;
            let mut data = vec![0; u32::from_le_bytes(len) as usize];
            input.read_exact(&mut data)?;
            let offset = u64::from_le_bytes(offset);
            Ok(Some(Event::Write { offset, data }))
        }
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn write(offset: u64, byte: u8, len: usize) -> Event {
        Event::Write {
            offset,
            data: vec![byte; len],
        }
    }

    fn cut(recording: &Recording, at: usize, loss: Loss) -> Vec<u8> {
        let path = std::env::temp_dir().join(format!("forebay-recording-{}", std::process::id()));
        recording.cut(at, loss, &path).unwrap();
        let image = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        image
    }

    #[test]
    fn what_a_flush_covers_stays_and_later_sectors_are_old_or_new() {
        let recording = Recording {
            bytes: 8192,
            events: vec![
                write(0, 1, 4096),
                Event::Flush,
                write(0, 2, 4096),
                write(4096, 3, 512),
            ],
        };
        assert!(cut(&recording, 1, Loss::All).iter().all(|b| *b == 0));
        let kept = cut(&recording, 4, Loss::All);
        assert!(kept[..4096].iter().all(|b| *b == 1) && kept[4096..].iter().all(|b| *b == 0));
        let all = cut(&recording, 4, Loss::None);
        assert!(all[..4096].iter().all(|b| *b == 2) && all[4096..4608].iter().all(|b| *b == 3));
        let (mut torn, mut seeds) = (0, 0);
        for seed in 0..64 {
            let image = cut(&recording, 4, Loss::Some(seed));
            let sectors: Vec<u8> = image[..4096].chunks(512).map(|s| s[0]).collect();
            for sector in image.chunks(512) {
                assert!(
                    sector.iter().all(|b| *b == sector[0]),
                    "seed {seed}: a torn sector"
                );
            }
            assert!(sectors.iter().all(|b| [1, 2].contains(b)));
            torn += usize::from(sectors.contains(&1) && sectors.contains(&2));
            seeds += usize::from(image[4096] == 3);
        }
        assert!(torn > 5 && seeds > 5 && seeds < 60, "{torn} {seeds}");
    }
}
