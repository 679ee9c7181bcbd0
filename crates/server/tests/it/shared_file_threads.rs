//! One shared file, written by several threads of several nodes at once, with commits, opens, holes and truncates above
//! it all the time: each thread always reads what it wrote last, and at the end everybody reads everything.
use crate::common::*;
use forebay_server::SetAttr;
use forebay_server::delegate::Fallocate;
use forebay_testkit::random::Random;

const NODES: u16 = 3;
const THREADS: u64 = 6;
const BLOCK: u64 = 1000;
const BLOCKS: u64 = 20;
const ROUNDS: u64 = 300;
/// Behind every block: what truncates play with.
const BEHIND: u64 = SLICE + (1 << 20);

/// Blocks of all threads interleave; some lie across the end of the first slice.
fn place(thread: u64, block: u64) -> u64 {
    let index = block * THREADS + thread;
    let base = if block.is_multiple_of(2) {
        0
    } else {
        SLICE - THREADS * BLOCK * BLOCKS / 2
    };
    base + index * BLOCK
}

#[test]
fn every_thread_reads_its_last_write() {
    let dir = scratch();
    let service = start(&dir, config(NODES));
    let (fid, first) = create(&service.delegate(0), "shared");
    let worker = |thread: u64| {
        let delegate = service.delegate((thread % u64::from(NODES)) as u16);
        move || {
            let mut random = Random::new(thread);
            let mut handle = delegate.open(fid, BOTH).unwrap().handle;
            let mut last = vec![0; BLOCKS as usize];
            for _ in 0..ROUNDS {
                let block = random.below(BLOCKS);
                let at = place(thread, block);
                match random.below(10) {
                    0..5 => {
                        let byte = random.nonzero_bytes(1)[0];
                        let data = [byte; BLOCK as usize];
                        delegate.write(handle, at, &data, ROOT).unwrap();
                        last[block as usize] = byte;
                    }
                    5 => delegate.flush(handle).unwrap(),
                    6 => {
                        delegate.release(handle).unwrap();
                        handle = delegate.open(fid, BOTH).unwrap().handle;
                    }
                    7 => {
                        let punch = Fallocate {
                            punch: true,
                            zero: false,
                            keep_size: true,
                        };
                        delegate.fallocate(handle, punch, at, BLOCK).unwrap();
                        last[block as usize] = 0;
                    }
                    _ => {}
                }
                let block = random.below(BLOCKS) as usize;
                let bytes = delegate
                    .read(handle, place(thread, block as u64), BLOCK as u32)
                    .unwrap();
                let expected = last[block];
                assert!(
                    bytes.iter().all(|b| *b == expected),
                    "{} instead of {expected}",
                    bytes[0]
                );
            }
            delegate.release(handle).unwrap();
            last
        }
    };
    let cutter = service.delegate(1);
    let cut = |size| {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        cutter.names.setattr(fid, &set, None, ROOT).unwrap();
    };
    // The file reaches behind all blocks from the start, so that every read is whole.
    cut(BEHIND);
    let all: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(worker(t))).collect();
        for i in 0..100 {
            cut(BEHIND + (i % 7) * 10_000);
        }
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    service.delegate(0).release(first).unwrap();
    for node in 0..NODES {
        let delegate = service.delegate(node);
        let handle = delegate.open(fid, READ).unwrap().handle;
        for (thread, last) in all.iter().enumerate() {
            for (block, byte) in last.iter().enumerate() {
                let at = place(thread as u64, block as u64);
                let bytes = delegate.read(handle, at, BLOCK as u32).unwrap();
                assert_eq!(bytes[..], [*byte; BLOCK as usize], "node {node}");
            }
        }
        delegate.release(handle).unwrap();
    }
    wait_until_idle(&service);
    service.stop().unwrap();
}
