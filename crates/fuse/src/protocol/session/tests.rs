//! Threads that read in turn, over a socket that stands for the kernel's device.
use super::super::fuzz::{GivesUp, head};
use super::*;
use forebay_testkit::random::Random;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const THREADS: usize = 3;

/// The kernel's end of a device.
struct KernelEnd(OwnedFd);

impl KernelEnd {
    /// Asks for the thread `caller`.
    fn ask(&self, opcode: u32, unique: u64, caller: u32) {
        let mut bytes = head(40, opcode, unique, &mut Random::new(unique));
        bytes[32..36].copy_from_slice(&caller.to_ne_bytes());
        rustix::net::send(&self.0, &bytes, SendFlags::empty()).unwrap();
    }

    /// The number of the next request that is answered.
    fn answered(&self) -> u64 {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = LONG.try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1));
        let mut answer = [0; 64];
        let (_, len) = rustix::net::recv(&self.0, &mut answer[..], RecvFlags::empty()).unwrap();
        assert_eq!(len, 16);
        u64::from_ne_bytes(answer[8..16].try_into().unwrap())
    }
}

/// Has threads read by this rule while `test` asks.
fn answering(rule: ReadingRule, handler: GivesUp, test: impl FnOnce(&KernelEnd)) {
    let (kernel, device) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let (handler, device) = (Arc::new(handler), Arc::new(device));
    let readers = RequestReaders::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let thread = AnsweringThread {
                handler: handler.clone(),
                device: device.clone(),
                buffer: MIN_READ_BUFFER,
                owner: None,
            };
            let readers = &readers;
            // Ends with an error once there is no kernel.
            scope.spawn(move || match rule {
                ReadingRule::All => thread.answer_all(),
                ReadingRule::OneIfEnough => thread.answer_unless_parked(readers),
            });
        }
        let kernel = KernelEnd(kernel);
        test(&kernel);
    });
}

const RULES: [ReadingRule; 2] = [ReadingRule::All, ReadingRule::OneIfEnough];

#[test]
fn a_request_that_takes_long_holds_no_other_up() {
    for rule in RULES {
        let (release, word) = channel();
        answering(rule, GivesUp::statfs_after(word), |kernel| {
            // After a while one thread reads, unless all do.
            for unique in 1..100 {
                kernel.ask(opcode::WRITE, unique, 7);
                assert_eq!(kernel.answered(), unique);
            }
            kernel.ask(opcode::STATFS, 100, 7);
            for unique in 101..110 {
                kernel.ask(opcode::WRITE, unique, 7);
            }
            let answered: BTreeSet<u64> = (101..110).map(|_| kernel.answered()).collect();
            assert_eq!(answered, (101..110).collect());
            release.send(()).unwrap();
            assert_eq!(kernel.answered(), 100);
        });
    }
}

#[test]
fn every_request_is_answered_however_quickly_they_come() {
    for rule in RULES {
        answering(rule, GivesUp::default(), ask_in_bursts);
    }
}

fn ask_in_bursts(kernel: &KernelEnd) {
    let (mut random, mut unique) = (Random::new(21), 0);
    for round in 0..400 {
        let burst = 1 + random.below(12);
        let asked: BTreeSet<u64> = (unique + 1..=unique + burst).collect();
        unique += burst;
        for unique in &asked {
            // For some rounds nothing but writes comes, and for some from one thread.
            let opcode = match random.below(5) {
                _ if round / 40 % 2 == 0 => opcode::WRITE,
                0 => opcode::FSYNC,
                _ => opcode::GETATTR,
            };
            let caller = match round / 30 % 2 {
                0 => 7,
                _ => random.below(3) as u32,
            };
            kernel.ask(opcode, *unique, caller);
        }
        let answered: BTreeSet<u64> = asked.iter().map(|_| kernel.answered()).collect();
        assert_eq!(answered, asked);
        let pause = match round % 100 {
            // So long that nobody watches any more.
            99 => Duration::from_millis(200),
            _ => Duration::from_micros([0, 0, 40, 300][random.below(4) as usize]),
        };
        std::thread::sleep(pause);
    }
}
