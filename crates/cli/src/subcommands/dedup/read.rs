//! Reads a file in blocks, one block ahead of the work on it; and runs work on several threads.
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

/// Bytes that are read at once. Three blocks are in memory.
const BLOCK: u64 = 4 << 20;

/// Calls `work` with the blocks of a file.
///
/// # Errors
/// As the file; what was read before was worked on.
pub fn read_blocks(path: &Path, mut work: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut next = move || {
        let mut block = Vec::new();
        let read = file.by_ref().take(BLOCK).read_to_end(&mut block);
        read.map(|_| block)
    };
    let first = next()?;
    if (first.len() as u64) < BLOCK {
        // Most files end here.
        work(&first);
        return Ok(());
    }
    thread::scope(|scope| {
        let (blocks, ready) = mpsc::sync_channel(1);
        scope.spawn(move || {
            loop {
                let block = next();
                let last = block.as_ref().map_or(true, Vec::is_empty);
                if blocks.send(block).is_err() || last {
                    return;
                }
            }
        });
        work(&first);
        for block in ready {
            work(&block?);
        }
        Ok(())
    })
}

/// Calls `work` with each of these, in as many threads as there are processors.
pub fn in_parallel<T: Send>(all: &mut [T], work: impl Fn(&mut T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = all.len().div_ceil(threads).max(1);
    let mut shares = all.chunks_mut(share);
    let own = shares.next();
    thread::scope(|scope| {
        for share in shares {
            scope.spawn(|| share.iter_mut().for_each(&work));
        }
        own.into_iter().flatten().for_each(&work);
    });
}
